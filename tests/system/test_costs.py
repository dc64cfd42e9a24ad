"""What an endpoint costs, from its instance type to the page, the CloudWatch API and the CLI."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.kit.polling import wait_until
from tests.kit.servers import Server, penstock

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

    cost = wait_until(told, "the first charge after an answer", 40)
    assert cost["dollars"] > 0
    assert sum(cost["joules"].values()) > 0
    assert set(cost["joules"]) <= {"rapl", "nvml", "rapl+nvml", "nvml+estimated", "estimated"}
    assert cost["dollars_per_thousand_tokens"] is None
    shown = json.loads(penstock("status", query_intent, "--json", server=server).stdout)
    assert [one["endpoint"] for one in shown["costs"]] == [query_intent]
    variant = {"EndpointName": query_intent, "VariantName": cost["variant"]}
    seen = wait_until(
        lambda: server.datapoints("CostPerRequest", "Average", namespace="Penstock", **variant),
        "the cost of a request as a metric", 40,
    )  # fmt: skip
    assert all(point > 0 for point in seen)
