"""The state that operations on instances and copies share: owner and connection of each instance,
the tasks under way, and how results are recorded. It starts nothing by itself.

Each operation is one asyncio task, on an instance or on a copy. Both have at most one at a time.

`OperationSettings` says what instances get, and how many start at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.artifacts.sources.source import ArtifactSource
from penstock.clock import Clock
from penstock.control.instances.entries import CopyEntry, InstanceEntry
from penstock.control.instances.instance_client import InstanceClient
from penstock.control.instances.ledger import EndpointLedger
from penstock.core.deployment.endpoint_state import STOPPING
from penstock.errors import InternalError, NotNowError, PenstockError
from penstock.fleet.base import PlatformAccess
from penstock.fleet.identity.dial import Tls, no_tls

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


def _offer_nothing(source: ArtifactSource) -> None:
    """Does nothing: instances on this machine read its files themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """What instances on other machines need from this one. The defaults: there are none."""

    tls: Tls = no_tls  #: for the control plane's end of the connections
    #: gives the address where they fetch this machine's files; called once, when the fleet is made
    server_files: Callable[[], str] = str
    offer: Callable[[ArtifactSource], None] = _offer_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationSettings:
    """Settings of one server."""

    log_dir: Path
    cache_dir: Path
    work_dir: Path  #: hosts write here which models are at work
    instance_settings: Mapping[str, object]  #: as `InstanceSpec.settings`
    #: waits until the platform listens: instances may be started before it does
    access: Callable[[], Awaitable[PlatformAccess]] | None = None
    tls: Tls = no_tls  #: for instances on other machines
    #: called with each source that an instance is about to be told to load
    offer: Callable[[ArtifactSource], None] = _offer_nothing
    #: processes whose connections instances accept, besides this one's; None: no others
    gateway_pids: Callable[[], Sequence[int]] | None = None
    warm_instances: int = 0  #: spare processes that are kept ready
    starts_max: int = 4  #: instances that start at once
    loads_max: int = 2  #: models that load at once: each takes a core
    #: ... but a load that takes longer gives its place to others: it waits for a network, or hangs
    load_turn_s_max: float = 15.0
    #: instance type -> highest number of its instances
    instance_limits: Mapping[str, int] = field(default_factory=dict)
    stop_grace_s: float = 10.0  #: from SIGTERM to SIGKILL, after draining
    #: limit for the answer to a status call. Models never run on an instance's event loop, so one
    #: that misses three calls is stopped or hangs, and its requests can go elsewhere
    status_s_max: float = 5.0
