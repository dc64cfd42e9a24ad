"""Times that are learned from the wall clock, of which a single slow one is not believed.

What a run, a step or a load takes by the clock contains whatever else kept the machine busy: a
compiler, a neighbour, a cold disk. A single batch of two rows that took a hundred times as long
made later batches wait on an idle lane. So a time counts as at most four times the estimate
(winsorizing: Tukey 1962, "The Future of Data Analysis"). What is new for good, a slower model or
a longer input, is believed with the fourth such time in a row: then the estimate begins anew from
the shortest of the four.

`OutlierFilter` is for learners that have an estimate of their own; `LearnedTime` is a moving mean
with a filter.

Not for times that are far apart by nature, whose mean is wanted: how long a generated answer takes
(`request/admission.py`), or the time from one answer of a batch to the next (`routing/speeds.py`).
"""

from __future__ import annotations

from typing import Final

OUTLIER_FACTOR: Final = 4.0  #: times the estimate; a longer time is an outlier
BELIEVED_RUNS: Final = 4  #: outliers in a row that show that the estimate is wrong


class OutlierFilter:
    """What a new time counts as, by the estimate so far. One for each estimate."""

    __slots__ = ("_least_s", "in_a_row")

    def __init__(self) -> None:
        self.in_a_row = 0  #: outliers since the last time that was none, or was believed
        self._least_s = 0.0  #: the shortest of them

    def cut(self, seen_s: float, estimate_s: float) -> tuple[float, bool]:
        """(the time to learn, whether the estimate begins anew from it).

        `estimate_s`: 0 = there is none yet.
        """
        if not estimate_s or seen_s <= estimate_s * OUTLIER_FACTOR:
            self.in_a_row = 0
            return seen_s, False
        self._least_s = min(self._least_s, seen_s) if self.in_a_row else seen_s
        self.in_a_row += 1
        if self.in_a_row < BELIEVED_RUNS:
            return estimate_s * OUTLIER_FACTOR, False
        self.in_a_row = 0
        return self._least_s, True


class LearnedTime:
    """A moving mean, whose latest time has the weight `weight`."""

    __slots__ = ("_outliers", "_weight", "mean_s")

    def __init__(self, weight: float) -> None:
        self._weight = weight
        self._outliers = OutlierFilter()
        self.mean_s = 0.0  #: 0 = nothing was seen

    def learn(self, seen_s: float) -> None:
        counted_s, anew = self._outliers.cut(seen_s, self.mean_s)
        weight = self._weight if self.mean_s and not anew else 1.0
        self.mean_s += (counted_s - self.mean_s) * weight
