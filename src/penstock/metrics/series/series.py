"""One metric over time, kept at four resolutions, each with its own retention.

A write goes to every resolution at once, so nothing has to be rolled up later. A query reads the
coarsest resolution that divides its period: the fewest points and the longest history. Resolutions
and retention are CloudWatch's. `now` and all times are wall seconds since the epoch, passed in.

Distributions of past points are packed; only the newest point of each resolution is open. The
points of a tier are in order of time, at most one per bucket. A series that nobody writes or reads
is packed as a whole (`rest`): endpoints come and go, and their history stays for long.
"""

from __future__ import annotations

import base64
import math
import zlib
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import orjson

from penstock.metrics.series.sketch import Sketch
from penstock.metrics.series.statistics import StatisticSet

HOUR_S: Final = 3600
DAY_S: Final = 86400

#: (resolution in s, retention in s). Only high-resolution metrics use the finest.
RETENTION: Final = (
    (1, 3 * HOUR_S),
    (60, 15 * DAY_S),
    (300, 63 * DAY_S),
    (3600, 455 * DAY_S),
)

#: Measured: a point without distribution, its numbers, and its place in the lists.
POINT_BYTES: Final = 320
_OPEN_BUCKET_BYTES: Final = 100  # a dict entry with its number objects
#: A longer series is not packed: packing or unpacking it would block the event loop.
_REST_POINTS_MAX: Final = 2_000


def retention_of(period_s: int) -> tuple[int, int]:
    """(resolution in s, kept for s) of the points that a query with this period reads."""
    return max(row for row in RETENTION if period_s % row[0] == 0)


class MetricName(NamedTuple):
    """A metric without its unit: the identity that queries use."""

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
    """A key with sorted dimensions, so that equal metrics have equal keys."""
    return MetricKey(namespace, name, tuple(sorted(dimensions.items())), unit)


class SeriesPoint:
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
        """The samples. The caller must not change them."""
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
        """As `statistics`, but the distribution may be missing: cheaper."""
        return self._stats

    def merged(self, stats: StatisticSet) -> SeriesPoint:
        """A new open point with `stats` added, so that a snapshot under way keeps the old point."""
        total = self.statistics.copy()
        total.merge(stats)
        return SeriesPoint(self.start, total)

    def absorb(self, stats: StatisticSet) -> None:
        """Adds `stats` in place, for the newest point."""
        if self._packed is not None:
            self._stats, self._packed = self.statistics, None
        self._stats.merge(stats)

    def seal(self) -> None:
        """Packs the distribution, if there is one."""
        if self._stats.sketch is not None:
            self._packed = self._stats.sketch.to_bytes()
            self._stats.sketch = None

    def to_row(self) -> list[Any]:
        """JSON-ready; see `from_row`."""
        stats = self.statistics
        sketch = stats.sketch
        packed = None if sketch is None else base64.b64encode(sketch.to_bytes()).decode()
        numbers = stats.count, stats.total, stats.minimum, stats.maximum
        return [self.start, *numbers, stats.opaque, packed]

    @classmethod
    def from_row(cls, row: list[Any]) -> SeriesPoint:
        """Raises ValueError, TypeError or CallerError for a row that `to_row` can't have made."""
        start, count, total, minimum, maximum, opaque, packed = row
        stats = StatisticSet.from_values(count, total, minimum, maximum)
        stats.opaque = bool(opaque)
        if packed is not None:
            stats.sketch = Sketch.from_bytes(base64.b64decode(packed))
        point = cls(int(start), stats)
        point.seal()
        return point

    def sealed_copy(self) -> SeriesPoint:
        """A packed copy that later writes do not change."""
        twin = SeriesPoint(self.start, self.statistics.copy())
        twin.seal()
        return twin


class Tier:
    """The points of one resolution."""

    __slots__ = ("_starts", "bytes_used", "points", "resolution_s", "retention_s")

    def __init__(self, resolution_s: int, retention_s: int) -> None:
        self.resolution_s = resolution_s
        self.retention_s = retention_s
        self.points: list[SeriesPoint] = []
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
            self._insert(len(self.points), SeriesPoint(start, stats.copy()))
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
            point = SeriesPoint(start, stats.copy())
            point.seal()
            self._insert(place, point)

    def _insert(self, place: int, point: SeriesPoint) -> None:
        self.points.insert(place, point)
        self._starts.insert(place, point.start)
        self.bytes_used += point.bytes_used

    def restore(self, points: list[SeriesPoint]) -> None:
        """Takes points from a snapshot, which are in order of time."""
        self.points = points
        self._starts = [point.start for point in points]
        self.bytes_used = sum(point.bytes_used for point in points)

    def expires_at(self) -> float:
        """The time when its oldest point exceeds the retention."""
        kept_s = self.retention_s + self.resolution_s
        return self._starts[0] + kept_s if self._starts else math.inf

    def expire(self, now: float) -> None:
        """Drops points beyond the retention."""
        oldest = now - self.retention_s - self.resolution_s
        if self._starts and self._starts[0] <= oldest:
            self.drop_oldest(bisect_left(self._starts, oldest + 1))

    def drop_oldest(self, count: int) -> None:
        self.bytes_used -= sum(point.bytes_used for point in self.points[:count])
        del self.points[:count]
        del self._starts[:count]

    def between(self, start: float, end: float) -> Iterator[SeriesPoint]:
        """Points whose bucket begins in [start, end), oldest first."""
        place = bisect_left(self._starts, start)
        while place < len(self.points) and self._starts[place] < end:
            yield self.points[place]
            place += 1

    def count(self, start: float, end: float) -> int:
        """The number of points that `between` gives."""
        return bisect_left(self._starts, end) - bisect_left(self._starts, start)


class Series:
    """All resolutions of one metric."""

    __slots__ = (
        "_tiers",
        "_used",
        "expires_at",
        "key",
        "newest_at",
        "packed",
        "user",
        "written_at",
    )

    def __init__(self, key: MetricKey, *, user: bool) -> None:
        self.key = key
        self.user = user  #: PutMetricData writes it, not the platform
        self.written_at = 0.0  #: wall s of the last write
        self.newest_at = 0.0  #: the newest time for which there is a sample
        self._tiers: tuple[Tier, ...] = tuple(Tier(*tier) for tier in RETENTION)
        self._used = True  #: it was read or written since the last `expire`
        self.expires_at = 0.0  #: for a series at rest: when its oldest point expires
        #: for a series at rest: all points of its tiers, which are empty meanwhile
        self.packed = b""

    @property
    def tiers(self) -> tuple[Tier, ...]:
        """The tiers, the finest first. A series at rest is unpacked."""
        self._used = True
        if self.packed:
            self._tiers = tuple(Tier(*tier) for tier in RETENTION)
            for tier, rows in zip(self._tiers, rows_of(self.packed), strict=True):
                tier.restore([SeriesPoint.from_row(row) for row in rows])
            self.packed = b""
        return self._tiers

    @property
    def bytes_used(self) -> int:
        return len(self.packed) + sum(tier.bytes_used for tier in self._tiers)

    def to_fields(self) -> dict[str, Any]:
        """JSON-ready, see `from_fields`; a series at rest stays packed."""
        return self.fields_with(self.packed or self.points())

    def fields_with(self, tiers: bytes | list[list[SeriesPoint]]) -> dict[str, Any]:
        """As `to_fields`, with the points of an earlier moment."""
        if isinstance(tiers, bytes):
            rows = rows_of(tiers)
        else:
            rows = [[point.to_row() for point in points] for points in tiers]
        return {
            "key": list(self.key),
            "user": self.user,
            "written_at": self.written_at,
            "newest_at": self.newest_at,
            "tiers": rows,
        }

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Series:
        """Raises ValueError, KeyError, TypeError or CallerError for fields that `to_fields` can't
        have made."""
        series = cls(key_of_fields(fields), user=fields["user"])
        series.written_at = float(fields["written_at"])
        series.newest_at = float(fields["newest_at"])
        for tier, rows in zip(series.tiers, fields["tiers"], strict=True):
            tier.restore([SeriesPoint.from_row(row) for row in rows])
        return series

    def shorten(self) -> None:
        """Drops the older half of its longest tier."""
        tier = max(self.tiers, key=lambda tier: tier.bytes_used)
        tier.drop_oldest((len(tier.points) + 1) // 2)

    def points(self) -> list[list[SeriesPoint]]:
        """The points of each tier, as they are; empty for a series at rest."""
        return [tier.points for tier in self._tiers]

    def rest(self) -> None:
        """Packs its points, unless there are none or too many."""
        count = sum(len(tier.points) for tier in self._tiers)
        if self.packed or not 0 < count <= _REST_POINTS_MAX:
            return
        rows = [[point.to_row() for point in tier.points] for tier in self._tiers]
        self.expires_at = min(tier.expires_at() for tier in self._tiers)
        self.packed = zlib.compress(orjson.dumps(rows))
        self._tiers = ()

    def put(self, at: float, stats: StatisticSet, *, now: float, high_resolution: bool) -> None:
        """Adds samples at time `at` to every resolution that still keeps that time."""
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
        """The samples by period, for each period that begins in [start, end) and has samples.

        Without `distribution` only the simple statistics are valid. Periods are aligned to
        multiples of `period_s` since the epoch. The sets may be shared with the store: the caller
        must not change them.
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
        """The number of points that `read` processes."""
        return self._tier(period_s).count(start, end)

    def _tier(self, period_s: int) -> Tier:
        resolution_s, _ = retention_of(period_s)
        return next(tier for tier in self.tiers if tier.resolution_s == resolution_s)

    def expire(self, now: float, *, may_rest: bool = False) -> bool:
        """Drops old points; True if none is left.

        `may_rest`: packs the series if nobody used it since the last call.
        """
        if self.packed and now < self.expires_at:
            return False
        used, tiers = self._used and not self.packed, self.tiers
        for tier in tiers:
            tier.expire(now)
        self._used = False
        count = sum(len(tier.points) for tier in tiers)
        if may_rest and not used:
            self.rest()
        return not count


def key_of_fields(fields: dict[str, Any]) -> MetricKey:
    """The key in the result of `Series.to_fields`."""
    namespace, name, dimensions, unit = fields["key"]
    pairs = tuple((str(key), str(value)) for key, value in dimensions)
    return MetricKey(str(namespace), str(name), pairs, str(unit))


def rows_of(packed: bytes) -> list[list[Any]]:
    """The rows of the points of each tier, from the packed bytes of a series at rest."""
    found: list[list[Any]] = orjson.loads(zlib.decompress(packed))
    return found
