"""When a model was called, and when its next call is to be expected.

A model's last eight calls are kept, those within a second as one: a burst says nothing about when
the *next* one comes. What is expected follows from them in one of two ways.

* Calls come anyhow. Then the time until the next one is estimated as for a Poisson process of which
  we saw `n` gaps and one that is still open: all the time since the oldest call, over `n`. So the
  rate of a model that nobody calls any more falls by itself ("aged" frequency, and LRU-K's backward
  distance: O'Neil, O'Neil and Weikum, 1993), without a half-life to choose. A model with few calls
  is drawn towards the average of all, with the weight of half a gap.
* Gaps are alike (a job every ten minutes, a round over all customers). Then the next call comes a
  gap after the last. This is what keeps a cyclic trace from degrading to a miss at each call: the
  one that was called just now is the one that is needed last. A call that is overdue ends it.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise

_CALLS_KEPT = 8
#: Calls within so many s of each other are one.
BURST_S = 1.0
#: Gaps are alike when their spread (standard deviation) is below this share of their mean.
_SPREAD_MAX = 0.25
_GAPS_REGULAR_MIN = 3
#: A regular call may be late by this share of its gap before it is not expected any more.
_LATE_SHARE = 0.5
#: However close an expected call is, it is not nearer than this share of a gap.
_NEAREST_SHARE = 1 / 16
_PRIOR_GAPS = 0.5
_PRIOR_LEARNED = 1 / 64  #: weight of a new gap in the average of all


class Population:
    """What gaps between calls are like over all models of the host."""

    __slots__ = ("gap_s",)

    def __init__(self) -> None:
        self.gap_s = 60.0  #: before anything was seen; soon forgotten

    def learn(self, gap_s: float) -> None:
        self.gap_s += (gap_s - self.gap_s) * _PRIOR_LEARNED


class CallHistory:
    """The calls of one model."""

    __slots__ = ("calls", "last", "period_s", "times")

    def __init__(self) -> None:
        self.calls = 0
        self.last: float | None = None  #: when it was called last
        self.period_s = 0.0  #: the gap where gaps are alike, else 0
        self.times: deque[float] = deque(maxlen=_CALLS_KEPT)  #: starts of bursts, oldest first

    def called(self, now: float, population: Population) -> bool:
        """True if the call begins a burst; then what is expected has changed."""
        self.calls += 1
        last, self.last = self.last, now
        if last is not None and now < last + BURST_S:
            return False
        if self.times:
            population.learn(now - self.times[-1])
        self.times.append(now)
        self._judge()
        return True

    def expected_wait_s(self, now: float, population: Population) -> float:
        """Seconds until its next call, above 0."""
        if self.last is None:
            return 2 * population.gap_s
        period_s = self.period_s
        if period_s:
            due_s = self.times[-1] + period_s - now
            if due_s > -_LATE_SHARE * period_s:
                return max(due_s, _NEAREST_SHARE * period_s)
        seen_s = now - self.times[0] + _PRIOR_GAPS * population.gap_s
        return max(seen_s, BURST_S) / (len(self.times) - 1 + _PRIOR_GAPS)

    def next_at(self) -> float | None:
        """The moment at which the next call is due; None where gaps are not alike."""
        return self.times[-1] + self.period_s if self.period_s else None

    def _judge(self) -> None:
        gaps = [later - earlier for earlier, later in pairwise(self.times)]
        self.period_s = 0.0
        if len(gaps) < _GAPS_REGULAR_MIN:
            return
        mean = sum(gaps) / len(gaps)
        spread = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
        if spread <= (_SPREAD_MAX * mean) ** 2:
            self.period_s = mean
