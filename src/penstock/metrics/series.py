"""One metric over time, kept at four resolutions, each for its own time.

A write goes to every resolution at once, so nothing has to be rolled up later, and a query reads
the coarsest resolution that divides its period: the fewest points and the longest memory.
Resolutions and retention are CloudWatch's. `now` and all times are wall seconds since the epoch,
passed in.

Distributions of past points are kept packed; only the newest point of each resolution is open.
Points in a tier are in order of time, at most one per bucket.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.metrics.sketch import Sketch
from penstock.metrics.statistics import StatisticSet

HOUR_S: Final = 3600
DAY_S: Final = 86400

#: (resolution in s, kept for s). The finest holds high-resolution metrics only.
RETENTION: Final = (
    (1, 3 * HOUR_S),
    (60, 15 * DAY_S),
    (300, 63 * DAY_S),
    (3600, 455 * DAY_S),
)

#: Measured: a point without a distribution, its numbers and its place in the lists.
POINT_BYTES: Final = 320
_OPEN_BUCKET_BYTES: Final = 100  # a dict entry with its number objects


def retention_of(period_s: int) -> tuple[int, int]:
    """(resolution in s, kept for s) of the points that a query with this period reads."""
    return max(row for row in RETENTION if period_s % row[0] == 0)


class MetricName(NamedTuple):
    """A metric without its unit: what queries name."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]  #: sorted by name


class MetricKey(NamedTuple):
    """The identity of a series."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]  #: sorted by name
    unit: str = "None"

    @property
    def metric(self) -> MetricName:
        return MetricName(self.namespace, self.name, self.dimensions)


def metric_key(
    namespace: str, name: str, dimensions: dict[str, str], unit: str = "None"
) -> MetricKey:
    """A key with its dimensions in the one order that makes equal metrics equal."""
    return MetricKey(namespace, name, tuple(sorted(dimensions.items())), unit)


class Point:
    """The samples of one bucket; packed once a newer bucket exists."""

    __slots__ = ("_packed", "_stats", "start")

    def __init__(self, start: int, stats: StatisticSet) -> None:
        self.start = start
        self._stats = stats
        self._packed: bytes | None = None

    @property
    def bytes_used(self) -> int:
        if self._packed is not None:
            return POINT_BYTES + len(self._packed)
        sketch = self._stats.sketch
        return POINT_BYTES if sketch is None else POINT_BYTES + _OPEN_BUCKET_BYTES * len(sketch)

    @property
    def statistics(self) -> StatisticSet:
        """The samples; the caller must not change them."""
        if self._packed is None:
            return self._stats
        stats = StatisticSet.from_values(
            self._stats.count, self._stats.total, self._stats.minimum, self._stats.maximum
        )
        stats.opaque = False
        stats.sketch = Sketch.from_bytes(self._packed)
        return stats

    @property
    def numbers(self) -> StatisticSet:
        """As `statistics`, but its distribution may be missing: cheaper."""
        return self._stats

    def merged(self, stats: StatisticSet) -> Point:
        """A new open point with `stats` added, so that snapshots being written stay whole."""
        total = self.statistics.copy()
        total.merge(stats)
        return Point(self.start, total)

    def absorb(self, stats: StatisticSet) -> None:
        """Adds `stats` in place: the way of the newest point."""
        if self._packed is not None:
            self._stats, self._packed = self.statistics, None
        self._stats.merge(stats)

    def seal(self) -> None:
        """Packs the distribution, if there is one."""
        if self._stats.sketch is not None:
            self._packed = self._stats.sketch.to_bytes()
            self._stats.sketch = None

    def sealed_copy(self) -> Point:
        """A packed point that later writes do not touch."""
        twin = Point(self.start, self.statistics.copy())
        twin.seal()
        return twin


class Tier:
    """The points of one resolution."""

    __slots__ = ("_starts", "bytes_used", "points", "resolution_s", "retention_s")

    def __init__(self, resolution_s: int, retention_s: int) -> None:
        self.resolution_s = resolution_s
        self.retention_s = retention_s
        self.points: list[Point] = []
        self.bytes_used = 0
        self._starts: list[int] = []

    def put(self, at: float, stats: StatisticSet) -> None:
        """Adds samples to the bucket that holds `at`."""
        start = int(at // self.resolution_s) * self.resolution_s
        last = self.points[-1] if self.points else None
        if last is None or start > last.start:
            if last is not None:
                self.bytes_used -= last.bytes_used
                last.seal()
                self.bytes_used += last.bytes_used
            self._insert(len(self.points), Point(start, stats.copy()))
        elif start == last.start:
            self.bytes_used -= last.bytes_used
            last.absorb(stats)
            self.bytes_used += last.bytes_used
        else:
            self._put_late(start, stats)

    def _put_late(self, start: int, stats: StatisticSet) -> None:
        place = bisect_left(self._starts, start)
        if self._starts[place] == start:
            point = self.points[place].merged(stats)
            self.bytes_used -= self.points[place].bytes_used
            point.seal()
            self.points[place] = point
            self.bytes_used += point.bytes_used
        else:
            point = Point(start, stats.copy())
            point.seal()
            self._insert(place, point)

    def _insert(self, place: int, point: Point) -> None:
        self.points.insert(place, point)
        self._starts.insert(place, point.start)
        self.bytes_used += point.bytes_used

    def restore(self, points: list[Point]) -> None:
        """Takes points from a snapshot, in order of time."""
        self.points = points
        self._starts = [point.start for point in points]
        self.bytes_used = sum(point.bytes_used for point in points)

    def expire(self, now: float) -> None:
        """Drops what is older than the retention."""
        oldest = now - self.retention_s - self.resolution_s
        if self._starts and self._starts[0] <= oldest:
            self.drop_oldest(bisect_left(self._starts, oldest + 1))

    def drop_oldest(self, count: int) -> None:
        self.bytes_used -= sum(point.bytes_used for point in self.points[:count])
        del self.points[:count]
        del self._starts[:count]

    def between(self, start: float, end: float) -> Iterator[Point]:
        """Points whose bucket begins in [start, end), oldest first."""
        place = bisect_left(self._starts, start)
        while place < len(self.points) and self._starts[place] < end:
            yield self.points[place]
            place += 1

    def count(self, start: float, end: float) -> int:
        """How many points `between` gives."""
        return bisect_left(self._starts, end) - bisect_left(self._starts, start)


class Series:
    """All tiers of one metric."""

    __slots__ = ("key", "newest_at", "tiers", "user", "written_at")

    def __init__(self, key: MetricKey, *, user: bool) -> None:
        self.key = key
        self.user = user  #: written by PutMetricData, not by the platform
        self.written_at = 0.0  #: when the last write came
        self.newest_at = 0.0  #: the newest time that a write was for
        self.tiers = tuple(Tier(*tier) for tier in RETENTION)

    @property
    def bytes_used(self) -> int:
        return sum(tier.bytes_used for tier in self.tiers)

    def put(self, at: float, stats: StatisticSet, *, now: float, high_resolution: bool) -> None:
        """Adds samples at time `at` to every resolution still kept for that time."""
        for tier in self.tiers:
            if tier.resolution_s < 60 and not high_resolution:
                continue
            if at > now - tier.retention_s:
                tier.put(at, stats)
                tier.expire(now)
        self.written_at = now
        self.newest_at = max(self.newest_at, at)

    def read(
        self, start: float, end: float, period_s: int, *, distribution: bool
    ) -> dict[int, StatisticSet]:
        """Samples by period: each period that begins in [start, end) and holds samples.

        Without `distribution` only the simple statistics hold. Periods are aligned to multiples of
        `period_s` since the epoch. The sets may be shared with the store: the caller must not
        change them.
        """
        found: dict[int, StatisticSet] = {}
        owned: set[int] = set()
        for point in self._tier(period_s).between(start, end):
            bucket = point.start // period_s * period_s
            stats = point.statistics if distribution else point.numbers
            if bucket not in found:
                found[bucket] = stats
                continue
            if bucket not in owned:
                found[bucket] = found[bucket].copy()
                found[bucket].opaque |= not distribution
                owned.add(bucket)
            found[bucket].merge(stats)
        return found

    def count(self, start: float, end: float, period_s: int) -> int:
        """How many points `read` goes through."""
        return self._tier(period_s).count(start, end)

    def _tier(self, period_s: int) -> Tier:
        resolution_s, _ = retention_of(period_s)
        return next(tier for tier in self.tiers if tier.resolution_s == resolution_s)

    def expire(self, now: float) -> bool:
        """Drops old points; True when none is left."""
        for tier in self.tiers:
            tier.expire(now)
        return not any(tier.points for tier in self.tiers)
