"""Whether a model may call another one, so that no call waits for itself; and what a return means.

A batch of a Python model that calls another model, and an ensemble's run that waits for a step,
hold their lane until the answer is there. The rules, in this order:

1. `calls-itself`: the call's own way leads through the model that it asks. Refused always, and not
   only where lanes run short, so that such a model fails in its first test and not under load.
2. `lanes-exhausted`: every lane of the model that is asked waits for a call, and none of these can
   end, because all of them wait for one another. Two models that call each other for different
   requests come to this. One of the calls must give up its lane: the one that closes the circle.

A model moves if it has a lane that waits for nobody, or one all of whose calls are to models that
move; the least set of such models is looked for, and only where the asked model's lanes all wait.
The search is that for a deadlock among resources of several units (Holt 1972, reduction of graphs).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any, Final, NamedTuple

from penstock.core.retry import WORKER_DIED, WORKER_DIED_IN_COMPANY


class Ruling(NamedTuple):
    """May it call?"""

    allowed: bool
    reason: str  #: may-call | calls-itself | lanes-exhausted


_MAY_CALL: Final = Ruling(True, "may-call")
_CALLS_ITSELF: Final = Ruling(False, "calls-itself")
_LANES_EXHAUSTED: Final = Ruling(False, "lanes-exhausted")


class NestedCalls:
    """The calls under way between the models of one artifact. `lanes`: of each model."""

    def __init__(self, lanes: Mapping[str, int]) -> None:
        self._lanes = dict(lanes)
        #: model -> lane (whatever names it) -> the models that it waits for, with how many calls
        self._waits: dict[str, dict[Hashable, Counter[str]]] = {}

    def begin(self, path: tuple[str, ...], lane: Hashable, target: str) -> Ruling:
        """Asks for a call by the last model of `path`, from its `lane`. If it is allowed, `end`
        follows once it is over."""
        if target in path:
            return _CALLS_ITSELF
        caller = path[-1] if path else ""
        self._waits.setdefault(caller, {}).setdefault(lane, Counter())[target] += 1
        if self._moves(target):
            return _MAY_CALL
        self.end(path, lane, target)
        return _LANES_EXHAUSTED

    def end(self, path: tuple[str, ...], lane: Hashable, target: str) -> None:
        """A call that was allowed is over, whatever came of it."""
        caller = path[-1] if path else ""
        targets = self._waits[caller][lane]
        targets[target] -= 1
        if not targets[target]:
            del targets[target]
        if not targets:
            del self._waits[caller][lane]
        if not self._waits[caller]:
            del self._waits[caller]

    def _has_free_lane(self, model: str) -> bool:
        return len(self._waits.get(model, ())) < self._lanes.get(model, 1)

    def _moves(self, target: str) -> bool:
        if self._has_free_lane(target):
            return True
        moving = {model for model in self._lanes if self._has_free_lane(model)}
        while True:
            more = {
                model
                for model, lanes in self._waits.items()
                if model not in moving and any(moving.issuperset(each) for each in lanes.values())
            }
            if not more:
                return target in moving
            moving |= more

    def snapshot(self) -> dict[str, Any]:
        """JSON-ready: how many calls each model waits for, by the model that it asked."""
        told: dict[str, dict[str, int]] = {}
        for model, lanes in self._waits.items():
            total: Counter[str] = Counter()
            for targets in lanes.values():
                total.update(targets)
            told[model] = dict(sorted(total.items()))
        return told

    def check_invariants(self) -> None:
        for model, lanes in self._waits.items():
            assert lanes, f"{model}: nobody of it waits, and yet it is listed"
            for lane, targets in lanes.items():
                assert targets, f"{model}, lane {lane}: waits for nobody"
                assert all(count > 0 for count in targets.values()), f"{model}, lane {lane}"


#: Reasons of a return after which the same copy takes no more.
_FINAL: Final = ("copy-failed", "copy-closed", "copy-draining", "draining")


def when_returned(reason: str, *, alone: bool) -> str:
    """What becomes of a call that the model gave back: `again`, `again-alone` or `fail`.

    There is one copy of each model in an artifact, and a caller in the middle of its work. What had
    not begun is asked again; what was in company when a worker died once more, alone, as the
    gateway would; what has ended a worker by itself fails, and the caller hears of it.
    """
    if reason == WORKER_DIED_IN_COMPANY and not alone:
        return "again-alone"
    if reason in (WORKER_DIED, WORKER_DIED_IN_COMPANY, *_FINAL):
        return "fail"
    return "again"
