"""An error that points to the endpoint's log has left its line there: `penstock logs` shows it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import botocore.exceptions
import pytest
from tests.kit.polling import wait_until
from tests.kit.python_models import python_model
from tests.kit.servers import EXAMPLES, Server

pytestmark = [pytest.mark.system, pytest.mark.integration]

STERN = """
import os

def model_fn(model_dir):
    return None

def predict_fn(data, model):
    if data == "die":
        os._exit(3)
    raise ValueError("no such luck")
"""


def lines(server: Server, endpoint: str) -> list[str]:
    """All lines, as `penstock logs` shows them."""
    found = server.get(f"/admin/endpoints/{endpoint}/logs?lines=1000")["logs"]
    return [line for log in found for line in log["lines"]]


def refused(server: Server, endpoint: str, body: bytes, content_type: str) -> str:
    """The text of a ModelError."""
    runtime = server.client("sagemaker-runtime")
    with pytest.raises(runtime.exceptions.ModelError) as caught:
        runtime.invoke_endpoint(EndpointName=endpoint, Body=body, ContentType=content_type)
    return str(caught.value.response["Error"]["Message"])


@pytest.fixture(scope="module")
def tensors(server: Server) -> str:
    """An endpoint whose log nobody else writes to."""
    server.deploy("tensors-with-a-log", EXAMPLES / "query_intent" / "artifact")
    return "tensors-with-a-log"


@pytest.mark.parametrize(
    ("body", "content_type", "code"),
    [(b"\x00", "image/png", "unsupported-content-type"), (b'{"x": 1}', "application/json", "")],
)
def test_what_a_model_refuses(
    server: Server, tensors: str, body: bytes, content_type: str, code: str
) -> None:
    """A tensor model writes nothing by itself: without the line its log is empty."""
    before = len(lines(server, tensors))
    told = refused(server, tensors, body, content_type)
    assert f"penstock logs {tensors}" in told
    new = lines(server, tensors)[before:]
    assert any(f"error[{code}" in line for line in new), new


def test_what_a_models_code_raises_and_how_its_process_ends(server: Server, tmp_path: Path) -> None:
    server.deploy("stern", python_model(tmp_path / "stern", STERN))
    assert "penstock logs stern" in refused(server, "stern", b'"x"', "application/json")
    assert any("no such luck" in line and "error[" in line for line in lines(server, "stern"))
    with pytest.raises(botocore.exceptions.ClientError):
        server.client("sagemaker-runtime").invoke_endpoint(
            EndpointName="stern", Body=b'"die"', ContentType="application/json"
        )
    assert any("exited with status 3" in line for line in lines(server, "stern"))
    server.client("sagemaker").delete_endpoint(EndpointName="stern")


def test_why_an_endpoint_failed(server: Server, tmp_path: Path) -> None:
    server.deploy("lost", tmp_path / "nowhere", wait=False)
    api = server.client("sagemaker")

    def settled() -> str:
        described = api.describe_endpoint(EndpointName="lost")
        return str(described.get("FailureReason", ""))

    reason = wait_until(settled, "the failure", 100)
    assert "nowhere" in reason
    assert any(line.endswith(f"Failed: {reason}") for line in lines(server, "lost"))
    api.delete_endpoint(EndpointName="lost")


def test_that_an_instance_was_killed(server: Server, tmp_path: Path) -> None:
    server.deploy("victim", python_model(tmp_path / "victim", STERN))
    (copy,) = server.copies("victim")
    os.kill(copy["pid"], signal.SIGKILL)
    wait_until(
        lambda: any("the instance ended: signal 9" in line for line in lines(server, "victim")),
        "the line",
        60,
    )
    server.client("sagemaker").delete_endpoint(EndpointName="victim")
