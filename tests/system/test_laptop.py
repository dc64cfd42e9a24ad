"""Instance types named out of habit share one machine, whatever its size; promises are kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.kit import model_files
from tests.kit.polling import wait_until
from tests.kit.servers import EXAMPLES, Server, up

pytestmark = pytest.mark.system

KIND = "ml.m5.xlarge"  #: 16 GiB by name; two of them filled a laptop
ROWS = json.dumps(
    {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 0, 0, 0]}]}
).encode()


def failure_reason(server: Server, name: str) -> str:
    described = server.settled(name, seconds=120)
    assert described["EndpointStatus"] == "Failed"
    return str(described["FailureReason"])


def answers(server: Server, name: str) -> bool:
    status, body = server.post(f"/endpoints/{name}/invocations", ROWS)
    assert status == 200, body
    return True


def test_four_endpoints_of_a_large_type_serve_update_and_come_back(
    fresh_server: Server, tmp_path: Path
) -> None:
    """The third one was Failed: `asks for 10.59 GiB of memory; free 0.00`."""
    tensors = model_files.affine(tmp_path / "tensors")
    folders = {
        "first": tensors,
        "second": EXAMPLES / "echo" / "python",
        "third": model_files.affine(tmp_path / "third", runtime="onnxruntime"),
        "fourth": tensors,
    }
    for name, folder in folders.items():
        fresh_server.deploy(name, folder, instance_type=KIND, wait=False)  # all four load at once
    for name in folders:
        fresh_server.wait_in_service(name, seconds=120)
        assert answers(fresh_server, name)
    client = fresh_server.client("sagemaker")
    for name in ("first", "second"):
        client.update_endpoint(EndpointName=name, EndpointConfigName="fourth")
    for name in ("first", "second"):
        described = fresh_server.wait_in_service(name, seconds=120)
        assert "FailureReason" not in described
        assert described["EndpointConfigName"] == "fourth"
    fresh_server.kill()
    fresh_server.start()
    for name in folders:
        wait_until(lambda name=name: fresh_server.ready_copies(name), f"{name} is back", 120)
        assert answers(fresh_server, name)


def test_reserved_as_named_the_third_has_no_room_and_is_told_who_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CONTROL_CAPACITY", "strict")
    with up(tmp_path) as server:
        folder = model_files.affine(tmp_path / "model")
        for name in ("first", "second"):
            server.deploy(name, folder, instance_type="ml.m5.24xlarge")  # half of any machine
        server.deploy("third", folder, instance_type="ml.m5.24xlarge", wait=False)
        reason = failure_reason(server, "third")
        assert reason.startswith("CapacityError: an instance of type ml.m5.24xlarge asks for ")
        assert "free on this machine: 0.00 GiB of " in reason
        assert "first-all-1-0-1 holds " in reason
        assert answers(server, "first")


def test_a_promise_of_all_the_machine_leaves_nothing_for_others(
    fresh_server: Server, tmp_path: Path
) -> None:
    folder = model_files.affine(tmp_path / "model")
    fresh_server.deploy("first", folder, instance_type="ml.local.machine")
    for name, kind in (("second", KIND), ("third", "ml.local.small")):
        fresh_server.deploy(name, folder, instance_type=kind, wait=False)
        reason = failure_reason(fresh_server, name)
        assert reason.startswith(f"CapacityError: an instance of type {kind} ")
        assert "free on this machine: 0.00 GiB of " in reason
        assert "first-all-1-0-1 holds " in reason
    client = fresh_server.client("sagemaker")
    client.delete_endpoint(EndpointName="first")
    fresh_server.deploy("fourth", folder, instance_type=KIND, wait=False)
    fresh_server.wait_in_service("fourth", seconds=120)
