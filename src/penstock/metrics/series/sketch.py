"""Percentiles that can be added up: a quantile sketch with a bound on its relative error.

The algorithm is DDSketch (Masson, Rim, Lee: "DDSketch: A Fast and Fully-Mergeable Quantile Sketch
with Relative-Error Guarantees", VLDB 2019). A value falls into bucket `ceil(log_gamma(value))`, so
each bucket is as wide as the allowed relative error, and sketches merge by adding bucket counts.

Invariants: the buckets of one sign span at most `BUCKETS_MAX` indices; what lies nearer to zero is
counted in the lowest bucket kept. That rule depends only on the largest magnitude seen, so a merge
gives the same sketch in any order. High percentiles keep their bound whatever happens below.

This module knows neither time nor metric names.
"""

from __future__ import annotations

import math
import struct
import zlib
from array import array
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.errors import CallerError

#: One per cent: a P99 of 10 ms reads between 9.9 and 10.1 ms.
RELATIVE_ERROR: Final = 0.01
#: 2,048 buckets of 2 % span 17 decades: nanoseconds to years.
BUCKETS_MAX: Final = 2048

_GAMMA: Final = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_INDEX_PER_LOG: Final = 1 / math.log(_GAMMA)
_LOG_PER_INDEX: Final = math.log(_GAMMA)
_MIDDLE: Final = 2 / (_GAMMA + 1)  # from a bucket's upper edge to the value with the least error
_INDEX_LOWEST: Final = -(1 << 30)
_FORMAT: Final = 1
_HEAD: Final = struct.Struct(
    "<BdddddII"
)  # format, count, total, min, max, zeros, sizes of both sides


class Sketch:
    """Counts, total, extremes and quantiles of the numbers added to it.

    Attributes:
        count: how many values, counting repeats.
        total: their sum.
        minimum, maximum: exact; `inf` and `-inf` while empty.
    """

    __slots__ = (
        "_floor",
        "_negative",
        "_positive",
        "_zeros",
        "count",
        "maximum",
        "minimum",
        "total",
    )

    def __init__(self) -> None:
        self.count: float = 0
        self.total: float = 0.0
        self.minimum: float = math.inf
        self.maximum: float = -math.inf
        self._zeros: float = 0
        self._positive: dict[int, float] = {}
        self._negative: dict[int, float] = {}
        self._floor = _INDEX_LOWEST  #: positive indices below this are counted here

    def add(self, value: float, count: float = 1) -> None:
        """Adds `value` (finite) `count` (> 0) times."""
        if value > 0.0:
            index = math.ceil(math.log(value) * _INDEX_PER_LOG)
            positive = self._positive
            if index in positive:
                positive[index] += count
            elif index <= self._floor:
                positive[self._floor] = positive.get(self._floor, 0) + count
            else:
                positive[index] = count
                self._floor = _raise_floor(positive, self._floor, index)
        else:
            self._add_not_positive(value, count)
        self.count += count
        self.total += value * count
        if value < self.minimum:  # noqa: PLR1730 - min() costs twice as much, and adds add up
            self.minimum = value
        if value > self.maximum:  # noqa: PLR1730
            self.maximum = value

    def add_many(self, values: npt.NDArray[np.float64]) -> None:
        """Adds each value once: the cheap way for values that a hot path has buffered."""
        if not len(values):
            return
        positive = values[values > 0.0]
        indices = np.ceil(np.log(positive) * _INDEX_PER_LOG).astype(np.int64)
        if len(indices):
            lowest = int(indices.min())
            # All doubles together span some 71,000 indices, so the table of counts stays small.
            counts = np.bincount(indices - lowest)
            used = np.flatnonzero(counts)
            self._add_buckets(zip((used + lowest).tolist(), counts[used].tolist(), strict=True))
        if len(positive) < len(values):
            for value in values[values <= 0.0].tolist():
                self._add_not_positive(value, 1)
        self.count += len(values)
        self.total += float(values.sum())
        self.minimum = min(self.minimum, float(values.min()))
        self.maximum = max(self.maximum, float(values.max()))

    def merge(self, other: Sketch) -> None:
        """Adds all of `other`, which stays as it is. The order of merges does not matter."""
        if not other.count:
            return
        self._add_buckets(other._positive.items())
        _add_side(self._negative, other._negative.items())
        self._zeros += other._zeros
        self.count += other.count
        self.total += other.total
        self.minimum = min(self.minimum, other.minimum)
        self.maximum = max(self.maximum, other.maximum)

    def copy(self) -> Sketch:
        twin = Sketch()
        twin.merge(self)
        return twin

    def since(self, earlier: Sketch) -> Sketch:
        """The values added after `earlier`, a copy of this sketch, was made. Extremes stay the
        total ones.

        Its quantiles have the usual bound, except for the very lowest and highest value.
        """
        later = Sketch()
        later._zeros = self._zeros - earlier._zeros
        for side, mine, before in (
            (later._positive, self._positive, earlier._positive),
            (later._negative, self._negative, earlier._negative),
        ):
            for index, count in mine.items():
                more = count - before.get(index, 0)
                if more > 0:
                    side[index] = more
        later.count = self.count - earlier.count
        later.total = self.total - earlier.total
        later.minimum, later.maximum = self.minimum, self.maximum
        later._floor = self._floor
        return later

    def quantile(self, q: float) -> float:
        """The value below which the share `q` (0 to 1) lies, within 1 %; NaN while empty."""
        if not self.count:
            return math.nan
        if q <= 0 or q >= 1:
            return self.minimum if q <= 0 else self.maximum  # known exactly
        rank = q * (self.count - 1)
        seen: float = 0
        for value, count in self.bins():
            seen += count
            if seen > rank:
                return value
        return self.maximum

    def count_at_most(self, edge: float) -> float:
        """The number of values at or below `edge`, which is moved by at most the relative error.

        For one edge the result never decreases as values are added: it can feed a cumulative
        histogram.
        """
        if edge < 0:
            limit = round(math.log(-edge) * _INDEX_PER_LOG)
            return sum(count for index, count in self._negative.items() if index > limit)
        below = self._zeros + sum(self._negative.values())
        if edge == 0:
            return below
        limit = round(math.log(edge) * _INDEX_PER_LOG)
        return below + sum(count for index, count in self._positive.items() if index <= limit)

    def bins(self) -> Iterator[tuple[float, float]]:
        """(value, count), sorted by value; values stay within the true extremes."""
        for index in sorted(self._negative, reverse=True):
            value = -_MIDDLE * math.exp(index * _LOG_PER_INDEX)
            yield max(self.minimum, min(value, self.maximum)), self._negative[index]
        if self._zeros:
            yield 0.0, self._zeros
        for index in sorted(self._positive):
            value = _MIDDLE * math.exp(index * _LOG_PER_INDEX)
            yield max(self.minimum, min(value, self.maximum)), self._positive[index]

    def __len__(self) -> int:
        """The number of buckets in use, which determines its memory."""
        return len(self._positive) + len(self._negative)

    def __eq__(self, other: object) -> bool:
        """Same buckets and extremes; totals are left out, as sums of floats depend on order."""
        if not isinstance(other, Sketch):
            return NotImplemented
        return (
            (self.count, self.minimum, self.maximum, self._zeros)
            == (other.count, other.minimum, other.maximum, other._zeros)
            and self._positive == other._positive
            and self._negative == other._negative
        )

    __hash__ = None  # type: ignore[assignment]

    def to_bytes(self) -> bytes:
        """A compact form for storage and for other processes."""
        head = _HEAD.pack(
            _FORMAT,
            self.count,
            self.total,
            self.minimum,
            self.maximum,
            self._zeros,
            len(self._positive),
            len(self._negative),
        )
        sides = _pack_side(self._positive) + _pack_side(self._negative)
        return head + zlib.compress(sides, 1)

    @classmethod
    def from_bytes(cls, data: bytes) -> Sketch:
        """Inverse of `to_bytes`.

        Raises:
            CallerError: the bytes are not a sketch of this version.
        """
        try:
            version, count, total, minimum, maximum, zeros, above, below = _HEAD.unpack_from(data)
            if version != _FORMAT or above > BUCKETS_MAX or below > BUCKETS_MAX:
                raise ValueError(f"format {version} with {above} and {below} buckets")
            size_max = (above + below) * 12
            inflater = zlib.decompressobj()
            sides = inflater.decompress(data[_HEAD.size :], size_max + 1)
            if len(sides) != size_max or not inflater.eof:
                raise ValueError(f"it does not hold just {size_max} bytes of buckets")
        except (struct.error, zlib.error, ValueError) as error:
            raise CallerError("sketch-unreadable", f"Not a percentile sketch: {error}.") from error
        sketch = cls()
        sketch.count, sketch.total, sketch._zeros = count, total, zeros
        sketch.minimum, sketch.maximum = minimum, maximum
        sketch._positive = dict(_unpack_side(sides[: above * 12], above))
        if sketch._positive:
            sketch._floor = _raise_floor(sketch._positive, _INDEX_LOWEST, max(sketch._positive))
        sketch._negative = dict(_unpack_side(sides[above * 12 :], below))
        return sketch

    def _add_buckets(self, buckets: Iterable[tuple[int, float]]) -> None:
        self._floor = _add_side(self._positive, buckets)

    def _add_not_positive(self, value: float, count: float) -> None:
        if value < 0.0:
            index = math.ceil(math.log(-value) * _INDEX_PER_LOG)
            _add_side(self._negative, ((index, count),))
        else:
            self._zeros += count


def _add_side(side: dict[int, float], buckets: Iterable[tuple[int, float]]) -> int:
    """Adds buckets to those of one sign; returns the floor that holds afterwards."""
    for index, count in buckets:
        side[index] = side.get(index, 0) + count
    return _raise_floor(side, _INDEX_LOWEST, max(side)) if side else _INDEX_LOWEST


def _raise_floor(buckets: dict[int, float], floor: int, top: int) -> int:
    """Merges buckets more than `BUCKETS_MAX` indices below `top`; returns the floor to keep."""
    wanted = top - BUCKETS_MAX + 1
    if wanted <= floor:
        return floor
    low = [index for index in buckets if index < wanted] if len(buckets) > 1 else []
    if low:
        buckets[wanted] = buckets.get(wanted, 0) + sum(buckets.pop(index) for index in low)
    return wanted


def _pack_side(buckets: dict[int, float]) -> bytes:
    indices = sorted(buckets)
    # Steps between neighbours are mostly 1, which compresses to almost nothing.
    steps = array("i", [b - a for a, b in zip([0, *indices], indices, strict=False)])
    return steps.tobytes() + array("d", [buckets[index] for index in indices]).tobytes()


def _unpack_side(data: bytes, size: int) -> Iterable[tuple[int, float]]:
    indices = np.cumsum(np.frombuffer(data, dtype=np.int32, count=size), dtype=np.int64)
    counts = np.frombuffer(data, dtype=np.float64, offset=size * 4, count=size)
    return zip(indices.tolist(), counts.tolist(), strict=True)
