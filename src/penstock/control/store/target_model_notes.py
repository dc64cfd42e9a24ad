"""What the database stores of target models: pins, and the models at work at each crash.

Functions on an open transaction, for `store.py`. Nothing is decided here.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, delete, insert, select, update

from penstock.control.database import schema

#: Crashes kept per endpoint; older ones are deleted. An instance that keeps crashing is restarted
#: less and less often, some twenty times in the first hour.
CRASHES_MAX: Final = 100

_PINS: Final = schema.target_model_pins
_CRASHES: Final = schema.target_model_crashes


@dataclass(frozen=True, slots=True)
class CrashRecord:
    at: float  #: seconds since the epoch
    models: tuple[tuple[str, str], ...]  #: (name, digest of its artifact) of those at work


def set_pin(db: Connection, endpoint: str, model: str, pinned: bool) -> None:
    """Setting the same value twice changes nothing."""
    key = endpoint.lower()
    db.execute(delete(_PINS).where(_PINS.c.endpoint_key == key, _PINS.c.model == model))
    if pinned:
        db.execute(insert(_PINS).values(endpoint_key=key, model=model))


def pins(db: Connection, endpoint: str) -> list[str]:
    """The pinned models of an endpoint, in the order of their names."""
    found = db.execute(select(_PINS.c.model).where(_PINS.c.endpoint_key == endpoint.lower()))
    return sorted(model for (model,) in found)


def add_crash(
    db: Connection, endpoint: str, at: float, models: Collection[tuple[str, str]]
) -> None:
    key = endpoint.lower()
    db.execute(insert(_CRASHES).values(endpoint_key=key, at=at, models=json.dumps(list(models))))
    numbers = select(_CRASHES.c.number).where(_CRASHES.c.endpoint_key == key)
    old = [n for (n,) in db.execute(numbers.order_by(_CRASHES.c.number.desc()))][CRASHES_MAX:]
    if old:
        db.execute(delete(_CRASHES).where(_CRASHES.c.number.in_(old)))


def crashes(db: Connection, endpoint: str) -> list[CrashRecord]:
    """Oldest first."""
    return [record for _, record in _numbered(db, endpoint)]


def clear_model(db: Connection, endpoint: str, model: str) -> None:
    """Removes the model from all crashes so far: its artifact has changed, or somebody asked for
    it."""
    for number, record in _numbered(db, endpoint):
        others = [one for one in record.models if one[0] != model]
        here = _CRASHES.c.number == number
        if not others:
            db.execute(delete(_CRASHES).where(here))
        elif len(others) < len(record.models):
            db.execute(update(_CRASHES).where(here).values(models=json.dumps(others)))


def forget(db: Connection, endpoint_key: str) -> None:
    """Deletes all notes of a deleted endpoint."""
    for table in (_PINS, _CRASHES):
        db.execute(delete(table).where(table.c.endpoint_key == endpoint_key))


def _numbered(db: Connection, endpoint: str) -> Sequence[tuple[int, CrashRecord]]:
    found = db.execute(
        select(_CRASHES)
        .where(_CRASHES.c.endpoint_key == endpoint.lower())
        .order_by(_CRASHES.c.number)
    ).mappings()
    return [
        (row["number"], CrashRecord(row["at"], tuple((m, d) for m, d in json.loads(row["models"]))))
        for row in found
    ]
