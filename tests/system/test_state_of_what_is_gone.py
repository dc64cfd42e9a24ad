"""What a deleted endpoint leaves behind: its datapoints, and nothing that grows."""

from __future__ import annotations

import datetime
import urllib.request
from pathlib import Path

import pytest
from tests.system.harness import Server, create, python_model, wait_until

pytestmark = pytest.mark.system

ECHO = """
def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept):
    return body, content_type
"""


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return python_model(tmp_path_factory.mktemp("models") / "echo", ECHO)


def invocations(server: Server, endpoint: str) -> float:
    """All that CloudWatch's API knows of."""
    now = datetime.datetime.now(datetime.UTC)
    answer = server.client("cloudwatch").get_metric_statistics(
        Namespace="AWS/SageMaker",
        MetricName="Invocations",
        Dimensions=[
            {"Name": "EndpointName", "Value": endpoint},
            {"Name": "VariantName", "Value": "all"},
        ],
        StartTime=now - datetime.timedelta(minutes=10),
        EndTime=now + datetime.timedelta(minutes=2),
        Period=60,
        Statistics=["Sum"],
    )
    return sum(point["Sum"] for point in answer["Datapoints"])


def call(server: Server, endpoint: str, times: int) -> None:
    runtime = server.client("sagemaker-runtime")
    for _ in range(times):
        runtime.invoke_endpoint(EndpointName=endpoint, Body=b"{}", ContentType="application/json")


def delete(server: Server, endpoint: str) -> None:
    client = server.client("sagemaker")
    client.delete_endpoint(EndpointName=endpoint)
    wait_until(
        lambda: not client.list_endpoints(NameContains=endpoint)["Endpoints"],
        seconds=60,
        what="the end of an endpoint",
    )


def page(server: Server, process: str = "") -> list[str]:
    query = f"?process={process}" if process else ""
    with urllib.request.urlopen(f"{server.url}/metrics{query}", timeout=60) as answer:
        return answer.read().decode().splitlines()


@pytest.mark.parametrize("gateways", [1, 2])
def test_calls_before_a_deletion_are_datapoints_and_the_page_forgets_it(
    gateways: int, tmp_path: Path, echo: Path
) -> None:
    server = Server(tmp_path / "state", "--gateways", str(gateways)).start()
    try:
        server.deploy("gone", echo)
        call(server, "gone", 30)
        delete(server, "gone")
        wait_until(lambda: invocations(server, "gone") == 30, seconds=60, what="30 datapoints")
        processes = ["", *(f"gateway-{one + 1}" for one in range(gateways) if gateways > 1)]
        wait_until(
            lambda: (
                not [
                    line
                    for process in processes
                    for line in page(server, process)
                    if '"gone"' in line
                ]
            ),
            seconds=60,
            what="a page without it",
        )
        assert invocations(server, "gone") == 30
    finally:
        assert server.stop() == 0, server.log()


def test_calls_before_the_end_of_a_server_are_datapoints_of_the_next(
    tmp_path: Path, echo: Path
) -> None:
    server = Server(tmp_path / "state").start()
    try:
        create(server, "kept", echo)
        server.wait_in_service("kept")
        call(server, "kept", 30)
        assert server.stop() == 0, server.log()
        server.start()
        assert invocations(server, "kept") == 30
    finally:
        server.stop()
