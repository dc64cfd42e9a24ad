"""What is gone: its counts become datapoints, and then nothing of it is left in any table."""

from __future__ import annotations

import pytest

from penstock.metrics.counts.departures import KEPT_S
from penstock.metrics.counts.recorder import VariantRecorder
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.counts.window_metrics import ALWAYS, publishing_of
from penstock.metrics.models.model_delta import ModelDelta
from penstock.metrics.page.prometheus import PrometheusPage
from penstock.metrics.series.series import metric_key
from penstock.metrics.series.store import MetricStore
from penstock.metrics.utilization.instances import InstanceSample

T0 = 1_700_000_000
SHOP = "shop", "main"
V = {"EndpointName": "shop", "VariantName": "main"}


def answer(recorder: VariantRecorder, times: int = 1) -> None:
    for _ in range(times):
        recorder.started()
        recorder.finished(200, 0.010, 0.002, 0.006, 4, "runtime")


def invocations(store: MetricStore, dimensions: dict[str, str] = V) -> float:
    metric = metric_key("AWS/SageMaker", "Invocations", dimensions).metric
    found = store.read_merged(metric, T0 - 600, T0 + 600, 60)
    return sum(stats.total for stats in found.values())


def lines(registry: MetricRegistry) -> list[str]:
    body, _ = PrometheusPage(registry).render()
    return [line for line in body.decode().splitlines() if "shop" in line]


def test_calls_of_the_seconds_before_a_withdrawal_are_datapoints_soon_after() -> None:
    store = MetricStore()
    registry = MetricRegistry(store)
    registry.collect(T0)
    answer(registry.recorder(*SHOP), 30)
    registry.keep((), (), T0 + 1)
    registry.collect(T0 + 10)
    assert invocations(store) == 30
    registry.collect(T0 + 1 + KEPT_S)
    assert (invocations(store), lines(registry)) == (30, [])


@pytest.mark.parametrize("publish_s", [60, 300])
def test_points_of_long_periods_do_not_wait_for_their_end(publish_s: int) -> None:
    store = MetricStore()
    registry = MetricRegistry(store)
    registry.set_publishing(*SHOP, publishing_of(publish_s, enhanced=True))
    registry.collect(T0)
    answer(registry.recorder(*SHOP), 30)
    registry.keep((), (), T0 + 1)
    registry.collect(T0 + 1 + KEPT_S)
    assert invocations(store) == 30


def test_a_request_that_ends_after_the_withdrawal_counts() -> None:
    store = MetricStore()
    registry = MetricRegistry(store)
    recorder = registry.recorder(*SHOP)
    recorder.started()
    registry.keep((), (), T0)
    registry.collect(T0 + 300)
    assert registry.in_flight(*SHOP) == 1
    recorder.finished(200, 300.0, 0.0, 300.0)
    registry.collect(T0 + 301)
    assert (invocations(store), lines(registry)) == (1, [])


def test_what_a_gateway_tells_after_the_withdrawal_counts() -> None:
    store = MetricStore()
    registry, gateway = MetricRegistry(store, lag_s=1.5), MetricRegistry()
    recorder = gateway.recorder(*SHOP)
    registry.recorder(*SHOP)
    recorder.started()
    registry.add_delta("gateway-1", gateway.take_delta(T0))
    registry.keep((), (), T0)
    registry.collect(T0 + 2 * KEPT_S)  # it has a request in flight there
    gateway.keep((), (), T0 + 60)
    recorder.finished(200, 60.0, 0.0, 60.0)
    registry.add_delta("gateway-1", gateway.take_delta(T0 + 61))
    registry.collect(T0 + 62)
    assert (invocations(store), lines(registry)) == (1, [])
    assert not gateway.in_flight(*SHOP)
    registry.add_delta("gateway-1", gateway.take_delta(T0 + 60 + KEPT_S))
    registry.collect(T0 + 120)
    assert (lines(registry), lines(gateway)) == ([], [])


def test_a_component_alone_leaves_and_its_calls_stay() -> None:
    store = MetricStore()
    registry = MetricRegistry(store)
    pools = {(*SHOP, name) for name in ("chat", "search")}
    for pool in pools:
        registry.set_component_copies(pool, {"ready": 1})
        answer(registry.recorder(*pool), 30)
    registry.keep({SHOP}, {(*SHOP, "search")}, T0)
    registry.collect(T0 + KEPT_S)
    assert invocations(store, {"InferenceComponentName": "chat"}) == 30
    registry.collect(T0 + KEPT_S + 10)
    assert invocations(store) == 60
    assert not [line for line in lines(registry) if "chat" in line]
    assert [line for line in lines(registry) if "search" in line]


def test_one_that_is_there_again_goes_on() -> None:
    store = MetricStore()
    registry = MetricRegistry(store)
    answer(registry.recorder(*SHOP))
    registry.keep((), (), T0)
    registry.collect(T0)
    answer(registry.recorder(*SHOP))
    registry.keep({SHOP}, (), T0 + 1)
    registry.collect(T0 + 2 * KEPT_S)
    assert registry.totals[SHOP].answers == 2


def test_at_the_end_of_a_server_the_last_window_is_published() -> None:
    store = MetricStore()
    registry = MetricRegistry(store)
    registry.set_publishing(*SHOP, publishing_of(300, enhanced=True))
    registry.collect(T0)
    answer(registry.recorder(*SHOP), 30)
    registry.collect(T0 + 1, final=True)
    assert invocations(store) == 30


def test_gauges_leave_at_once_and_counts_once_scrapers_have_seen_them() -> None:
    registry = MetricRegistry(MetricStore())
    answer(registry.recorder(*SHOP))
    registry.set_copies(*SHOP, {"ready": 1})
    registry.set_ready(*SHOP, {("main", "load"): 1.0})
    sample = InstanceSample(endpoint="shop", variant="main", instance_id="i-1", memory_percent=5.0)
    registry.add_instance_sample(sample, T0)
    registry.keep((), (), T0)
    registry.keep_instances(())
    registry.collect(T0)
    names = {line.partition("{")[0] for line in lines(registry)}
    gone = {"penstock_copies", "penstock_time_to_ready_seconds", "penstock_instance_memory_ratio"}
    assert not gone & names
    assert "penstock_requests_total" in names
    registry.collect(T0 + KEPT_S - 1)
    assert lines(registry)
    registry.collect(T0 + KEPT_S)
    assert lines(registry) == []


def test_whatever_made_a_row_it_leaves_though_it_was_never_said_to_be_there() -> None:
    """An endpoint may be created and deleted between two looks at what there is."""
    makers = {
        "recorder": lambda registry: registry.recorder(*SHOP, "chat"),
        "copies": lambda registry: registry.set_copies(*SHOP, {"ready": 1}),
        "component": lambda registry: registry.set_component_copies((*SHOP, "chat"), {"ready": 1}),
        "ready": lambda registry: registry.set_ready(*SHOP, {("main", "load"): 1.0}),
        "count": lambda registry: registry.set_instance_count(*SHOP, 1),
        "publishing": lambda registry: registry.set_publishing(*SHOP, ALWAYS),
        "models": lambda registry: (
            registry.set_instance_count(*SHOP, 1),
            registry.add_models(
                *SHOP, "i-1",
                {"a": ModelDelta().to_dict()
                 | {"resident": True, "host_bytes": 1, "accelerator_bytes": 0}},
                T0,
            ),
        ),
    }  # fmt: skip
    for name, make in makers.items():
        registry = MetricRegistry(MetricStore())
        make(registry)
        assert registry.held(), name
        registry.keep((), (), T0)
        registry.keep_instances(())
        registry.collect(T0 + KEPT_S)
        assert registry.held() == set(), name
        assert lines(registry) == [], name
