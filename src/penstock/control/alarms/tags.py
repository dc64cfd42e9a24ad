"""Tags of alarms. Names of alarms have case and may be long: tags are kept by the ARN's digest."""

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
    """Those of these names, or all."""
    columns = schema.tags.c
    gone = delete(schema.tags).where(columns.arn_key == _key(arn))
    db.execute(gone if names is None else gone.where(columns.name.in_(list(names))))


def _key(arn: str) -> str:
    return f"alarm:{hashlib.sha256(arn.encode()).hexdigest()}"
