"""Which target models of a multi-model host are loaded and evicted, and why.

A request for a loaded model goes to it at once (`is_loaded`, then `began`). The driver parks any
other request and reports it here (`request`):

1. `Prepare`  the artifact is fetched: only then the model's need is known.
2. `Unload`   idle models, the longest unused first, if there is no room.
3. `Load`     once measured and reserved memory leave room for it.
4. `Admit`    all requests parked for it may be sent; one load has served them all.

or `RefuseParked` at any point. Rules that hold whatever comes in:

* a load begins only if measured memory, plus what running loads will still take, stays within the
  budget (a model may take more than was expected; then idle models are evicted for the rest);
* a model is unloaded only while nothing is in flight on it;
* each parked request ends with `Admit` or `RefuseParked`, or is `abandoned`; none outlives its
  deadline;
* a failed load is one failure, for all waiting requests and for those that come within a while.

Requests and time are handled here, with the views of the state in words and figures; results of
actions in `outcomes.py`, refusals in `loads.py`. It knows neither artifacts nor processes, and no
clock.
"""

from __future__ import annotations

from itertools import islice
from math import inf
from typing import Any

from penstock.core.residency import actions as why
from penstock.core.residency.actions import Action, Admit
from penstock.core.residency.evictor import Evictor
from penstock.core.residency.model import RESIDENT, Failure, State, TargetModel
from penstock.core.residency.outcomes import ResidencyOutcomes

_RIVALS = 3  #: number of models shown that would be evicted first


class Residency(ResidencyOutcomes):
    """Decides for one host of target models. Every input returns the actions to carry out now."""

    def is_loaded(self, model: str) -> bool:
        """Whether a request may go to it at once (then call `began`)."""
        return self._table.is_loaded(model)

    def began(self, model: str, *, now: float) -> None:
        """A request goes to a loaded model, which is busy until `idle`."""
        known = self._table.models[model]
        self._latest = now
        if not known.begin():
            known.hit(now)
            self._table.used(known)

    def idle(self, model: str, *, now: float) -> list[Action]:
        """The last request in flight on the model was answered, or left before it began."""
        known = self._table.models[model]
        known.idle()
        self._latest = now
        if known.state is State.DRAINING:
            return [self._loads.unload(known, known.leaves_because, now=now), *self._go_on(now)]
        if known.state is not State.LOADED:
            return []
        if not self._spec.keep and not known.pinned:
            return [self._loads.unload(known, why.CACHE_DISABLED, now=now), *self._go_on(now)]
        return self._go_on(now) if self._over or self._loads.blocked else []

    def request(
        self,
        model: str,
        *,
        now: float,
        deadline: float | None = None,
        callers: tuple[str, ...] = (),
    ) -> list[Action]:
        """A request for a model that is not loaded; the driver has parked it. `callers`: the models
        of this host that wait for its answer.

        It stays parked until `Admit` or `RefuseParked` for its model, or until the driver calls
        `abandoned`. Parked requests need no timers of their own: the machine refuses them when
        their deadline can't be met any more.
        """
        known = self._table.of(model)
        known.undismiss()
        self._latest = now
        if self._stays(known):
            return [self._take_back(known, now)]
        known.missed(now)
        refused = self._loads.refused_at_once(known, now, deadline)
        if refused is not None:
            known.story.tell("refused", refused.reason, now=now, text=refused.message)
            if refused.reason != why.NOT_IN_TIME:
                return [refused]
        known.ask(now)
        if refused is None:
            self._table.park(known, deadline, callers)
        else:
            known.expect(why.RETRY_EXPECTED)
        self._loads.want(known, now)
        return [*([refused] if refused else []), *self._loads.begin(now=now)]

    def abandoned(
        self,
        model: str,
        *,
        now: float,
        deadline: float | None = None,
        callers: tuple[str, ...] = (),
    ) -> list[Action]:
        """The caller of the parked request with this deadline cancelled it."""
        known = self._table.models.get(model)
        if known is None or not known.parked:
            return []
        known.unpark(deadline, callers)
        self._table.look_waiting(known)
        if known.parked:
            return []
        if not known.wanted:
            self._loads.drop(known, now)
        return self._loads.begin(now=now)

    def wish(self, model: str, *, now: float, pardon: bool = True) -> list[Action]:
        """An explicit load, like a request without a caller. It forgets earlier failures.

        `RefuseParked` reports that it is impossible; only `loaded` itself shows that it succeeded.
        Without `pardon` (for a schedule, or a request for all models) a quarantine goes on:
        otherwise a model that crashes its host would do so at each such request.
        """
        known = self._table.of(model)
        refused = None if pardon else self._loads.refuse_quarantined(known, now)
        if refused is not None:
            return [refused]
        known.forget_failures()
        known.undismiss()
        if self._stays(known):
            if known.state is State.DRAINING:
                self._table.move(known, State.LOADED, now=now)
            return []
        known.ask(now)
        known.wish()
        self._loads.want(known, now)
        return self._loads.begin(now=now)

    def dismiss(self, model: str, *, now: float) -> list[Action]:
        """An explicit unload, once nothing is in flight; the next request loads it again.

        Waiting requests are answered first. A request that comes while earlier ones are still in
        flight cancels the unload: no loaded model leaves its requests unanswered.
        """
        known = self._table.of(model)
        known.dismiss()
        known.story.tell("dismissed", "asked", now=now)
        if known.state is State.LOADED:
            return self._drain(known, why.DISMISSED, now)
        if not known.parked:
            self._loads.drop(known, now)
        return self._loads.begin(now=now)

    def pin(self, model: str, pinned: bool, *, now: float) -> list[Action]:
        """A pinned model is not evicted. It is loaded by `wish` or by its first request."""
        known = self._table.of(model)
        if known.pinned != pinned:
            known.pin(pinned)
            known.story.tell("pinned" if pinned else "unpinned", "asked", now=now)
        return self._go_on(now)

    def quarantined(self, model: str, *, seconds: float, message: str, now: float) -> list[Action]:
        """Puts it in quarantine for `seconds`: earlier hosts crashed with it."""
        return self._loads.quarantine(self._table.of(model), message, now, seconds=seconds)

    def replaced(self, model: str, *, now: float) -> list[Action]:
        """Its artifact changed or is gone: what is loaded only finishes the requests in flight."""
        known = self._table.of(model)
        known.story.tell("replaced", "asked", now=now)
        known.replace()
        if known.state in RESIDENT:
            return self._drain(known, why.REPLACED, now)
        if known.state is State.PREPARED:
            self._table.move(known, State.QUEUED, now=now)
        return self._loads.begin(now=now)

    def _stays(self, known: TargetModel) -> bool:
        """Whether a request gets the loaded model, even if that was to be unloaded."""
        dismissed = known.state is State.DRAINING and known.leaves_because == why.DISMISSED
        return known.state is State.LOADED or dismissed

    def _take_back(self, known: TargetModel, now: float) -> Admit:
        """Admits requests to a model that is still loaded, even if it was about to be unloaded."""
        reason = why.LOADED
        if known.state is State.DRAINING:
            reason = why.STILL_LOADED
            self._table.move(known, State.LOADED, now=now)
        known.admit(1)
        known.hit(now)
        self._table.used(known)
        return Admit(known.name, reason)

    # time

    def on_timer(self, *, now: float) -> list[Action]:
        """Refuses requests whose deadline can't be met, and begins what waited for this time."""
        actions: list[Action] = []
        for known in list(self._table.waiting.values()):
            actions += self._loads.refuse_late(known, now)
        return actions + self._go_on(now)

    def next_deadline(self) -> float | None:
        """When to call `on_timer`, in s; None while nothing waits. Ask again after every call."""
        at = self._loads.wake_at
        for known in self._table.waiting.values():
            at = min(at, known.given_up_at(self._loads.load_s(known)))
        return None if at == inf else at

    # views

    def snapshot(self) -> dict[str, Any]:
        """The host's state, JSON-ready."""
        known = self._table.models.values()
        return {
            "memory": self._account.snapshot(),
            "loaded": sorted(self._table.resident),
            "loading": sorted(self._table.loading),
            "leaving": sorted(model.name for model in self._table.in_state(State.LEAVING)),
            "queue": [model.name for model in self._loads.in_order()],
            "waiting": {
                name: len(model.parked) for name, model in sorted(self._table.waiting.items())
            },
            "known": len(self._table.models),
            "loads": sum(model.loads for model in known),
            "hits": sum(model.hits for model in known),
            "misses": sum(model.misses for model in known),
        }

    def explain(self, model: str, *, now: float | None = None) -> dict[str, Any]:
        """What is known of one model, and why it is in its state; JSON-ready.

        Ages in s are relative to `now`, else to the last input.
        """
        now = self._latest if now is None else now
        known = self._table.models.get(model)
        if known is None:
            return {"model": model, "state": "unknown", "story": []}
        loaded, draining = known.state in RESIDENT, known.state is State.DRAINING
        failure = known.refused(now)
        stays_s = max(0.0, self._evictor.stays_until(known) - now) if loaded else 0.0
        return {
            "model": model,
            "state": str(known.state),
            "loaded_because": known.load_reason if loaded else "",
            "drains_because": known.leaves_because if draining else "",
            "unloaded_because": "" if loaded else known.leaves_because,
            "pinned": known.pinned,
            "busy": known.busy,
            "waiting": len(known.parked),
            "artifact": known.artifact,
            "footprint": _footprint(known),
            "load_s": known.load_s,
            "prepare_s": known.prepare_s,
            "loads": known.loads,
            "evictions": known.evictions,
            "hits": known.hits,
            "misses": known.misses,
            "called_ago_s": _called_ago_s(known, now),
            "minimum_residency_left_s": stays_s,
            "rivals": _rivals(self._evictor, known, now),
            "refused_because": failure.reason if failure else "",
            "refused_for_s": _refused_for_s(failure, now),
            "message": failure.message if failure else "",
            "story": known.story.told(now=now),
        }

    def brief(self, model: str, *, now: float) -> dict[str, Any]:
        """State, pin, last call and last event of one model, JSON-ready: a line of a list of
        thousands, so it looks at no other model."""
        known = self._table.models.get(model)
        if known is None:
            return {"state": "unknown", "pinned": False, "called_ago_s": None, "last_event": None}
        events = known.story.told(now=now)
        return {
            "state": str(known.state),
            "pinned": known.pinned,
            "called_ago_s": _called_ago_s(known, now),
            "last_event": events[-1] if events else None,
        }

    def check_invariants(self) -> None:
        """Raises AssertionError if the state contradicts itself; for tests and the twin."""
        self._account.check_invariants()
        states: dict[State, set[str]] = {state: set() for state in State}
        for name, known in self._table.models.items():
            known.check_invariants()
            states[known.state].add(name)
        queued = states[State.QUEUED] | states[State.PREPARING] | states[State.PREPARED]
        assert set(self._table.queue) == queued, "the queue is not what waits in it"
        assert set(self._table.loading) == states[State.LOADING], "loads were miscounted"
        resident = states[State.LOADED] | states[State.DRAINING]
        assert set(self._table.resident) == resident, "loaded models were miscounted"
        there = resident | states[State.LEAVING]
        assert self._account.charged() == there, (
            "memory is charged to others than those who hold it"
        )
        parked = {name for name, known in self._table.models.items() if known.parked}
        assert set(self._table.waiting) == parked, "waiting requests were miscounted"


def _footprint(known: TargetModel) -> dict[str, Any] | None:
    size = known.size
    if size is None:
        return None
    measured = known.taken is not None or known.need_measured
    return size.snapshot() | {"basis": "measured" if measured else "estimated"}


def _called_ago_s(known: TargetModel, now: float) -> float | None:
    return None if known.called_at is None else now - known.called_at


def _refused_for_s(failure: Failure | None, now: float) -> float | None:
    """s until requests are accepted again; None: until its artifact changes."""
    if failure is None:
        return 0.0
    return None if failure.until == inf else failure.until - now


def _rivals(evictor: Evictor, known: TargetModel, now: float) -> list[dict[str, Any]]:
    first = islice(evictor.first_to_go(now=now, besides=known), _RIVALS)
    return [{"model": one.name, "called_ago_s": _called_ago_s(one, now)} for one in first]
