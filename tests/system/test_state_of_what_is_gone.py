"""What a deleted endpoint leaves behind: its datapoints, and nothing that grows."""

from __future__ import annotations

import datetime
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit import model_files
from tests.kit.asynchronous import AsyncSite
from tests.kit.census import MARK, CensusServer
from tests.kit.multi_model import create_multi_model, put
from tests.kit.polling import wait_until
from tests.kit.python_models import ECHO, python_model
from tests.kit.servers import Server, remove_all
from tests.kit.transform import GOOD, TransformSite

pytestmark = pytest.mark.system


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
        server.deploy("kept", echo, wait=False)
        server.wait_in_service("kept")
        call(server, "kept", 30)
        assert server.stop() == 0, server.log()
        server.start()
        assert invocations(server, "kept") == 30
    finally:
        server.stop()


@pytest.fixture
def counted(tmp_path: Path) -> Iterator[CensusServer]:
    server = CensusServer(tmp_path / "state")
    server.start()
    yield server
    assert server.stop() == 0, server.log()


@pytest.mark.timeout(240)  # 30 s of it are how long counts are kept
def test_a_server_holds_nothing_of_what_is_gone(
    counted: CensusServer, tmp_path: Path, echo: Path
) -> None:
    """Every kind of endpoint, with calls of each, and a schedule."""
    client = counted.client("sagemaker")
    counted.deploy(f"{MARK}-plain", echo)
    call(counted, f"{MARK}-plain", 5)

    later = AsyncSite(counted, tmp_path / "later")
    later.model(f"{MARK}-squares")
    later.endpoint(f"{MARK}-later", model=f"{MARK}-squares")
    assert later.ask(f"{MARK}-later", {"number": 3}, f"{MARK}-object")
    wait_until(later.answers, seconds=60, what="an output")

    put(tmp_path / "many", f"{MARK}-target.tar.gz", 1)
    create_multi_model(counted, f"{MARK}-many", tmp_path / "many")
    counted.wait_in_service(f"{MARK}-many")
    runtime = counted.client("sagemaker-runtime")
    runtime.invoke_endpoint(
        EndpointName=f"{MARK}-many",
        TargetModel=f"{MARK}-target.tar.gz",
        Body=b'{"x": 1}',
        ContentType="application/json",
    )

    jobs = TransformSite(counted, tmp_path / "data")
    jobs.model(f"{MARK}-affine", model_files.affine(tmp_path / "affine"))
    jobs.put("good", [GOOD])
    request = jobs.request(f"{MARK}-nightly", f"{MARK}-affine", jobs.uri("good"))
    del request["TransformJobName"]
    schedule = json.dumps({"expression": "rate(6 hours)", "job": request}).encode()
    status, told = counted.post(f"/admin/schedules/{MARK}-nightly", schedule)
    assert status == 200, told
    assert counted.census()  # it finds what is there

    asked = urllib.request.Request(f"{counted.url}/admin/schedules/{MARK}-nightly", method="DELETE")
    urllib.request.urlopen(asked, timeout=60).close()
    for name in client.list_endpoints()["Endpoints"]:
        delete(counted, name["EndpointName"])
    remove_all(counted)

    counted.forgets()
