"""The time series store: all metrics of the platform and of its users, in limited memory.

The CloudWatch operations, alarms and the autoscaler read it; the data plane's registry and
PutMetricData write it. Wall seconds come in with each call; nothing reads a clock or waits.

When memory runs out, idle series go first, the longest idle one before the others. A user's write
that still does not fit is refused. The platform's own metrics are never refused: they shorten the
longest history instead.

A deleted endpoint leaves a dozen series with a few datapoints each. As separate objects they took
seven times the memory of their data. So all series with the same first dimension (usually the name
of an endpoint) are archived as one row once none of them is used. Lists need not unpack a row;
reading or writing one of its series unpacks the whole row.
"""

from __future__ import annotations

import math
import zlib
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import orjson

from penstock.errors import NotNowError
from penstock.metrics.series.series import HOUR_S, MetricKey, MetricName, Series, key_of_fields
from penstock.metrics.series.statistics import StatisticSet

#: Larger packed series, of some 1,000 points together, are not archived: unpacking them would block
#: the event loop, and archiving would save little.
_BYTES_MAX: Final = 64 * 1024

Group = tuple[tuple[str, str], ...]  #: (name, value) of the first dimension; empty: there is none


def may_go_in(group: Group, series: Sequence[Series]) -> bool:
    """Whether all these series, which are the whole group, are at rest and small."""
    return (
        bool(group)
        and all(one.packed for one in series)
        and sum(len(one.packed) for one in series) <= _BYTES_MAX
    )


class ArchivedRow:
    """The series of one group. It never changes, so a thread may read it."""

    __slots__ = ("_heads", "_tiers", "count", "expires_at", "newest_at", "written_at")

    def __init__(self, series: Sequence[Series]) -> None:
        """All of the series are at rest."""
        fields = [one.to_fields() for one in series]
        tiers = [one.pop("tiers") for one in fields]
        self._heads = zlib.compress(orjson.dumps(fields))
        self._tiers = zlib.compress(orjson.dumps(tiers))
        self.count = len(series)
        self.expires_at = min(one.expires_at for one in series)
        self.newest_at = max(one.newest_at for one in series)
        self.written_at = max(one.written_at for one in series)

    @property
    def bytes_used(self) -> int:
        return len(self._heads) + len(self._tiers)

    def heads(self) -> list[dict[str, Any]]:
        """The fields of each series without its points."""
        found: list[dict[str, Any]] = orjson.loads(zlib.decompress(self._heads))
        return found

    def fields(self) -> Iterator[dict[str, Any]]:
        """All fields of each series, as `Series.to_fields` gave them."""
        tiers = orjson.loads(zlib.decompress(self._tiers))
        for head, rows in zip(self.heads(), tiers, strict=True):
            yield head | {"tiers": rows}


class Archive:
    """The rows by group, in the order in which they were archived."""

    def __init__(self) -> None:
        self._rows: dict[Group, ArchivedRow] = {}
        self.series_count = 0
        self.bytes_used = 0

    def rows(self) -> Iterable[ArchivedRow]:
        return self._rows.values()

    def add(self, group: Group, series: Sequence[Series]) -> None:
        """Archives all series of a group that `may_go_in` allows; the caller forgets them."""
        row = self._rows[group] = ArchivedRow(series)
        self.series_count += row.count
        self.bytes_used += row.bytes_used

    def take(self, group: Group) -> list[Series]:
        """Removes a group and returns its series; empty if it is not archived."""
        row = self._rows.pop(group, None)
        if row is None:
            return []
        self.series_count -= row.count
        self.bytes_used -= row.bytes_used
        return [Series.from_fields(fields) for fields in row.fields()]

    def due(self, now: float) -> list[Group]:
        """The groups with a point that is older than its retention."""
        return [group for group, row in self._rows.items() if now >= row.expires_at]

    def first(self) -> tuple[Group, float]:
        """The group archived first, and the time of its last write; `inf` if there is none."""
        for group, row in self._rows.items():
            return group, row.written_at
        return (), math.inf

    def keys(self, newest_since: float) -> Iterator[MetricKey]:
        """The keys of all series with a sample at or after `newest_since`."""
        for row in self._rows.values():
            if row.newest_at >= newest_since:
                for head in row.heads():
                    if head["newest_at"] >= newest_since:
                        yield key_of_fields(head)


#: Series packed in one call of `expire`: each takes some 0.1 ms of the event loop.
_RESTS_MAX: Final = 500
#: Groups archived, or unpacked because points expired, in one call: some 0.5 ms each.
_GROUPS_MAX: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """Limits of the store."""

    series_max: int = 10_000
    bytes_max: int = 256 * 1024 * 1024  #: estimated; about 500,000 points
    idle_after_s: float = 3 * HOUR_S  #: as long as CloudWatch calls a metric recently active


class MetricStore:
    """The series by identity. Not thread-safe: one event loop owns it."""

    def __init__(self, limits: StoreLimits | None = None) -> None:
        self._limits = limits or StoreLimits()
        self._series: OrderedDict[MetricKey, Series] = OrderedDict()  #: the longest unwritten first
        self._archive = Archive()  #: the series of a group are all here or all in the tables
        self._units: dict[MetricName, tuple[Series, ...]] = {}  #: sorted by unit
        self._bytes_used = 0

    def __len__(self) -> int:
        return len(self._series) + self._archive.series_count

    @property
    def bytes_used(self) -> int:
        """An estimate of the memory held."""
        return self._bytes_used + self._archive.bytes_used

    def put(
        self,
        key: MetricKey,
        at: float,
        stats: StatisticSet,
        *,
        now: float,
        high_resolution: bool = False,
        user: bool = False,
    ) -> None:
        """Adds samples at wall time `at`. The caller keeps `stats`.

        Raises:
            NotNowError: `metric-store-full`, for user writes only.
        """
        if key not in self._series:
            self._wake(key.dimensions[:1])
        creating = key not in self._series
        if self._is_full(creating):
            self._make_room(now, creating=creating, user=user)
        series = self._series.get(key)
        if series is None:
            series = Series(key, user=user)
            self._enter(series)
        bytes_before = series.bytes_used
        series.put(at, stats, now=now, high_resolution=high_resolution)
        self._bytes_used += series.bytes_used - bytes_before
        self._series.move_to_end(key)

    def read(
        self,
        metric: MetricName,
        start: float,
        end: float,
        period_s: int,
        *,
        unit: str | None = None,
        distribution: bool = True,
    ) -> dict[str, dict[int, StatisticSet]]:
        """unit -> period start -> samples, for periods that begin in [start, end).

        Periods are multiples of `period_s` since the epoch. `unit` None means every unit. The sets
        may be shared with the store: the caller must not change them. Without `distribution` only
        the simple statistics are valid, which is much cheaper.
        """
        return {
            series.key.unit: found
            for series in self._awake(metric)
            if unit in (None, series.key.unit)
            and (found := series.read(start, end, period_s, distribution=distribution))
        }

    def read_merged(
        self,
        metric: MetricName,
        start: float,
        end: float,
        period_s: int,
        *,
        unit: str | None = None,
        distribution: bool = True,
    ) -> dict[int, StatisticSet]:
        """As `read`, but with the samples of all units together, in order of time."""
        merged: dict[int, StatisticSet] = {}
        for found in self.read(
            metric, start, end, period_s, unit=unit, distribution=distribution
        ).values():
            for bucket, stats in found.items():
                if bucket in merged:
                    stats = _sum(merged[bucket], stats)  # noqa: PLW2901
                merged[bucket] = stats
        return dict(sorted(merged.items()))

    def count(
        self, metric: MetricName, start: float, end: float, period_s: int, unit: str | None
    ) -> int:
        """The number of points that `read` processes, without reading them."""
        return sum(
            series.count(start, end, period_s)
            for series in self._awake(metric)
            if unit in (None, series.key.unit)
        )

    def metrics(self, *, newest_since: float = 0.0) -> Iterator[MetricName]:
        """Metrics with a sample at or after `newest_since`, sorted."""
        found = {
            metric
            for metric, units in self._units.items()
            if any(series.newest_at >= newest_since for series in units)
        }
        found.update(key.metric for key in self._archive.keys(newest_since))
        yield from sorted(found)

    def series(self) -> Iterable[Series]:
        """All series that are not archived, for a snapshot."""
        return self._series.values()

    def archived(self) -> Iterable[ArchivedRow]:
        """All archived series, for a snapshot."""
        return self._archive.rows()

    def restore(self, series: Series) -> None:
        """Adds a series from a snapshot; it replaces an existing one with the same key."""
        self._wake(series.key.dimensions[:1])
        self._drop(series.key)
        self._enter(series)

    def expire(self, now: float) -> None:
        """Drops points beyond their retention, and series without points. Packs series that nobody
        used since the last call, some at a time. Call it once a minute."""
        for group in self._archive.due(now)[:_GROUPS_MAX]:
            self._wake(group)
        rests = 0
        for key, series in list(self._series.items()):
            bytes_before, was_awake = series.bytes_used, not series.packed
            empty = series.expire(now, may_rest=rests < _RESTS_MAX)
            rests += was_awake and bool(series.packed)
            self._bytes_used += series.bytes_used - bytes_before
            if empty:
                self._drop(key)
        self._archive_resting()

    def rest(self, groups: Collection[Group]) -> None:
        """Packs the series that begin with one of these dimensions: what they describe is gone."""
        found = [one for one in self._series.values() if one.key.dimensions[:1] in groups]
        for series in found[:_RESTS_MAX]:
            self._bytes_used -= series.bytes_used
            series.rest()
            self._bytes_used += series.bytes_used
        self._archive_resting()

    def _archive_resting(self) -> None:
        groups: dict[Group, list[Series]] = {}
        for series in self._series.values():
            groups.setdefault(series.key.dimensions[:1], []).append(series)
        resting = [group for group, series in groups.items() if may_go_in(group, series)]
        for group in resting[:_GROUPS_MAX]:
            self._archive.add(group, groups[group])
            for series in groups[group]:
                self._drop(series.key)

    def _wake(self, group: Group) -> None:
        """Unpacks an archived group. All other series were used more recently."""
        for series in reversed(self._archive.take(group)):
            self._enter(series)
            self._series.move_to_end(series.key, last=False)

    def _make_room(self, now: float, *, creating: bool, user: bool) -> None:
        while self._is_full(creating):
            group, written_at = self._archive.first()
            if not self._series or written_at < next(iter(self._series.values())).written_at:
                self._wake(group)
            key, series = next(iter(self._series.items()))
            if now >= series.written_at + self._limits.idle_after_s:
                self._drop(key)
            elif user:
                raise NotNowError(
                    "metric-store-full",
                    f"The metric store is full: {len(self)} metrics, {self.bytes_used} bytes.",
                    hint="Send fewer distinct dimensions; idle metrics leave after three hours.",
                )
            # Otherwise the number of series is the limit.
            elif self.bytes_used <= self._limits.bytes_max:
                self._drop(next((k for k, s in self._series.items() if s.user), key))
            else:
                self._shorten_longest()

    def _is_full(self, creating: bool) -> bool:
        crowded = creating and len(self) >= self._limits.series_max
        return crowded or self.bytes_used > self._limits.bytes_max

    def _shorten_longest(self) -> None:
        series = max(self._series.values(), key=lambda one: one.bytes_used)
        bytes_before = series.bytes_used
        series.shorten()
        self._bytes_used += series.bytes_used - bytes_before

    def _awake(self, metric: MetricName) -> tuple[Series, ...]:
        """The series of a metric, by unit; those at rest are unpacked."""
        if metric not in self._units:
            self._wake(metric.dimensions[:1])
        units = self._units.get(metric, ())
        for series in units:
            if series.packed:
                self._bytes_used -= series.bytes_used
                self._bytes_used += sum(tier.bytes_used for tier in series.tiers)
        return units

    def _enter(self, series: Series) -> None:
        # Series of one endpoint arrive together: ten of them share one object for their dimensions.
        series.key = series.key._replace(dimensions=_known(series.key.dimensions))
        metric = series.key.metric
        self._series[series.key] = series
        units = (*self._units.get(metric, ()), series)
        self._units[metric] = tuple(sorted(units, key=lambda one: one.key.unit))
        self._bytes_used += series.bytes_used

    def _drop(self, key: MetricKey) -> None:
        series = self._series.pop(key, None)
        if series is None:
            return
        self._bytes_used -= series.bytes_used
        units = tuple(one for one in self._units[key.metric] if one is not series)
        if units:
            self._units[key.metric] = units
        else:
            del self._units[key.metric]


@lru_cache(maxsize=256)
def _known(dimensions: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """An equal tuple that was seen recently, to share its memory."""
    return dimensions


def _sum(first: StatisticSet, second: StatisticSet) -> StatisticSet:
    total = first.copy()
    total.merge(second)
    return total
