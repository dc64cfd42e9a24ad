"""Whether a model may call another one, so that no call waits for itself; and what a return means.

A batch of a Python model that calls another model, and an ensemble's run that waits for a step,
hold their lane until the answer is there. The rules, in this order:

1. `calls-itself`: the called model is already on the path of calls that led here. This is always
   refused, not only where lanes are scarce, so that such a model fails in its first test and not
   under load.
2. `lanes-exhausted`: the call could never end, because what it waits for waits for it. This happens
   where two models call each other for different requests. The call that closes the circle is
   refused, and its lane goes on.

A waiting lane goes on when all its calls end. A call ends if the lanes that compute it go on, or if
it waits in a queue and any lane of that model is free or goes on. The lanes that go on are the
least set with these properties; it is computed only where no lane of the called model is free. This
is the search for a deadlock among resources of several units (Holt 1972, reduction of graphs).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping
from typing import Any, Final, NamedTuple

from penstock.core.blame.poison_requests import Past

Lane = tuple[str, Hashable]  #: a model, and a key that tells its lanes apart


class Ruling(NamedTuple):
    """Whether a model may make a call."""

    allowed: bool
    reason: str  #: may-call | calls-itself | lanes-exhausted
    #: number of the allowed call, for which the called model then works; 0 = not allowed
    call: int = 0


_CALLS_ITSELF: Final = Ruling(False, "calls-itself")
_LANES_EXHAUSTED: Final = Ruling(False, "lanes-exhausted")


class _Waiting:
    """A lane that waits for calls."""

    __slots__ = ("calls", "works_for")

    def __init__(self) -> None:
        self.calls: dict[int, str] = {}  #: call number -> the called model
        #: numbers of the calls that the lane works for
        self.works_for: frozenset[int] = frozenset()


class NestedCalls:
    """The calls under way between models that call one another. `lanes`: number per model; a model
    without a number is not loaded, and has lanes once it is."""

    def __init__(self, lanes: Mapping[str, int]) -> None:
        self._lanes = dict(lanes)
        self._waiting: dict[Lane, _Waiting] = {}
        self._waiting_of: Counter[str] = Counter()  #: number of waiting lanes per model
        self._callers: dict[int, Lane] = {}  #: call number -> the calling lane
        self._numbers = 0

    def has_lanes(self, model: str, lanes: int) -> None:
        """The model is loaded now, with so many."""
        self._lanes[model] = lanes

    def begin(
        self, path: tuple[str, ...], lane: Hashable, target: str, works_for: Collection[int] = ()
    ) -> Ruling:
        """Requests a call by the last model of `path`, from its `lane`, which itself works for the
        calls `works_for`. If it is allowed, call `end` once it is over."""
        if target in path:
            return _CALLS_ITSELF
        caller = (path[-1] if path else "", lane)
        self._numbers += 1
        call = self._numbers
        waiting = self._waiting.get(caller)
        if waiting is None:
            waiting = self._waiting[caller] = _Waiting()
            self._waiting_of[caller[0]] += 1
        waiting.works_for = frozenset(works_for)
        waiting.calls[call] = target
        self._callers[call] = caller
        if self._can_end(call, target):
            return Ruling(True, "may-call", call)
        self.end(call)
        return _LANES_EXHAUSTED

    def end(self, call: int) -> None:
        """An allowed call is over, with or without success."""
        caller = self._callers.pop(call)
        waiting = self._waiting[caller]
        del waiting.calls[call]
        if not waiting.calls:
            del self._waiting[caller]
            self._waiting_of[caller[0]] -= 1

    def _can_end(self, call: int, target: str) -> bool:
        if self._has_free_lane(target):
            return True
        going: set[Lane] = set()
        while True:
            more = {
                lane
                for lane, waiting in self._waiting.items()
                if lane not in going
                and all(self._ends(each, model, going) for each, model in waiting.calls.items())
            }
            if not more:
                return self._ends(call, target, going)
            going |= more

    def _ends(self, call: int, model: str, going: set[Lane]) -> bool:
        """Whether the call ends, if the lanes `going` go on."""
        computing = [lane for lane, each in self._waiting.items() if call in each.works_for]
        if computing:
            return going.issuperset(computing)
        return self._has_free_lane(model) or any(lane[0] == model for lane in going)

    def _has_free_lane(self, model: str) -> bool:
        lanes = self._lanes.get(model)
        return lanes is None or self._waiting_of[model] < lanes

    def snapshot(self) -> dict[str, Any]:
        """JSON-ready: how many calls each model waits for, by the called model."""
        told: dict[str, dict[str, int]] = {}
        for (caller, _), waiting in self._waiting.items():
            calls = told.setdefault(caller, {})
            for target in waiting.calls.values():
                calls[target] = calls.get(target, 0) + 1
        return told

    def check_invariants(self) -> None:
        known = {call for waiting in self._waiting.values() for call in waiting.calls}
        assert known == set(self._callers), "a call is known to its lane and by its number"
        counted = Counter(model for model, _ in self._waiting)
        assert counted == +self._waiting_of, "as many lanes of each model wait as are counted"
        for lane, waiting in self._waiting.items():
            assert waiting.calls, f"{lane} waits for nothing"
            for call, target in waiting.calls.items():
                assert self._callers[call] == lane, f"call {call} has another caller"
                assert target != lane[0], f"{lane} waits for its own model"


#: Reasons of a return after which the same copy takes no further call.
_FINAL: Final = ("copy-failed", "copy-closed", "draining")


class CallStep(NamedTuple):
    """What happens to a call that the called model gave back."""

    do: str  #: again | fail | gone
    past: Past  #: with this return; `again` is sent alone if `past.alone` says so


def when_returned(past: Past, reason: str) -> CallStep:
    """Decides by the rule for callers' requests (`core.blame`): a call that ended a worker is made
    again, alone, and fails when another worker dies of it. An artifact has one copy of each model,
    so for a copy that is `gone` there is no replacement."""
    past = past.after(reason)
    if reason in _FINAL:
        return CallStep("gone", past)
    return CallStep("fail" if past.blamed else "again", past)
