"""Which target models of a multi-model host are loaded, evicted and prefetched, and why.

A request for a model that is loaded goes to it at once (`is_loaded`, then `began`). Any other is
parked by the driver and told here (`request`):

1. `Prepare`  the artifact is fetched: only then is known what the model needs.
2. `Unload`   idle models of least value, if there is no room; one confirms after the other.
3. `Load`     once what is measured and what was promised leave room for it.
4. `Admit`    all that were parked for it may go; one load has served them all.

or `Refuse` at any point. Law of the machine, whatever comes in:

* memory as measured, plus what running loads will still take, never exceeds the budget by a load
  that began here (a model may take more than it was said to need, and idle ones then make up for
  it);
* a model is unloaded only while nothing is in flight on it;
* each parked request ends with `Admit` or `Refuse`, or is `abandoned`; none outlives its deadline;
* a failed load is one failure, for all who wait and for a while after.

Knows neither artifacts nor processes, and no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from penstock.core.residency import actions as why
from penstock.core.residency import explain
from penstock.core.residency.account import Account
from penstock.core.residency.actions import Action, Admit, Refuse
from penstock.core.residency.contest import any_missing
from penstock.core.residency.evictor import Evictor
from penstock.core.residency.loads import Loads, bytes_of, refuse_all
from penstock.core.residency.model import State, TargetModel
from penstock.core.residency.prefetch import Foresight
from penstock.core.residency.spec import NOTHING, Footprint, ResidencySpec
from penstock.core.residency.table import Table
from penstock.core.residency.victims import Shortage

#: How long a server is believed that it has no memory for one model more.
_FULL_S = 300.0


class Residency:
    """Decides for one host of target models. Every input returns what is to be done now."""

    def __init__(self, spec: ResidencySpec, *, used: Footprint = NOTHING) -> None:
        """`used`: what the process tree takes without any model, as measured."""
        self._spec = spec
        self._table = Table(models_max=spec.models_max)
        self._account = Account(spec.budget, used=used, models_max=spec.models_max)
        self._evictor = Evictor(spec, self._table)
        self._loads = Loads(spec, self._table, self._account, self._evictor)
        self._foresight = Foresight()
        self._latest = 0.0  #: when something happened last
        self._full_until = inf  #: a server said what it holds, which is believed for so long
        self._over = False  #: memory is exceeded, and what may go was not enough
        self._room_changed()

    # requests

    def is_loaded(self, model: str) -> bool:
        """Whether a request may go to it at once (then call `began`)."""
        return model in self._table.ready

    def began(self, model: str, *, now: float) -> None:
        """A request goes to a loaded model, which is busy from here until `idle`."""
        table = self._table
        known = table.models[model]
        known.busy = True
        self._latest = now
        if known.admitted:
            known.admitted -= 1  # it was counted when it was parked
            return
        known.hits += 1
        if model in table.recency:
            table.recency.move_to_end(model)
        table.called(known, now=now)

    def idle(self, model: str, *, now: float) -> list[Action]:
        """The last request in flight on the model was answered, or gone before it began."""
        known = self._table.models[model]
        known.busy = False
        self._latest = now
        known.admitted = 0
        if known.state is not State.LOADED:
            return []
        if known.drains:
            return [self._loads.unload_one(known, known.drains, now=now), *self._go_on(now)]
        if not self._spec.keep and not known.pinned:
            return [self._loads.unload_one(known, why.CACHE_DISABLED, now=now), *self._go_on(now)]
        return self._go_on(now) if self._over or self._loads.blocked else []

    def request(self, model: str, *, now: float, deadline: float | None = None) -> list[Action]:
        """A request for a model that is not loaded; the driver has parked it.

        It stays parked until `Admit` or `Refuse` of its model, or until the driver says
        `abandoned`. Parked requests need no timers of their own: the machine refuses them when
        their deadline can't be met any more.
        """
        known = self._table.of(model)
        known.dismissed = False
        self._latest = now
        if known.state is State.LOADED and known.drains in ("", why.DISMISSED):
            return [self._take_back(known, now)]
        known.misses += 1
        self._table.called(known, now=now)
        refused = self._refused_at_once(known, now, deadline)
        if refused is not None:
            known.story.tell("refused", refused.reason, now=now, text=refused.message)
            if refused.reason != why.NOT_IN_TIME:
                return [refused]
        if not known.wanted:
            known.since = now
        if refused is None:
            known.park(deadline)
            self._table.waiting[model] = known
        else:
            known.retry_expected = True
        self._loads.want(known)
        return [*([refused] if refused else []), *self._loads.begin(now=now)]

    def abandoned(self, model: str, *, now: float, deadline: float | None = None) -> list[Action]:
        """One parked request, the one with this deadline, was cancelled by its caller."""
        known = self._table.models.get(model)
        if known is None or not known.parked:
            return []
        known.unpark(deadline)
        if known.parked:
            return []
        self._table.waiting.pop(model, None)
        if not known.wanted:
            self._loads.drop(known)
        return self._loads.begin(now=now)

    def wish(self, model: str, *, now: float) -> list[Action]:
        """An explicit load: as a request without a caller. Forgets that it failed before.

        `Refuse` says that it can't be; that it is loaded is said by nothing but `loaded` itself.
        """
        known = self._table.of(model)
        known.forget_failures()
        known.dismissed = False
        if known.state is State.LOADED and known.drains in ("", why.DISMISSED):
            known.drains = ""
            self._table.ready.add(model)
            return []
        if not known.wanted:
            known.since = now
        known.wished = True
        self._loads.want(known)
        return self._loads.begin(now=now)

    def dismiss(self, model: str, *, now: float) -> list[Action]:
        """An explicit unload, once nothing is in flight; the next request loads it again.

        Who waits for the model is answered first. A request that comes while it still answers
        others takes the dismissal back: no model is loaded and yet answers nobody.
        """
        known = self._table.of(model)
        known.wished = known.retry_expected = known.prefetched = False
        known.dismissed = True
        known.story.tell("dismissed", "asked", now=now)
        if known.state is State.LOADED:
            return self._drain(known, known.drains or why.DISMISSED, now)
        if not known.parked:
            self._loads.drop(known)
        return self._loads.begin(now=now)

    def pin(self, model: str, pinned: bool, *, now: float) -> list[Action]:
        """A pinned model is not evicted. It is loaded by `wish` or by its first request."""
        known = self._table.of(model)
        if known.pinned != pinned:
            known.pinned = pinned
            known.story.tell("pinned" if pinned else "unpinned", "asked", now=now)
        return self._go_on(now)

    def quarantined(self, model: str, *, seconds: float, message: str, now: float) -> list[Action]:
        """It is left alone for so long: hosts before this one crashed with it."""
        return self._quarantine(self._table.of(model), message, now, seconds=seconds)

    def replaced(self, model: str, *, now: float) -> list[Action]:
        """Its artifact changed or is gone: what is loaded serves what is in flight, no more."""
        known = self._table.of(model)
        known.forget_failures()
        known.story.tell("replaced", "asked", now=now)
        known.artifact, known.need, known.taken = "", None, None
        known.need_measured = False
        if known.state is State.LOADED:
            return self._drain(known, why.REPLACED, now)
        if known.state is State.PREPARED:
            known.state = State.QUEUED
            known.promised = known.blocked = False
            known.stale = True
        elif known.state in (State.PREPARING, State.LOADING):
            known.stale = True
        return self._loads.begin(now=now)

    # what came of actions

    def prepared(
        self,
        model: str,
        need: Footprint,
        *,
        now: float,
        prepare_s: float,
        artifact: str = "",
        measured: bool = False,
    ) -> list[Action]:
        """Its artifact is here, and it will take `need`: an estimate, or what it took before.

        Args:
            model: what was to be prepared.
            need: at its highest, while it loads or runs.
            now: seconds.
            prepare_s: what fetching and unpacking took.
            artifact: names its content; another one than before forgets what was known of it.
            measured: `need` was measured on this machine.
        """
        known = self._on_its_way(model, State.PREPARING)
        self._loads.preparing -= 1
        known.learn_prepare(prepare_s)
        if known.stale or not known.wanted:
            self._start_over(known)
            return self._loads.begin(now=now)
        if artifact != known.artifact:
            known.artifact, known.taken = artifact, None
        known.need_measured = measured or known.taken is not None
        known.need = need if measured or known.taken is None else known.taken
        known.state = State.PREPARED
        if not self._account.can_ever_hold(known.need):
            return [self._too_large(known, now), *self._loads.begin(now=now)]
        self._table.contest.called(known, now=now)
        return self._loads.begin(now=now)

    def loaded(
        self, model: str, taken: Footprint, *, now: float, load_s: float, used: Footprint
    ) -> list[Action]:
        """It runs. `taken`: measured growth by it; `used`: the whole tree, now."""
        known = self._on_its_way(model, State.LOADING)
        self._loads.loading -= 1
        self._account.load_ends(model, taken=taken, used=used)
        known.state = State.LOADED
        known.loaded_at = now
        known.loads += 1
        known.failures = 0
        known.taken = taken
        self._loads.learn(known, load_s)
        known.story.tell("loaded", known.load_reason, now=now, cost_s=load_s)
        self._table.recency[model] = known
        self._table.contest.resized(known)
        self._foresight.loaded(known)
        actions = self._first_use(known, now)
        known.retry_expected = known.prefetched = False
        return [*actions, *self._outgrown(known, now), *self._go_on(now)]

    def load_failed(
        self, model: str, *, now: float, message: str, permanent: bool, used: Footprint
    ) -> list[Action]:
        """Preparing or loading failed. `permanent`: until its artifact changes."""
        known = self._on_its_way(model, State.PREPARING, State.LOADING)
        self._gave_up(known, used)
        if known.stale:
            self._start_over(known)  # it was the old artifact that failed
            return self._go_on(now)
        known.failures += 1
        wait_s = min(
            self._spec.failure_s * 2.0 ** min(known.failures - 1, 64), self._spec.failure_s_max
        )
        known.failed_until = inf if permanent else now + wait_s
        known.failed_reason, known.failed_text = why.LOAD_FAILED, message
        known.story.tell("failed", why.LOAD_FAILED, now=now, text=message)
        retry_after_s = None if permanent else wait_s
        return [*self._refused(known, message, retry_after_s, now), *self._go_on(now)]

    def full(self, model: str, *, now: float, used: Footprint) -> list[Action]:
        """A server that hosts models itself has no memory (its 507), to load this one or to run it.

        So one model fewer fits there than was thought: another one goes, and the load is tried
        again. What fits is found out anew after `_FULL_S`.
        """
        known = self._table.of(model)
        if known.state is not State.LOADING:
            fits = self._account.models - 1
        elif self._account.models == 1:
            message = f"the server has no memory for model {model}, and has no other model"
            return self.load_failed(model, now=now, message=message, permanent=False, used=used)
        else:
            self._gave_up(known, used)
            fits = self._account.models
            self._start_over(known)
        self._account.limit_models(max(fits, 1))
        self._full_until = now + _FULL_S
        known.story.tell("full", "server-full", now=now)
        return self._go_on(now)

    def unloaded(self, model: str, *, now: float, used: Footprint) -> list[Action]:
        """Its memory was given back; `used` is measured after that."""
        known = self._table.models.get(model)
        if known is None or known.state is not State.LEAVING:
            return self.measured(used, now=now)
        self._account.left(model, used=used)
        known.state = State.UNLOADED
        known.story.tell("unloaded", known.unload_reason, now=now)
        if known.wanted:
            self._loads.want(known)
        elif self._spec.prefetch and self._spec.keep:
            self._foresight.unloaded(known, now=now)
            if known.unload_reason == why.REPLACED and not known.dismissed:
                self._guess(known, now)
        return self._go_on(now)

    def crashed(self, model: str, *, now: float, used: Footprint) -> list[Action]:
        """Its worker died, while it loaded or afterwards. Of a shared worker: for each model."""
        known = self._table.models.get(model)
        gone = (State.LOADING, State.LOADED, State.LEAVING)
        if known is None or known.state not in gone:
            return self.measured(used, now=now)
        counts = known.state is not State.LEAVING and not known.stale
        counts = counts and known.drains != why.REPLACED
        ran_long = known.state is not State.LOADING and (
            now >= known.loaded_at + self._spec.quarantine_s
        )
        known.crashes = (0 if ran_long else known.crashes) + counts
        self._gave_up(known, used)
        known.retry_expected = known.prefetched = False
        in_a_row = f"{known.crashes} in a row"
        known.story.tell("crashed", "worker-died", now=now, text=in_a_row)
        if known.crashes >= self._spec.crashes_max:
            message = f"model {model} crashed {known.crashes} times in a row"
            return [*self._quarantine(known, message, now), *self._go_on(now)]
        self._start_over(known)
        return self._go_on(now)

    def measured(
        self, used: Footprint, *, now: float, by_model: Mapping[str, Footprint] | None = None
    ) -> list[Action]:
        """A look at memory: the whole tree, and of some loaded models what they take now."""
        grown = []
        for name, taken in (by_model or {}).items():
            known = self._table.models.get(name)
            if known is not None and known.state in (State.LOADED, State.LEAVING):
                self._account.grown(name, taken)
                if known.drains != why.REPLACED:
                    known.taken = taken
                self._table.contest.resized(known)
                grown.append(known)
        self._account.look(used)
        actions = [action for known in grown for action in self._outgrown(known, now)]
        return actions + self._go_on(now)

    # time

    def on_timer(self, *, now: float) -> list[Action]:
        """Refuses whose deadline can't be met, and begins what waited for its moment."""
        actions: list[Action] = []
        for known in list(self._table.waiting.values()):
            actions += self._late(known, now)
        for known in self._foresight.due(now=now):
            if self._table.models.get(known.name) is known and self._loads.may_guess(known):
                self._guess(known, now)
        return actions + self._go_on(now)

    def next_deadline(self) -> float | None:
        """When to call `on_timer`, in s; None while nothing waits. Ask again after every call."""
        at = min(self._loads.wake_at, self._foresight.next_at())
        for known in self._table.waiting.values():
            at = min(at, known.given_up_at(self._loads.load_s(known)))
        return None if at == inf else at

    # explanation

    def snapshot(self) -> dict[str, Any]:
        """The host's state, JSON-ready."""
        return explain.host(self._table, self._account, self._loads)

    def explain(self, model: str, *, now: float | None = None) -> dict[str, Any]:
        """What is known of one model and why it is as it is, JSON-ready.

        Seconds are counted from `now`, else from the last input.
        """
        return explain.model(
            self._table, self._evictor, model, now=self._latest if now is None else now
        )

    def brief(self, model: str, *, now: float) -> dict[str, Any]:
        """State, pin, last call and last event of one model: a line of a long list, JSON-ready."""
        return explain.brief(self._table, model, now=now)

    def check_invariants(self) -> None:
        """Raises AssertionError if the state contradicts itself; for tests and the twin."""
        explain.check(self._table, self._account, self._loads)

    # refusing

    def _refused_at_once(
        self, known: TargetModel, now: float, deadline: float | None
    ) -> Refuse | None:
        name = known.name
        if now < known.failed_until:
            retry_after_s = None if known.failed_until == inf else known.failed_until - now
            return Refuse(
                name, known.failed_reason, known.failed_text, retry_after_s, newest_only=True
            )
        ready_at = known.ready_at(now, self._loads.load_s(known))
        if len(known.parked) >= self._spec.waiting_max:
            return Refuse(
                name,
                why.TOO_MANY_WAITING,
                f"{len(known.parked)} requests wait for model {name} to be loaded",
                ready_at - now,
                newest_only=True,
            )
        if deadline is None or (now < deadline and ready_at <= deadline):
            return None
        message = (
            f"loading model {name} is expected to take {ready_at - now:.1f} s, "
            f"and the deadline is in {max(deadline - now, 0.0):.1f} s"
        )
        return Refuse(name, why.NOT_IN_TIME, message, ready_at - now, newest_only=True)

    def _late(self, known: TargetModel, now: float) -> list[Action]:
        """Refuses those of its parked requests whose deadline can't be met any more."""
        load_s = self._loads.load_s(known)
        due: list[float] = []
        while now >= known.given_up_at(load_s):
            due.append(known.parked.pop(0))
        if not due:
            return []
        retry_after_s = known.ready_at(now, load_s) - now
        reason, message = why.NOT_IN_TIME, f"model {known.name} is not loaded before the deadline"
        if known.blocked:
            reason = why.NO_ROOM
            message = f"all models that could make room for {known.name} answer or are pinned"
        if known.parked:
            known.story.tell("refused", reason, now=now, text=message)
            return [Refuse(known.name, reason, message, retry_after_s, deadline_max=due[-1])]
        goes_on = known.wished, not (known.blocked or known.dismissed)
        refused = refuse_all(self._table, known, reason, message, retry_after_s, now=now)
        known.wished, known.retry_expected = goes_on
        if not known.wanted:
            self._loads.drop(known)
        return [refused]

    def _refused(
        self, known: TargetModel, message: str, retry_after_s: float | None, now: float
    ) -> list[Action]:
        """Whoever waits for it, for the failure that it is remembered for."""
        asked = bool(known.parked) or known.wished
        refused = refuse_all(
            self._table, known, known.failed_reason, message, retry_after_s, now=now
        )
        return [refused] if asked else []

    def _too_large(self, known: TargetModel, now: float) -> Refuse:
        assert known.need is not None
        message = (
            f"model {known.name} needs {bytes_of(known.need)}, and the budget is "
            f"{bytes_of(self._spec.budget)}, of which {bytes_of(self._account.base)} are taken "
            f"without any model"
        )
        known.failed_until = inf
        known.failed_reason, known.failed_text = why.LARGER_THAN_BUDGET, message
        self._loads.drop(known)
        return refuse_all(self._table, known, known.failed_reason, message, None, now=now)

    def _quarantine(
        self, known: TargetModel, message: str, now: float, *, seconds: float | None = None
    ) -> list[Action]:
        left_alone_s = self._spec.quarantine_s if seconds is None else seconds
        known.failed_until = now + left_alone_s
        known.failed_reason, known.failed_text = why.QUARANTINED, message
        known.story.tell("quarantined", why.QUARANTINED, now=now, text=message)
        return self._refused(known, message, left_alone_s, now)

    # coming and going

    def _on_its_way(self, model: str, *states: State) -> TargetModel:
        known = self._table.models.get(model)
        if known is None or known.state not in states:
            raise ValueError(f"model {model} is {known.state if known else 'unknown'}")
        return known

    def _start_over(self, known: TargetModel) -> None:
        """From the beginning if anybody waits for it, else not at all."""
        self._loads.leave_queue(known)
        known.state = State.UNLOADED
        if known.wanted:
            self._loads.want(known)
        else:
            known.stale = False

    def _gave_up(self, known: TargetModel, used: Footprint) -> None:
        """It is neither loaded nor on its way any more."""
        if known.state is State.PREPARING:
            self._loads.preparing -= 1
            self._account.look(used)
        elif known.state is State.LOADING:
            self._loads.loading -= 1
            self._account.load_ends(known.name, taken=None, used=used)
        else:
            self._account.left(known.name, used=used)
        self._loads.leave_queue(known)
        self._table.ready.discard(known.name)
        self._table.recency.pop(known.name, None)
        known.state = State.UNLOADED
        known.busy, known.admitted, known.drains = False, 0, ""

    def _first_use(self, known: TargetModel, now: float) -> list[Action]:
        wished, known.wished = known.wished, False
        if known.stale:
            known.stale, known.wished, known.taken = False, wished, None
            return [self._loads.unload_one(known, why.REPLACED, now=now)]
        if known.parked:
            known.busy = True
            known.admitted = len(known.parked)
            known.parked.clear()
            self._table.waiting.pop(known.name, None)
            if known.dismissed:
                known.drains = why.DISMISSED
            else:
                self._table.ready.add(known.name)
            return [Admit(known.name, why.LOADED)]
        if known.dismissed:
            return [self._loads.unload_one(known, why.DISMISSED, now=now)]
        if not (self._spec.keep or wished or known.pinned):
            return [self._loads.unload_one(known, why.CACHE_DISABLED, now=now)]
        self._table.ready.add(known.name)
        return []

    def _take_back(self, known: TargetModel, now: float) -> Admit:
        """A request for a model that is loaded after all, perhaps about to be unloaded."""
        reason = why.STILL_LOADED if known.drains else why.LOADED
        known.drains = ""
        known.busy = True
        known.admitted += 1
        known.hits += 1
        self._table.ready.add(known.name)
        self._table.recency.move_to_end(known.name)
        self._table.called(known, now=now)
        return Admit(known.name, reason)

    def _drain(self, known: TargetModel, reason: str, now: float) -> list[Action]:
        self._table.ready.discard(known.name)
        known.drains = reason
        return [] if known.busy else [self._loads.unload_one(known, reason, now=now)]

    def _guess(self, known: TargetModel, now: float) -> None:
        known.prefetched = True
        known.since = now
        self._loads.want(known)

    # memory

    def _outgrown(self, known: TargetModel, now: float) -> list[Action]:
        """A model that takes more than there is goes, and does not come back at once."""
        if known.state is not State.LOADED or known.drains == why.OUTGROWN:
            return []
        taken = self._account.charge(known.name)
        if self._account.can_ever_hold(taken):
            return []
        message = (
            f"model {known.name} takes {bytes_of(taken)}, and the budget is "
            f"{bytes_of(self._spec.budget)}"
        )
        drained = self._drain(known, why.OUTGROWN, now)
        return [*drained, *self._quarantine(known, message, now)]

    def _go_on(self, now: float) -> list[Action]:
        """After memory changed: first it must fit, then others may load."""
        self._latest = now
        if now >= self._full_until:
            self._full_until = inf
            self._account.limit_models(self._spec.models_max)
        self._room_changed()
        missing = Shortage(self._account.short_of(NOTHING), self._account.models_over(0))
        self._over = any_missing(missing)
        actions: list[Action] = []
        if self._over:
            victims = self._evictor.all_that_help(missing, now=now)
            actions = self._loads.unload(victims, why.OVER_BUDGET, now=now)
        return actions + self._loads.begin(now=now)

    def _room_changed(self) -> None:
        room = self._spec.budget - self._account.shared
        self._table.contest.room = room.at_least(NOTHING)
