"""Operations on instances: start, stop, and the reaction when one ends by itself.

Nothing is decided here. Results go to the ledger, and reconciliation runs again. Before an instance
is stopped, the operations that are under way on it and its copies are cancelled.

`tell` writes the endpoint's own log, beside the logs of its instances. It is for what instances
could not log themselves: an endpoint that had no room, or whose model no instance could load, may
have no instance log at all. FailureReason tells people to read `penstock logs`, which shows it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from penstock.clock import Clock
from penstock.control.instances.copy_operations import CopyOperations, KeepImages
from penstock.control.instances.entries import InstanceEntry
from penstock.control.instances.instance_client import InstanceClient, Json
from penstock.control.instances.instance_status import InstanceStatus
from penstock.control.instances.ledger import EndpointLedger
from penstock.control.instances.room import Room
from penstock.control.instances.under_way import OperationSettings, OperationsUnderWay
from penstock.control.ports import ModelCounted, RoutePublisher
from penstock.control.store.target_model_record import TargetModelRecord, take_notes
from penstock.core.blame.crashed_instances import is_crash
from penstock.core.deployment.endpoint_state import GONE, RUNNING, STARTING, STOPPING
from penstock.core.deployment.slot_retries import ReconcileSpec, is_permanent
from penstock.core.endpoint.ready_times import ReadyTimes
from penstock.errors import PenstockError
from penstock.fleet.base import Fleet, InstanceExit, InstanceSpec
from penstock.metrics.counts.container_delta import CONTAINER_COUNTS

_log = logging.getLogger(__name__)

_NAME: Final = "endpoint.log"


def folder_name(endpoint: str) -> str:
    """The endpoint's folder below the folder of logs. A hosted deployment's name has a slash."""
    return endpoint.replace("/", ".")


def tell(log_dir: Path, endpoint: str, words: str, *, wall: float) -> None:
    """Adds a line to the endpoint's log. If the disk is full, only the line is lost.

    Args:
        wall: s since 1970.
    """
    at = datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%d %H:%M:%S")
    line = f"{at} {' '.join(words.split())}\n".encode("utf-8", "backslashreplace")
    folder = log_dir / folder_name(endpoint)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(folder / _NAME, flags, 0o600)
        with open(descriptor, "ab", buffering=0) as log:
            log.write(line)
    except OSError as error:
        _log.warning("endpoint %s: its log can't be written: %s", endpoint, error)


#: Time to read the last messages of an instance that has ended; they are in memory already.
_LAST_WORDS_S_MAX: Final = 1.0


class InstanceOperations:
    """The instances of all endpoints of this server."""

    def __init__(
        self,
        *,
        fleet: Fleet,
        publisher: RoutePublisher,
        settings: OperationSettings,
        under_way: OperationsUnderWay,
        record: TargetModelRecord,
        on_event: Callable[[str, Json], None],
    ) -> None:
        """`on_event`: called with events that an instance reports about a copy on it."""
        self._fleet = fleet
        self._publisher = publisher
        self._settings = settings
        self._under_way = under_way
        self._record = record
        self._on_event = on_event
        self._modules: set[str] = set()
        self._starts = asyncio.Semaphore(settings.starts_max)
        #: those that yield start one at a time, so that nobody else waits behind them
        self._yielding_starts = asyncio.Semaphore(1)
        fleet.on_exit = self._on_exit

    def start(self, ledger: EndpointLedger, entry: InstanceEntry) -> None:
        """Starts an instance for a new entry. Its phase is starting."""
        entry.asked_at = self._under_way.clock.monotonic()
        self._under_way.add(ledger, entry)
        self._under_way.enter(entry, STARTING, queued=True)
        self._under_way.begin(
            (entry.instance_id, None), self._start(ledger, entry), self._start_failed
        )

    def keep_warm(self, modules: Iterable[str] = ()) -> None:
        """Keeps spare processes ready that have imported what this server's instances import."""
        if self._settings.warm_instances:
            self._modules.update(modules)
            self._fleet.keep_warm(self._settings.warm_instances, sorted(self._modules))

    def stop(self, ledger: EndpointLedger, entry: InstanceEntry) -> None:
        self._under_way.enter(entry, STOPPING)
        under_way = self._under_way.take_tasks(entry.instance_id)
        self._under_way.aside(self._stop(ledger, entry, under_way))

    def give_up(
        self,
        ledger: EndpointLedger,
        entry: InstanceEntry,
        message: str,
        reason: str,
        *,
        permanent: bool,
    ) -> None:
        """Records the failure of the slot and stops the instance."""
        self._under_way.record(ledger, "instance failed", reason, message)
        now = self._under_way.clock.monotonic()
        ledger.fail_instance(entry, message, permanent=permanent, now=now, reason=reason)
        self.stop(ledger, entry)

    async def admit_gateways(self, pids: Sequence[int]) -> None:
        """Returns once every instance accepts connections of these processes.

        An instance that is starting gets the list when it is connected. One that does not answer is
        handled elsewhere.
        """
        clients = list(self._under_way.clients.values())
        await asyncio.gather(*(self._admit(one, pids) for one in clients), return_exceptions=True)

    async def _admit(self, client: InstanceClient, pids: Sequence[int]) -> None:
        op = {"op": "gateways", "pids": list(pids)}
        await client.call(op, timeout_s=self._settings.status_s_max)

    def log_path(self, ledger: EndpointLedger, entry: InstanceEntry) -> Path:
        """One file per slot: its log continues when the slot gets another instance."""
        name = f"{entry.variant}-{entry.generation}-{entry.ordinal}.log"
        return self._settings.log_dir / folder_name(ledger.desired.endpoint) / name

    async def close(self) -> None:
        """Cancels all operations and ends every instance. Nothing is recorded any more."""
        self._fleet.on_exit = lambda instance_id, how: None
        await self._under_way.cancel()
        for _, entry in self._under_way.instances():
            await self._publisher.disconnect(entry.instance_id)
        clients = list(self._under_way.clients.values())
        await self._fleet.close()
        # The instances still send their models' last counts.
        await asyncio.gather(*(one.wait_ended(timeout_s=_LAST_WORDS_S_MAX) for one in clients))
        for client in clients:
            client.close()
        await self._under_way.wait_asides()

    async def _start(self, ledger: EndpointLedger, entry: InstanceEntry) -> None:
        async with self._yielding_starts if entry.yields else self._starts:
            self._under_way.enter(entry, STARTING)
            self._under_way.changed(ledger.desired.endpoint)  # its time limit runs from now
            settings = dict(self._settings.instance_settings)
            settings["work_dir"] = str(self._settings.work_dir)
            if self._settings.access is not None:
                settings["platform"] = (await self._settings.access()).to_dict()
            monotonic = self._under_way.clock.monotonic
            began = monotonic()
            handle = await self._fleet.start(
                InstanceSpec(
                    instance_id=entry.instance_id,
                    instance_type=entry.kind,
                    log_path=self.log_path(ledger, entry),
                    cache_dir=self._settings.cache_dir,
                    shadow=entry.shadow,
                    guest=entry.guest,
                    cores_max=entry.cores_max,
                    settings=settings,
                )
            )
            entry.pid, entry.address = handle.pid, handle.address
            started = monotonic()
            self._under_way.clients[entry.instance_id] = client = await InstanceClient.connect(
                entry.instance_id,
                handle.address,
                on_event=lambda event: self._on_event(entry.instance_id, event),
                on_close=lambda: self._on_close(entry.instance_id),
                tls=self._settings.tls,
            )
            if self._settings.gateway_pids is not None:
                await self._admit(client, self._settings.gateway_pids())
            await self._publisher.connect(entry.instance_id, handle.address)
            entry.start_s, entry.connect_s = started - began, monotonic() - started
        self._under_way.enter(entry, RUNNING)
        ledger.had(entry)

    def _start_failed(
        self, ledger: EndpointLedger, entry: InstanceEntry, error: PenstockError
    ) -> None:
        if error.code == "instance-gone":
            self._under_way.enter(entry, GONE)  # the fleet will report how it ended
            return
        hint = f" {error.hint}" if error.hint else ""
        story = f"Variant {entry.variant}: {error.message}.{hint}"
        self.give_up(ledger, entry, story, error.code, permanent=is_permanent(error))

    async def _stop(
        self,
        ledger: EndpointLedger,
        entry: InstanceEntry,
        under_way: list[asyncio.Task[None]],
    ) -> None:
        for task in under_way:
            task.cancel()
        if under_way:
            await asyncio.wait(under_way)
        try:
            # The data connection stays until the end: the instance answers what it still holds.
            client = self._under_way.clients.get(entry.instance_id)
            # The work of a guest is repeated elsewhere, so its memory is freed at once for those
            # that wait. An instance that hangs would not read the stop call, and its place is
            # needed.
            at_once = entry.guest or entry.hangs
            grace_s = 0.0 if at_once else self._settings.stop_grace_s
            await self._fleet.stop(entry.instance_id, grace_s=grace_s)
            if client is not None:  # its last message holds its models' last counts
                await client.wait_ended(timeout_s=_LAST_WORDS_S_MAX)
        finally:
            # The instance was stopped, so no model caused its end.
            take_notes(self._settings.work_dir, entry.instance_id)
            self._remove(ledger, entry)

    def _on_exit(self, instance_id: str, how: InstanceExit) -> None:
        """Called by the fleet: an instance ended by itself."""
        found = self._under_way.find(instance_id)
        if found is None or found[1].phase == STOPPING:
            return
        ledger, entry = found
        loading = any(copy.ready_since is None for copy in ledger.copies_on(instance_id))
        when = " while it loaded its model" if loading else ""
        message = f"Variant {entry.variant}{when}: {how.story}"
        self._under_way.record(ledger, "instance ended", "instance-exit", message)
        self._note_crash(ledger, entry, how)
        now = self._under_way.clock.monotonic()
        reason = "instance-stood-still" if how.stood_still else "instance-exit"
        ledger.fail_instance(entry, message, permanent=False, now=now, reason=reason)
        for task in self._under_way.take_tasks(instance_id):
            task.cancel()
        self._remove(ledger, entry)

    def _note_crash(self, ledger: EndpointLedger, entry: InstanceEntry, how: InstanceExit) -> None:
        """Records which target models were at work. The next host is told which ones to avoid."""
        noted = take_notes(self._settings.work_dir, entry.instance_id)
        if not noted or not is_crash(how.code):
            return
        names = ", ".join(sorted(one.name for one in noted))
        self._under_way.record(ledger, "models at work noted", "instance-crashed", names[:400])
        self._under_way.aside(self._record.crashed(ledger.desired.endpoint, noted))

    def _on_close(self, instance_id: str) -> None:
        self._under_way.clients.pop(instance_id, None)
        found = self._under_way.find(instance_id)
        if found is not None:
            ledger, entry = found
            if entry.phase not in (STARTING, STOPPING, GONE):
                self._under_way.enter(entry, GONE)
            self._under_way.changed(ledger.desired.endpoint)

    def _remove(self, ledger: EndpointLedger, entry: InstanceEntry) -> None:
        self._under_way.aside(self._publisher.disconnect(entry.instance_id))
        self._under_way.remove(ledger, entry)


#: The event that reports how far an instance is with a span of a transform job.
TRANSFORM_PROGRESS: Final = "transform-progress"


class Operations:
    """Carries out what reconciliation decides. An operation takes a while. When it has changed a
    ledger, it calls `changed(endpoint)`, and reconciliation runs again."""

    def __init__(
        self,
        *,
        fleet: Fleet,
        publisher: RoutePublisher,
        clock: Clock,
        settings: OperationSettings,
        spec: ReconcileSpec,
        changed: Callable[[str], None],
        room: Room,
        room_changed: Callable[[], None],
        record: TargetModelRecord,
        model_counted: ModelCounted = lambda *counted: None,
        ready_times: ReadyTimes | None = None,
        keep_images: KeepImages,
        told: Callable[[str, Json], None] = lambda endpoint, event: None,
    ) -> None:
        """`room_changed` is called when an instance has ended and when a load has; `told` with the
        events of an instance about work that it was given."""
        self._told = told
        self._model_counted = model_counted
        self._under_way = OperationsUnderWay(
            clock=clock, changed=changed, room_changed=room_changed
        )
        self.status = InstanceStatus(settings, self._under_way)
        self.instances = InstanceOperations(
            fleet=fleet,
            publisher=publisher,
            settings=settings,
            under_way=self._under_way,
            record=record,
            on_event=self._on_event,
        )
        self.copies = CopyOperations(
            publisher=publisher,
            settings=settings,
            spec=spec,
            under_way=self._under_way,
            room=room,
            status=self.status,
            record=record,
            give_up_instance=self.instances.give_up,
            ready_times=ready_times or ReadyTimes(),
            imported=self.instances.keep_warm,
            keep_images=keep_images,
        )

    def client(self, instance_id: str) -> InstanceClient | None:
        """The control connection, for `explain` and `status` calls."""
        return self._under_way.clients.get(instance_id)

    def phase(self, instance_id: str) -> str:
        """Of an instance; empty for one that is gone."""
        found = self._under_way.find(instance_id)
        return found[1].phase if found is not None else ""

    async def close(self) -> None:
        """Cancels all operations and ends every instance. Nothing is recorded any more."""
        await self.instances.close()

    def _on_event(self, instance_id: str, event: Json) -> None:
        name = event.get("event")
        if name not in ("model-counts", CONTAINER_COUNTS, TRANSFORM_PROGRESS):
            self.copies.on_event(instance_id, event)
            return
        found = self._under_way.find(instance_id)
        if found is None:
            return
        ledger, entry = found
        endpoint = ledger.desired.endpoint
        if name == TRANSFORM_PROGRESS:
            self._told(endpoint, event)
        else:
            self._model_counted(endpoint, entry.variant, instance_id, event)
