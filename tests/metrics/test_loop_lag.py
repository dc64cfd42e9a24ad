"""A loop that is kept from its work shows it."""

from __future__ import annotations

import asyncio
import time

import pytest

from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.loop_lag import EDGES_S, EVERY_S, WINDOW_S, LagObserved, LoopLag
from penstock.metrics.page.prometheus import PrometheusPage
from penstock.metrics.utilization.instances import InstanceSample


def test_a_stall_longer_than_the_time_between_two_looks_is_always_seen() -> None:
    async def main() -> LagObserved:
        lag = LoopLag()
        lag.start()
        time.sleep(2 * EVERY_S)  # noqa: ASYNC251 - the fault that is to be seen
        deadline = time.monotonic() + 10
        while not sum(lag.seen().counts) and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        lag.stop()
        lag.stop()
        return lag.seen()

    seen = asyncio.run(main())
    assert seen.max_s >= EVERY_S * 0.9
    assert seen.total_s >= seen.max_s


def test_looks_are_counted_by_how_late_they_were() -> None:
    lag = LoopLag()
    for late_s in (0.0, 0.001, 0.0011, 0.05, 7.0):
        lag.note(late_s, now=1.0)
    counts = dict(zip((*EDGES_S, "more"), lag.seen().counts, strict=True))
    assert {edge: count for edge, count in counts.items() if count} == {
        0.001: 2, 0.0025: 1, 0.05: 1, "more": 1,
    }  # fmt: skip


def test_the_longest_lag_is_forgotten_after_two_windows() -> None:
    lag = LoopLag()
    lag.note(0.5, now=1.0)
    lag.note(0.1, now=WINDOW_S)
    assert lag.seen().max_s == 0.5
    lag.note(0.2, now=WINDOW_S + 1.0)
    assert lag.seen().max_s == 0.5  # of the window before
    lag.note(0.0, now=2 * WINDOW_S + 1.0)
    assert lag.seen().max_s == 0.2


def test_what_an_instance_says_comes_back_and_what_another_version_says_is_left_out() -> None:
    seen = LagObserved((1,) * (len(EDGES_S) + 1), 0.5, 0.1)
    assert LagObserved.from_dict(seen.to_dict()) == seen
    assert LagObserved.from_dict({"counts": [1, 2]}) is None
    assert LagObserved.from_dict({}) is None


def test_gateway_and_instances_are_on_the_page() -> None:
    registry = MetricRegistry()
    registry.loop_lag.note(0.02, now=1.0)
    lag = LagObserved((0,) * len(EDGES_S) + (3,), 21.0, 9.0)
    registry.add_instance_sample(
        InstanceSample(endpoint="shop", variant="v", instance_id="i-1", loop_lag=lag), now=1.0
    )
    page = PrometheusPage(registry).render()[0].decode()
    assert 'penstock_loop_lag_seconds_bucket{le="0.01",process="gateway"} 0.0' in page
    assert 'penstock_loop_lag_seconds_bucket{le="0.025",process="gateway"} 1.0' in page
    assert 'penstock_loop_lag_seconds_count{process="i-1"} 3.0' in page
    assert 'penstock_loop_lag_seconds_sum{process="i-1"} 21.0' in page
    assert 'penstock_loop_lag_max_seconds{process="i-1"} 9.0' in page
    max_line = next(line for line in page.splitlines() if 'lag_max_seconds{process="gat' in line)
    assert float(max_line.split()[-1]) == pytest.approx(0.02)
