"""From requests to published metrics, on literal timelines."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.jobs.asynchronous.outcome import Published
from penstock.metrics.catalogue import catalogue, work_catalogue
from penstock.metrics.counts.container_delta import ContainerDelta
from penstock.metrics.counts.departures import KEPT_S
from penstock.metrics.counts.recorder import VariantRecorder
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.counts.work_counts import WorkCounts
from penstock.metrics.models.model_delta import ModelDelta
from penstock.metrics.page.prometheus import PrometheusPage
from penstock.metrics.page.reference import exposed_name, render
from penstock.metrics.series.series import metric_key
from penstock.metrics.series.statistics import StatisticSet
from penstock.metrics.series.store import MetricStore
from penstock.metrics.utilization.cost import Charge
from penstock.metrics.utilization.instances import CopySample, InstanceSample
from penstock.metrics.utilization.job_metrics import job_metrics

T0 = 1_700_000_000
VARIANT = {"EndpointName": "shop", "VariantName": "main"}


def read(store: MetricStore, name: str, period_s: int = 10) -> dict[int, StatisticSet]:
    metric = metric_key("AWS/SageMaker", name, VARIANT).metric
    found = store.read_merged(metric, T0, T0 + 60, period_s)
    return {at - T0: stats for at, stats in found.items()}


def totals(store: MetricStore, name: str) -> dict[int, tuple[float, float]]:
    return {at: (stats.count, stats.total) for at, stats in read(store, name).items()}


def answer(recorder: VariantRecorder, status: int = 200, model_status: int = 0) -> None:
    recorder.started()
    recorder.finished(status, 0.010, 0.002, 0.006, 4, "runtime", model_status)


def test_concurrency_is_sampled_each_second_and_published_every_ten() -> None:
    store = MetricStore()
    registry = MetricRegistry(store)
    recorder = registry.recorder("shop", "main")
    for second in range(10):
        registry.collect(T0 + second)
        recorder.started()
    assert read(store, "ConcurrentRequestsPerModel") == {}  # the window is still open
    registry.collect(T0 + 10)
    (window,) = read(store, "ConcurrentRequestsPerModel").values()
    assert (window.count, window.minimum, window.maximum, window.average) == (10, 0, 9, 4.5)
    inside = read(store, "ConcurrentRequestsPerModel", period_s=1)
    assert {at: stats.total for at, stats in inside.items()} == {n: n for n in range(10)}


def test_an_idle_variant_has_concurrency_zero_and_no_invocations() -> None:
    store = MetricStore()
    registry = MetricRegistry(store)
    registry.recorder("shop", "main")
    for second in range(11):
        registry.collect(T0 + second)
    assert totals(store, "ConcurrentRequestsPerModel") == {0: (10, 0)}
    assert [metric.name for metric in store.metrics()] == ["ConcurrentRequestsPerModel"]


def test_errors_are_one_or_zero_per_request() -> None:
    store = MetricStore()
    registry = MetricRegistry(store)
    recorder = registry.recorder("shop", "main")
    registry.collect(T0)
    answer(recorder)
    answer(recorder, 400)
    answer(recorder, 424, model_status=422)
    answer(recorder, 424, model_status=500)
    recorder.started()
    recorder.cancelled()
    recorder.refused("queue-full", 503)
    recorder.refused("no-capacity", 400)
    recorder.no_capacity()
    registry.collect(T0 + 10)
    assert recorder.in_flight == 0
    assert totals(store, "Invocations") == {0: (7, 7)}
    assert totals(store, "Invocation4XXErrors") == {0: (7, 3)}
    assert totals(store, "Invocation5XXErrors") == {0: (7, 2)}
    assert totals(store, "InvocationModelErrors") == {0: (7, 2)}
    assert totals(store, "NoCapacityInvocationFailures") == {0: (7, 1)}


def test_a_held_request_without_capacity_is_published_at_once() -> None:
    """The alarm that wakes an endpoint up from zero copies watches this, before any answer."""
    store = MetricStore()
    registry = MetricRegistry(store)
    recorder = registry.recorder("shop", "main")
    registry.collect(T0)
    recorder.started()
    recorder.no_capacity()
    registry.collect(T0 + 10)
    assert totals(store, "NoCapacityInvocationFailures") == {0: (1, 1)}
    assert totals(store, "Invocations") == {}


def test_latencies_are_microseconds_and_split_at_the_instance() -> None:
    store = MetricStore()
    registry = MetricRegistry(store)
    recorder = registry.recorder("shop", "main")
    registry.collect(T0)
    answer(recorder)  # 10 ms: 2 in the queue, 6 in the model
    recorder.started()
    recorder.finished(400, 0.001, 0.0, 0.0)  # never reached the model
    registry.collect(T0 + 10)
    (model,) = read(store, "ModelLatency").values()
    (overhead,) = read(store, "OverheadLatency").values()
    assert (model.count, model.total) == (1, pytest.approx(8000))
    assert (overhead.count, overhead.total) == (2, pytest.approx(2000 + 1000))


def test_invocations_per_instance_share_the_load() -> None:
    store = MetricStore()
    registry = MetricRegistry(store)
    recorder = registry.recorder("shop", "main")
    registry.set_instance_count("shop", "main", 4)
    registry.collect(T0)
    for _ in range(6):
        answer(recorder)
    registry.collect(T0 + 10)
    assert totals(store, "InvocationsPerInstance") == {0: (6, 1.5)}


def test_requests_count_in_the_window_in_which_they_ended() -> None:
    store = MetricStore()
    registry = MetricRegistry(store)
    recorder = registry.recorder("shop", "main")
    for second in range(31):
        registry.collect(T0 + second)
        if second in (9, 10, 29):
            answer(recorder)
    assert totals(store, "Invocations") == {0: (1, 1), 10: (1, 1), 20: (1, 1)}


def test_a_late_tick_leaves_no_hole_and_a_long_gap_does() -> None:
    recorder = VariantRecorder("shop", "main")
    recorder.started()
    for second in (0.0, 0.9, 1.0, 4.0, 9.0):
        recorder.sample(T0 + second)
    assert recorder.take().concurrency == {T0 + n: 1 for n in (0, 1, 2, 3, 4, 9)}


def test_a_clock_that_is_set_back_does_not_stop_the_samples() -> None:
    store = MetricStore()
    registry = MetricRegistry(store)
    registry.recorder("shop", "main").started()
    for second in (*range(3600, 3611), *range(21)):
        registry.collect(T0 + second)
    found = totals(store, "ConcurrentRequestsPerModel")
    # The one sample at the turn is lost: its second still counted as published.
    assert {at: count for at, (count, _) in found.items()} == {0: 9, 10: 10}


def test_processes_add_up_before_anything_is_published() -> None:
    store = MetricStore()
    registry = MetricRegistry(store, lag_s=2)
    gateways = {name: MetricRegistry() for name in ("a", "b")}
    for gateway in gateways.values():
        gateway.recorder("shop", "main")
    for second in range(14):
        for name, gateway in gateways.items():
            recorder = gateway.recorder("shop", "main")
            recorder.started()
            if name == "a" and second == 5:
                for number in range(100):
                    recorder.started()
                    recorder.finished(200, 0.02, 0.0, (number + 1) / 1000)
            registry.add_delta(name, gateway.take_delta(T0 + second))
        registry.collect(T0 + second)
    (window,) = read(store, "ConcurrentRequestsPerModel").values()
    assert (window.count, window.minimum, window.maximum) == (10, 2, 20)
    (latency,) = read(store, "ModelLatency").values()
    assert latency.quantile(0.9) == pytest.approx(90_000, rel=0.02)
    assert registry.in_flight("shop", "main") == 28
    registry.forget("b")
    assert registry.in_flight("shop", "main") == 14


def test_a_sample_that_comes_after_publication_is_left_out_and_a_request_is_not() -> None:
    store = MetricStore()
    registry, gateway = MetricRegistry(store), MetricRegistry()
    gateway.recorder("shop", "main")
    gateway.take_delta(T0)
    answer(gateway.recorder("shop", "main"))
    late = gateway.take_delta(T0 + 5)
    registry.recorder("shop", "main")
    for second in range(11):
        registry.collect(T0 + second)
    registry.add_delta("a", late)
    registry.collect(T0 + 11)
    assert totals(store, "ConcurrentRequestsPerModel") == {0: (10, 0)}
    assert totals(store, "Invocations") == {0: (1, 1)}


SAMPLE = InstanceSample(
    endpoint="shop",
    variant="main",
    instance_id="i-1",
    cpu_percent=150.0,
    cpu_cores=2,
    memory_percent=40.0,
)


def test_instances_publish_what_they_can_measure() -> None:
    store = MetricStore()
    registry = MetricRegistry(store)
    registry.add_instance_sample(SAMPLE, T0)
    found = {
        (metric.name, len(metric.dimensions)): next(
            iter(store.read_merged(metric, T0 - 60, T0 + 60, 60).values())
        ).total
        for metric in store.metrics()
    }
    assert found == {
        ("CPUUtilization", 2): 150.0,
        ("CPUUtilization", 3): 150.0,
        ("CPUUtilizationNormalized", 2): 75.0,
        ("CPUUtilizationNormalized", 3): 75.0,
        ("MemoryUtilization", 2): 40.0,
        ("MemoryUtilization", 3): 40.0,
    }


def exposed(registry: MetricRegistry, store: MetricStore) -> dict[str, float]:
    body, content_type = PrometheusPage(registry, store).render()
    assert content_type.startswith("text/plain")
    return {
        f"{sample.name}{sorted(sample.labels.values())}": sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def test_prometheus_counts_each_request_once_under_its_outcome() -> None:
    store = MetricStore()
    registry = MetricRegistry(store)
    recorder = registry.recorder("shop", "main")
    answer(recorder)
    answer(recorder, 424, model_status=500)
    recorder.refused("queue-full")
    recorder.started()
    registry.set_copies("shop", "main", {"ready": 2, "loading": 1})
    registry.set_ready("shop", "main", {("main", "load"): 1.5, ("main", "forecast"): 2.0})
    registry.add_instance_sample(SAMPLE, T0)
    registry.collect(T0)
    page = exposed(registry, store)
    assert page["penstock_time_to_ready_seconds['load', 'main', 'main', 'shop']"] == 1.5
    assert page["penstock_time_to_ready_seconds['forecast', 'main', 'main', 'shop']"] == 2.0
    assert page["penstock_requests_total['main', 'ok', 'runtime', 'shop']"] == 1
    assert page["penstock_requests_total['main', 'model-error', 'runtime', 'shop']"] == 1
    assert page["penstock_requests_total['main', 'refused', 'runtime', 'shop']"] == 1
    assert page["penstock_refused_total['main', 'queue-full', 'shop']"] == 1
    assert page["penstock_in_flight['main', 'shop']"] == 1
    assert page["penstock_copies['main', 'ready', 'shop']"] == 2
    assert page["penstock_instance_cpu_ratio['i-1', 'main', 'shop']"] == 0.75
    assert page["penstock_request_duration_seconds_bucket['0.005', 'main', 'shop']"] == 0
    assert page["penstock_request_duration_seconds_bucket['0.025', 'main', 'shop']"] == 2
    assert page["penstock_request_duration_seconds_count['main', 'shop']"] == 2
    assert page["penstock_model_seconds_sum['main', 'shop']"] == pytest.approx(0.012)
    assert page["penstock_batch_rows_bucket['2.0', 'main', 'shop']"] == 0
    assert page["penstock_batch_rows_bucket['4.0', 'main', 'shop']"] == 2


def test_the_page_names_just_the_metrics_of_the_catalogue() -> None:
    store = MetricStore()
    registry = MetricRegistry(store)
    body, _ = PrometheusPage(registry, store).render()
    named = {
        line.split()[2] for line in body.decode().splitlines() if line.startswith("# TYPE penstock")
    }
    known = (*catalogue.PROMETHEUS, *work_catalogue.PROMETHEUS)
    assert named == {exposed_name(metric) for metric in known}


def test_openmetrics_is_given_to_who_asks_for_it() -> None:
    body, content_type = PrometheusPage(MetricRegistry()).render("application/openmetrics-text")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_published_names_are_just_those_of_the_reference() -> None:
    store = MetricStore()
    registry = MetricRegistry(store)
    recorder = registry.recorder("shop", "main")
    answer(recorder)
    answer(registry.recorder("shop", "main", "chat"))
    recorder.no_capacity()
    recorder.streamed(0.5)
    recorder.generated(5, 11, 0.5, 0.02)
    registry.collect(T0)
    model = ModelDelta()
    model.hits = model.answered = 1
    for name in ModelDelta.SKETCHES:
        model.sketch(name).add(1.0)
    registry.add_models("shop", "main", "i-1", {"m": model.to_dict()}, T0)
    container = ContainerDelta()
    container.count(200, 0.01)
    registry.containers.add("shop", "main", {"prepare": container.to_dict()}, T0)
    registry.collect(T0 + 10)
    registry.add_instance_sample(
        InstanceSample(
            endpoint="shop",
            variant="main",
            instance_id="i-1",
            cpu_percent=1.0,
            memory_percent=1.0,
            disk_percent=1.0,
            gpu_percent=1.0,
            gpu_memory_percent=1.0,
            gpu_count=1,
            loaded_model_count=1,
            sequences_running=1,
            sequences_waiting=1,
            cache_percent=1.0,
            copies=(CopySample(component="chat", cpu_percent=1.0, memory_percent=1.0),),
        ),
        T0,
    )
    registry.add_charges([Charge("shop", "main", 80.0, 0.01, "rapl")], T0 + 10)
    asynchronous = Published(store, WorkCounts())
    asynchronous.processed("shop", 0.1)
    asynchronous.failed("shop", "expired")
    asynchronous.failed("shop", "model-error")
    asynchronous.given_up("shop")
    asynchronous.put("shop", backlog=1, ready=1, age_s=0.1, now=T0)
    assert asynchronous.is_due(T0)
    published = {
        (series.key.namespace, series.key.name, series.key.unit) for series in store.series()
    }
    of_jobs = job_metrics("nightly", "i-1", cpu_percent=1.0, memory_percent=1.0)
    published |= {(key.namespace, key.name, key.unit) for key, _ in of_jobs}
    assert published == {
        (metric.namespace, metric.name, metric.unit) for metric in catalogue.CLOUDWATCH
    }
    page = render()
    for metric in catalogue.CLOUDWATCH:
        assert f"| `{metric.name}` |" in page


def test_a_variant_that_is_gone_leaves_the_page_after_its_last_request() -> None:
    store = MetricStore()
    registry = MetricRegistry(store)
    recorder = registry.recorder("shop", "main")
    recorder.started()
    registry.add_instance_sample(SAMPLE, T0)
    registry.collect(T0)
    registry.keep((), (), T0)
    registry.keep_instances(())
    registry.collect(T0 + KEPT_S)
    assert any(name.startswith("penstock_in_flight") for name in exposed(registry, store))
    recorder.finished(200, 0.01, 0.0, 0.01)
    registry.collect(T0 + KEPT_S + 1)
    assert not any(name.startswith("penstock_in_flight") for name in exposed(registry, store))
    assert registry.instances == {}


def test_captured_calls_have_rows_once_something_was_captured() -> None:
    registry = MetricRegistry()
    recorder = registry.recorder("shop", "main")
    page = PrometheusPage(registry)
    registry.collect(T0)
    assert "penstock_capture_calls_total{" not in page.render("")[0].decode()
    recorder.captured("taken")
    recorder.captured("taken")
    recorder.captured("dropped", "queue-full")
    recorder.captured("written-bytes", times=300)
    recorder.captured("write-failed", "output-unreachable")
    registry.collect(T0 + 1)
    text = page.render("")[0].decode()
    rows = [line for line in text.splitlines() if line.startswith("penstock_capture")]
    assert rows == [
        'penstock_capture_calls_total{endpoint="shop",variant="main"} 2.0',
        'penstock_capture_dropped_total{endpoint="shop",reason="queue-full",variant="main"} 1.0',
        'penstock_capture_written_bytes_total{endpoint="shop",variant="main"} 300.0',
        'penstock_capture_write_failures_total{code="output-unreachable",endpoint="shop",'
        'variant="main"} 1.0',
    ]


def by_config(store: MetricStore, name: str, config: str) -> list[tuple[float, float]]:
    metric = metric_key("AWS/SageMaker", name, VARIANT | {"EndpointConfigName": config}).metric
    found = store.read_merged(metric, T0, T0 + 60, 10)
    return [(stats.count, stats.total) for stats in found.values()]


def test_while_one_configuration_replaces_another_each_has_series_of_its_own() -> None:
    store = MetricStore()
    registry = MetricRegistry(store)
    registry.collect(T0)
    old = registry.recorder("shop", "main", "", "shop-1")
    new = registry.recorder("shop", "main", "", "shop-2")
    assert registry.recorder("shop", "main", "", "shop-1") is old
    for _ in range(3):
        answer(old)
    answer(new, 424, 500)
    new.started()
    assert registry.in_flight("shop", "main") == 1
    registry.collect(T0 + 10)
    assert totals(store, "Invocations") == {0: (4, 4)}
    assert totals(store, "Invocation5XXErrors") == {0: (4, 1)}
    assert by_config(store, "Invocations", "shop-1") == [(3, 3)]
    assert by_config(store, "Invocation5XXErrors", "shop-1") == [(3, 0)]
    assert by_config(store, "Invocation5XXErrors", "shop-2") == [(1, 1)]
    assert by_config(store, "ConcurrentRequestsPerModel", "shop-1") == [], "instances share those"


def test_a_recorder_of_a_replaced_configuration_goes_when_its_last_request_is_counted() -> None:
    store = MetricStore()
    registry = MetricRegistry(store)
    registry.collect(T0)
    old = registry.recorder("shop", "main", "", "shop-1")
    old.started()
    old.retired = True
    registry.collect(T0 + 1)
    assert registry.in_flight("shop", "main") == 1
    old.finished(200, 0.010, 0.002, 0.006, 4, "runtime", 0)
    registry.collect(T0 + 10)
    assert registry.recorder("shop", "main", "", "shop-1") is not old
    registry.collect(T0 + 20)
    assert by_config(store, "Invocations", "shop-1") == [(1, 1)]


def test_configurations_of_other_processes_have_series_too() -> None:
    here, there = MetricRegistry(store := MetricStore()), MetricRegistry()
    for now in (T0, T0 + 5):
        recorder = there.recorder("shop", "main", "", "shop-2")
        answer(recorder)
        here.add_delta("gateway-1", there.take_delta(now))
    here.collect(T0 + 10)
    assert by_config(store, "Invocations", "shop-2") == [(2, 2)]
