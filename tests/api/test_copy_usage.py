"""What copies used between two samples, and what is published of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.api.observation import CopyUsage
from penstock.control.reconcile.views import CopyView, InstanceView
from penstock.core.resources import NO_RESOURCES, ComputeResources
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.counts.window_metrics import component_metrics, publishing_of
from penstock.metrics.series.series import metric_key
from penstock.metrics.series.store import MetricStore
from penstock.metrics.utilization.instances import CopySample, InstanceSample

T0 = 1_700_000_400
V = {"EndpointName": "shop", "VariantName": "all"}
C = {"InferenceComponentName": "chat"}
ON = {"InstanceId": "i-1"}


def view(*copies: CopyView, cores: float = 4.0) -> InstanceView:
    return InstanceView(
        instance_id="i-1", variant="all", generation=1, phase="running",
        instance_type="ml.local.small",
        resources=ComputeResources(cores=cores, memory_bytes=1000), memory_bytes=250, pid=1,
        log_path=Path("/nowhere"), copies=copies,
    )  # fmt: skip


def copy(
    number: int, component: str = "chat/2", set_aside: ComputeResources = NO_RESOURCES
) -> CopyView:
    return CopyView(
        copy=number, component=component, phase="ready", load_s=0.5, model_memory_bytes=100,
        set_aside=set_aside,
    )  # fmt: skip


def told(number: int, cpu_s: float = 0.0, requests: int = 0, **more: Any) -> dict[str, Any]:
    workers = [{"pid": 9, "cpu_s": cpu_s, "rss_bytes": 50}] if cpu_s else []
    return {"copy": number, "requests": requests, "workers": workers} | more


def test_of_what_is_set_aside_for_a_copy_or_else_of_its_instance() -> None:
    usage = CopyUsage()
    there = view(copy(1, set_aside=ComputeResources(cores=0.5, memory_bytes=200)), copy(2))
    usage.samples(there, {"copies": [told(1, 10.0), told(2, 5.0)]}, 100.0)
    first, second = usage.samples(
        there, {"copies": [told(1, 12.0, 7), told(2, 25.0, 1, unanswered=3)]}, 110.0
    )
    assert first == CopySample(
        component="chat", cpu_percent=40.0, memory_percent=25.0, invocations=7
    )
    assert second == CopySample(
        component="chat", cpu_percent=50.0, memory_percent=5.0, invocations=1, in_flight=3
    )


def test_a_first_sample_says_nothing_of_time_and_a_replaced_worker_nothing_of_its_cores() -> None:
    usage = CopyUsage()
    there = view(copy(1))
    [first] = usage.samples(there, {"copies": [told(1, 10.0, 5)]}, 100.0)
    assert (first.cpu_percent, first.invocations) == (None, None)
    [second] = usage.samples(there, {"copies": [told(1, 2.0, 6)]}, 110.0)
    assert (second.cpu_percent, second.invocations) == (None, 1)


def test_a_model_in_threads_of_its_instance_has_no_processor_time_of_its_own() -> None:
    usage = CopyUsage()
    there = view(copy(1, component="all"))
    usage.samples(there, {"copies": [told(1)]}, 100.0)
    [sample] = usage.samples(there, {"copies": [told(1, requests=4)]}, 110.0)
    assert sample == CopySample(component="", memory_percent=10.0, invocations=4)


def test_copies_that_nobody_knows_and_instances_that_are_gone_are_left_out() -> None:
    usage = CopyUsage()
    assert usage.samples(view(copy(1)), {"copies": [told(7), {}]}, 100.0) == ()
    usage.samples(view(copy(1)), {"copies": [told(1, 1.0, 1)]}, 100.0)
    usage.keep_instances(set())
    [again] = usage.samples(view(copy(1)), {"copies": [told(1, 2.0, 2)]}, 110.0)
    assert again.invocations is None


SAMPLE = InstanceSample(
    endpoint="shop",
    variant="all",
    instance_id="i-1",
    copies=(
        CopySample(
            component="chat", cpu_percent=40.0, memory_percent=25.0, invocations=7, in_flight=2
        ),
        CopySample(component="", memory_percent=50.0, invocations=3, in_flight=1),
    ),
)


def test_utilization_of_a_component_is_published_by_its_name_and_with_its_variant() -> None:
    found = {(key.namespace, key.name, key.dimensions): value
             for key, value in component_metrics(SAMPLE)}  # fmt: skip
    where = "/aws/sagemaker/InferenceComponents"
    assert found == {
        (where, name, tuple(sorted(dimensions.items()))): value
        for name, value in (
            ("CPUUtilizationNormalized", 40.0),
            ("MemoryUtilizationNormalized", 25.0),
        )
        for dimensions in (C, C | V)
    }


def test_enhanced_metrics_have_the_requests_of_each_instance() -> None:
    store = MetricStore()
    registry = MetricRegistry(store)

    def read(name: str, dimensions: dict[str, str]) -> list[tuple[float, float]]:
        metric = metric_key("AWS/SageMaker", name, dimensions).metric
        found = store.read_merged(metric, T0, T0 + 60, 10)
        return [(stats.count, stats.total) for stats in found.values()]

    registry.add_instance_sample(SAMPLE, T0)
    assert read("Invocations", V | ON) == [], "only where they are asked for"
    registry.set_publishing("shop", "all", publishing_of(10, enhanced=True))
    registry.add_instance_sample(SAMPLE, T0)
    assert read("Invocations", V | ON) == [(10, 10)]
    assert read("Invocations", C | ON) == [(7, 7)]
    assert read("ConcurrentRequestsPerCopy", C | ON) == [(1, 2)]
    assert read("ConcurrentRequestsPerModel", V | ON) == [(1, 1)]
