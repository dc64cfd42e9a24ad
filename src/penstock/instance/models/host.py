"""A host of target models: one copy for its connections and its server, many copies inside.

    accept     a request for a loaded model goes to that model's copy; any other is parked
    residency  decides what is loaded, ended, admitted, refused: this class carries it out
    unload     only of models without unanswered requests; parked ones then wait for the next load

`loads.py` handles models, this module their callers. It has a copy's guarantee: each request is
answered exactly once. A parked request goes to its model's copy, gets an error, is given back when
the host drains, or is cancelled.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from penstock.artifacts.model_prefix import ModelPrefix
from penstock.clock import Clock
from penstock.core.residency import (
    Action,
    Admit,
    Footprint,
    Load,
    Prepare,
    RefuseParked,
    Residency,
    ResidencySpec,
    Unload,
)
from penstock.core.residency.actions import LOAD_FAILED, QUARANTINED, STILL_LOADED
from penstock.errors import CallerError, PenstockError
from penstock.instance import replies
from penstock.instance.batcher_driver import CallAt, Timer
from penstock.instance.copy import Copy, Elsewhere
from penstock.instance.models.calls import TargetCalls
from penstock.instance.models.explicit import Explicit
from penstock.instance.models.idle_warm_up import IdleWarmUpDriver
from penstock.instance.models.loader import Loader
from penstock.instance.models.loads import LoadsDriver
from penstock.instance.models.memory import footprint
from penstock.instance.models.refusals import refused, wrong_version
from penstock.instance.models.shared import SharedProcesses
from penstock.instance.models.target import HostedTarget, index_of, totals_of
from penstock.instance.models.watch import LOOK_EVERY_S, OnCounts, Watch
from penstock.instance.models.work_note import WorkNote
from penstock.instance.request import Request
from penstock.wire import frames

_LOG = logging.getLogger(__name__)

#: The reason with which models are gone at the host's end.
_HOST_ENDED = "host-ended"

#: How many models a host remembers, loaded or not. Above that, models that are not loaded are
#: forgotten, the oldest first.
_TARGETS_MAX = 16_384
_FORGOTTEN = 1024

#: (event, fields): sends an event to all connections.
OnEvent = Callable[[str, dict[str, Any]], None]


class ModelHost:
    """`number` and the public methods are those of a `Copy`. Create it on the running loop."""

    def __init__(
        self,
        number: int,
        spec: ResidencySpec,
        prefix: ModelPrefix,
        loader: Loader,
        shared: SharedProcesses,
        calls: TargetCalls,
        *,
        clock: Clock,
        call_at: CallAt,
        elsewhere: Elsewhere,
        on_event: OnEvent,
        on_counts: OnCounts = lambda models: None,
        note: WorkNote | None = None,
    ) -> None:
        """`note`: the record of which models are at work; None = nobody reads it."""
        self.number = number
        self.state = "ready"  #: ready | draining | closed
        self.clock = clock
        used = footprint()
        self._budget = spec.budget
        self._residency = Residency(spec, used=used)
        self._prefix = prefix
        self._loader = loader
        self._shared = shared
        self._calls = calls
        calls.attach(self)
        self._call_at = call_at
        self._on_event = on_event
        self._targets: dict[str, HostedTarget] = {}
        self._parked = 0
        self._touched: set[Copy] = set()
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._on_idle: Callable[[], None] | None = None
        self._copies_made = 0
        #: Since when no request is served; while one is served, the time is not used
        self._quiet_since = clock.monotonic()
        self.explicit = Explicit(
            self._targets,
            self._residency,
            prefix,
            clock=clock,
            carry_out=self.carry_out,
            free=lambda: self._budget - self.loads.used,
        )
        self._watch = Watch(
            self._targets,
            loader,
            prefix,
            clock=clock,
            on_memory=self._measured,
            on_counts=on_counts,
            on_replaced=self._replaced,
        )
        self._warm_up = IdleWarmUpDriver(
            self._targets,
            loader,
            clock=clock,
            quiet_since=self._is_quiet_since,
            free_share=lambda: 1.0 - self.loads.used.host_bytes / self._budget.host_bytes,
        )
        self.loads: LoadsDriver = LoadsDriver(
            self,
            self._residency,
            loader,
            self.explicit,
            self._warm_up,
            calls,
            used=used,
            clock=clock,
            call_at=call_at,
            elsewhere=elsewhere,
            note=note or WorkNote(None),
        )
        self.loads.begin(self._warm_up.run_on())
        self.loads.begin(self._watch.measure_on())
        self.loads.begin(self._watch.count_on())

    # Requests

    @property
    def unanswered(self) -> int:
        return self._parked + sum(copy.unanswered for copy in self._copies())

    @property
    def requests(self) -> int:
        return sum(
            target.requests + (target.copy.requests if target.copy else 0)
            for target in self._targets.values()
        )

    def accept(self, request: Request, now: float) -> None:
        if self.state != "ready":
            self._turn_back(request, self.state)
            return
        name = frames.decode_request_meta(request.meta).target_model
        if not name:
            self._fail(request, _target_model_required())
            return
        request.target = name
        self._to_target(request, now)

    def accept_call(self, request: Request, now: float) -> None:
        """A call by another model of this host, for its `target`. The caller calls `turn`
        afterwards. A host that drains answers the calls of what it still computes."""
        if self.state == "closed":
            self._turn_back(request, "draining")
        else:
            self._to_target(request, now)

    def _to_target(self, request: Request, now: float) -> None:
        name = request.target
        target = self.loaded(name)
        if target is not None:
            target.hits += 1
            target.counts.hits += 1
            self._go(target, request, now)
            if now >= target.looked_at + LOOK_EVERY_S and not target.looking:
                self.loads.begin(self._watch.look(target))
            return
        self._park(name, request, now)

    def loaded(self, name: str) -> HostedTarget | None:
        """The model, if requests may go to it now."""
        target = self._targets.get(name)
        if target is None or not target.takes_requests or not self._residency.is_loaded(name):
            return None
        return target

    def turn(self, now: float) -> None:
        """Requests that came in one read of a socket may leave."""
        touched, self._touched = self._touched, set()
        for copy in touched:
            copy.driver.turn(now)

    def cancel(self, request: Request) -> None:
        target = self._targets.get(request.target)
        if target is None or request.answered:
            return
        if id(request) in target.parked:
            self._unpark(target, request)
            request.answered = True
            request.sink.forget(request.ident)
            if not self._comes_back(target):
                self.carry_out(
                    self._residency.abandoned(
                        target.name,
                        now=self._now(),
                        deadline=request.deadline,
                        callers=request.path,
                    )
                )
            self._look_idle()
        elif target.copy is not None:
            target.copy.cancel(request)

    def pace(self, request: Request, *, waits: bool) -> None:
        target = self._targets.get(request.target)
        if target is not None and target.copy is not None:
            target.copy.pace(request, waits=waits)

    def _go(self, target: HostedTarget, request: Request, now: float) -> None:
        copy = target.copy
        assert copy is not None
        wrong = wrong_version(request.meta, target.described or {})
        if wrong is not None:
            self._fail(request, wrong)
            return
        outcome = None
        if request.reads is not None:
            try:
                outcome = request.reads(target.loaded)
            except PenstockError as error:
                self._fail(request, error)
                return
        self._residency.began(target.name, now=now)
        target.rested, target.ran_at = False, now
        if not copy.unanswered:
            target.counts.busy(now)
            target.mark.works(True)
        self._warm_up.called(target)
        if request.reads is None:
            copy.accept(request, now)
        else:
            copy.accept_read(request, outcome, now)
        self._touched.add(copy)

    def _park(self, name: str, request: Request, now: float) -> None:
        target = self._targets.get(name)
        if target is None:
            try:
                self._prefix.resolve(name)
            except PenstockError as error:
                self._fail(request, error)
                return
            target = self._new_target(name)
        target.misses += 1
        target.counts.misses += 1
        target.parked[id(request)] = request
        self._parked += 1
        if self._comes_back(target):
            return
        if target.failed:
            # A model that could not be loaded may have been replaced since.
            if not target.looking:
                self.loads.begin(self._look_then_ask(target))
        else:
            self._ask_for(request, now)

    def _ask_for(self, request: Request, now: float) -> None:
        actions = self._residency.request(
            request.target, now=now, deadline=request.deadline, callers=request.path
        )
        self.carry_out(actions)

    def _new_target(self, name: str) -> HostedTarget:
        self._copies_made += 1
        target = self._targets[name] = HostedTarget(name, self._copies_made)
        if len(self._targets) > _TARGETS_MAX:  # most of them are made up by clients
            unused = (one for one in self._targets.values() if one.is_unused and one is not target)
            forgotten = list(itertools.islice(unused, _FORGOTTEN))
            self._watch.tell_counts(forgotten, use=True)
            for one in forgotten:
                del self._targets[one.name]
        return target

    def _comes_back(self, target: HostedTarget) -> bool:
        """Whether it is loaded and its worker is being restarted: parked requests wait for that."""
        return target.copy is not None and self._residency.is_loaded(target.name)

    def _unpark(self, target: HostedTarget, request: Request) -> None:
        del target.parked[id(request)]
        self._parked -= 1

    def _take_parked(self, target: HostedTarget) -> list[Request]:
        parked = list(target.parked.values())
        target.parked.clear()
        self._parked -= len(parked)
        return parked

    def _fail(self, request: Request, error: PenstockError) -> None:
        request.refuse(replies.error_frame(request.ident, error))

    def _turn_back(self, request: Request, reason: str) -> None:
        request.refuse(replies.returned_frame(request.ident, reason))

    # Decisions of the residency

    def carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            target = self._targets.get(action.model)
            if target is None:  # a wish for a model that nobody has called yet
                target = self._new_target(action.model)
            match action:
                case Prepare():
                    self.loads.begin(self.loads.prepare(target))
                case Load():
                    self.loads.begin(self.loads.load(target, alone=action.alone))
                case Unload():
                    self.loads.unload(target, action.reason)
                case Admit():
                    if action.reason == STILL_LOADED:
                        self.explicit.called_off(target.name)
                    self.admit(target)
                case RefuseParked():
                    self._refuse(target, action)
        self._set_timer()

    def admit(self, target: HostedTarget) -> None:
        now = self._now()
        parked = self._take_parked(target)
        for request in parked:
            target.counts.took("wait", now - request.received)
            if target.takes_requests:
                self._go(target, request, now)
            else:
                self._turn_back(request, "copy-lost")
        self.turn(now)
        if target.copy is None or not target.copy.unanswered:
            self.idle(target)

    def _refuse(self, target: HostedTarget, action: RefuseParked) -> None:
        target.left_alone = action.reason == QUARANTINED
        target.failed = target.failed or target.left_alone or action.reason == LOAD_FAILED
        error = refused(target.name, action, target.error)
        refused_requests = list(target.parked.values())
        if action.newest_only:
            refused_requests = refused_requests[-1:]
        elif action.calls_only:
            refused_requests = [one for one in refused_requests if one.reads is not None]
        elif action.deadline_max is None:
            self.explicit.refused(target.name, error)
        else:
            refused_requests = [
                request
                for request in refused_requests
                if request.deadline is not None and request.deadline <= action.deadline_max
            ]
        for request in refused_requests:
            self._unpark(target, request)
            target.counts.took("wait", self._now() - request.received)
            target.counts.refused(error)
            self._fail(request, error)
        self._look_idle()

    def idle(self, target: HostedTarget) -> None:
        """Its copy has answered all requests."""
        self._quiet_since = self._now()
        target.counts.idle(self._quiet_since)
        target.mark.works(False)
        self.carry_out(self._residency.idle(target.name, now=self._now()))
        self._look_idle()

    def quarantined(self, name: str, digest: str, seconds: float, message: str) -> None:
        """Earlier hosts crashed with this model. `digest`: of its content then."""
        target = self._new_target(name)
        target.digest, target.left_alone, target.failed = digest, True, True
        actions = self._residency.quarantined(
            name, seconds=seconds, message=message, now=self._now()
        )
        target.error = refused(name, RefuseParked(name, QUARANTINED, message, seconds), None)
        self.carry_out(actions)

    # Artifacts that change

    def _replaced(self, target: HostedTarget) -> None:
        target.left_alone = False
        self.carry_out(self._residency.replaced(target.name, now=self._now()))

    async def _look_then_ask(self, target: HostedTarget) -> None:
        await self._watch.look(target)
        self.ask_for_parked(target)

    def ask_for_parked(self, target: HostedTarget) -> None:
        """Reports parked requests of which the residency does not know yet."""
        target.failed = False
        for request in list(target.parked.values()):
            self._ask_for(request, self._now())

    # Memory and time

    def _measured(self, used: Footprint, by_model: Mapping[str, Footprint]) -> None:
        self.loads.used = used
        for name, taken in by_model.items():
            self._targets[name].taken = taken
        self.carry_out(self._residency.measured(used, now=self._now(), by_model=by_model))

    def _set_timer(self) -> None:
        when = self._residency.next_deadline()
        if self._timer is not None and (when is None or when != self._timer_at):
            self._timer.cancel()
            self._timer = None
        if when is not None and self._timer is None and self.state != "closed":
            self._timer_at = when
            self._timer = self._call_at(when, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.carry_out(self._residency.on_timer(now=self._now()))

    def _now(self) -> float:
        return self.clock.monotonic()

    def _copies(self) -> list[Copy]:
        return [target.copy for target in self._targets.values() if target.copy is not None]

    # The end

    def drain(self, on_idle: Callable[[], None]) -> None:
        """What has come is answered, with the calls to other models that it makes: these stay, and
        their copies go on."""
        self.state = "draining"
        self._on_idle = on_idle
        for target in self._targets.values():
            for request in self._take_parked(target):
                if request.reads is None:
                    self._turn_back(request, "draining")
                else:
                    target.parked[id(request)] = request
                    self._parked += 1
        self._look_idle()

    def _is_quiet_since(self) -> float:
        return inf if self.unanswered or self._loader.is_busy else self._quiet_since

    def _look_idle(self) -> None:
        if self._on_idle is not None and not self.unanswered:
            self._on_idle()

    def close(self) -> None:
        """Gives back all parked and queued requests."""
        self.state = "closed"
        self._on_idle = None
        self.explicit.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for target in self._targets.values():
            for request in self._take_parked(target):
                self._turn_back(request, "draining")
            if target.copy is not None:
                target.copy.close()
            target.counts.unloading(_HOST_ENDED, target.run_us, self._now())
        self._watch.tell_counts(self._targets.values(), use=True)

    async def end(self) -> None:
        """Ends every model; call it after `close`."""
        await self.loads.give_up()
        await self._shared.close()  # first: this ends shared processes at once
        ends = [target.loaded.close() for target in self._targets.values() if target.loaded]
        await asyncio.gather(*ends)

    def pids(self) -> list[int]:
        own = {
            pid
            for target in self._targets.values()
            if target.loaded is not None
            for pid in target.loaded.pids()
        }
        return sorted(own.union(self._shared.pids()))

    def kill_workers(self) -> None:
        for target in self._targets.values():
            if target.loaded is not None:
                target.loaded.kill()
        self._shared.kill()

    # Reports

    def tell_all(self) -> dict[str, Any]:
        """For a new connection: every loaded model."""
        loaded = [name for name, target in self._targets.items() if target.copy is not None]
        return self._news(loaded, [])

    def tell(self, loaded: list[str] | None = None, gone: list[str] | None = None) -> None:
        self._on_event("models-changed", self._news(loaded or [], gone or []))

    def _news(self, loaded: list[str], gone: list[str]) -> dict[str, Any]:
        free_bytes = self._budget.host_bytes - self.loads.used.host_bytes
        return {"loaded": loaded, "gone": gone, "free_bytes": max(0, free_bytes)}

    def status(self) -> dict[str, Any]:
        return {
            "copy": self.number,
            "state": self.state,
            "unanswered": self.unanswered,
            "model_loads": self.loads.loads,
            **totals_of(self._targets.values()),
        }

    def explain(self) -> dict[str, Any]:
        return self.status() | {
            "residency": self._residency.snapshot(),
            "workers": self._shared.explain(),
            "warm_up": self._warm_up.snapshot(),
            "nested_calls": self._calls.snapshot(),
        }

    def index(self, *, after: str, limit: int) -> dict[str, Any]:
        """The models that this host knows, sorted by name, after the name `after`."""
        return index_of(self._targets, self._residency, after=after, limit=limit, now=self._now())

    def describe(self, name: str) -> dict[str, Any]:
        """The description of a model for its callers. Raises CallerError for an invalid name."""
        self._prefix.resolve(name)
        return (self._targets.get(name) or HostedTarget(name, number=0)).describe()

    async def explain_model(self, name: str) -> dict[str, Any]:
        """Raises CallerError for an invalid name."""
        self._prefix.resolve(name)
        target = self._targets.get(name)
        told = {"residency": self._residency.explain(name)}
        return told | await target.explain() if target is not None else told


def _target_model_required() -> CallerError:
    return CallerError(
        "target-model-required",
        "The endpoint is a multi-model endpoint, and the request names no model.",
        hint="Give TargetModel, one of the models below its prefix.",
    )
