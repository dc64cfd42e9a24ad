"""`PENSTOCK_LATENCY_P99_MS` in a model's environment is the service level of its copies."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.kit.servers import EXAMPLES, Server

pytestmark = pytest.mark.system

ARTIFACT = EXAMPLES / "query_intent" / "artifact"


def described(server: Server, name: str, environment: dict[str, str]) -> dict[str, Any]:
    """The endpoint of a model with this environment, once it has settled."""
    server.deploy(name, ARTIFACT, Environment=environment, wait=False)
    return server.settled(name)


def batching(server: Server, name: str) -> Any:
    (copy,) = server.copies(name)
    return server.get(f"/admin/endpoints/{name}/copies/{copy['copy']}")


def test_it_reaches_the_batcher_which_learns_run_times_for_it(server: Server) -> None:
    try:
        found = described(server, "level", {"PENSTOCK_LATENCY_P99_MS": "25"})
        assert found["EndpointStatus"] == "InService", found
        told = batching(server, "level")
        assert told["batching"]["latency_s_p99_max"] == 0.025
        body = json.dumps({"inputs": "where is my package"}).encode()
        for _ in range(3):
            status, answer = server.post("/endpoints/level/invocations", body)
            assert status == 200, answer
        learned = batching(server, "level")["batcher"]["run_times"]
        assert [each["rows"] for each in learned] == [1]
        assert learned[0]["runs"] >= 1
    finally:
        server.client("sagemaker").delete_endpoint(EndpointName="level")


def test_without_it_the_artifact_decides(server: Server, query_intent: str) -> None:
    assert "latency_ms_p99_max: 10\n" in (ARTIFACT / "model.yaml").read_text()
    assert batching(server, query_intent)["batching"]["latency_s_p99_max"] == 0.010


def test_a_level_that_is_no_number_fails_the_endpoint_and_is_named(server: Server) -> None:
    try:
        found = described(server, "no-level", {"PENSTOCK_LATENCY_P99_MS": "fast"})
        assert found["EndpointStatus"] == "Failed"
        assert "PENSTOCK_LATENCY_P99_MS is 'fast'" in found["FailureReason"]
        assert "milliseconds above 0" in found["FailureReason"]
    finally:
        server.client("sagemaker").delete_endpoint(EndpointName="no-level")
