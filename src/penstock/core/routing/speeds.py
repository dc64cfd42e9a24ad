"""How fast copies on different kinds of instances answer, learned from their answers.

Least outstanding requests treats copies as alike. On instances of different types they are not:
where one answers three requests while another answers one, the second is worth a third of the
first, and waiting behind two requests of the first is shorter than behind none of the second. So
copies are compared by

    (outstanding + 1) * cost        cost = speed of the fastest kind / speed of its own, >= 1

the time that the next request waits, in answers of the fastest. Speed is answers per second of a
copy that has something to do: while it is busy, each answer took since the one before. It is kept
by kind, so that a new copy is known by its like. An answer that failed is none: a copy that fails
at once is not fast.

    bounded      a kind costs eight times the fastest's at most
    in steps     of a quarter of a doubling, and only when the estimate lies clearly beyond the
                 next one: kinds that are alike cost the same, and routing is that of equal copies
    damped       one step for every sixteen answers at most, from equal on: a slow start
    forgotten    a kind that nobody answers from comes one step nearer to equal every half minute,
                 so that one that was slow for a while is tried again

How many answers a copy gives at once (lanes, batches) is part of its speed as far as there is work
for it: with little to do only the time of a single answer counts, with much to do its throughput.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

#: Steps in a doubling, and the most steps between two kinds (2 ** 3: eight times).
_STEPS = 4
_STEPS_MAX = 3 * _STEPS
#: Of the way to the next step but one that the estimate must have gone. Half a step would be
#: rounding, which goes to and fro between two of them.
_CLEARLY = 0.7
#: Answers after which estimates are looked at, of all kinds together.
_LOOK_COUNT = 16
#: Answers of a kind before it is known, and those that an estimate is made of, about.
_KNOWN_COUNT = 32
_MEMORY = 1.0 - 1.0 / 256
#: After which a kind that has not answered comes one step nearer to equal.
_FORGET_S = 30.0


class _Kind:
    __slots__ = ("answered_at", "answers", "heard", "seconds", "steps", "total")

    def __init__(self) -> None:
        self.answers = 0.0  #: that fade
        self.seconds = 0.0  #: they took, fading alike
        self.total = 0  #: answers, up to what makes it known
        self.steps = 0  #: slower than the fastest
        self.answered_at = 0.0  #: or came a step nearer to equal
        self.heard = False  #: it has answered since estimates were looked at


class KindSpeeds:
    """Of the kinds of instances that one pool of copies is on."""

    __slots__ = ("_kinds", "_until_look", "equal")

    def __init__(self, kinds: Collection[str]) -> None:
        self._kinds = {kind: _Kind() for kind in sorted(kinds)}
        self._until_look = _LOOK_COUNT
        self.equal = True  #: all cost the same

    def serves(self, kinds: Collection[str]) -> bool:
        """Whether it is about just these, so that what was learned can be kept."""
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
        """1 of the fastest; of a slower one what fraction of it is one of its answers."""
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
        """JSON-ready, by kind."""
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
