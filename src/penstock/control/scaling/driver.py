"""The driver of `core/scaling`: looks at every target each second and carries out the decisions.

The load is counted in memory. The recorded counts are read when the database was written to since
the last look, by this server or by another process; a write is seen within a second.

Every rule is in the core's machine. The events of one target are handled one after the other, so
that each decision sees the result of the one before.
"""

from __future__ import annotations

import asyncio
import math
import uuid
from collections.abc import Callable, Mapping
from typing import Final

from penstock.clock import Clock
from penstock.control.loop import DriverLoop
from penstock.control.scaling import loading, rows, writing
from penstock.control.scaling.loading import TargetLoaded, TargetLoads
from penstock.control.scaling.resources import CapacityObserved
from penstock.control.scaling.writing import Written
from penstock.control.store.store import writes
from penstock.control.store.store_thread import StoreThread
from penstock.core.alarms.spec import AlarmFired
from penstock.core.scaling import spec as resource
from penstock.core.scaling.actions import (
    Action,
    RunSchedule,
    ScalingDecision,
    SetCapacity,
    SettleActivity,
    TellNotScaled,
)
from penstock.core.scaling.machine import TargetScaler
from penstock.core.scaling.observed import LoadObserved
from penstock.core.scaling.spec import ComponentId, VariantId
from penstock.errors import CallerError, NotNowError, PenstockError
from penstock.metrics import item_failures
from penstock.metrics.item_failures import apart

LOOK_EVERY_S: Final = 1.0
IDLE_S: Final = 60.0  #: pause without any target, in s; a new target wakes the driver
PRUNE_EVERY_S: Final = 3600.0


class _Target:
    """One target, with its state machine."""

    def __init__(self, loaded: TargetLoaded) -> None:
        spec = loaded.record.spec
        self.key = loaded.record.key
        self.named = spec.resource_id, spec.dimension
        self.resource = resource.parse(*self.named)
        self.scaler = TargetScaler(loaded.spec)
        self.seen: CapacityObserved | None = None
        self.fault = ""  #: why its last turn failed; empty: it did not

    def configure(self, loaded: TargetLoaded) -> None:
        self.scaler.configure(loaded.spec, loaded.schedules)
        self.scaler.restore(loaded.last, loaded.open_activity)


class ScalingDriver:
    """All scalable targets of one server. `start`, then `close`; tests call `tick` instead."""

    def __init__(
        self,
        *,
        database: StoreThread,
        loads: TargetLoads,
        notify: Callable[[str], None],
        clock: Clock,
        fast: bool = False,
        cooldown_s_max: float = math.inf,
    ) -> None:
        """`notify` is called when an endpoint's counts changed."""
        self._database = database
        self._loads = loads
        self._notify = notify
        self._clock = clock
        self._fast = fast
        self._cooldown_s_max = cooldown_s_max
        self._targets: dict[str, _Target] = {}
        self._changed = True
        #: the version of the database that `seen` of the targets is from; None: read it anew
        self._counted: loading.CountsVersion | None = None
        self._turn = asyncio.Lock()
        self._loop = DriverLoop("scaling", self._turned, fault="scaling", retry_s=LOOK_EVERY_S)
        self._waiting: dict[tuple[str, str, str], None] = {}  #: pools for which requests wait now
        #: pools for which requests waited since the last round
        self._wanted: dict[tuple[str, str, str], None] = {}
        self._pruned_at: float | None = None

    async def start(self) -> None:
        """Loads every recorded target, with the activity that was under way."""
        await self._reload()
        self._loop.start()

    async def close(self) -> None:
        """Idempotent."""
        await self._loop.close()

    def changed(self) -> None:
        """Targets, policies or scheduled actions have changed."""
        self._changed = True
        self._loop.wake()

    def capacity_wanted(self, endpoint: str, variant: str, component: str, waiting: int) -> None:
        """`waiting` requests wait for something that has no copy; 0: none waits any more."""
        key = endpoint.lower(), variant.lower(), component.lower()
        if waiting:
            self._waiting[key] = self._wanted[key] = None
            self._loop.wake()
        else:
            self._waiting.pop(key, None)

    async def on_alarm(self, fired: AlarmFired) -> None:
        """Handles an alarm's action that names a policy.

        Raises PenstockError: `policy-unknown`, and what writing raises.
        """
        async with self._turn:
            if self._changed:
                await self._reload()
            found = [one for one in self._targets.values() if one.scaler.names(fired.action)]
            if not found:
                raise CallerError(
                    "policy-unknown", f"No scaling policy has the ARN {fired.action}."
                )
            (target,) = found
            await self._refresh()
            observed = self._look(target)
            if observed is not None:
                await self._carry_out(target, target.scaler.on_alarm(fired, observed))

    async def tick(self) -> None:
        """Looks at every target, and carries out the decisions."""
        async with self._turn:
            await self._round()

    def decisions(self) -> dict[tuple[str, str], list[ScalingDecision]]:
        """(resource id, dimension) -> the decisions since the server's start, oldest first."""
        return {one.named: one.scaler.decisions() for one in self._targets.values()}

    def looks(self) -> dict[tuple[str, str], LoadObserved | None]:
        """(resource id, dimension) -> what the last look observed."""
        return {one.named: one.scaler.latest() for one in self._targets.values()}

    def faults(self) -> dict[tuple[str, str], str]:
        """(resource id, dimension) -> why the last look failed, for those that did."""
        return {one.named: one.fault for one in self._targets.values() if one.fault}

    async def _turned(self) -> float:
        await self.tick()
        return LOOK_EVERY_S if self._targets else IDLE_S

    async def _round(self) -> None:
        if self._changed:
            await self._reload()
        await self._prune()
        if not self._targets:
            self._wanted.clear()
            return
        await self._refresh()
        wanted, self._wanted = self._wanted | self._waiting, {}
        for target in list(self._targets.values()):
            try:
                await self._take(target, wanted)
                target.fault = ""
            except NotNowError:  # the database's error concerns all targets
                raise
            except Exception as error:
                item_failures.note(loading.LOOP, target.key, error)
                target.fault = _fault_of(error)

    async def _take(self, target: _Target, wanted: Mapping[tuple[str, str, str], None]) -> None:
        """One target's turn in a round."""
        observed = self._look(target)
        scaler = target.scaler
        if observed is not None:
            await self._carry_out(target, scaler.on_observed(observed))
            if not observed.capacity and (observed.in_flight or _is_wanted(target, wanted)):
                await self._carry_out(target, scaler.capacity_wanted(observed))
        due = scaler.next_deadline()
        if due is not None and self._clock.wall() >= due:
            now = self._clock.wall()
            await self._carry_out(target, scaler.on_timer(observed, now=now))

    async def _reload(self) -> None:
        self._changed = False
        try:
            found = await self._database.call(
                loading.load_targets, fast=self._fast, cooldown_s_max=self._cooldown_s_max
            )
        except BaseException:
            self._changed = True
            raise
        targets: dict[str, _Target] = {}
        for loaded in found:
            with apart(loading.LOOP, loaded.record.key):
                target = self._targets.get(loaded.record.key) or _Target(loaded)
                target.configure(loaded)
                targets[target.key] = target
        self._targets, self._counted = targets, None

    async def _refresh(self) -> None:
        self._counted, counts = await self._database.call(loading.counts_since, self._counted)
        if counts is not None:
            for target in self._targets.values():
                target.seen = counts.get(target.key)

    def _look(self, target: _Target) -> LoadObserved | None:
        """The load of a target; None if its resource is gone or can't be counted."""
        if target.seen is None:
            return None
        return self._loads.look(target.seen, now=self._clock.wall())

    async def _carry_out(self, target: _Target, actions: list[Action]) -> None:
        for action in actions:
            try:
                await self._carry_one_out(target, action)
            except BaseException:
                # It may have been written nevertheless: what the machine is to know is read again.
                self._changed = True
                raise

    async def _carry_one_out(self, target: _Target, one: Action) -> None:
        now = self._clock.wall()
        call = self._database.call
        match one:
            case SetCapacity():
                await self._set_capacity(target, one)
            case SettleActivity():
                await call(writing.settle, one.activity_id, one.status, one.message, now=now)
            case TellNotScaled():
                await call(
                    writing.tell_not_scaled, target.named, one, activity_id=_new_id(), now=now
                )
            case RunSchedule():
                await self._run_schedule(target, one)

    async def _set_capacity(self, target: _Target, asked: SetCapacity) -> None:
        decisions = target.scaler.decisions()
        written = await self._database.call(
            writing.set_capacity,
            target.named,
            asked,
            decisions[-1] if decisions else None,
            activity_id=_new_id(),
            now=self._clock.wall(),
        )
        await self._written(target, asked, written)

    async def _run_schedule(self, target: _Target, ran: RunSchedule) -> None:
        written = await self._database.call(
            writing.run_schedule,
            target.named,
            ran,
            ids=(_new_id(), _new_id()),
            now=self._clock.wall(),
        )
        if ran.scale is not None:
            await self._written(target, ran.scale, written)

    async def _written(self, target: _Target, asked: SetCapacity, written: Written) -> None:
        if not written.endpoint:
            target.scaler.on_refused(asked)
            return
        self._notify(written.endpoint)
        target.seen = None  # the count is read again before the next look
        settled = target.scaler.on_accepted(asked, written.activity_id)
        await self._carry_out(target, settled)

    async def _prune(self) -> None:
        now = self._clock.monotonic()
        if self._pruned_at is None or now >= self._pruned_at + PRUNE_EVERY_S:
            self._pruned_at = now
            await self._database.call(_prune, now=self._clock.wall())


_prune = writes(rows.prune)


def _is_wanted(target: _Target, wanted: Mapping[tuple[str, str, str], None]) -> bool:
    named: VariantId | ComponentId | None = target.resource
    if isinstance(named, ComponentId):
        return any(component == named.component.lower() for _, _, component in wanted)
    return named is not None and any(
        endpoint == named.endpoint.lower()
        and variant in ("", named.variant.lower())
        and not component
        for endpoint, variant, component in wanted
    )


def _fault_of(error: Exception) -> str:
    return error.message if isinstance(error, PenstockError) else "an internal error occurred"


def _new_id() -> str:
    return str(uuid.uuid4())
