"""Guarded updates of an endpoint, as unmodified boto3 asks for them: a share of the traffic for the
new model, alarms that send it back, and servers killed in the middle."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.kit.load import Load
from tests.kit.polling import wait_until
from tests.kit.python_models import python_model
from tests.kit.servers import Server

pytestmark = pytest.mark.system

#: Says back what it is sent; asked for its name it says that.
MODEL = """
import json

def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept):
    if "who" in str(body):
        return '"{name}"', content_type
    return body, content_type
"""
CANARY_PERCENT = 30
NEVER_S = 3600  #: a bake that no test waits for


def canary(wait_s: int, **more: Any) -> dict[str, Any]:
    routing = {
        "Type": "CANARY",
        "CanarySize": {"Type": "CAPACITY_PERCENT", "Value": CANARY_PERCENT},
        "WaitIntervalInSeconds": wait_s,
    }
    return {"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": routing, **more}}


def two_models(server: Server, folder: Path) -> Any:
    """An endpoint that serves "old", and a configuration "new"; SageMaker's client."""
    for name in ("old", "new"):
        python_model(folder / name, MODEL.replace("{name}", name))
    server.deploy("old", folder / "old")
    server.prepare("new", folder / "new")
    return server.client("sagemaker")


def guarded(server: Server, alarm: str) -> None:
    """An alarm, and an update with a canary that it guards."""
    server.client("cloudwatch").put_metric_alarm(
        AlarmName=alarm, Namespace="Shop", MetricName=alarm, Statistic="Sum", Period=10,
        EvaluationPeriods=1, Threshold=5, ComparisonOperator="GreaterThanThreshold",
    )  # fmt: skip
    server.client("sagemaker").update_endpoint(
        EndpointName="old",
        EndpointConfigName="new",
        DeploymentConfig=canary(NEVER_S)
        | {"AutoRollbackConfiguration": {"Alarms": [{"AlarmName": alarm}]}},
    )


def baking(server: Server) -> dict[str, Any]:
    """The endpoint, once the new model has its share of the traffic."""
    client = server.client("sagemaker")

    def found() -> dict[str, Any] | None:
        described: dict[str, Any] = client.describe_endpoint(EndpointName="old")
        pending = described.get("PendingDeploymentSummary", {}).get("ProductionVariants", [{}])
        statuses = [one["Status"] for one in pending[0].get("VariantStatus", [])]
        return described if "Baking" in statuses else None

    return dict(wait_until(found, "a bake", 60))


def rings(server: Server, alarm: str) -> None:
    """Errors come in until the alarm has sent the update back."""
    client = server.client("cloudwatch")
    sample = {"MetricName": alarm, "Value": 10.0, "StorageResolution": 1}

    def back() -> bool:
        client.put_metric_data(Namespace="Shop", MetricData=[sample])
        described = server.client("sagemaker").describe_endpoint(EndpointName="old")
        return bool(described["EndpointStatus"] == "InService")

    wait_until(back, "the old model alone", 90)


def who(server: Server, count: int) -> Counter[str]:
    return Counter(server.invoke("old", "who") for _ in range(count))


def test_a_canary_gets_its_share_and_an_alarm_sends_it_back(
    empty_server: Server, tmp_path: Path
) -> None:
    client = two_models(empty_server, tmp_path)
    with Load(empty_server.port, "/endpoints/old/invocations", workers=2) as load:
        guarded(empty_server, "errors")
        described = baking(empty_server)
        assert described["EndpointConfigName"] == "old"
        (serving,) = described["ProductionVariants"]
        (pending,) = described["PendingDeploymentSummary"]["ProductionVariants"]
        assert serving["CurrentWeight"] == pytest.approx(0.7)
        assert pending["CurrentWeight"] == pytest.approx(0.3)
        count = 600
        chance = CANARY_PERCENT / 100
        spread = 4 * math.sqrt(count * chance * (1 - chance))
        assert abs(who(empty_server, count)["new"] - count * chance) < spread
        rings(empty_server, "errors")
        assert who(empty_server, 50) == {"old": 50}
    described = client.describe_endpoint(EndpointName="old")
    assert described["EndpointConfigName"] == "old"
    assert "in ALARM: errors" in described["FailureReason"]
    assert load.statuses == {200: load.answered}, load.errors
    assert (load.broken, load.wrong) == (0, [])
    wait_until(lambda: len(empty_server.copies("old")) == 1, "the new copy's end", 60)
    wait_until(lambda: counted_apart(empty_server), "both configurations in CloudWatch", 60)


def counted_apart(server: Server) -> bool:
    """Whether CloudWatch has calls of both configurations, and no more than there were."""
    variant = {"EndpointName": "old", "VariantName": "all"}
    whole = sum(server.datapoints("Invocations", "Sum", **variant))
    parts = [
        sum(server.datapoints("Invocations", "Sum", **variant, EndpointConfigName=config))
        for config in ("old", "new")
    ]
    return min(parts) > 0 and sum(parts) <= whole


@pytest.mark.parametrize(
    "routing",
    [
        {"Type": "CANARY", "CanarySize": {"Type": "CAPACITY_PERCENT", "Value": 10}},
        {"Type": "LINEAR", "LinearStepSize": {"Type": "CAPACITY_PERCENT", "Value": 50}},
        {"Type": "ALL_AT_ONCE"},
    ],
    ids=lambda routing: routing["Type"],
)
def test_what_goes_well_ends_at_the_new_model(
    empty_server: Server, tmp_path: Path, routing: dict[str, Any]
) -> None:
    client = two_models(empty_server, tmp_path)
    policy = {"TrafficRoutingConfiguration": routing | {"WaitIntervalInSeconds": 1}}
    config = {"BlueGreenUpdatePolicy": policy | {"TerminationWaitInSeconds": 1}}
    with Load(empty_server.port, "/endpoints/old/invocations", workers=2) as load:
        client.update_endpoint(
            EndpointName="old", EndpointConfigName="new", DeploymentConfig=config
        )
        described = empty_server.wait_in_service("old")
        assert described["EndpointConfigName"] == "new"
        assert described["LastDeploymentConfig"] == config
        assert who(empty_server, 20) == {"new": 20}
    assert load.statuses == {200: load.answered}, load.errors
    assert (load.broken, load.wrong) == (0, [])


def test_a_server_that_is_killed_goes_on_with_the_bake_and_still_hears_the_alarm(
    empty_server: Server, tmp_path: Path
) -> None:
    two_models(empty_server, tmp_path)
    guarded(empty_server, "errors-after-a-kill")
    before = baking(empty_server)
    empty_server.kill()
    empty_server.start()
    after = baking(empty_server)
    assert after["EndpointStatus"] == "Updating"
    assert _since(after) == _since(before), "its time goes on"
    wait_until(lambda: len(empty_server.ready_copies("old")) == 2, "both models", 60)
    assert set(who(empty_server, 60)) == {"old", "new"}
    rings(empty_server, "errors-after-a-kill")
    assert who(empty_server, 20) == {"old": 20}


def test_a_new_model_that_cannot_load_never_gets_traffic(
    empty_server: Server, tmp_path: Path
) -> None:
    client = two_models(empty_server, tmp_path)
    broken = MODEL.replace("return None", "raise RuntimeError('the weights are not here')")
    empty_server.prepare("broken", python_model(tmp_path / "broken", broken))
    client.update_endpoint(
        EndpointName="old", EndpointConfigName="broken", DeploymentConfig=canary(NEVER_S)
    )
    described = empty_server.wait_in_service("old")
    assert described["EndpointConfigName"] == "old"
    assert "the weights are not here" in described["FailureReason"]
    assert who(empty_server, 20) == {"old": 20}


def _since(described: dict[str, Any]) -> Any:
    (pending,) = described["PendingDeploymentSummary"]["ProductionVariants"]
    return pending["VariantStatus"][0]["StartTime"]
