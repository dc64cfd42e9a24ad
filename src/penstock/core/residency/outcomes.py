"""The results of the machine's actions: loads and their failures, ends, crashes, memory.

The half of the machine (`machine.py`, whose rules hold here) for inputs other than requests. Every
input reports the result of an action, or measured memory, and returns the actions to carry out now.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from penstock.core.backoff import Backoff
from penstock.core.residency import actions as why
from penstock.core.residency.account import Account
from penstock.core.residency.actions import Action, Admit
from penstock.core.residency.evictor import Evictor, Shortage
from penstock.core.residency.loads import Loads, bytes_of
from penstock.core.residency.model import RESIDENT, Failure, State, Table, TargetModel
from penstock.core.residency.spec import NOTHING, Footprint, ResidencySpec

#: s for which a server's report counts that it has no memory for a further model.
_FULL_S = 300.0
#: States in which a process may die because of the model.
_HAS_PROCESS = (State.PREPARING, State.LOADING, *RESIDENT, State.LEAVING)


class ResidencyOutcomes:
    def __init__(self, spec: ResidencySpec, *, used: Footprint = NOTHING) -> None:
        """`used`: measured memory of the process tree without any model."""
        self._spec = spec
        self._table = Table()
        self._account = Account(spec.budget, used=used, models_max=spec.models_max)
        self._evictor = Evictor(spec, self._table)
        self._loads = Loads(spec, self._table, self._account, self._evictor)
        self._latest = 0.0  #: when the last input came
        self._full_until = inf  #: how long a server's report of its capacity counts
        #: the budget is exceeded, and evicting everything possible was not enough
        self._over = False

    def prepared(
        self,
        model: str,
        need: Footprint,
        *,
        now: float,
        prepare_s: float,
        artifact: str = "",
        measured: bool = False,
        sized: bool = False,
    ) -> list[Action]:
        """Its artifact is here, and it will take `need`: an estimate, or what it took before.

        Args:
            model: the model of a `Prepare`.
            need: its peak while it loads or runs.
            now: seconds.
            prepare_s: s that fetching and unpacking took.
            artifact: identifies the content; a new value forgets all that was known of the old one.
            measured: `need` was measured on this machine.
            sized: `need` was measured for it or others of its kind and size: it may load beside
            others.
        """
        known = self._on_its_way(model, State.PREPARING)
        known.learn_prepare(prepare_s)
        if known.stale or not known.wanted:
            self._start_over(known, now)
            return self._loads.begin(now=now)
        taken = known.prepared(need, artifact=artifact, measured=measured, sized=sized)
        self._table.move(known, State.PREPARED, now=now)
        if not self._account.can_ever_hold(taken):
            return [self._loads.refuse_too_large(known, now), *self._loads.begin(now=now)]
        return self._loads.begin(now=now)

    def loaded(
        self, model: str, taken: Footprint, *, now: float, load_s: float, used: Footprint
    ) -> list[Action]:
        """It is loaded. `taken`: measured growth by it; `used`: the whole process tree now."""
        known = self._on_its_way(model, State.LOADING)
        self._account.load_ends(model, taken=taken, used=used)
        self._table.move(known, State.LOADED, now=now)
        known.measure(taken)
        self._loads.learn(known, load_s)
        known.story.tell("loaded", known.load_reason, now=now, cost_s=load_s)
        actions = self._first_use(known, now)
        return [*actions, *self._outgrown(known, now), *self._go_on(now)]

    def load_failed(
        self, model: str, *, now: float, message: str, permanent: bool, used: Footprint
    ) -> list[Action]:
        """Preparing or loading failed. `permanent`: until its artifact changes."""
        known = self._on_its_way(model, State.PREPARING, State.LOADING)
        self._gave_up(known, used, now)
        if known.stale:
            self._start_over(known, now)  # the old artifact failed
            return self._go_on(now)
        backoff = Backoff(self._spec.failure_s, self._spec.failure_s_max)
        wait_s = backoff.pause_s(known.load_failed())
        failure = Failure(inf if permanent else now + wait_s, why.LOAD_FAILED, message)
        known.story.tell("failed", why.LOAD_FAILED, now=now, text=message)
        retry_after_s = None if permanent else wait_s
        return [
            *self._loads.remember(known, failure, retry_after_s, now),
            *self._go_on(now),
        ]

    def full(self, model: str, *, now: float, used: Footprint) -> list[Action]:
        """A server that hosts models itself has no memory (its 507) to load or to run this one.

        So one model fewer fits there than was assumed: another one is evicted, and the load is
        retried. After `_FULL_S` the assumption is dropped.
        """
        known = self._table.of(model)
        if known.state is not State.LOADING:
            fits = self._account.models - 1
        elif self._account.models == 1:
            message = f"the server has no memory for model {model}, and has no other model"
            return self.load_failed(model, now=now, message=message, permanent=False, used=used)
        else:
            self._gave_up(known, used, now)
            fits = self._account.models
            self._start_over(known, now)
        self._account.limit_models(max(fits, 1))
        self._full_until = now + _FULL_S
        known.story.tell("full", "server-full", now=now)
        return self._go_on(now)

    def unloaded(self, model: str, *, now: float, used: Footprint) -> list[Action]:
        """Its memory was freed; `used` is measured after that."""
        known = self._table.models.get(model)
        if known is None or known.state is not State.LEAVING:
            return self.measured(used, now=now)
        self._account.left(model, used=used)
        self._table.move(known, State.UNLOADED, now=now)
        known.story.tell("unloaded", known.leaves_because, now=now)
        replaced = known.leaves_because == why.REPLACED
        if replaced and self._spec.keep and not (known.wanted or known.dismissed):
            known.ask(now)
            known.expect(why.REPLACED)
        if known.wanted:
            self._loads.want(known, now)
        return self._go_on(now)

    def crashed(
        self, model: str, *, now: float, used: Footprint, message: str = ""
    ) -> list[Action]:
        """Its process died, while it was prepared or loaded, or afterwards. `message`: how it
        ended.

        A single death is no proof against the model: if somebody waits for it, it is loaded again,
        until `crashes_max` deaths in a row. Deaths before and after the end of a load are counted
        apart: a successful load ends the first row, a run of `quarantine_s` the second.
        """
        known = self._table.models.get(model)
        if known is None or known.state not in _HAS_PROCESS:
            return self.measured(used, now=now)
        counts = known.state is not State.LEAVING and not known.is_replaced
        if known.state in (State.PREPARING, State.LOADING):
            in_a_row = known.died_on_its_way(counts=counts)
            what = "died while it was loaded"
        else:
            ran_long = now >= known.loaded_at + self._spec.quarantine_s
            in_a_row, what = known.died_loaded(counts=counts, ran_long=ran_long), "crashed"
        self._gave_up(known, used, now)
        known.expect("")
        known.story.tell("crashed", "worker-died", now=now, text=f"{in_a_row} in a row")
        if in_a_row >= self._spec.crashes_max:
            words = f"model {model} {what} {in_a_row} times in a row"
            words = f"{words}: {message}" if message else words
            return [*self._loads.quarantine(known, words, now), *self._go_on(now)]
        self._start_over(known, now)
        return self._go_on(now)

    def measured(
        self, used: Footprint, *, now: float, by_model: Mapping[str, Footprint] | None = None
    ) -> list[Action]:
        """A measurement: the whole process tree, and by model what some loaded models take now."""
        grown = []
        for name, taken in (by_model or {}).items():
            known = self._table.models.get(name)
            if known is not None and known.state in (*RESIDENT, State.LEAVING):
                self._account.grown(name, taken)
                known.resized(taken)
                grown.append(known)
        self._account.look(used)
        actions = [action for known in grown for action in self._outgrown(known, now)]
        return actions + self._go_on(now)

    # changes of state

    def _on_its_way(self, model: str, *states: State) -> TargetModel:
        known = self._table.models.get(model)
        if known is None or known.state not in states:
            raise ValueError(f"model {model} is {known.state if known else 'unknown'}")
        return known

    def _start_over(self, known: TargetModel, now: float) -> None:
        """Starts again if anybody waits for it, else ends."""
        if known.state is not State.UNLOADED:
            self._table.move(known, State.UNLOADED, now=now)
        if known.wanted:
            self._loads.want(known, now)
        else:
            known.fresh()

    def _gave_up(self, known: TargetModel, used: Footprint, now: float) -> None:
        """It is neither loaded nor being loaded any more."""
        if known.state is State.PREPARING:
            self._account.look(used)
        elif known.state is State.LOADING:
            self._account.load_ends(known.name, taken=None, used=used)
        else:
            self._account.left(known.name, used=used)
        self._table.move(known, State.UNLOADED, now=now)

    def _first_use(self, known: TargetModel, now: float) -> list[Action]:
        """For a newly loaded model: admits its requests, or finds that nobody waits any more."""
        wished = known.take_wish()
        known.expect("")
        if known.stale:
            known.fresh()
            known.measure(None)
            if wished:
                known.wish()
            return [self._loads.unload(known, why.REPLACED, now=now)]
        if known.parked:
            known.admit(known.unpark_all())
            self._table.look_waiting(known)
            if known.dismissed:
                self._drain(known, why.DISMISSED, now)
            return [Admit(known.name, why.LOADED)]
        if known.dismissed:
            return [self._loads.unload(known, why.DISMISSED, now=now)]
        if not (self._spec.keep or wished or known.pinned):
            return [self._loads.unload(known, why.CACHE_DISABLED, now=now)]
        return []

    def _drain(self, known: TargetModel, reason: str, now: float) -> list[Action]:
        """It takes no more requests, and is unloaded once it is idle."""
        if not known.busy:
            return [self._loads.unload(known, reason, now=now)]
        self._table.move(known, State.DRAINING, now=now, reason=reason)
        return []

    # memory

    def _outgrown(self, known: TargetModel, now: float) -> list[Action]:
        """Unloads a model that is larger than the budget, and does not reload it at once."""
        goes = known.state is State.DRAINING and known.leaves_because == why.OUTGROWN
        if known.state not in RESIDENT or goes:
            return []
        taken = self._account.charge(known.name)
        if self._account.can_ever_hold(taken):
            return []
        message = (
            f"model {known.name} takes {bytes_of(taken)}, and the budget is "
            f"{bytes_of(self._spec.budget)}"
        )
        drained = self._drain(known, why.OUTGROWN, now)
        return [*drained, *self._loads.quarantine(known, message, now)]

    def _go_on(self, now: float) -> list[Action]:
        """After memory changed: evicts what exceeds the budget, then begins further loads."""
        self._latest = now
        if now >= self._full_until:
            self._full_until = inf
            self._account.limit_models(self._spec.models_max)
        limit = self._spec.budget_running or self._spec.budget
        missing = Shortage(self._account.above(limit), self._account.models_over(0))
        self._over = missing.is_any
        actions: list[Action] = []
        if self._over:
            victims = self._evictor.all_that_help(missing, now=now)
            actions = self._loads.evict(victims, why.OVER_BUDGET, now=now)
        return actions + self._loads.begin(now=now)
