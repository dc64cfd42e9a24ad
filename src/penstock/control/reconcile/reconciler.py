"""Brings every endpoint from its observed state to its spec.

One task for the whole server: it waits for a change or for a decision's deadline, asks
`core/endpoint/reconcile.py` what to do, and starts it. Long operations run in `control/instances`
and come back as changes. Every rule is in `core/`; this file waits, calls and records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from penstock.clock import Clock
from penstock.control.housekeeping import Housekeeping, InUse
from penstock.control.instances import instance_operations
from penstock.control.instances.entries import CopyEntry, InstanceEntry
from penstock.control.instances.instance_operations import Operations
from penstock.control.instances.ledger import EndpointLedger
from penstock.control.instances.room import Room
from penstock.control.instances.under_way import OperationSettings
from penstock.control.loop import DriverLoop
from penstock.control.ports import ModelCounted, RoutePublisher
from penstock.control.reconcile.actions import FAILED, WAITS, Actions, told
from penstock.control.reconcile.agreements import Agreements, Compared
from penstock.control.reconcile.hosted import HostedDeployments
from penstock.control.reconcile.ready_times_file import ReadyTimesFile
from penstock.control.store.activities import Activity
from penstock.control.store.images import keep_images, named_images
from penstock.control.store.records import EndpointRecord, NotFound, UnreadableRecord
from penstock.control.store.store import Store
from penstock.control.store.store_thread import StoreThread
from penstock.control.store.target_model_record import TargetModelRecord
from penstock.core.deployment.endpoint_state import (
    DELETING,
    LOADING,
    Action,
    DrainCopy,
    EndpointSpec,
    FinishDelete,
    ForgetComponent,
    LoadCopy,
    PublishRoutes,
    RefuseCopy,
    RefuseInstance,
    SetComponent,
    SetRollout,
    SetStatus,
    SetTarget,
    StartInstance,
    StopInstance,
    UnloadCopy,
    WithdrawRoutes,
)
from penstock.core.deployment.slot_retries import ReconcileSpec
from penstock.core.endpoint.ready_times import ReadyTimes
from penstock.core.endpoint.reconcile import decide
from penstock.errors import PenstockError
from penstock.fleet.base import Fleet
from penstock.fleet.catalogue import InstanceCatalogue
from penstock.metrics import item_failures
from penstock.metrics.item_failures import apart

_log = logging.getLogger(__name__)

#: Called with the store and names of alarms: the states of those that exist.
AlarmStates = Callable[[Store, Sequence[str]], Mapping[str, str]]

_RETRY_S: Final = 1.0  #: pause after the database could not be written, in s
_BUG_RETRY_S: Final = 5.0  #: pause of an endpoint after a bug of ours, in s; other endpoints go on
_STATUS_INTERVAL_S: Final = 5.0
_TIDY_INTERVAL_S: Final = 60.0


#: Actions that change an endpoint's recorded state.
_OF_STATE: Final = (SetStatus, SetRollout, SetTarget, SetComponent)


class ReconcilerDriver:
    """The driver of `core/endpoint/reconcile.py` for all endpoints of one server."""

    def __init__(
        self,
        *,
        database: StoreThread,
        fleet: Fleet,
        publisher: RoutePublisher,
        clock: Clock,
        catalogue: InstanceCatalogue,
        available_bytes: Callable[[], int | None],
        settings: OperationSettings,
        record: TargetModelRecord,
        housekeeping: Housekeeping | None = None,
        spec: ReconcileSpec | None = None,
        model_counted: ModelCounted = lambda *counted: None,
        ready_times_file: Path | None = None,
        alarm_states: AlarmStates = lambda store, names: {},
        compared: Compared = lambda endpoint, rollout, component: {},
    ) -> None:
        """`available_bytes`: the machine's free memory now; None = not known. `alarm_states`: name
        -> state of those alarms that exist. `compared`: see `Compared`."""
        self._database = database
        self._publisher = publisher
        self._clock = clock
        self._spec = spec or ReconcileSpec()
        self._alarm_states = alarm_states
        self.agreements = Agreements(compared)
        self._housekeeping = housekeeping
        self._log_dir = settings.log_dir
        self.ready_times = ReadyTimes()
        self.spares = fleet.spares
        self.fleet = fleet
        self._kept_times = (
            ReadyTimesFile(ready_times_file, self.ready_times) if ready_times_file else None
        )
        self.hosted = HostedDeployments()
        self._room = Room(
            catalogue.machine,
            self._held,
            available_bytes,
            fleet.spares,
            self._end_guest,
            settings.instance_limits,
        )
        self.work = Operations(
            fleet=fleet,
            publisher=publisher,
            clock=clock,
            settings=settings,
            spec=self._spec,
            changed=self._changed,
            room=self._room,
            room_changed=self._room_changed,
            record=record,
            model_counted=model_counted,
            ready_times=self.ready_times,
            keep_images=self._keep_images,
            told=self.hosted.on_event,
        )
        self._actions = Actions(work=self.work, room=self._room, catalogue=catalogue, clock=clock)
        self._ledgers: dict[str, EndpointLedger] = {}
        self._dirty: dict[str, None] = {}  #: endpoints to decide again, in order
        #: endpoints to read from the store before the next decision
        self._stale: dict[str, None] = {}
        self._waiting: dict[str, None] = {}  #: endpoints that wait for room on the machine
        self._deadlines: dict[str, float] = {}
        self._loop = DriverLoop(
            "reconciler", self._round, fault="reconciliation failed", retry_s=_BUG_RETRY_S
        )
        self._status_due = 0.0
        self._tidy_due = 0.0
        self._tidying: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Starts every recorded endpoint, oldest first."""
        if self._kept_times is not None:
            self._kept_times.read()
        self.agreements.restore(await self._database.call(Store.all_compared))
        before = await self._database.call(Store.all_activities)
        for record in await self._database.call(Store.all_endpoints):
            with apart("endpoints", record.name):
                key = record.name.lower()
                ledger = EndpointLedger(record.desired(), self._spec, before.get(key, ()))
                self._ledgers[key] = ledger
                self._changed(record.name)
        self.work.instances.keep_warm()
        self._status_due = self._clock.monotonic() + _STATUS_INTERVAL_S
        self._loop.start()

    def notify(self, endpoint: str) -> None:
        """The record of an endpoint has changed: reads it again and acts."""
        self._stale[endpoint.lower()] = None
        self._changed(endpoint)

    async def close(self) -> None:
        """Ends every instance. The record stays, so the next start brings all endpoints back."""
        await self._loop.close()
        if self._tidying is not None:
            await asyncio.wait([self._tidying])
            self._tidying = None
        await self.work.close()
        await self._save_agreements()
        if self._kept_times is not None:
            await asyncio.to_thread(self._kept_times.write)

    def ledger(self, endpoint: str) -> EndpointLedger | None:
        """The ledger of an endpoint; None if it is unknown."""
        return self._ledgers.get(endpoint.lower())

    def _changed(self, endpoint: str) -> None:
        self._dirty[endpoint.lower()] = None
        self._loop.wake()
        self.hosted.changed(endpoint)

    def _room_changed(self) -> None:
        for key in self._waiting:
            self._dirty[key] = None
        self._waiting.clear()
        self._room.changed()
        self._loop.wake()

    def _held(self) -> Iterator[tuple[InstanceEntry, list[CopyEntry]]]:
        """Every instance of this server with the copies on it."""
        return (one for ledger in self._ledgers.values() for one in ledger.held())

    def _end_guest(self, instance_id: str, reason: str) -> None:
        """Ends a guest whose memory is needed. Reconciliation starts it again when there is
        room."""
        for ledger in self._ledgers.values():
            entry = ledger.instances.get(instance_id)
            if entry is not None:
                ledger.record(self._clock.wall(), "stop instance", reason, instance_id)
                self.work.instances.stop(ledger, entry)

    async def _round(self) -> float:
        now = self._clock.monotonic()
        due = [key for key, at in self._deadlines.items() if now >= at]
        for key in sorted(dict.fromkeys((*self._dirty, *due)), key=self._is_guest):
            await self._turn(key)
        if now >= self._status_due:
            self._status_due = now + _STATUS_INTERVAL_S
            self.work.status.ask()
            await self._look_for_changes()
            await self._save_agreements()
            if self._kept_times is not None:
                await asyncio.to_thread(self._kept_times.write)
        if now >= self._tidy_due and (self._tidying is None or self._tidying.done()):
            self._tidy_due = now + _TIDY_INTERVAL_S
            self._tidying = asyncio.create_task(self._tidy())
        until = min([self._status_due, *self._deadlines.values()])
        return max(until - self._clock.monotonic(), 0.0)

    def _is_guest(self, key: str) -> bool:
        """Whether it is a guest. Guests are decided last, so that others get free room first."""
        ledger = self._ledgers.get(key)
        return ledger is not None and ledger.guest

    async def _keep_images(
        self, endpoint: str, generation: int, images: Mapping[str, tuple[str, str]]
    ) -> None:
        """The copies that are loaded from now on run the same images."""
        if await self._database.call(keep_images, endpoint, generation, images):
            self.notify(endpoint)

    async def _tidy(self) -> None:
        if self._housekeeping is not None:
            ledgers = self._ledgers.values()
            copies = [copy for ledger in ledgers for copy in ledger.copies.values()]
            in_use = InUse(
                digests=frozenset(
                    digest for copy in copies for digest in (copy.digest, *copy.model_digests)
                ),
                logs=frozenset(
                    self.work.instances.log_path(ledger, entry)
                    for ledger in ledgers
                    for entry in ledger.instances.values()
                ),
                loading=any(copy.phase == LOADING for copy in copies)
                or any(ledger.awaits_copy() for ledger in ledgers),
            )
            await asyncio.to_thread(self._housekeeping.tidy, in_use)
            if images := await asyncio.to_thread(self._housekeeping.pulled_images):
                named = await self._database.call(named_images, images)
                await asyncio.to_thread(self._housekeeping.remove_images, named)

    async def _look_for_changes(self) -> None:
        """Finds changes in the store that nobody notified: the writer may have been cut off."""
        try:
            for name in await self._database.call(Store.unsettled_endpoints):
                self.notify(name)
        except PenstockError as error:
            _log.warning("endpoints can't be read: %s: %s", error.code, error.message)

    async def _save_agreements(self) -> None:
        """What a database does not take now is saved the next time."""
        with apart("agreements", "save"):
            if changed := self.agreements.unsaved():
                await self._database.call(Store.put_compared, changed)
                self.agreements.saved(changed)

    async def _turn(self, key: str) -> None:
        """Decides once for one endpoint and carries it out. Failures are tried again, never
        fatal."""
        self._dirty.pop(key, None)
        self._deadlines.pop(key, None)
        try:
            if key in self._stale:
                await self._read(key)
            ledger = self._ledgers.get(key)
            if ledger is None:
                return
            alarms = await self._alarms(ledger.desired)
            decision = decide(
                ledger.desired,
                ledger.observed(
                    self._publisher.outstanding,
                    alarms,
                    self.agreements.of_endpoint(ledger.desired),
                    self.agreements.of_components(ledger.desired),
                    self.agreements.of_targets(ledger.desired),
                ),
                now=self._clock.monotonic(),
                spec=self._spec,
                wall=self._clock.wall(),
            )
            if decision.next_deadline is not None:
                self._deadlines[key] = decision.next_deadline
            for action in decision.actions:
                await self._carry_out(key, ledger, action)
        except UnreadableRecord as error:  # what serves stays as it is
            item_failures.note("endpoints", key, error)
            self._deadlines[key] = self._clock.monotonic() + _BUG_RETRY_S
        except PenstockError as error:
            _log.warning("endpoint %s: %s: %s %s", key, error.code, error.message, error.hint)
            self._deadlines[key] = self._clock.monotonic() + _RETRY_S
        except Exception as error:
            item_failures.note("endpoints", key, error)
            self._deadlines[key] = self._clock.monotonic() + _BUG_RETRY_S

    async def _alarms(self, desired: EndpointSpec) -> Mapping[str, str]:
        """States of the alarms that rollouts under way watch."""
        policy = desired.target.rollout if desired.target is not None else None
        targets = [one.target for one in desired.components if one.target is not None]
        names = (
            *(policy.alarms if policy is not None else ()),
            *(name for target in targets for name in target.alarms),
            *(name for one in desired.targets if one.policy for name in one.policy.alarms),
        )
        return await self._database.call(self._alarm_states, names) if names else {}

    async def _read(self, key: str) -> None:
        ledger = self._ledgers.get(key)
        hosted = self.hosted.desired(key)
        if hosted is not None:
            self._stale.pop(key, None)
            self._take_spec(key, hosted)
            return
        try:
            # Unmark it first: a change while the store reads marks it again.
            self._stale.pop(key, None)
            desired = (await self._database.call(Store.describe_endpoint, key)).desired()
        except NotFound:
            if ledger is not None:
                ledger.take_spec(replace(ledger.desired, status=DELETING))
            return
        except BaseException:
            self._stale[key] = None
            raise
        self._take_spec(key, desired)

    def _take_spec(self, key: str, desired: EndpointSpec) -> None:
        ledger = self._ledgers.get(key)
        if ledger is None:
            self._ledgers[key] = EndpointLedger(desired, self._spec)
        elif desired != ledger.desired:
            ledger.take_spec(desired)
        self._changed(key)

    async def _carry_out(self, key: str, ledger: EndpointLedger, action: Action) -> None:
        if isinstance(action, _OF_STATE) and key not in self.hosted:
            await self._keep(ledger, action)
        if not isinstance(action, StartInstance):  # a start records its own result
            ledger.record(self._clock.wall(), *told(action))
        match action:
            case StartInstance():
                began = self._actions.start(ledger, action)
                if began == WAITS:
                    self._waiting[key] = None
                elif began == FAILED:
                    self._changed(key)
            case StopInstance():
                self._actions.stop(ledger, action)
            case LoadCopy():
                self._actions.load(ledger, action)
            case DrainCopy():
                self._actions.drain(ledger, action)
            case UnloadCopy():
                self._actions.unload(ledger, action)
            case RefuseInstance():
                self._actions.refuse_instance(ledger, action)
                self._changed(key)
            case RefuseCopy():
                self._actions.refuse(ledger, action)
                self._changed(key)
            case PublishRoutes(routes=routes):
                if key not in self.hosted:
                    self._publisher.publish(routes)
                ledger.publish(routes)
            case WithdrawRoutes():
                self._publisher.withdraw(ledger.desired.endpoint)
                ledger.publish(None)
            case SetStatus():
                await self._set_status(key, ledger, action)
            case SetRollout(generation=generation, progress=progress):
                name, wall = ledger.desired.endpoint, self._clock.wall()
                record = await self._database.call(
                    Store.set_rollout, name, generation, progress, now=wall
                )
                self._take_record(key, ledger, record)
            case SetTarget():
                name = ledger.desired.endpoint
                record = await self._database.call(Store.set_target, name, action)
                self._take_record(key, ledger, record)
            case SetComponent():
                await self._set_component(key, ledger, action)
            case ForgetComponent(component=component):
                name = ledger.desired.endpoint
                left = await self._database.call(Store.forget_component, name, component)
                self.agreements.forget(key, component)
                self._take_spec(key, left.desired())
            case FinishDelete():
                if key not in self.hosted:
                    await self._database.call(Store.finish_delete, ledger.desired.endpoint)
                del self._ledgers[key]
                self.agreements.forget(key)
                self.ready_times.forget(key)
                self.hosted.forget(key)

    async def _keep(self, ledger: EndpointLedger, action: Action) -> None:
        """Writes down why the endpoint's state changes, for who asks after a restart. If it does
        not change after all, this tells that it was to."""
        what, reason, detail = told(action)
        one = Activity(at=self._clock.wall(), what=what, reason=reason, detail=detail)
        await self._database.call(Store.add_activity, ledger.desired.endpoint, one)

    async def _set_component(self, key: str, ledger: EndpointLedger, action: SetComponent) -> None:
        name, wall = ledger.desired.endpoint, self._clock.wall()
        if action.failure_reason:
            words = f"{action.component} {action.status}: {action.failure_reason}"
            await asyncio.to_thread(instance_operations.tell, self._log_dir, name, words, wall=wall)
        record = await self._database.call(Store.set_component, name, action, now=wall)
        self._take_spec(key, record.desired())

    async def _set_status(self, key: str, ledger: EndpointLedger, action: SetStatus) -> None:
        # Written first: who reads the reason may look into the log at once.
        if action.failure_reason:
            name, wall = ledger.desired.endpoint, self._clock.wall()
            words = f"{action.status}: {action.failure_reason}"
            await asyncio.to_thread(instance_operations.tell, self._log_dir, name, words, wall=wall)
        record = await self._database.call(
            Store.set_status,
            ledger.desired.endpoint,
            action.status,
            now=self._clock.wall(),
            failure_reason=action.failure_reason,
            active_generation=action.active_generation,
            restore_previous=action.restore_previous,
        )
        self._take_record(key, ledger, record)

    def _take_record(self, key: str, ledger: EndpointLedger, record: EndpointRecord | None) -> None:
        """The endpoint as a write left it; None: it is gone."""
        if record is None:
            ledger.take_spec(replace(ledger.desired, status=DELETING))
            self._changed(key)
        else:
            self._take_spec(key, record.desired())
