"""UpdateEndpoint under load: the old copies serve until the new ones are ready; nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kit.load import Load
from tests.kit.polling import wait_until
from tests.kit.python_models import BUSY_ECHO, python_model
from tests.kit.servers import Server

pytestmark = pytest.mark.system

BROKEN = """
def model_fn(model_dir):
    raise RuntimeError("the weights are not here")

def predict_fn(data, model):
    return data
"""


def test_updating_under_load_loses_no_request(empty_server: Server, tmp_path: Path) -> None:
    empty_server.deploy("first", python_model(tmp_path / "first", BUSY_ECHO))
    empty_server.prepare("second", python_model(tmp_path / "second", BUSY_ECHO))
    client = empty_server.client("sagemaker")
    with Load(empty_server.port, "/endpoints/first/invocations") as load:
        wait_until(lambda: load.answered > 100, "load", 60)
        old = {copy["pid"] for copy in empty_server.copies("first")}
        for config in ("second", "first", "second"):
            client.update_endpoint(EndpointName="first", EndpointConfigName=config)
            assert client.describe_endpoint(EndpointName="first")["EndpointStatus"] == "Updating"
            described = empty_server.wait_in_service("first")
            assert described["EndpointConfigName"] == config
            before = load.answered
            wait_until(lambda low=before: load.answered > low + 100, "answers", 60)
        new = {copy["pid"] for copy in empty_server.ready_copies("first")}
    assert load.statuses == {200: load.answered}, load.errors
    assert (load.broken, load.wrong) == (0, [])
    assert not old & new


def test_an_update_that_cannot_load_keeps_the_old_copies_and_says_why(
    empty_server: Server, tmp_path: Path
) -> None:
    empty_server.deploy("first", python_model(tmp_path / "first", BUSY_ECHO))
    empty_server.prepare("broken", python_model(tmp_path / "broken", BROKEN))
    client = empty_server.client("sagemaker")
    with Load(empty_server.port, "/endpoints/first/invocations", workers=2) as load:
        wait_until(lambda: load.answered > 50, "load", 60)
        client.update_endpoint(EndpointName="first", EndpointConfigName="broken")
        described = empty_server.wait_in_service("first")
    assert described["EndpointConfigName"] == "first"
    assert "the weights are not here" in described["FailureReason"]
    assert load.statuses == {200: load.answered}, load.errors


def test_weights_and_counts_change_without_losing_a_request(
    empty_server: Server, tmp_path: Path
) -> None:
    empty_server.deploy("first", python_model(tmp_path / "first", BUSY_ECHO))
    client = empty_server.client("sagemaker")
    with Load(empty_server.port, "/endpoints/first/invocations", workers=4) as load:
        for count in (3, 1):
            wait_until(lambda: load.answered > 50, "load", 60)
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
    empty_server.deploy("torn", folder, wait=False)
    described = empty_server.settled("torn")
    assert described["EndpointStatus"] == "Failed"
    assert "model.onnx" in described["FailureReason"]
    empty_server.delete("torn")
