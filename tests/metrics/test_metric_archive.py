"""Series at rest of what is gone: packed together, and still found by everybody who asks."""

from __future__ import annotations

import gc
import random
import tracemalloc
from pathlib import Path

import orjson
import pytest

from penstock.errors import NotNowError
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.series import snapshot
from penstock.metrics.series.series import DAY_S, HOUR_S, MetricKey, metric_key
from penstock.metrics.series.statistics import StatisticSet
from penstock.metrics.series.store import MetricStore, StoreLimits

T0 = 1_700_002_800  # a full hour


def key_of(endpoint: str, name: str) -> MetricKey:
    dimensions = {"EndpointName": endpoint, "VariantName": "all"}
    return metric_key("AWS/SageMaker", name, dimensions, "Count")


def put(store: MetricStore, key: MetricKey, at: float, *values: float, user: bool = False) -> None:
    store.put(key, at, StatisticSet.of(*values), now=at, user=user, high_resolution=True)


def resting(*endpoints: str, names: int = 3, limits: StoreLimits | None = None) -> MetricStore:
    """A store in which all is at rest."""
    store = MetricStore(limits)
    numbers = random.Random(1)
    for endpoint in endpoints:
        for name in range(names):
            put(store, key_of(endpoint, f"M{name}"), T0, 1.0, numbers.random())
    store.expire(T0 + 60)
    store.expire(T0 + 120)
    return store


def totals(store: MetricStore, key: MetricKey, period_s: int = 60) -> list[float]:
    found = store.read_merged(key.metric, T0 - HOUR_S, T0 + HOUR_S, period_s)
    return [stats.total for stats in found.values()]


def test_an_endpoint_at_rest_costs_little_memory() -> None:
    """As objects of their own, its series took 9 kB, of which the datapoints were 1.4 kB."""
    resting("warm", names=15)
    gc.collect()
    tracemalloc.start()
    store = resting(*(f"endpoint-{number}" for number in range(30)), names=15)
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(store) == 450
    assert held / 30 < 4_000


def test_what_rests_is_listed_without_waking_it() -> None:
    store = resting("a", "b")
    packed = store.bytes_used
    names = [(one.name, one.dimensions[0][1]) for one in store.metrics()]
    assert names == [(f"M{name}", endpoint) for name in range(3) for endpoint in "ab"]
    assert list(store.metrics(newest_since=T0 + 1)) == []
    put(store, key_of("c", "M0"), T0 + 130, 1.0)
    assert [one.dimensions[0][1] for one in store.metrics(newest_since=T0 + 1)] == ["c"]
    assert len(store) == 7
    assert packed < 3_000
    assert len(list(store.series())) == 1


@pytest.mark.parametrize("name", ["M1", "New"])
def test_a_read_or_a_write_wakes_the_whole_endpoint_and_it_rests_again(name: str) -> None:
    store = resting("a", "b")
    before = totals(resting("a", "b"), key_of("a", "M1"))
    if name == "New":
        put(store, key_of("a", "New"), T0 + 130, 1.0)
    assert totals(store, key_of("a", "M1")) == before
    assert len(store) == (7 if name == "New" else 6)
    assert {one.key.dimensions[0][1] for one in store.series()} == {"a"}
    store.expire(T0 + 180)
    store.expire(T0 + 240)
    assert list(store.series()) == []
    assert totals(store, key_of("a", "M1")) == before


def test_an_endpoint_of_which_one_metric_is_written_stays_as_it_is() -> None:
    store = resting("a")
    put(store, key_of("a", "M1"), T0 + 130, 1.0)
    for minute in range(3, 6):
        put(store, key_of("a", "M1"), T0 + 60 * minute, 1.0)
        store.expire(T0 + 60 * minute)
    assert len(list(store.series())) == 3


def test_a_snapshot_has_what_rests(tmp_path: Path) -> None:
    store = resting("a", "b")
    put(store, key_of("c", "M0"), T0 + 130, 1.0)
    taken = snapshot.Snapshot.take(store)
    taken.write(tmp_path / "metrics")
    assert len(taken.digests()) == 7
    written = {digest: at for digest, at, _ in taken.lines({})}
    assert len(written) == 7
    assert list(snapshot.Snapshot.take(store).lines(written)) == []

    restored = MetricStore()
    assert snapshot.load(tmp_path / "metrics", restored, now=T0 + 140) == 7
    for name in range(3):
        assert totals(restored, key_of("b", f"M{name}")) == totals(store, key_of("b", f"M{name}"))
    rows = (tmp_path / "metrics").read_bytes().splitlines()[1:]
    assert {orjson.loads(row)["written_at"] for row in rows} == {T0, T0 + 130}


def test_what_rests_loses_its_points_in_time() -> None:
    store = resting("a")
    for passed_s in (4 * HOUR_S, 4 * HOUR_S + 60, 4 * HOUR_S + 120):
        store.expire(T0 + passed_s)
    assert totals(store, key_of("a", "M0"), 1) == []
    assert len(totals(store, key_of("a", "M0"), 60)) == 1
    store.expire(T0 + 4 * HOUR_S + 180)
    store.expire(T0 + 4 * HOUR_S + 240)
    assert list(store.series()) == []
    store.expire(T0 + 500 * DAY_S)
    assert (len(store), store.bytes_used) == (0, 0)


def test_in_a_full_store_what_rested_for_longest_goes_first() -> None:
    store = resting("a", "b", limits=StoreLimits(series_max=6))
    put(store, key_of("c", "M0"), T0 + 130, 1.0)
    assert [(one.name, one.dimensions[0][1]) for one in store.metrics()] == [
        ("M0", "b"), ("M0", "c"), ("M1", "a"), ("M1", "b"), ("M2", "a"), ("M2", "b"),
    ]  # fmt: skip


def test_a_full_store_refuses_users_until_what_rests_was_idle_for_long() -> None:
    store = resting("a", "b", limits=StoreLimits(series_max=6))
    with pytest.raises(NotNowError):
        put(store, key_of("c", "M0"), T0 + 130, 1.0, user=True)
    assert len(store) == 6
    put(store, key_of("c", "M0"), T0 + 3 * HOUR_S, 1.0, user=True)
    assert len(store) == 6


def test_a_deleted_endpoint_rests_once_its_last_counts_are_datapoints() -> None:
    store = MetricStore()
    registry = MetricRegistry(store)
    for endpoint in ("gone", "kept"):
        recorder = registry.recorder(endpoint, "all")
        recorder.started()
        recorder.finished(200, 0.1, 0.0, 0.1)
    for second in range(60):
        registry.keep({("kept", "all")}, set(), T0 + second)
        registry.collect(T0 + second)
    assert {one.key.dimensions[0][1] for one in store.series()} == {"kept"}
    key = metric_key("AWS/SageMaker", "Invocations", {"EndpointName": "gone", "VariantName": "all"})
    assert totals(store, key) == [1.0]
