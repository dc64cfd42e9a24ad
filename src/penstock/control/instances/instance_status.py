"""Regular status calls to instances, and detection of instances that do not answer."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from penstock.control.instances.entries import CopyEntry, InstanceEntry
from penstock.control.instances.instance_client import Json
from penstock.control.instances.ledger import EndpointLedger
from penstock.control.instances.under_way import OperationSettings, OperationsUnderWay
from penstock.core.deployment.endpoint_state import (
    DRAINING,
    GONE,
    LOADING,
    LOST,
    READY,
    RUNNING,
)
from penstock.errors import PenstockError

#: Phases of a copy in which its instance reports memory.
_MEASURED: Final = (LOADING, READY, LOST, DRAINING)

#: Time limit of a status call that somebody waits for, in s: a healthy instance answers at once.
_MEASURE_S_MAX: Final = 1.0

#: After this many unanswered status calls in a row, each sent after the one before, an instance
#: counts as gone: after 15 to 20 s. Requests go elsewhere long before (`core/routing/outliers.py`),
#: and a stopped process is ended sooner (`core/machine/stopped.py`). A busy machine must not
#: look like a hang.
_SILENT_COUNT_MAX: Final = 3
#: One that yields may get no core for minutes while others use them all, and nobody waits for it.
_SILENT_COUNT_MAX_YIELDS: Final = 120


class InstanceStatus:
    """The status of all instances of this server."""

    def __init__(self, settings: OperationSettings, under_way: OperationsUnderWay) -> None:
        self.settings = settings
        self._under_way = under_way
        self._asking: set[str] = set()

    def ask(self) -> None:
        """Sends one call to each instance with a copy; the figures go to the ledger."""
        for ledger, entry in self._measured():
            if entry.instance_id not in self._asking:
                self._asking.add(entry.instance_id)
                self._under_way.aside(self._ask(ledger, entry))

    async def measure(self) -> None:
        """Asks all instances for fresh figures. One that does not answer at once keeps its old
        ones."""
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
                pass  # ask again at once, to detect a hang sooner
        finally:
            self._asking.discard(entry.instance_id)

    async def _is_silent(self, ledger: EndpointLedger, entry: InstanceEntry) -> bool:
        """Whether it serves and did not answer in time. After several times it counts as gone."""
        try:
            await self._take(ledger, entry, self.settings.status_s_max)
        except PenstockError as error:
            serves = entry.phase == RUNNING and any(
                copy.phase == READY for copy in ledger.copies_on(entry.instance_id)
            )
            entry.silent_count += serves
            count_max = _SILENT_COUNT_MAX_YIELDS if entry.yields else _SILENT_COUNT_MAX
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
        # Otherwise the peak would be that of a load that is over.
        if before == _loaded(ledger.copies_on(entry.instance_id)):
            entry.memory_bytes = memory_bytes(status)
            entry.note_memory(status)
        for told in status.get("copies", ()):
            copy = ledger.copies.get(int(told.get("copy", 0)))
            if copy is not None and copy.component.model.multi_model:
                copy.note_models(told)


def memory_bytes(status: Json) -> int:
    """Memory of an instance and all its workers, from its answer to `status`."""
    workers = [one for copy in status.get("copies", ()) for one in copy.get("workers", ())]
    return int(status.get("rss_bytes", 0)) + sum(int(one.get("rss_bytes", 0)) for one in workers)


def cpu_seconds(status: dict[str, Any]) -> float:
    """Processor time used so far by an instance and its workers, in s."""
    workers = [one for copy in status.get("copies", ()) for one in copy.get("workers", ())]
    return float(status.get("cpu_s", 0.0)) + sum(float(one.get("cpu_s", 0.0)) for one in workers)


def cpu_percent(before: tuple[float, float] | None, now: tuple[float, float]) -> float | None:
    """100 for each busy core; None for the first sample, and after a worker was replaced."""
    if before is None or now[0] <= before[0] or now[1] < before[1]:
        return None
    return 100.0 * (now[1] - before[1]) / (now[0] - before[0])


def _loaded(copies: list[CopyEntry]) -> list[int]:
    return [copy.copy for copy in copies if copy.ready_since is not None]
