"""What is kept of a set of samples: CloudWatch's StatisticSet, with percentiles where they exist.

A set of equal samples needs no sketch, and most one-second points are just that; the sketch appears
with the first differing value. Statistics that came without their values (`StatisticValues` of
PutMetricData) have no percentiles: the set is then marked `opaque`, as in CloudWatch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from penstock.metrics.series.sketch import Sketch


class StatisticSet:
    """SampleCount, Sum, Minimum and Maximum of some samples, and their distribution if known.

    Attributes:
        count, total: number of samples (not always whole: callers may weigh) and their sum.
        minimum, maximum: `inf` and `-inf` while empty.
        sketch: the distribution; None while all samples are equal, or where it is unknown.
        opaque: True when the distribution is unknown.
    """

    __slots__ = ("count", "maximum", "minimum", "opaque", "sketch", "total")

    def __init__(self) -> None:
        self.count: float = 0
        self.total: float = 0.0
        self.minimum: float = math.inf
        self.maximum: float = -math.inf
        self.sketch: Sketch | None = None
        self.opaque = False

    @classmethod
    def of(cls, *values: float) -> StatisticSet:
        made = cls()
        for value in values:
            made.add(value)
        return made

    @classmethod
    def from_values(
        cls, count: float, total: float, minimum: float, maximum: float
    ) -> StatisticSet:
        """From statistics alone; opaque unless all samples must be equal."""
        made = cls()
        made.count, made.total, made.minimum, made.maximum = count, total, minimum, maximum
        made.opaque = minimum != maximum
        return made

    @classmethod
    def from_sketch(cls, sketch: Sketch) -> StatisticSet:
        """Takes the sketch over: the caller gives it up."""
        made = cls()
        made.count, made.total = sketch.count, sketch.total
        made.minimum, made.maximum = sketch.minimum, sketch.maximum
        made.sketch = None if sketch.minimum == sketch.maximum else sketch
        return made

    def add(self, value: float, count: float = 1) -> None:
        """Adds `value` (finite) `count` (> 0) times."""
        if self.count and not self.opaque and not self.minimum == value == self.maximum:
            self._own_sketch().add(value, count)
        self.count += count
        self.total += value * count
        self.minimum = min(self.minimum, value)
        self.maximum = max(self.maximum, value)

    def merge(self, other: StatisticSet) -> None:
        """Adds all of `other`, which stays as it is."""
        if not other.count:
            return
        self.opaque = self.opaque or other.opaque
        if self.opaque:
            self.sketch = None
        elif not self.count:
            self.sketch = other.sketch.copy() if other.sketch is not None else None
        elif other.sketch is not None:
            self._own_sketch().merge(other.sketch)
        elif not self.minimum == other.minimum == self.maximum:
            self._own_sketch().add(other.minimum, other.count)
        self.count += other.count
        self.total += other.total
        self.minimum = min(self.minimum, other.minimum)
        self.maximum = max(self.maximum, other.maximum)

    def copy(self) -> StatisticSet:
        twin = StatisticSet()
        twin.merge(self)
        return twin

    @property
    def average(self) -> float:
        return self.total / self.count

    def quantile(self, q: float) -> float | None:
        """The q-quantile (0 to 1) within 1 %; None when the distribution is unknown or empty."""
        if self.opaque or not self.count:
            return None
        return self.minimum if self.sketch is None else self.sketch.quantile(q)

    def bins(self) -> Iterator[tuple[float, float]]:
        """(value, count) in rising order of value; nothing when the distribution is unknown."""
        if self.sketch is not None:
            yield from self.sketch.bins()
        elif self.count and not self.opaque:
            yield self.minimum, self.count

    def _own_sketch(self) -> Sketch:
        if self.sketch is None:
            self.sketch = Sketch()
            if self.count:
                self.sketch.add(self.minimum, self.count)
        return self.sketch
