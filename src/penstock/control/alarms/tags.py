"""Tags of alarms. An alarm's name has case and may be long, so the key is a digest of its ARN."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping

from sqlalchemy import Connection, delete

from penstock.control.database import schema
from penstock.control.store import rows


def of(db: Connection, arn: str) -> dict[str, str]:
    """All tags, by name."""
    return rows.tags_of(db, _key(arn))


def add(db: Connection, arn: str, tags: Mapping[str, str]) -> None:
    """Adds or overwrites. Raises `TooManyTags`."""
    if tags:
        rows.add_tags(db, _key(arn), tags)


def remove(db: Connection, arn: str, names: Collection[str] | None = None) -> None:
    """Removes the tags with these names; None: all tags."""
    columns = schema.tags.c
    gone = delete(schema.tags).where(columns.arn_key == _key(arn))
    db.execute(gone if names is None else gone.where(columns.name.in_(list(names))))


def _key(arn: str) -> str:
    return f"alarm:{hashlib.sha256(arn.encode()).hexdigest()}"
