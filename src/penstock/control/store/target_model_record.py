"""What outlives the hosts of target models: pins, and which models crashed their instances.

Hosts come and go with their instances; each new host gets what earlier ones reported. Pins and
crashes are in the database. `core/blame/crashed_instances.py` decides which models are to blame.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, delete, insert, select, update

from penstock.clock import Clock
from penstock.control.database import schema
from penstock.control.store.store import reads, writes
from penstock.control.store.store_thread import StoreThread
from penstock.core.blame.crashed_instances import (
    IN_EVERY_CRASH,
    BlamedModel,
    Crash,
    blamed_models,
)
from penstock.wire.work_note import NotedModel, at_work

_LOG = logging.getLogger(__name__)

#: Size limit of a note, in bytes: room for thousands of models that load at the same time.
_NOTE_BYTES_MAX: Final = 64 * 2**20


#: Crashes kept per endpoint; older ones are deleted. An instance that keeps crashing is restarted
#: less and less often, some twenty times in the first hour.
CRASHES_MAX: Final = 100

_PINS: Final = schema.target_model_pins
_CRASHES: Final = schema.target_model_crashes


@dataclass(frozen=True, slots=True)
class CrashRecord:
    at: float  #: seconds since the epoch
    models: tuple[tuple[str, str], ...]  #: (name, digest of its artifact) of those at work


@writes
def set_pin(db: Connection, endpoint: str, model: str, pinned: bool) -> None:
    """Setting the same value twice changes nothing."""
    key = endpoint.lower()
    db.execute(delete(_PINS).where(_PINS.c.endpoint_key == key, _PINS.c.model == model))
    if pinned:
        db.execute(insert(_PINS).values(endpoint_key=key, model=model))


@reads
def pins(db: Connection, endpoint: str) -> list[str]:
    """The pinned models of an endpoint, in the order of their names."""
    found = db.execute(select(_PINS.c.model).where(_PINS.c.endpoint_key == endpoint.lower()))
    return sorted(model for (model,) in found)


@writes
def add_crash(
    db: Connection, endpoint: str, at: float, models: Collection[tuple[str, str]]
) -> None:
    key = endpoint.lower()
    db.execute(insert(_CRASHES).values(endpoint_key=key, at=at, models=json.dumps(list(models))))
    numbers = select(_CRASHES.c.number).where(_CRASHES.c.endpoint_key == key)
    old = [n for (n,) in db.execute(numbers.order_by(_CRASHES.c.number.desc()))][CRASHES_MAX:]
    if old:
        db.execute(delete(_CRASHES).where(_CRASHES.c.number.in_(old)))


@reads
def crashes(db: Connection, endpoint: str) -> list[CrashRecord]:
    """Oldest first."""
    return [record for _, record in _numbered(db, endpoint)]


@writes
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


class TargetModelRecord:
    """The record for all endpoints of one server."""

    def __init__(self, database: StoreThread, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        #: Whoever writes pins or sends them to a host holds this lock until the hosts have them.
        #: Otherwise a host could get an older state last.
        self.telling = asyncio.Lock()

    async def pin(self, endpoint: str, model: str, pinned: bool) -> None:
        await self._database.call(set_pin, endpoint, model, pinned)

    async def pins(self, endpoint: str) -> list[str]:
        return await self._database.call(pins, endpoint)

    async def crashed(self, endpoint: str, models: Iterable[NotedModel]) -> None:
        """Records a crash of an instance while these models were at work."""
        noted = [(one.name, one.digest) for one in models]
        await self._database.call(add_crash, endpoint, self._clock.wall(), noted)

    async def clear(self, endpoint: str, model: str) -> None:
        """Clears a model that somebody asked for by name: it gets another chance."""
        await self._database.call(clear_model, endpoint, model)

    async def quarantined(self, endpoint: str) -> list[dict[str, Any]]:
        """The list for a host: model, digest of its artifact, for how long, and why."""
        records = await self._database.call(crashes, endpoint)
        now = self._clock.wall()
        found = [Crash(one.at, frozenset(name for name, _ in one.models)) for one in records]
        digests = {name: digest for one in records for name, digest in one.models}
        return [
            {
                "model": one.model,
                "digest": digests[one.model],
                "seconds": one.until - now,
                "message": _story(one),
            }
            for one in blamed_models(found, now=now)
        ]


def take_notes(work_dir: Path, instance_id: str) -> list[NotedModel]:
    """The models at work on all hosts of an instance that has ended; deletes its notes."""
    found: list[NotedModel] = []
    # No glob pattern: the library compiles each new one and caches it for long.
    notes = work_dir.iterdir() if work_dir.is_dir() else ()
    for path in sorted(one for one in notes if one.name.startswith(f"{instance_id}.")):
        try:
            with path.open("rb") as file:
                found += at_work(file.read(_NOTE_BYTES_MAX))
            path.unlink()
        except OSError as error:
            _LOG.warning("%s: %s", path, error)
    return found


def _story(blamed: BlamedModel) -> str:
    times = f"{blamed.crashes} times"
    if blamed.reason == IN_EVERY_CRASH:
        return f"its instance crashed {times}, and it was loading or computing every time"
    return f"its instance crashed {times} while it alone was loading or computing"
