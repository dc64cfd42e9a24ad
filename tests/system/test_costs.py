"""What an endpoint costs, from its instance type to the page, the CloudWatch API and the CLI."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from typing import Any

import pytest
from tests.system.harness import Server, wait_until

pytestmark = pytest.mark.system


def test_cost_and_energy_of_a_request_are_told_wherever_one_looks(
    server: Server, query_intent: str
) -> None:
    status, _ = server.post(
        f"/endpoints/{query_intent}/invocations", b"red shoes", {"Content-Type": "text/plain"}
    )
    assert status == 200

    def told() -> dict[str, Any] | None:
        for cost in server.get("/admin/costs")["costs"]:
            if cost["endpoint"] == query_intent and cost["dollars_per_request"] is not None:
                return dict(cost)
        return None

    cost = wait_until(told, seconds=40, what="the first charge after an answer")
    assert cost["dollars"] > 0
    assert sum(cost["joules"].values()) > 0
    assert set(cost["joules"]) <= {"rapl", "nvml", "rapl+nvml", "nvml+estimated", "estimated"}
    assert cost["dollars_per_thousand_tokens"] is None
    command = [sys.executable, "-m", "penstock", "status", query_intent, "--json"]
    shown = json.loads(
        subprocess.run(
            [*command, "--url", server.url], check=True, capture_output=True, timeout=60
        ).stdout
    )
    assert [one["endpoint"] for one in shown["costs"]] == [query_intent]
    cloudwatch = server.client("cloudwatch")

    def points() -> list[dict[str, Any]]:
        now = dt.datetime.now(dt.UTC)
        found = cloudwatch.get_metric_statistics(
            Namespace="Penstock",
            MetricName="CostPerRequest",
            Dimensions=[
                {"Name": "EndpointName", "Value": query_intent},
                {"Name": "VariantName", "Value": cost["variant"]},
            ],
            StartTime=now - dt.timedelta(minutes=10),
            EndTime=now + dt.timedelta(minutes=1),
            Period=60,
            Statistics=["Average"],
        )
        return list(found["Datapoints"])

    seen = wait_until(points, seconds=40, what="the cost of a request as a metric")
    assert all(point["Average"] > 0 for point in seen)
