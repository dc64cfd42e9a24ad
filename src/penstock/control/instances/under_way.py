"""The state that operations on instances and copies share: owner and connection of each instance,
the tasks under way, and how results are recorded. It starts nothing by itself.

Each operation is one asyncio task, on an instance or on a copy. Both have at most one at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from penstock.clock import Clock
from penstock.control.instances.entries import CopyEntry, InstanceEntry
from penstock.control.instances.instance_client import InstanceClient
from penstock.control.instances.ledger import EndpointLedger
from penstock.core.deployment.endpoint_state import STOPPING
from penstock.errors import InternalError, NotNowError, PenstockError

_log = logging.getLogger(__name__)

#: The target of an operation: an instance id, and a copy on it or None.
_On = tuple[str, int | None]

#: (ledger, instance, error): called when an operation has failed.
Failed = Callable[[EndpointLedger, InstanceEntry, PenstockError], None]


class OperationsUnderWay:
    """The state of one server's operations."""

    def __init__(
        self,
        *,
        clock: Clock,
        changed: Callable[[str], None],
        room_changed: Callable[[], None],
    ) -> None:
        """`changed` is called with an endpoint whose ledger has changed; `room_changed` when an
        instance has ended, and when a load has."""
        self.clock = clock
        self.changed = changed
        self.room_changed = room_changed
        self.clients: dict[str, InstanceClient] = {}
        self._ledgers: dict[str, EndpointLedger] = {}
        self._tasks: dict[_On, asyncio.Task[None]] = {}
        self._asides: set[asyncio.Task[None]] = set()

    def add(self, ledger: EndpointLedger, entry: InstanceEntry) -> None:
        ledger.instances[entry.instance_id] = entry
        self._ledgers[entry.instance_id] = ledger

    def remove(self, ledger: EndpointLedger, entry: InstanceEntry) -> None:
        """Forgets an instance that has ended, and the copies on it."""
        ledger.remove_instance(entry.instance_id)
        self._ledgers.pop(entry.instance_id, None)
        client = self.clients.pop(entry.instance_id, None)
        if client is not None:
            client.close()
        self.changed(ledger.desired.endpoint)
        self.room_changed()

    def find(self, instance_id: str) -> tuple[EndpointLedger, InstanceEntry] | None:
        ledger = self._ledgers.get(instance_id)
        entry = ledger.instances.get(instance_id) if ledger is not None else None
        return (ledger, entry) if ledger is not None and entry is not None else None

    def instances(self) -> list[tuple[EndpointLedger, InstanceEntry]]:
        """All instances, in the order in which they were started."""
        found = [self.find(instance_id) for instance_id in self._ledgers]
        return [one for one in found if one is not None]

    def client(self, instance_id: str) -> InstanceClient:
        """Raises `NotNowError` (`instance-gone`)."""
        client = self.clients.get(instance_id)
        if client is None:
            raise NotNowError("instance-gone", f"{instance_id} has closed its connection")
        return client

    def enter(self, one: InstanceEntry | CopyEntry, phase: str, *, queued: bool = False) -> None:
        """Begins a new phase. Its time limit does not run while it is queued."""
        one.phase = phase
        one.since = None if queued else self.clock.monotonic()

    def record(self, ledger: EndpointLedger, what: str, reason: str, detail: str) -> None:
        ledger.record(self.clock.wall(), what, reason, detail)

    def begin(self, on: _On, work: Coroutine[Any, Any, None], failed: Failed) -> None:
        """Starts an operation. `failed` is called if it fails, unless its instance is stopped."""
        task = asyncio.create_task(work)
        self._tasks[on] = task
        task.add_done_callback(lambda done: self._done(on, done, failed))

    def take_task(self, on: _On) -> asyncio.Task[None] | None:
        """Removes and returns the task on a copy or an instance; the caller handles its result."""
        return self._tasks.pop(on, None)

    def take_tasks(self, instance_id: str) -> list[asyncio.Task[None]]:
        """Removes and returns all tasks on an instance and its copies."""
        return [self._tasks.pop(on) for on in list(self._tasks) if on[0] == instance_id]

    def aside(self, work: Coroutine[Any, Any, None]) -> None:
        """Starts work that nobody waits for. `cancel` ends it."""
        task = asyncio.create_task(work)
        self._asides.add(task)
        task.add_done_callback(self._aside_done)

    async def cancel(self) -> None:
        """Cancels all operations and all other work."""
        tasks = [*self._tasks.values(), *self._asides]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def wait_asides(self) -> None:
        await asyncio.gather(*self._asides, return_exceptions=True)

    def _aside_done(self, task: asyncio.Task[None]) -> None:
        self._asides.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("work on an instance failed", exc_info=task.exception())

    def _done(self, on: _On, task: asyncio.Task[None], failed: Failed) -> None:
        taken = self._tasks.get(on) is not task
        if not taken:
            del self._tasks[on]
        found = self.find(on[0])
        if task.cancelled() or found is None:
            return
        ledger, entry = found
        error = task.exception()
        if error is not None and not taken and entry.phase != STOPPING:
            failed(ledger, entry, _as_ours(entry, error))
        self.changed(ledger.desired.endpoint)
        self.room_changed()  # the load is over, and its memory is known


def _as_ours(entry: InstanceEntry, error: BaseException) -> PenstockError:
    if isinstance(error, PenstockError):
        return error
    _log.error("work on %s failed", entry.instance_id, exc_info=error)
    return InternalError("internal", f"work on {entry.instance_id} failed: {error!r}")
