"""UpdateEndpoint under load: the old copies serve until the new ones are ready; nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.system.harness import Server, create, python_model, wait_until
from tests.system.load import Load

pytestmark = pytest.mark.system

VERSION = """
import time

def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept, context):
    time.sleep(0.003)
    return body, content_type
"""

BROKEN = """
def model_fn(model_dir):
    raise RuntimeError("the weights are not here")

def predict_fn(data, model):
    return data
"""


def test_updating_under_load_loses_no_request(empty_server: Server, tmp_path: Path) -> None:
    empty_server.deploy("first", python_model(tmp_path / "first", VERSION))
    create(empty_server, "second", python_model(tmp_path / "second", VERSION), endpoint=False)
    client = empty_server.client("sagemaker")
    with Load(empty_server.port, "/endpoints/first/invocations") as load:
        wait_until(lambda: load.answered > 100, seconds=20, what="load")
        old = {copy["pid"] for copy in empty_server.copies("first")}
        for config in ("second", "first", "second"):
            client.update_endpoint(EndpointName="first", EndpointConfigName=config)
            assert client.describe_endpoint(EndpointName="first")["EndpointStatus"] == "Updating"
            described = empty_server.wait_in_service("first")
            assert described["EndpointConfigName"] == config
            before = load.answered
            wait_until(lambda low=before: load.answered > low + 100, seconds=20, what="answers")
        new = {copy["pid"] for copy in empty_server.copies("first") if copy["state"] == "ready"}
    assert load.statuses == {200: load.answered}, load.errors
    assert (load.broken, load.wrong) == (0, [])
    assert not old & new


def test_an_update_that_cannot_load_keeps_the_old_copies_and_says_why(
    empty_server: Server, tmp_path: Path
) -> None:
    empty_server.deploy("first", python_model(tmp_path / "first", VERSION))
    create(empty_server, "broken", python_model(tmp_path / "broken", BROKEN), endpoint=False)
    client = empty_server.client("sagemaker")
    with Load(empty_server.port, "/endpoints/first/invocations", workers=2) as load:
        wait_until(lambda: load.answered > 50, seconds=20, what="load")
        client.update_endpoint(EndpointName="first", EndpointConfigName="broken")
        described = empty_server.wait_in_service("first")
    assert described["EndpointConfigName"] == "first"
    assert "the weights are not here" in described["FailureReason"]
    assert load.statuses == {200: load.answered}, load.errors


def test_weights_and_counts_change_without_losing_a_request(
    empty_server: Server, tmp_path: Path
) -> None:
    empty_server.deploy("first", python_model(tmp_path / "first", VERSION))
    client = empty_server.client("sagemaker")
    with Load(empty_server.port, "/endpoints/first/invocations", workers=4) as load:
        for count in (3, 1):
            wait_until(lambda: load.answered > 50, seconds=20, what="load")
            client.update_endpoint_weights_and_capacities(
                EndpointName="first",
                DesiredWeightsAndCapacities=[
                    {"VariantName": "all", "DesiredWeight": 2.0, "DesiredInstanceCount": count}
                ],
            )
            described = empty_server.wait_in_service("first")
            variant = described["ProductionVariants"][0]
            assert (variant["CurrentInstanceCount"], variant["CurrentWeight"]) == (count, 2.0)
    assert load.statuses == {200: load.answered}, load.errors
    assert load.broken == 0


def test_a_model_that_cannot_load_fails_its_endpoint_with_file_cause_and_remedy(
    empty_server: Server, tmp_path: Path
) -> None:
    folder = tmp_path / "torn"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"\x08\x07this is not a model")
    create(empty_server, "torn", folder)
    client = empty_server.client("sagemaker")

    def failed() -> str:
        described = client.describe_endpoint(EndpointName="torn")
        return str(described.get("FailureReason", ""))

    reason = wait_until(failed, seconds=60, what="a FailureReason")
    assert client.describe_endpoint(EndpointName="torn")["EndpointStatus"] == "Failed"
    assert "model.onnx" in reason
    client.delete_endpoint(EndpointName="torn")
    wait_until(lambda: not client.list_endpoints()["Endpoints"], seconds=30, what="deletion")
