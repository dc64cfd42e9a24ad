"""The time series store: resolutions, retention, limits."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from penstock.errors import CallerError, NotNowError
from penstock.metrics.series import snapshot
from penstock.metrics.series.series import DAY_S, HOUR_S, MetricKey, metric_key
from penstock.metrics.series.statistics import StatisticSet
from penstock.metrics.series.store import MetricStore, StoreLimits

T0 = 1_700_002_800  # a full hour
LATENCY = metric_key("Shop", "Latency", {"Page": "search", "Host": "a"}, "Milliseconds")


def put(store: MetricStore, key: MetricKey, at: float, *values: float, now: float = 0.0) -> None:
    store.put(key, at, StatisticSet.of(*values), now=now or at, high_resolution=True, user=True)


def sums(store: MetricStore, start: float, end: float, period_s: int) -> dict[int, float]:
    found = store.read_merged(LATENCY.metric, start, end, period_s)
    return {at: stats.total for at, stats in found.items()}


def test_dimensions_identify_a_metric_in_any_order() -> None:
    assert metric_key("Shop", "Latency", {"Host": "a", "Page": "search"}, "Milliseconds") == LATENCY


def test_one_write_is_seen_at_every_period() -> None:
    store = MetricStore()
    put(store, LATENCY, T0 + 5, 1.0)
    put(store, LATENCY, T0 + 7, 2.0)
    put(store, LATENCY, T0 + 65, 4.0)
    assert sums(store, T0, T0 + 120, 1) == {T0 + 5: 1.0, T0 + 7: 2.0, T0 + 65: 4.0}
    assert sums(store, T0, T0 + 120, 10) == {T0: 3.0, T0 + 60: 4.0}
    assert sums(store, T0, T0 + 120, 60) == {T0: 3.0, T0 + 60: 4.0}
    assert sums(store, T0, T0 + 120, 300) == {T0: 7.0}
    assert sums(store, T0, T0 + 120, HOUR_S) == {T0: 7.0}


def test_start_is_included_and_end_is_not() -> None:
    store = MetricStore()
    for minute in range(4):
        put(store, LATENCY, T0 + 60 * minute, float(minute))
    assert sums(store, T0 + 60, T0 + 180, 60) == {T0 + 60: 1.0, T0 + 120: 2.0}


def test_percentiles_merge_over_points() -> None:
    store = MetricStore()
    for second in range(100):
        put(store, LATENCY, T0 + second, second + 1.0)
    (stats,) = store.read_merged(LATENCY.metric, T0, T0 + 300, 300).values()
    assert stats.quantile(0.9) == pytest.approx(90, rel=0.02)


def test_points_may_come_late_and_in_any_order() -> None:
    store = MetricStore()
    seconds = list(range(0, 600, 7)) * 2
    random.Random(4).shuffle(seconds)
    for second in seconds:
        put(store, LATENCY, T0 + second, 1.0, 3.0, now=T0 + 600)
    found = sums(store, T0, T0 + 600, 1)
    assert list(found) == [T0 + second for second in range(0, 600, 7)]
    assert set(found.values()) == {8.0}
    assert sums(store, T0, T0 + 600, 300) == {T0: 43 * 8.0, T0 + 300: 43 * 8.0}


@pytest.mark.parametrize(
    ("period_s", "kept_s"),
    [(1, 3 * HOUR_S), (60, 15 * DAY_S), (300, 63 * DAY_S), (3600, 455 * DAY_S)],
)
def test_each_resolution_is_kept_for_its_own_time(period_s: int, kept_s: int) -> None:
    store = MetricStore()
    put(store, LATENCY, T0, 1.0)
    store.expire(T0 + kept_s - 1)
    assert sums(store, T0, T0 + 1, period_s) == {T0: 1.0}
    store.expire(T0 + kept_s + period_s)
    assert sums(store, T0, T0 + 1, period_s) == {}


def test_a_series_without_points_is_gone() -> None:
    store = MetricStore()
    put(store, LATENCY, T0, 1.0)
    store.expire(T0 + 456 * DAY_S)
    assert (len(store), list(store.metrics()), store.bytes_used) == (0, [], 0)


def test_standard_resolution_has_no_points_below_a_minute() -> None:
    store = MetricStore()
    store.put(LATENCY, T0 + 30, StatisticSet.of(1.0), now=T0 + 30)
    assert sums(store, T0, T0 + 60, 10) == {}
    assert sums(store, T0, T0 + 60, 60) == {T0: 1.0}


def test_units_are_series_of_their_own_and_read_together_when_none_is_named() -> None:
    store = MetricStore()
    put(store, LATENCY, T0, 1.0)
    put(store, LATENCY._replace(unit="Seconds"), T0, 5.0)
    by_unit = store.read(LATENCY.metric, T0, T0 + 60, 60)
    assert {unit: found[T0].total for unit, found in by_unit.items()} == {
        "Milliseconds": 1.0,
        "Seconds": 5.0,
    }
    assert sums(store, T0, T0 + 60, 60) == {T0: 6.0}
    assert store.read(LATENCY.metric, T0, T0 + 60, 60, unit="Bytes") == {}


def named(number: int) -> MetricKey:
    return metric_key("Shop", f"M{number}", {})


def test_a_new_metric_takes_the_place_of_the_longest_idle_one() -> None:
    store = MetricStore(StoreLimits(series_max=2))
    put(store, named(1), T0, 1.0)
    put(store, named(2), T0 + 60, 1.0)
    put(store, named(3), T0 + 3 * HOUR_S, 1.0)
    assert [metric.name for metric in store.metrics()] == ["M2", "M3"]


def test_users_are_refused_when_nothing_is_idle_and_the_platform_is_not() -> None:
    store = MetricStore(StoreLimits(series_max=2))
    put(store, named(1), T0, 1.0)
    put(store, named(2), T0, 1.0)
    with pytest.raises(NotNowError) as caught:
        put(store, named(3), T0 + 1, 1.0)
    assert caught.value.code == "metric-store-full"
    put(store, named(1), T0 + 1, 1.0)  # what exists goes on
    store.put(named(4), T0 + 2, StatisticSet.of(1.0), now=T0 + 2)
    assert [metric.name for metric in store.metrics()] == ["M1", "M4"]


def test_memory_is_bounded_by_shortening_the_longest_history() -> None:
    store = MetricStore(StoreLimits(bytes_max=200_000))
    for second in range(3000):
        store.put(
            LATENCY,
            T0 + second,
            StatisticSet.of(1.0, 2.0 + second),
            now=T0 + second,
            high_resolution=True,
        )
        assert store.bytes_used < 210_000
    newest = T0 + 2999
    assert sums(store, newest, newest + 1, 1) == {newest: 3002.0}
    assert sums(store, T0, newest, HOUR_S) == {T0: sum(3.0 + second for second in range(3000))}


def test_the_estimate_of_memory_is_the_sum_of_what_is_held() -> None:
    store = MetricStore()
    for second in range(0, 9000, 3):
        put(store, named(second % 4), T0 + second, 1.0, float(second + 2), 77.0)
        put(store, named(second % 4), T0 + second // 2, 5.0, now=T0 + second)
    store.expire(T0 + 4 * HOUR_S)
    assert store.bytes_used == sum(
        point.bytes_used
        for series in store.series()
        for tier in series.tiers
        for point in tier.points
    )


def test_a_snapshot_survives_a_restart(tmp_path: Path) -> None:
    store = MetricStore()
    for second in range(200):
        put(store, LATENCY, T0 + second, 1.0, second + 1.0)
    opaque = StatisticSet.from_values(3, 6.0, 1.0, 3.0)
    store.put(named(1), T0, opaque, now=T0)
    taken = snapshot.Snapshot.take(store)
    put(store, LATENCY, T0 + 199, 1000.0)  # comes too late for the snapshot
    taken.write(tmp_path / "metrics")

    restored = MetricStore()
    assert snapshot.load(tmp_path / "metrics", restored, now=T0 + 200) == 2
    (stats,) = restored.read_merged(LATENCY.metric, T0, T0 + 300, 300).values()
    assert (stats.count, stats.maximum) == (400, 200.0)
    assert stats.quantile(0.75) == pytest.approx(100, rel=0.03)
    (stats,) = restored.read_merged(named(1).metric, T0, T0 + 60, 60).values()
    assert (stats.total, stats.quantile(0.5)) == (6.0, None)
    put(restored, LATENCY, T0 + 199, 7.0)  # into the newest point, which came packed
    assert sums(restored, T0 + 199, T0 + 200, 1) == {T0 + 199: 208.0}


def test_the_file_is_nobody_elses_whatever_was_there_before(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for left_over in (path, path.with_name(".metrics.jsonl.new")):
        left_over.write_bytes(b"")
        left_over.chmod(0o644)
    snapshot.Snapshot.take(MetricStore()).write(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_torn_line_costs_one_series_only(tmp_path: Path) -> None:
    store = MetricStore()
    put(store, named(1), T0, 1.0)
    put(store, named(2), T0, 1.0)
    snapshot.Snapshot.take(store).write(tmp_path / "metrics")
    whole = (tmp_path / "metrics").read_bytes()
    (tmp_path / "metrics").write_bytes(whole[:-20])
    restored = MetricStore()
    assert snapshot.load(tmp_path / "metrics", restored, now=T0) == 1
    assert [metric.name for metric in restored.metrics()] == ["M1"]


def test_a_foreign_file_is_refused_and_no_file_is_no_history(tmp_path: Path) -> None:
    assert snapshot.load(tmp_path / "none", MetricStore(), now=T0) == 0
    (tmp_path / "metrics").write_text("hello\n")
    with pytest.raises(CallerError) as caught:
        snapshot.load(tmp_path / "metrics", MetricStore(), now=T0)
    assert caught.value.code == "metrics-file-unreadable"


def test_a_series_that_nobody_uses_rests_packed_and_wakes_whole(tmp_path: Path) -> None:
    store = MetricStore()
    for second in range(0, 600, 10):
        put(store, LATENCY, T0 + second, 1.0, float(second + 2), 77.0)
    awake = store.bytes_used
    before = store.read_merged(LATENCY.metric, T0, T0 + 600, 60)
    snapshot.Snapshot.take(store).write(tmp_path / "awake")
    store.expire(T0 + 660)  # it was read since the last call
    assert store.bytes_used == awake
    store.expire(T0 + 720)
    assert store.bytes_used < awake / 10
    snapshot.Snapshot.take(store).write(tmp_path / "at-rest")
    assert (tmp_path / "at-rest").read_bytes() == (tmp_path / "awake").read_bytes()
    after = store.read_merged(LATENCY.metric, T0, T0 + 600, 60)
    assert [(at, one.total, one.quantile(0.5)) for at, one in after.items()] == [
        (at, one.total, one.quantile(0.5)) for at, one in before.items()
    ]
    assert store.bytes_used == sum(one.bytes_used for one in store.series()) > awake / 2
    put(store, LATENCY, T0 + 600, 5.0)
    assert sums(store, T0 + 540, T0 + 660, 60)[T0 + 600] == 5.0


def test_a_series_at_rest_loses_its_points_in_time() -> None:
    store = MetricStore()
    put(store, LATENCY, T0, 1.0)
    for passed_s in (60, 120, 4 * HOUR_S):
        store.expire(T0 + passed_s)
    assert sums(store, T0, T0 + 60, 1) == {}
    assert sums(store, T0, T0 + 60, 60) == {T0: 1.0}
    store.expire(T0 + 4 * HOUR_S + 60)
    store.expire(T0 + 4 * HOUR_S + 120)
    store.expire(T0 + 500 * DAY_S)
    assert len(store) == 0
    assert store.bytes_used == 0


def test_writing_wakes_a_series_up() -> None:
    store = MetricStore()
    put(store, LATENCY, T0, 1.0)
    store.expire(T0 + 60)
    store.expire(T0 + 120)
    put(store, LATENCY, T0 + 120, 2.0)
    assert sums(store, T0, T0 + 300, 300) == {T0 // 300 * 300: 3.0}
