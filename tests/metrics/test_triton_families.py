"""The page's families under Triton's names."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from penstock.metrics.counts.recorder import VariantRecorder
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.page.prometheus import PrometheusPage
from penstock.metrics.utilization.instances import CacheCounts, CopySample, InstanceSample

Labels = tuple[str, ...]


def shown(registry: MetricRegistry, **versions: str) -> dict[tuple[str, Labels], float]:
    """(name, label values by label) -> value, of the families with Triton's names."""

    def version_of(endpoint: str, component: str) -> str | None:
        return versions.get(component or endpoint)

    page = PrometheusPage(registry, version_of=version_of).render()[0].decode()
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name.startswith("nv_")
    }


def answered(recorder: VariantRecorder, times: int, *, rows: int, lane_s: float) -> None:
    for _ in range(times):
        recorder.started()
        recorder.finished(200, 0.010, 0.002, 0.006, rows, "oip", 0, lane_s)


def sample(copy: CopySample) -> InstanceSample:
    return InstanceSample(endpoint="shop", variant="main", instance_id="i1", copies=(copy,))


def test_a_model_has_one_row_with_its_name_and_version() -> None:
    """Four requests of one row share a batch; one of six rows is a batch of its own."""
    registry = MetricRegistry()
    recorder = registry.recorder("shop", "main")
    answered(recorder, 4, rows=4, lane_s=0.0015)
    answered(registry.recorder("shop", "canary"), 1, rows=6, lane_s=0.006)
    for status, model_status in ((424, 500), (400, 0)):
        recorder.started()
        recorder.finished(status, 0.010, 0.0, 0.0, 0, "oip", model_status)
    recorder.started()
    recorder.cancelled("oip")
    recorder.refused("queue-full", door="oip")
    registry.collect(1000.0)
    registry.add_instance_sample(sample(CopySample(component="", queue_rows=7)), 1000.0)
    registry.set_ready("shop", "main", {("main", "load"): 1.5, ("main", "fetch"): 9.0})
    model = ("shop", "3")
    assert shown(registry, shop="3") == {
        ("nv_inference_request_success", model): 5,
        ("nv_inference_request_failure", ("shop", "REJECTED", "3")): 1,
        ("nv_inference_request_failure", ("shop", "CANCELED", "3")): 1,
        ("nv_inference_request_failure", ("shop", "BACKEND", "3")): 1,
        ("nv_inference_request_failure", ("shop", "OTHER", "3")): 1,
        ("nv_inference_count", model): 10,
        ("nv_inference_exec_count", model): 2,
        ("nv_inference_request_duration_us", model): 50_000,
        ("nv_inference_queue_duration_us", model): 10_000,
        ("nv_inference_compute_input_duration_us", model): 0,
        ("nv_inference_compute_infer_duration_us", model): 30_000,
        ("nv_inference_compute_output_duration_us", model): 0,
        ("nv_inference_pending_request_count", model): 7,
        ("nv_model_load_duration_secs", model): 1.5,
    }


def test_counters_of_a_cache_go_on_when_its_instance_ends() -> None:
    registry = MetricRegistry()
    registry.recorder("shop", "main")
    copy = CopySample(component="", cache=CacheCounts(2, 3, 0.5, 0.25))
    registry.add_instance_sample(sample(copy), 1000.0)
    registry.add_instance_sample(sample(copy), 1010.0)
    registry.keep_instances(())
    rows = shown(registry, shop="1")
    found = {name: value for (name, _), value in rows.items() if name.startswith("nv_cache")}
    assert found == {
        "nv_cache_num_hits_per_model": 4,
        "nv_cache_num_misses_per_model": 6,
        "nv_cache_hit_duration_per_model": 1_000_000,
        "nv_cache_miss_duration_per_model": 500_000,
    }


def test_components_are_models_and_what_is_not_published_has_no_row() -> None:
    registry = MetricRegistry()
    answered(registry.recorder("shop", "main", "chat"), 1, rows=1, lane_s=0.006)
    answered(registry.recorder("shop", "main", "gone"), 1, rows=1, lane_s=0.006)
    registry.collect(1000.0)
    rows = shown(registry, chat="2")
    assert {labels[0] for _, labels in rows} == {"shop:chat"}
    assert rows["nv_inference_request_success", ("shop:chat", "2")] == 1


def test_a_multi_model_endpoint_has_the_rows_of_its_models_instead_of_its_own() -> None:
    registry = MetricRegistry()
    answered(registry.recorder("shop", "main"), 1, rows=1, lane_s=0.006)
    registry.collect(1000.0)
    told = {
        "red": {
            "answered": 3, "model_errors": 1, "model_s": 0.5, "inferences": 6.0, "executions": 2.0,
            "cache_hits": 1, "cache_misses": 2, "hits": 4, "resident": True,
        }
    }  # fmt: skip
    registry.add_models("shop", "main", "i1", told, 1000.0)
    rows = shown(registry, shop="1")
    assert {labels[0] for _, labels in rows} == {"shop:red"}
    assert rows["nv_inference_request_success", ("shop:red", "1")] == 3
    assert rows["nv_inference_request_failure", ("shop:red", "BACKEND", "1")] == 1
    names = ("inference_compute_infer_duration_us", "inference_count", "inference_exec_count",
             "cache_num_hits_per_model", "cache_num_misses_per_model")  # fmt: skip
    found = [rows[f"nv_{name}", ("shop:red", "1")] for name in names]
    assert found == [500_000, 6, 2, 1, 2]


def test_they_are_not_there_unless_the_operator_asks_for_them() -> None:
    registry = MetricRegistry()
    answered(registry.recorder("shop", "main"), 1, rows=1, lane_s=0.006)
    registry.collect(1000.0)
    assert b"nv_" not in PrometheusPage(registry).render()[0]
