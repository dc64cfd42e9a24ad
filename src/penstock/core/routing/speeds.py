"""How fast copies on different kinds of instances answer, learned from their answers.

Least outstanding requests treats all copies as equal. On instances of different types they are not:
if one copy gives three answers while another gives one, waiting behind two requests of the first is
shorter than behind none of the second. So copies are compared by

    (outstanding + 1) * cost        cost = speed of the fastest kind / speed of its own, >= 1

the time that the next request waits, in answers of the fastest. Speed is answers per second of a
busy copy: while it has requests, each answer took the time since the previous one. It is kept per
kind, so that the speed of a new copy is known. A failed answer does not count: a copy that fails at
once is not fast.

    bounded      the cost of a kind is at most eight times the fastest's
    in steps     of a quarter of a doubling, and only when the estimate lies clearly beyond the
                 next one: similar kinds cost the same, and routing is that of equal copies
    damped       at most one step for every sixteen answers, beginning at equal: a slow start
    forgotten    a kind without answers moves one step towards equal every half minute, so that one
                 that was slow for a while is tried again

How many answers a copy gives at once (lanes, batches) is part of its speed as far as it has work:
with little to do only the time of a single answer counts, with much to do its throughput.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

#: Steps in a doubling, and the most steps between two kinds (2 ** 3: eight times).
_STEPS = 4
_STEPS_MAX = 3 * _STEPS
#: Fraction of a step by which the estimate must differ from the present step. Half a step would be
#: plain rounding, which swings to and fro between two steps.
_CLEARLY = 0.7
#: Answers, of all kinds together, between two updates of the steps.
_LOOK_COUNT = 16
#: Answers of a kind before its speed is known; an estimate covers about as many.
_KNOWN_COUNT = 32
_MEMORY = 1.0 - 1.0 / 256
#: s after which a kind without answers moves one step towards equal.
_FORGET_S = 30.0


class _Kind:
    __slots__ = ("answered_at", "answers", "heard", "seconds", "steps", "total")

    def __init__(self) -> None:
        self.answers = 0.0  #: decaying number of answers
        self.seconds = 0.0  #: decaying sum of their times, s
        self.total = 0  #: answers; counted only until the kind is known
        self.steps = 0  #: steps slower than the fastest
        self.answered_at = 0.0  #: last answer, or last step towards equal
        self.heard = False  #: it has answered since the last update


class KindSpeeds:
    """The speeds of the kinds of instances that one pool of copies is on."""

    __slots__ = ("_kinds", "_until_look", "equal")

    def __init__(self, kinds: Collection[str]) -> None:
        self._kinds = {kind: _Kind() for kind in sorted(kinds)}
        self._until_look = _LOOK_COUNT
        self.equal = True  #: True: all kinds cost the same

    def serves(self, kinds: Collection[str]) -> bool:
        """Whether it is for the same kinds, so that what was learned can be kept."""
        return set(kinds) == set(self._kinds)

    def answered(self, kind: str, took_s: float, *, now: float) -> bool:
        """A copy answered, `took_s` of busy time after its last answer. True: costs changed."""
        known = self._kinds[kind]
        known.answers = known.answers * _MEMORY + 1.0
        known.seconds = known.seconds * _MEMORY + max(took_s, 0.0)
        known.answered_at = now
        known.heard = True
        if known.total < _KNOWN_COUNT:
            known.total += 1
        self._until_look -= 1
        if self._until_look:
            return False
        self._until_look = _LOOK_COUNT
        return self._look(now)

    def cost(self, kind: str) -> float:
        """Cost of one answer in answers of the fastest kind, >= 1."""
        return float(2.0 ** (self._kinds[kind].steps / _STEPS))

    def _look(self, now: float) -> bool:
        before = [one.steps for one in self._kinds.values()]
        known = [one for one in self._kinds.values() if one.total >= _KNOWN_COUNT and one.seconds]
        if len(known) == len(self._kinds):
            rates = [math.log2(one.answers / one.seconds) for one in known]
            fastest = max(rates)
            for one, rate in zip(known, rates, strict=True):
                self._approach(one, (fastest - rate) * _STEPS, now)
        least = min(one.steps for one in self._kinds.values())
        for one in self._kinds.values():
            one.steps -= least
        after = [one.steps for one in self._kinds.values()]
        self.equal = not any(after)
        return before != after

    def _approach(self, one: _Kind, wanted: float, now: float) -> None:
        if not one.heard:
            if now >= one.answered_at + _FORGET_S:
                one.answered_at = now
                one.steps -= one.steps > 0
        elif wanted > one.steps + _CLEARLY:
            one.steps = min(one.steps + 1, _STEPS_MAX)
        elif wanted < one.steps - _CLEARLY:
            one.steps = max(one.steps - 1, 0)
        one.heard = False

    def snapshot(self) -> dict[str, Any]:
        """JSON-ready state by kind."""
        return {
            kind: {
                "cost": round(self.cost(kind), 3),
                "answers_per_busy_s": round(one.answers / one.seconds, 3) if one.seconds else None,
                "known": one.total >= _KNOWN_COUNT,
            }
            for kind, one in self._kinds.items()
        }

    def check_invariants(self) -> None:
        steps = [one.steps for one in self._kinds.values()]
        assert min(steps) == 0, f"no kind is the fastest: {steps}"
        assert max(steps) <= _STEPS_MAX, f"a kind is slower than the bound: {steps}"
        assert self.equal == (not any(steps)), "equal kinds are taken for unequal"
