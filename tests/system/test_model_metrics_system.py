"""Metrics of a multi-model endpoint, read by an unmodified SDK from a real server."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.kit.multi_model import create_multi_model, put
from tests.kit.polling import wait_until
from tests.kit.servers import Server

from penstock.core.cost.report import ModelUsage, usage_from_dict

pytestmark = pytest.mark.system

CALLS = 6
_DURATIONS = ("ModelLoadingWaitTime", "ModelDownloadingTime", "ModelLoadingTime")
_ENDPOINTS = "/aws/sagemaker/Endpoints"


def ask(server: Server, model: str) -> int:
    return int(server.invoke("many", {"x": 1}, TargetModel=model)["sum"])


class ModelMetrics:
    """CloudWatch of one server, from now on."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.client = server.client("cloudwatch")
        self.start = dt.datetime.now(dt.UTC) - dt.timedelta(minutes=2)

    def values(
        self, name: str, statistic: str, model: str = "", *, namespace: str = "AWS/SageMaker"
    ) -> list[float]:
        dimensions = {"EndpointName": "many", "VariantName": "all"}
        if model:
            dimensions["TargetModel"] = model
        reply = self.client.get_metric_data(
            StartTime=self.start,
            EndTime=dt.datetime.now(dt.UTC) + dt.timedelta(minutes=2),
            MetricDataQueries=[
                {
                    "Id": "m",
                    "MetricStat": {
                        "Metric": {
                            "Namespace": namespace,
                            "MetricName": name,
                            "Dimensions": [
                                {"Name": key, "Value": value} for key, value in dimensions.items()
                            ],
                        },
                        "Period": 60,
                        "Stat": statistic,
                    },
                }
            ],
        )
        return list(reply["MetricDataResults"][0]["Values"])

    def sum(self, name: str, model: str = "", statistic: str = "Sum") -> float:
        return sum(self.values(name, statistic, model))

    def page(self) -> dict[tuple[str, str, str], float]:
        """(sample, target model, cache or outcome) -> value"""
        families = text_string_to_metric_families(self.server.page())
        return {
            (
                sample.name,
                sample.labels["target_model"],
                sample.labels.get("cache", sample.labels.get("outcome", "")),
            ): sample.value
            for family in families
            for sample in family.samples
            if "target_model" in sample.labels
        }


def test_hits_waits_and_loads_are_published_by_endpoint_and_by_model(
    fresh_server: Server, tmp_path: Path
) -> None:
    prefix = tmp_path / "models"
    for number in range(2):
        put(prefix, f"m{number}.tar.gz", number)
    metrics = ModelMetrics(fresh_server)
    create_multi_model(fresh_server, "many", prefix)
    for _ in range(CALLS):
        assert ask(fresh_server, "m0.tar.gz") == 1
    assert ask(fresh_server, "m1.tar.gz") == 2

    def published() -> bool:
        counts = [metrics.sum(name, statistic="SampleCount") for name in _DURATIONS]
        hits = metrics.sum("ModelCacheHit", statistic="SampleCount")
        return hits == CALLS + 1 and counts == [2] * len(_DURATIONS)

    wait_until(published, "the windows of ten seconds are published", 60)
    assert metrics.sum("ModelCacheHit") == CALLS - 1
    assert metrics.sum("ModelCacheHit", "m0.tar.gz") == CALLS - 1
    assert metrics.values("ModelCacheHit", "Average", "m1.tar.gz") == [0.0]
    for name in _DURATIONS:
        assert metrics.sum(name, "m0.tar.gz", "SampleCount") == 1, name
        [median] = metrics.values(name, "p50", "m0.tar.gz")
        assert median > 0, name
    wait_until(
        lambda: metrics.sum("Invocations", "m0.tar.gz") == CALLS,
        "the model's invocations are published",
        60,
    )
    assert metrics.values("ModelLatency", "p90", "m0.tar.gz")
    wait_until(
        lambda: 2.0 in metrics.values("LoadedModelCount", "Maximum", namespace=_ENDPOINTS),
        "both models count as loaded on the instance",
        60,
    )
    assert 1.0 in metrics.values("LoadedModelCount", "Maximum", "m0.tar.gz", namespace=_ENDPOINTS)
    listed = metrics.client.list_metrics(
        Namespace="AWS/SageMaker", Dimensions=[{"Name": "TargetModel", "Value": "m1.tar.gz"}]
    )
    assert {"ModelCacheHit", *_DURATIONS} <= {one["MetricName"] for one in listed["Metrics"]}
    page = metrics.page()
    assert page["penstock_target_model_calls_total", "m0.tar.gz", "hit"] == CALLS - 1
    assert page["penstock_target_model_calls_total", "m1.tar.gz", "miss"] == 1
    assert page["penstock_target_model_requests_total", "m0.tar.gz", "ok"] == CALLS
    assert page["penstock_target_model_loads_total", "m1.tar.gz", "ok"] == 1


def test_usage_is_what_a_cost_report_reads(fresh_server: Server, tmp_path: Path) -> None:
    prefix = tmp_path / "models"
    put(prefix, "m.tar.gz", 1)
    create_multi_model(fresh_server, "many", prefix)
    for _ in range(CALLS):
        assert ask(fresh_server, "m.tar.gz") == 2

    def used() -> ModelUsage | None:
        [instance] = usage_from_dict(fresh_server.get("/admin/usage")) or [None]
        if instance is None or not instance.held_s:
            return None
        assert instance.endpoint == "many"
        [model] = instance.models
        return model if model.requests == CALLS and model.resident_byte_s > 0 else None

    model = wait_until(used, "every request is in the usage", 60)
    assert (model.model, model.loads) == ("m.tar.gz", 1)
    assert model.bytes_peak > 0
    assert 0 < model.compute_s <= model.resident_s
    assert model.load_s > 0


def test_what_an_instance_counted_last_is_published_though_its_endpoint_is_deleted(
    fresh_server: Server, tmp_path: Path
) -> None:
    prefix = tmp_path / "models"
    put(prefix, "m.tar.gz", 1)
    metrics = ModelMetrics(fresh_server)
    create_multi_model(fresh_server, "many", prefix)
    for _ in range(CALLS):
        assert ask(fresh_server, "m.tar.gz") == 2
    fresh_server.client("sagemaker").delete_endpoint(EndpointName="many")

    def all_published() -> bool:
        return metrics.sum("ModelCacheHit", statistic="SampleCount") == CALLS

    wait_until(all_published, "every request is counted", 60)
    assert metrics.sum("Invocations", "m.tar.gz") + metrics.sum("Invocations", "(others)") == CALLS
