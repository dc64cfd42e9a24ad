"""`control/metric_history.py`: what one leader measured, the next one's alarms find."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import func, select
from tests.kit import databases

from penstock.control.database.schema import metric_series
from penstock.control.metric_history import MetricHistory
from penstock.control.store.store import Store
from penstock.control.store.store_thread import StoreThread
from penstock.metrics.series.series import MetricKey, MetricName
from penstock.metrics.series.snapshot import Snapshot
from penstock.metrics.series.statistics import StatisticSet
from penstock.metrics.series.store import MetricStore

pytestmark = pytest.mark.usefixtures("on_each_database")

NOW = 1_000_000.0


def key(name: str) -> MetricKey:
    return MetricKey("AWS/SageMaker", name, (("EndpointName", "shop"),), "Count")


def put(store: MetricStore, name: str, value: float, at: float) -> None:
    stats = StatisticSet()
    stats.add(value)
    store.put(key(name), at, stats, now=at)


def count(store: Store) -> int:
    with store.read() as db:
        return int(db.scalar(select(func.count()).select_from(metric_series)) or 0)


async def test_what_was_saved_is_there_for_the_next_one_and_only_changes_are_written(
    tmp_path: Path,
) -> None:
    database = StoreThread(lambda: databases.opened(tmp_path))
    await database.open()
    metrics = MetricStore()
    history = MetricHistory(database)
    await history.load(metrics, now=NOW)
    for number in range(120):  # more than are written at once
        put(metrics, f"m{number}", 1.0, NOW)
    await history.save(Snapshot.take(metrics))
    assert await database.call(count) == 120
    put(metrics, "m7", 5.0, NOW + 60)
    changed = Snapshot.take(metrics)
    assert len(list(changed.lines(history._written))) == 1
    await history.save(changed)

    next_metrics = MetricStore()
    following = MetricHistory(database)
    await following.load(next_metrics, now=NOW + 61)
    name = MetricName("AWS/SageMaker", "m7", (("EndpointName", "shop"),))
    read = next_metrics.read_merged(name, NOW - 60, NOW + 120, 60)
    assert [one.total for one in read.values()] == [1.0, 5.0]
    assert not list(Snapshot.take(next_metrics).lines(following._written))

    await following.save(Snapshot.take(MetricStore()))  # all have gone
    assert await database.call(count) == 0
    await database.close()
