"""From what hosts tell of their target models to published metrics, on literal timelines."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.errors import CallerError
from penstock.metrics.counts.departures import KEPT_S
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.models.model_delta import OTHERS, ModelDelta
from penstock.metrics.models.model_registry import (
    INSTANCES_MAX,
    MODELS_MAX,
    SERIES_MODELS_MAX,
    Resident,
    UsageLedger,
    VariantModels,
)
from penstock.metrics.page.prometheus import PrometheusPage
from penstock.metrics.series.series import metric_key
from penstock.metrics.series.statistics import StatisticSet
from penstock.metrics.series.store import MetricStore
from penstock.metrics.utilization.cost import InstanceHeld

T0 = 1_700_000_000
MEGABYTE = 1 << 20


def told(*, resident: bool = True, host_bytes: int = MEGABYTE, **counts: Any) -> dict[str, Any]:
    """As a host tells; durations in `*_us` are lists of samples."""
    delta = ModelDelta()
    for name, value in counts.items():
        if isinstance(value, list):
            for each in value:
                delta.sketch(name).add(each)
        else:
            setattr(delta, name, value)
    taken = host_bytes if resident else 0
    return delta.to_dict() | {"resident": resident, "host_bytes": taken, "accelerator_bytes": 0}


def add(models: VariantModels, instance_id: str, told: dict[str, dict[str, Any]]) -> None:
    deltas = {model: ModelDelta.from_dict(fields) for model, fields in told.items()}
    taken = {model: Resident.from_dict(fields) for model, fields in told.items()}
    models.add(instance_id, deltas, taken, T0)


class ModelMetricsSite:
    def __init__(self) -> None:
        self.store = MetricStore()
        self.registry = MetricRegistry(self.store)
        self.registry.set_instance_count("shop", "main", 2)
        self.registry.collect(T0)

    def tell(self, at: float, instance_id: str = "i-1", **models: dict[str, Any]) -> None:
        self.registry.add_models("shop", "main", instance_id, models, T0 + at)

    def read(
        self,
        name: str,
        model: str = "",
        *,
        period_s: int = 60,
        namespace: str = "AWS/SageMaker",
        endpoint: str = "shop",
    ) -> StatisticSet | None:
        dimensions = {"EndpointName": endpoint, "VariantName": "main"}
        if model:
            dimensions["TargetModel"] = model
        metric = metric_key(namespace, name, dimensions).metric
        found = self.store.read_merged(metric, T0 - T0 % 60, T0 + 600, period_s)
        return next(iter(found.values()), None)

    def page(self) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
        body, _ = PrometheusPage(self.registry, self.store).render()
        return {
            family.name: {
                tuple(sorted(sample.labels.items())): sample.value for sample in family.samples
            }
            for family in text_string_to_metric_families(body.decode())
        }


def test_a_hit_is_one_and_a_miss_zero_for_the_variant_and_for_each_model() -> None:
    site = ModelMetricsSite()
    site.tell(1, a=told(hits=8, misses=1, loads_failed=0, load_us=[1.0]), b=told(load_us=[1.0]))
    site.tell(2, b=told(misses=1))
    assert site.read("ModelCacheHit") is None  # the window is still open
    site.registry.collect(T0 + 10)
    together, a, b = (site.read("ModelCacheHit", model) for model in ("", "a", "b"))
    assert together is not None
    assert (together.count, together.total) == (10, 8)
    assert a is not None
    assert (a.count, a.total) == (9, 8)
    assert b is not None
    assert (b.count, b.total) == (1, 0)


def test_durations_of_several_hosts_merge_and_keep_their_percentiles() -> None:
    site = ModelMetricsSite()
    site.tell(1, "i-1", a=told(load_us=[1000.0] * 50))
    site.tell(2, "i-2", a=told(load_us=[9000.0] * 50), b=told(load_us=[90_000.0]))
    site.registry.collect(T0 + 10)
    for model, count in (("", 101), ("a", 100)):
        stats = site.read("ModelLoadingTime", model)
        assert stats is not None
        assert stats.count == count
        assert stats.quantile(0.25) == pytest.approx(1000, rel=0.01)
        assert stats.quantile(0.75) == pytest.approx(9000, rel=0.01)
    slowest = site.read("ModelLoadingTime")
    assert slowest is not None
    assert slowest.maximum == 90_000


def test_all_of_awss_durations_are_published_where_there_were_any() -> None:
    site = ModelMetricsSite()
    site.tell(1, a=told(wait_us=[4.0], download_us=[1.0], load_us=[2.0], unload_us=[3.0]))
    site.registry.collect(T0 + 10)
    for model in ("", "a"):
        found = {
            name: stats.total
            for name in (
                "ModelLoadingWaitTime", "ModelDownloadingTime", "ModelLoadingTime",
                "ModelUnloadingTime",
            )
            if (stats := site.read(name, model)) is not None
        }  # fmt: skip
        assert found == {
            "ModelLoadingWaitTime": 4.0,
            "ModelDownloadingTime": 1.0,
            "ModelLoadingTime": 2.0,
            "ModelUnloadingTime": 3.0,
        }


def test_a_models_invocations_and_latency_are_its_own() -> None:
    site = ModelMetricsSite()
    site.tell(
        1, a=told(hits=6, answered=3, model_errors=1, other_errors=2, latency_us=[5.0, 6.0, 7.0])
    )
    site.registry.collect(T0 + 10)
    invocations, errors = site.read("Invocations", "a"), site.read("InvocationModelErrors", "a")
    latency = site.read("ModelLatency", "a")
    assert invocations is not None
    assert invocations.total == 6
    assert errors is not None
    assert (errors.count, errors.total) == (6, 1)
    assert latency is not None
    assert latency.total == 18
    assert site.read("Invocations") is None  # the gateway's, for the variant


def test_a_model_is_counted_on_every_instance_that_has_loaded_it() -> None:
    site = ModelMetricsSite()
    site.tell(1, "i-1", a=told(load_us=[1.0]), b=told(load_us=[1.0]))
    site.tell(1, "i-2", a=told(load_us=[1.0]))
    site.tell(2, "i-1", b=told(resident=False, unload_us=[1.0]))
    site.registry.collect(T0 + 10)
    endpoints = "/aws/sagemaker/Endpoints"
    a = site.read("LoadedModelCount", "a", namespace=endpoints)
    b = site.read("LoadedModelCount", "b", namespace=endpoints)
    assert (a and a.maximum, b and b.maximum) == (2, 0)
    site.registry.models.keep_instances({"i-1"})
    labels = (("endpoint", "shop"), ("target_model", "a"), ("variant", "main"))
    assert site.page()["penstock_target_model_instances"] == {labels: 1}


def test_models_that_are_called_least_share_one_series() -> None:
    site = ModelMetricsSite()
    models = [f"m-{number:03}" for number in range(SERIES_MODELS_MAX + 2)]
    for model in models:
        site.tell(1, **{model: told(hits=4)})
    site.registry.collect(T0 + 10)
    names = {dict(metric.dimensions).get("TargetModel") for metric in site.store.metrics()}
    assert names == {None, *models[:SERIES_MODELS_MAX], OTHERS}
    others, together = site.read("ModelCacheHit", OTHERS), site.read("ModelCacheHit")
    assert others is not None
    assert others.total == 8
    assert together is not None
    assert together.total == 4 * len(models)
    assert site.read("ModelCacheHit", models[-1]) is None


def test_a_model_that_is_called_more_takes_a_place_and_no_counter_runs_backwards() -> None:
    models = VariantModels()
    for number in range(SERIES_MODELS_MAX):
        add(models, "i-1", {f"m-{number:03}": told(hits=4)})
    add(models, "i-1", {"new": told(hits=7)})
    assert (models.shown_as("new"), models.shown[OTHERS].hits) == (OTHERS, 7)
    add(models, "i-1", {"new": told(hits=1)})
    assert (models.shown_as("new"), models.shown[OTHERS].hits) == ("new", 7)
    assert models.shown["new"].hits == 1
    assert "m-000" not in models.shown
    assert models.total.hits == 4 * SERIES_MODELS_MAX + 8


def test_the_first_calls_wait_is_its_models_own_though_it_is_told_before_the_load() -> None:
    site = ModelMetricsSite()
    site.tell(1, a=told(resident=False, misses=1))
    site.tell(2, a=told(resident=False, download_us=[1.0]))
    site.tell(3, a=told(load_us=[1.0], wait_us=[2.0], answered=1))
    site.registry.collect(T0 + 10)
    for name in ("ModelCacheHit", "ModelDownloadingTime", "ModelLoadingWaitTime"):
        stats = site.read(name, "a")
        assert stats is not None, name
        assert stats.count == 1
        assert site.read(name, OTHERS) is None


def test_names_that_are_no_models_take_no_place() -> None:
    models = VariantModels()
    for number in range(1000):
        add(models, "i-1", {f"x-{number}": told(resident=False, misses=1, loads_failed=1)})
    assert set(models.shown) == {OTHERS}
    assert models.shown[OTHERS].misses == 1000


def test_last_words_of_a_variant_that_is_gone_are_published_and_forgotten() -> None:
    site = ModelMetricsSite()
    site.tell(1, a=told(hits=1))
    site.registry.keep((), (), T0)
    site.registry.collect(T0 + KEPT_S)
    assert (stats := site.read("ModelCacheHit")) is not None
    assert stats.total == 1
    site.tell(2, a=told(hits=2, resident=False))
    assert (stats := site.read("ModelCacheHit")) is not None
    assert stats.total == 3
    assert site.registry.models.variants == {}


HELD = InstanceHeld(
    endpoint="shop", variant="main", instance_id="i-1", cores=2.0, watts=10.0, price_per_hour=0.5,
    load_s=3.0, instance_type="ml.local.small", memory_bytes=4 << 30,
)  # fmt: skip


def test_usage_is_told_by_instance_and_model_and_stays_when_both_are_gone() -> None:
    site = ModelMetricsSite()
    usage = site.registry.models.usage
    usage.note([HELD], 0.0)
    usage.note([HELD], 10.0)
    site.tell(
        1, a=told(hits=3, misses=1, answered=4, run_s=0.5, resident_s=2.0, idle_s=1.0,
                  byte_s=2.0 * MEGABYTE, load_us=[1e6], download_us=[5e5], wait_us=[2e6])
    )  # fmt: skip
    site.tell(2, a=told(hits=1, answered=1, resident_s=1.0, host_bytes=2 * MEGABYTE))
    site.tell(2, "i-unknown", a=told(answered=9))  # without a price it costs nothing
    site.registry.keep((), (), T0)
    site.registry.collect(T0 + KEPT_S)
    site.tell(3, a=told(resident=False, resident_s=1.0))
    usage.note([], 5.0)
    assert usage.rows() == [
        {
            "endpoint": "shop", "instance_id": "i-1", "instance_type": "ml.local.small",
            "price_per_hour": 0.5, "held_s": 13.0, "cores": 2.0, "memory_bytes": 4 << 30,
            "models": [
                {
                    "model": "a", "resident_s": 4.0, "resident_byte_s": 2.0 * MEGABYTE,
                    "compute_s": 0.5, "requests": 5, "loads": 1, "load_s": 1.0,
                    "bytes_peak": 2 * MEGABYTE,
                }
            ],
        }
    ]  # fmt: skip


def test_instances_that_host_no_models_have_no_usage_and_idle_hosts_have() -> None:
    site = ModelMetricsSite()
    usage = site.registry.models.usage
    idle = dataclasses.replace(HELD, instance_id="i-2")
    other = dataclasses.replace(HELD, instance_id="i-3", endpoint="single")
    usage.note([HELD, idle, other], 0.0)
    site.tell(1, a=told(answered=1))
    assert [row["instance_id"] for row in usage.rows()] == ["i-1", "i-2"]


def test_names_that_nothing_was_loaded_for_are_no_models_that_cost() -> None:
    """Each would count as an endpoint of its own, and as a tenant."""
    site = ModelMetricsSite()
    usage = site.registry.models.usage
    usage.note([HELD], 0.0)
    missed = {"resident": False, "host_bytes": 0}
    site.tell(1, typo=told(misses=1, other_errors=1, loads_failed=1, wait_us=[5e3], **missed))
    assert usage.rows() == []
    site.tell(2, a=told(misses=1, **missed))  # it waits for its load
    site.tell(3, a=told(answered=1, resident_s=1.0, load_us=[1e6]))
    [row] = usage.rows()
    assert [model["model"] for model in row["models"]] == ["a"]


def test_what_is_told_before_its_instance_is_noted_is_kept() -> None:
    usage = UsageLedger()
    usage.add("i-1", "a", ModelDelta(), 7)
    assert usage.rows() == []
    usage.note([HELD], 1.0)
    [row] = usage.rows()
    assert (row["held_s"], row["models"][0]["bytes_peak"]) == (3.0, 7)


def test_usage_is_bounded_in_instances_and_in_models() -> None:
    usage = UsageLedger()
    for number in range(INSTANCES_MAX + 5):
        usage.note([dataclasses.replace(HELD, instance_id=f"i-{number}")], 1.0)
        usage.add(f"i-{number}", "a", ModelDelta(), 1)
    rows = usage.rows()
    assert len(rows) == INSTANCES_MAX
    assert rows[0]["instance_id"] == "i-5"
    last = rows[-1]["instance_id"]
    for number in range(MODELS_MAX + 5):
        usage.add(last, f"x-{number}", ModelDelta(), 1)
    assert len(usage.rows()[-1]["models"]) == MODELS_MAX + 1
    assert usage.rows()[-1]["models"][-1]["model"] == OTHERS


def test_the_prometheus_page_has_each_model_and_the_variants_durations() -> None:
    site = ModelMetricsSite()
    site.tell(
        1,
        a=told(hits=3, misses=1, answered=4, run_s=0.5, resident_s=2.0, idle_s=0.5, load_us=[2e5],
               unloads={"dismissed": 1}),
    )  # fmt: skip
    page = site.page()
    labels = {"endpoint": "shop", "variant": "main", "target_model": "a"}

    def value(family: str, **more: str) -> float:
        return page[family][tuple(sorted((labels | more).items()))]

    assert value("penstock_target_model_calls", cache="hit") == 3
    assert value("penstock_target_model_requests", outcome="ok") == 4
    assert value("penstock_target_model_loads", outcome="ok") == 1
    assert value("penstock_target_model_unloads", reason="dismissed") == 1
    assert value("penstock_target_model_compute_seconds") == 0.5
    assert value("penstock_target_model_resident_seconds", state="busy") == 1.5
    assert value("penstock_target_model_resident_bytes", memory="host") == MEGABYTE
    of_variant = (("endpoint", "shop"), ("variant", "main"))
    assert page["penstock_model_loading_seconds"][of_variant] == pytest.approx(0.2)  # the sum
    assert of_variant not in page["penstock_model_unloading_seconds"]


def test_what_can_not_be_read_adds_nothing() -> None:
    site = ModelMetricsSite()
    with pytest.raises(CallerError, match="sketch"):
        site.tell(1, a=told(hits=1), b={"load_us": "AAAA"})
    assert site.registry.models.variants == {}


def test_instances_that_never_hosted_a_target_model_are_forgotten_when_they_end() -> None:
    ledger = UsageLedger()
    ledger.note([HELD], 0.0)
    ledger.note([], 1.0)
    loaded = ModelDelta()
    loaded.answered = 1
    loaded.sketch("load_us").add(1e6)
    ledger.add("i-1", "a", loaded, MEGABYTE)  # as if it had never been noted
    assert ledger.rows() == []
    ledger.note([HELD], 0.0)
    ledger.note([], 1.0)
    assert [row["instance_id"] for row in ledger.rows()] == ["i-1"]
