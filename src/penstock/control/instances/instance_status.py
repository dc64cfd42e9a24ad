"""What instances say of themselves: a status call each now and then, and who does not answer."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from penstock.control.instances.entries import CopyEntry, InstanceEntry
from penstock.control.instances.instance_client import Json
from penstock.control.instances.ledger import EndpointLedger
from penstock.control.instances.operation_settings import OperationSettings
from penstock.control.instances.under_way import OperationsUnderWay
from penstock.core.deployment.endpoint_state import (
    DRAINING,
    GONE,
    LOADING,
    LOST,
    READY,
    RUNNING,
)
from penstock.errors import PenstockError

#: Phases of a copy in which its instance tells what it takes.
_MEASURED: Final = (LOADING, READY, LOST, DRAINING)

#: For figures that somebody waits for: instances answer at once, or something is wrong with them.
_MEASURE_S_MAX: Final = 1.0

#: After this many unanswered status calls in a row, each behind the one before, an instance counts
#: as gone: 15 to 20 s. Requests go elsewhere long before (`core/routing/outliers.py`), one that was
#: stopped is ended sooner (`core/machine/stopped.py`), and a busy machine must not look like a
#: hang.
_SILENT_COUNT_MAX: Final = 3
#: A guest may get no core for minutes, while others want all of them, and nobody waits for it.
_SILENT_COUNT_MAX_GUEST: Final = 120


class InstanceStatus:
    """Of all instances of this server."""

    def __init__(self, settings: OperationSettings, under_way: OperationsUnderWay) -> None:
        self.settings = settings
        self._under_way = under_way
        self._asking: set[str] = set()

    def ask(self) -> None:
        """One call to each instance with a copy; what they measure goes to the ledger."""
        for ledger, entry in self._measured():
            if entry.instance_id not in self._asking:
                self._asking.add(entry.instance_id)
                self._under_way.aside(self._ask(ledger, entry))

    async def measure(self) -> None:
        """What all instances take, by their own fresh answers; who does not answer at once keeps
        the figure it had."""
        asked = [self._take(ledger, entry, _MEASURE_S_MAX) for ledger, entry in self._measured()]
        await asyncio.gather(*asked, return_exceptions=True)

    def _measured(self) -> list[tuple[EndpointLedger, InstanceEntry]]:
        return [
            (ledger, entry)
            for ledger, entry in self._under_way.instances()
            if entry.phase == RUNNING
            and any(copy.phase in _MEASURED for copy in ledger.copies_on(entry.instance_id))
        ]

    async def _ask(self, ledger: EndpointLedger, entry: InstanceEntry) -> None:
        try:
            while await self._is_silent(ledger, entry):
                pass  # asked again at once: what hangs is known the sooner
        finally:
            self._asking.discard(entry.instance_id)

    async def _is_silent(self, ledger: EndpointLedger, entry: InstanceEntry) -> bool:
        """Whether it serves and has not answered in time; after some times it counts as gone."""
        try:
            await self._take(ledger, entry, self.settings.status_s_max)
        except PenstockError as error:
            serves = entry.phase == RUNNING and any(
                copy.phase == READY for copy in ledger.copies_on(entry.instance_id)
            )
            entry.silent_count += serves
            count_max = _SILENT_COUNT_MAX_GUEST if entry.guest else _SILENT_COUNT_MAX
            if entry.silent_count >= count_max and serves:
                self._under_way.record(ledger, "instance silent", error.code, entry.instance_id)
                entry.hangs = True
                self._under_way.enter(entry, GONE)
                self._under_way.changed(ledger.desired.endpoint)
                return False
            return serves and error.code == "instance-silent"
        entry.silent_count = 0
        return False

    async def _take(self, ledger: EndpointLedger, entry: InstanceEntry, timeout_s: float) -> None:
        before = _loaded(ledger.copies_on(entry.instance_id))
        status = await self._under_way.client(entry.instance_id).status(timeout_s=timeout_s)
        # Else it tells of the height of a load that is over.
        if before == _loaded(ledger.copies_on(entry.instance_id)):
            entry.memory_bytes = memory_bytes(status)
            entry.note_memory(status)
        for told in status.get("copies", ()):
            copy = ledger.copies.get(int(told.get("copy", 0)))
            if copy is not None and copy.component.model.multi_model:
                copy.note_models(told)


def memory_bytes(status: Json) -> int:
    """What an instance and all its workers take, out of its answer to `status`."""
    workers = [one for copy in status.get("copies", ()) for one in copy.get("workers", ())]
    return int(status.get("rss_bytes", 0)) + sum(int(one.get("rss_bytes", 0)) for one in workers)


def cpu_seconds(status: dict[str, Any]) -> float:
    """Processor time of an instance and its workers so far."""
    workers = [one for copy in status.get("copies", ()) for one in copy.get("workers", ())]
    return float(status.get("cpu_s", 0.0)) + sum(float(one.get("cpu_s", 0.0)) for one in workers)


def cpu_percent(before: tuple[float, float] | None, now: tuple[float, float]) -> float | None:
    """100 for each core kept busy; None at the first sample, and when a worker was replaced."""
    if before is None or now[0] <= before[0] or now[1] < before[1]:
        return None
    return 100.0 * (now[1] - before[1]) / (now[0] - before[0])


def _loaded(copies: list[CopyEntry]) -> list[int]:
    return [copy.copy for copy in copies if copy.ready_since is not None]
