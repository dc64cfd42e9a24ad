"""What outlives the hosts of target models: pins, and which models crashed their instances.

Hosts come and go with their instances; each new host gets what earlier ones reported. Pins and
crashes are in the database. `core/blame/crashed_instances.py` decides which models are to blame.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from penstock.clock import Clock
from penstock.control.store.store import Store
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


class TargetModelRecord:
    """The record for all endpoints of one server."""

    def __init__(self, database: StoreThread, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        #: Whoever writes pins or sends them to a host holds this lock until the hosts have them.
        #: Otherwise a host could get an older state last.
        self.telling = asyncio.Lock()

    async def pin(self, endpoint: str, model: str, pinned: bool) -> None:
        await self._database.call(Store.set_target_model_pin, endpoint, model, pinned)

    async def pins(self, endpoint: str) -> list[str]:
        return await self._database.call(Store.target_model_pins, endpoint)

    async def crashed(self, endpoint: str, models: Iterable[NotedModel]) -> None:
        """Records a crash of an instance while these models were at work."""
        noted = [(one.name, one.digest) for one in models]
        await self._database.call(Store.add_target_model_crash, endpoint, self._clock.wall(), noted)

    async def clear(self, endpoint: str, model: str) -> None:
        """Clears a model that somebody asked for by name: it gets another chance."""
        await self._database.call(Store.clear_target_model, endpoint, model)

    async def quarantined(self, endpoint: str) -> list[dict[str, Any]]:
        """The list for a host: model, digest of its artifact, for how long, and why."""
        records = await self._database.call(Store.target_model_crashes, endpoint)
        now = self._clock.wall()
        crashes = [Crash(one.at, frozenset(name for name, _ in one.models)) for one in records]
        digests = {name: digest for one in records for name, digest in one.models}
        return [
            {
                "model": one.model,
                "digest": digests[one.model],
                "seconds": one.until - now,
                "message": _story(one),
            }
            for one in blamed_models(crashes, now=now)
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
