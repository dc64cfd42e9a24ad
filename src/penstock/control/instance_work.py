"""The long operations on instances: start, load, drain, stop; what came of them, in the ledger.

Each operation is one asyncio task, bounded in number; none of them decides anything. When the
ledger has changed, `changed(endpoint)` is called and reconciliation looks again. An instance that
is to be stopped has its operation under way cancelled first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock.artifacts.source import ArtifactSource
from penstock.clock import Clock
from penstock.control.instance_client import InstanceClient, Json
from penstock.control.ledger import EndpointLedger, InstanceEntry
from penstock.control.ports import RoutePublisher
from penstock.control.room import Room
from penstock.core.endpoint_state import (
    DRAINED,
    DRAINING,
    GONE,
    LOADING,
    LOST,
    READY,
    RUNNING,
    STARTING,
    STOPPING,
)
from penstock.core.memory_need import MemoryNeed
from penstock.core.reconcile import ReconcileSpec
from penstock.core.room import NO_ROOM, RoomDecision
from penstock.errors import InternalError, NotNowError, PenstockError
from penstock.fleet.base import Fleet, InstanceSpec, PlatformAccess

_log = logging.getLogger(__name__)

#: Failures that trying again can't help: the request or the model is wrong, or its time is up.
_PERMANENT_FAMILIES: Final = ("caller", "model")
_PERMANENT_CODES: Final = ("startup-timeout", "download-timeout")

#: Phases in which an instance tells what it takes.
_MEASURED: Final = (LOADING, READY, LOST, DRAINING)

#: For figures that somebody waits for: instances answer at once, or something is wrong with them.
_MEASURE_S_MAX: Final = 1.0

#: After this many unanswered status calls an instance counts as gone.
_SILENT_COUNT_MAX: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSettings:
    """What instances are given, and bounds on what is done at once."""

    log_dir: Path
    cache_dir: Path
    instance_settings: Mapping[str, object]  #: as `InstanceSpec.settings`
    #: waits until the platform listens, for what brings instances back before it does
    access: Callable[[], Awaitable[PlatformAccess]] | None = None
    starts_max: int = 4  #: processes that start at once
    loads_max: int = 2  #: models that load at once: each takes a core
    #: ... until one has taken this long: it waits for a network, or hangs, and others need not
    load_turn_s_max: float = 15.0
    stop_grace_s: float = 10.0  #: from SIGTERM to SIGKILL; draining came before
    #: for an instance to answer a status call; what runs models is never its event loop, so one
    #: that is silent three times is stopped or hangs, and its requests can go elsewhere
    status_s_max: float = 5.0


class NoRoom(NotNowError):
    """A model can't be loaded for lack of memory; the code is the decision's reason."""

    def __init__(self, decision: RoomDecision) -> None:
        super().__init__(decision.reason, decision.message)


class InstanceWork:
    """Carries operations out for all endpoints of this server."""

    def __init__(
        self,
        *,
        fleet: Fleet,
        publisher: RoutePublisher,
        clock: Clock,
        settings: WorkSettings,
        spec: ReconcileSpec,
        changed: Callable[[str], None],
        room: Room,
        room_changed: Callable[[], None],
    ) -> None:
        """`room_changed` is called when an instance has ended, and when a load has."""
        self._fleet = fleet
        self._publisher = publisher
        self._clock = clock
        self._settings = settings
        self._spec = spec
        self._changed = changed
        self._room = room
        self._room_changed = room_changed
        self._starts = asyncio.Semaphore(settings.starts_max)
        self._loads = asyncio.Semaphore(settings.loads_max)
        self._where: dict[str, EndpointLedger] = {}
        self._clients: dict[str, InstanceClient] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._asides: set[asyncio.Task[None]] = set()
        self._asking: set[str] = set()
        fleet.on_exit = self._on_exit

    def start(self, ledger: EndpointLedger, entry: InstanceEntry) -> None:
        """A new entry, phase starting."""
        ledger.instances[entry.instance_id] = entry
        self._where[entry.instance_id] = ledger
        self._phase(entry, STARTING, queued=True)
        self._run(entry, self._start(ledger, entry))

    def load(self, ledger: EndpointLedger, entry: InstanceEntry, copy: int) -> None:
        entry.copy = copy
        self._phase(entry, LOADING, queued=True)
        self._run(entry, self._load(ledger, entry))

    def drain(self, ledger: EndpointLedger, entry: InstanceEntry, copy: int) -> None:
        self._phase(entry, DRAINING)
        self._run(entry, self._drain(ledger, entry, copy))

    def stop(self, ledger: EndpointLedger, entry: InstanceEntry) -> None:
        self._phase(entry, STOPPING)
        under_way = self._tasks.pop(entry.instance_id, None)
        self._aside(self._stop(ledger, entry, under_way))

    def ask_status(self) -> None:
        """One status call to each connected instance; what they measure goes to the ledger."""
        for instance_id, ledger in list(self._where.items()):
            entry = ledger.instances.get(instance_id)
            if entry is not None and entry.phase in _MEASURED and instance_id not in self._asking:
                self._asking.add(instance_id)
                self._aside(self._ask_status(ledger, entry))

    def client(self, instance_id: str) -> InstanceClient | None:
        """The control connection, for `explain` and `status` calls."""
        return self._clients.get(instance_id)

    async def close(self) -> None:
        """Cancels what is under way and ends every instance. Nothing is recorded any more."""
        self._fleet.on_exit = lambda instance_id, what: None
        tasks = [*self._tasks.values(), *self._asides]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for instance_id in list(self._where):
            await self._publisher.disconnect(instance_id)
        for client in list(self._clients.values()):
            client.close()
        await self._fleet.close()
        await asyncio.gather(*self._asides, return_exceptions=True)

    async def _start(self, ledger: EndpointLedger, entry: InstanceEntry) -> None:
        async with self._starts:
            self._phase(entry, STARTING)
            self._changed(ledger.desired.endpoint)  # its time limit runs from now
            settings = dict(self._settings.instance_settings)
            if self._settings.access is not None:
                settings["platform"] = (await self._settings.access()).to_dict()
            handle = await self._fleet.start(
                InstanceSpec(
                    instance_id=entry.instance_id,
                    instance_type=entry.kind,
                    log_path=self.log_path(ledger, entry),
                    cache_dir=self._settings.cache_dir,
                    settings=settings,
                )
            )
            entry.pid, entry.address = handle.pid, handle.address
            self._clients[entry.instance_id] = await InstanceClient.connect(
                entry.instance_id,
                handle.address,
                on_event=lambda event: self._on_event(entry.instance_id, event),
                on_close=lambda: self._on_close(entry.instance_id),
            )
            await self._publisher.connect(entry.instance_id, handle.address)
        self._phase(entry, RUNNING)

    def log_path(self, ledger: EndpointLedger, entry: InstanceEntry) -> Path:
        """One file per slot, so that a slot's log goes on over its instances."""
        name = f"{entry.variant.name}-{entry.generation}-{entry.ordinal}.log"
        return self._settings.log_dir / ledger.desired.endpoint / name

    async def _load(self, ledger: EndpointLedger, entry: InstanceEntry) -> None:
        endpoint, variant = ledger.desired.endpoint, entry.variant
        request = _load_request(endpoint, entry)
        # The core's own limit ends a load that hangs; these are only the last resort.
        download_s = variant.download_timeout_s + 2 * self._spec.margin_s
        async with self._turn_to_load():
            self._phase(entry, LOADING)
            self._changed(endpoint)
            reply = await self._client(entry).call(
                {**request, "op": "prepare"}, timeout_s=download_s
            )
        entry.digest = str(reply.get("digest", ""))
        await self._find_room(ledger, entry, MemoryNeed(**reply["need"]))
        async with self._turn_to_load():
            self._phase(entry, LOADING)
            self._changed(endpoint)
            reply = await self._client(entry).call(
                request, timeout_s=download_s + variant.startup_timeout_s
            )
        description = reply.get("description") or {}
        entry.model = description
        entry.outstanding_max = int(description.get("outstanding_max", 1))
        entry.model_memory_bytes = int(reply.get("memory_bytes", 0))
        entry.memory_bytes = entry.model_memory_bytes  # until the first status call
        entry.load_s = float(reply.get("load_s", 0.0))
        entry.note_memory(reply)
        entry.ready_since = self._clock.monotonic()
        self._phase(entry, READY)
        self._record(ledger, "copy loaded", "load-done", f"{entry.instance_id} {entry.load_s:.2f}s")

    async def _find_room(
        self, ledger: EndpointLedger, entry: InstanceEntry, need: MemoryNeed
    ) -> None:
        """Sets aside what the model needs, perhaps after a while. Raises `NoRoom`."""

        def waits(decision: RoomDecision) -> None:
            self._phase(entry, LOADING, queued=True)  # no time runs while it waits for others
            self._record(ledger, "wait for room", decision.reason, entry.instance_id)

        decision = await self._room.for_load(entry, need, measure=self._measure, waits=waits)
        if decision.outcome == NO_ROOM:
            raise NoRoom(decision)
        detail = f"{entry.instance_id} needs {entry.need_bytes / 2**30:.2f} GiB, {need.basis}"
        self._record(ledger, "room for the model", decision.reason, detail)

    async def _measure(self) -> None:
        """What all instances take, by their own fresh answers; who does not answer at once keeps
        the figure it had."""
        asked = [
            self._take_status(entry, _MEASURE_S_MAX)
            for instance_id, ledger in list(self._where.items())
            if (entry := ledger.instances.get(instance_id)) is not None and entry.phase in _MEASURED
        ]
        await asyncio.gather(*asked, return_exceptions=True)

    @asynccontextmanager
    async def _turn_to_load(self) -> AsyncIterator[None]:
        """A place among those that load; given back after a while, so that none is kept waiting
        by models that never load."""
        held = True

        def give_back() -> None:
            nonlocal held
            if held:
                held = False
                self._loads.release()

        await self._loads.acquire()
        timer = asyncio.get_running_loop().call_later(self._settings.load_turn_s_max, give_back)
        try:
            yield
        finally:
            timer.cancel()
            give_back()

    async def _drain(self, ledger: EndpointLedger, entry: InstanceEntry, copy: int) -> None:
        if not await self._publisher.drained((copy,), self._spec.drain_s_max):
            self._record(ledger, "requests cut off", "drain-timeout", entry.instance_id)
        self._phase(entry, DRAINED)

    async def _stop(
        self, ledger: EndpointLedger, entry: InstanceEntry, under_way: asyncio.Task[None] | None
    ) -> None:
        if under_way is not None:
            under_way.cancel()
            await asyncio.wait([under_way])
        try:
            # The data connection stays until the end: the instance answers what it still holds.
            await self._fleet.stop(entry.instance_id, grace_s=self._settings.stop_grace_s)
        finally:
            self._remove(ledger, entry)

    async def _ask_status(self, ledger: EndpointLedger, entry: InstanceEntry) -> None:
        try:
            await self._take_status(entry, self._settings.status_s_max)
        except PenstockError as error:
            entry.silent_count += entry.phase == READY
            if entry.silent_count >= _SILENT_COUNT_MAX and entry.phase == READY:
                self._record(ledger, "instance silent", error.code, entry.instance_id)
                self._phase(entry, GONE)
                self._changed(ledger.desired.endpoint)
        else:
            entry.silent_count = 0
        finally:
            self._asking.discard(entry.instance_id)

    async def _take_status(self, entry: InstanceEntry, timeout_s: float) -> None:
        loaded = entry.ready_since is not None
        status = await self._client(entry).status(timeout_s=timeout_s)
        if loaded == (entry.ready_since is not None):  # else it tells of the height of the load
            entry.memory_bytes = memory_bytes(status)
            entry.note_memory(status)

    def _client(self, entry: InstanceEntry) -> InstanceClient:
        client = self._clients.get(entry.instance_id)
        if client is None:
            raise NotNowError("instance-gone", f"{entry.instance_id} has closed its connection")
        return client

    def _run(self, entry: InstanceEntry, work: Coroutine[Any, Any, None]) -> None:
        instance_id = entry.instance_id
        task = asyncio.create_task(work)
        self._tasks[instance_id] = task
        task.add_done_callback(lambda done: self._done(instance_id, done))

    def _aside(self, work: Coroutine[Any, Any, None]) -> None:
        """Work whose end nobody waits for; `close` does."""
        task = asyncio.create_task(work)
        self._asides.add(task)
        task.add_done_callback(self._aside_done)

    def _aside_done(self, task: asyncio.Task[None]) -> None:
        self._asides.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("work on an instance failed", exc_info=task.exception())

    def _done(self, instance_id: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(instance_id) is task:
            del self._tasks[instance_id]
        ledger = self._where.get(instance_id)
        entry = ledger.instances.get(instance_id) if ledger is not None else None
        if task.cancelled() or ledger is None or entry is None:
            return
        error = task.exception()
        if error is not None and entry.phase != STOPPING:
            self._on_failure(ledger, entry, error)
        self._changed(ledger.desired.endpoint)
        self._room_changed()  # a load is over, and what it keeps is known

    def _on_failure(
        self, ledger: EndpointLedger, entry: InstanceEntry, error: BaseException
    ) -> None:
        if not isinstance(error, PenstockError):
            _log.error("work on %s failed", entry.instance_id, exc_info=error)
            error = InternalError("internal", f"work on {entry.instance_id} failed: {error!r}")
        if error.code == "instance-gone":
            self._phase(entry, GONE)  # the fleet will say how it ended
            return
        if isinstance(error, NoRoom):
            self.give_up(ledger, entry, error.message, error.code, permanent=True)
            return
        permanent = error.family in _PERMANENT_FAMILIES or error.code in _PERMANENT_CODES
        self.give_up(ledger, entry, _story(entry, error), error.code, permanent=permanent)

    def give_up(
        self,
        ledger: EndpointLedger,
        entry: InstanceEntry,
        message: str,
        reason: str,
        *,
        permanent: bool,
    ) -> None:
        """Records the slot's failure and stops the instance."""
        self._record(ledger, "instance failed", reason, message)
        ledger.fail(entry, message, permanent=permanent, now=self._clock.monotonic())
        self.stop(ledger, entry)

    def _on_exit(self, instance_id: str, what: str) -> None:
        """The fleet: an instance ended by itself."""
        ledger = self._where.get(instance_id)
        entry = ledger.instances.get(instance_id) if ledger is not None else None
        if ledger is None or entry is None or entry.phase == STOPPING:
            return
        loading = entry.copy is not None and entry.ready_since is None
        when = " while it loaded its model" if loading else ""
        message = f"Variant {entry.variant.name}{when}: {what}"
        self._record(ledger, "instance ended", "instance-exit", message)
        ledger.fail(entry, message, permanent=False, now=self._clock.monotonic())
        task = self._tasks.pop(instance_id, None)
        if task is not None:
            task.cancel()
        self._remove(ledger, entry)

    def _on_close(self, instance_id: str) -> None:
        self._clients.pop(instance_id, None)
        ledger = self._where.get(instance_id)
        entry = ledger.instances.get(instance_id) if ledger is not None else None
        if ledger is not None and entry is not None:
            if entry.phase not in (STARTING, STOPPING, GONE):
                self._phase(entry, GONE)
            self._changed(ledger.desired.endpoint)

    def _on_event(self, instance_id: str, event: Json) -> None:
        """copy-lost, copy-ready, copy-failed: the instance's word about its workers."""
        ledger = self._where.get(instance_id)
        entry = ledger.instances.get(instance_id) if ledger is not None else None
        if ledger is None or entry is None or event.get("copy") != entry.copy:
            return
        name = event.get("event")
        if name == "copy-lost" and entry.phase == READY:
            self._phase(entry, LOST)
        elif name == "copy-ready" and entry.phase == LOST:
            self._phase(entry, READY)
        elif name == "copy-failed" and entry.phase in (READY, LOST):
            fields = event.get("error") or {}
            story = fields.get("message") or event.get("reason") or "its process keeps ending"
            message = f"Variant {entry.variant.name}: {story}"
            self.give_up(ledger, entry, message, "copy-failed", permanent=False)
        else:
            return
        self._record(ledger, f"instance says {name}", str(event.get("reason", "")), instance_id)
        self._changed(ledger.desired.endpoint)

    def _remove(self, ledger: EndpointLedger, entry: InstanceEntry) -> None:
        ledger.instances.pop(entry.instance_id, None)
        self._where.pop(entry.instance_id, None)
        self._aside(self._publisher.disconnect(entry.instance_id))
        client = self._clients.pop(entry.instance_id, None)
        if client is not None:
            client.close()
        self._changed(ledger.desired.endpoint)
        self._room_changed()

    def _phase(self, entry: InstanceEntry, phase: str, *, queued: bool = False) -> None:
        entry.phase = phase
        entry.since = None if queued else self._clock.monotonic()

    def _record(self, ledger: EndpointLedger, what: str, reason: str, detail: str) -> None:
        ledger.record(self._clock.wall(), what, reason, detail)


def memory_bytes(status: Json) -> int:
    """What an instance and all its workers take, out of its answer to `status`."""
    workers = [one for copy in status.get("copies", ()) for one in copy.get("workers", ())]
    return int(status.get("rss_bytes", 0)) + sum(int(one.get("rss_bytes", 0)) for one in workers)


def _load_request(endpoint: str, entry: InstanceEntry) -> Json:
    variant = entry.variant
    environment = dict(variant.model.environment)
    return {
        "op": "load",
        "copy": entry.copy,
        "endpoint": endpoint,
        "variant": variant.name,
        "source": ArtifactSource(
            uri=variant.model.uri,
            compressed=variant.model.compressed,
            image=variant.model.image,
            environment=environment,
        ).to_dict(),
        "environment": environment,
        "cores": entry.kind.cores,
        "memory_bytes_max": entry.kind.share_bytes or entry.kind.memory_bytes,
        "accelerators": entry.kind.accelerators,
        "download_timeout_s": variant.download_timeout_s,
        "startup_timeout_s": variant.startup_timeout_s,
    }


def _story(entry: InstanceEntry, error: PenstockError) -> str:
    """For FailureReason: which model, what happened, what to do."""
    hint = f" {error.hint}" if error.hint else ""
    return (
        f"Model {entry.variant.model.model_name} of variant {entry.variant.name} could not be"
        f" loaded: {error.message}{'' if error.message.endswith('.') else '.'}{hint}"
        if entry.copy is not None
        else f"Variant {entry.variant.name}: {error.message}.{hint}"
    )
