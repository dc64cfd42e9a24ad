"""A shadow variant as unmodified boto3 asks for it: it gets copies of the callers' requests, and
whatever it does with them, the callers' answers are production's."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.kit.polling import wait_until
from tests.kit.python_models import ECHO, python_model
from tests.kit.servers import Server

from penstock import guests

pytestmark = pytest.mark.system

#: Answers with its own name, and fails as it is asked to.
DARK = """
import os
import time

def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept):
    if "slow" in body:
        time.sleep(1.0)
    if "raise" in body:
        raise RuntimeError("dark")
    if "die" in body:
        os._exit(1)
    return '"dark"', content_type
"""
UNLOADABLE = """
def model_fn(model_dir):
    raise RuntimeError("it can't be loaded")

def transform_fn(model, body, content_type, accept):
    return body, content_type
"""
SHARE = 0.4


def shadowed(
    server: Server, folder: Path, name: str, code: str = DARK, *, share: float = 1.0
) -> None:
    """Of this endpoint, `all` says back what it is sent, and `dark` runs this code. Each test has a
    name of its own: metrics outlive their endpoint."""
    server.model("dark", python_model(folder / "dark", code))
    server.model(name, python_model(folder / name, ECHO))
    shadow = {
        "VariantName": "dark", "ModelName": "dark", "InstanceType": "ml.local.small",
        "InitialInstanceCount": 1, "InitialVariantWeight": share,
    }  # fmt: skip
    server.endpoint(name, members={"ShadowProductionVariants": [shadow]})


def shadow_of(server: Server, name: str) -> dict[str, Any]:
    described = server.client("sagemaker").describe_endpoint(EndpointName=name)
    assert described["EndpointStatus"] == "InService"
    (dark,) = described["ShadowProductionVariants"]
    return dict(dark)


def serves(server: Server, name: str) -> None:
    """Waits for the shadow's copy: its endpoint is in service before."""
    wait_until(
        lambda: any(one["variant"] == "dark" for one in server.ready_copies(name)),
        "the shadow's copy", 90,
    )  # fmt: skip


def counted(server: Server, metric: str, name: str, variant: str = "dark") -> float:
    """On the page of metrics, of all other labels."""
    rows = [
        line
        for line in server.page().splitlines()
        if line.startswith(f"penstock_{metric}_total{{")
        and f'endpoint="{name}"' in line
        and f'variant="{variant}"' in line
    ]
    return sum(float(row.rpartition(" ")[2]) for row in rows)


def summed(server: Server, metric: str, name: str, variant: str) -> float:
    """In CloudWatch."""
    return sum(server.datapoints(metric, "Sum", EndpointName=name, VariantName=variant))


def copied(server: Server, name: str, count: int) -> tuple[float, float]:
    """How many of so many requests were copied, and how many were dropped though they were sampled;
    once all copies are over. The page is made of what was counted a moment ago."""
    wait_until(lambda: counted(server, "requests", name, "all") == count, "all requests", 30)
    mirrored = counted(server, "shadow_mirrored", name)
    wait_until(lambda: counted(server, "requests", name) == mirrored, "the copies' end", 90)
    return mirrored, counted(server, "shadow_dropped", name)


def test_the_shadow_gets_its_share_and_both_have_metrics_of_their_own(
    empty_server: Server, tmp_path: Path
) -> None:
    shadowed(empty_server, tmp_path, "shares", share=SHARE)
    serves(empty_server, "shares")
    count = 500
    assert {empty_server.invoke("shares", "who") for _ in range(count)} == {"who"}
    mirrored, dropped = copied(empty_server, "shares", count)
    spread = 4 * math.sqrt(count * SHARE * (1 - SHARE))
    assert abs(mirrored + dropped - count * SHARE) < spread
    wait_until(
        lambda: (
            summed(empty_server, "Invocations", "shares", "all") == count
            and summed(empty_server, "Invocations", "shares", "dark") == mirrored
            and summed(empty_server, "ModelLatency", "shares", "dark") > 0
        ),
        "the metrics of both", 60,
    )  # fmt: skip
    with pytest.raises(ClientError, match="dark"):
        empty_server.invoke("shares", "who", TargetVariant="dark")
    pids = {one["variant"]: one["pid"] for one in empty_server.ready_copies("shares")}
    idle = {name: os.sched_getscheduler(pid) == os.SCHED_IDLE for name, pid in pids.items()}
    assert idle == {"all": False, "dark": guests.yield_at_once()}, "callers' instances go before it"


def test_its_share_is_changed_by_the_variants_weight(empty_server: Server, tmp_path: Path) -> None:
    shadowed(empty_server, tmp_path, "weights")
    serves(empty_server, "weights")
    assert shadow_of(empty_server, "weights")["CurrentWeight"] == 1.0
    empty_server.client("sagemaker").update_endpoint_weights_and_capacities(
        EndpointName="weights",
        DesiredWeightsAndCapacities=[{"VariantName": "dark", "DesiredWeight": 0.0}],
    )
    empty_server.wait_in_service("weights")
    assert shadow_of(empty_server, "weights")["CurrentWeight"] == 0.0
    assert {empty_server.invoke("weights", "who") for _ in range(20)} == {"who"}
    assert copied(empty_server, "weights", 20) == (0, 0)


@pytest.mark.parametrize("fails", ["raise", "slow", "die"])
def test_a_shadow_that_fails_is_seen_by_no_caller(
    empty_server: Server, tmp_path: Path, fails: str
) -> None:
    name = f"shadow-{fails}"
    shadowed(empty_server, tmp_path, name)
    serves(empty_server, name)
    count = 40
    assert [empty_server.invoke(name, fails) for _ in range(count)] == [fails] * count
    mirrored, dropped = copied(empty_server, name, count)
    assert mirrored >= 1
    assert mirrored + dropped == count
    if fails != "slow":
        wait_until(
            lambda: summed(empty_server, "Invocation5XXErrors", name, "dark"), "its errors", 60
        )
    assert summed(empty_server, "Invocation5XXErrors", name, "all") == 0
    assert empty_server.in_flight(name) == 0
    shadow_of(empty_server, name)
    serves(empty_server, name)


def test_a_shadow_that_can_not_load_is_tried_again_while_its_endpoint_serves(
    empty_server: Server, tmp_path: Path
) -> None:
    shadowed(empty_server, tmp_path, "unloadable", UNLOADABLE)

    def told() -> str:
        (status,) = shadow_of(empty_server, "unloadable").get("VariantStatus") or [{}]
        assert status.get("Status") == "Creating"
        return str(status.get("StatusMessage", ""))

    assert "it can't be loaded" in wait_until(told, "the reason", 90)
    assert empty_server.invoke("unloadable", "who") == "who"
    assert copied(empty_server, "unloadable", 1) == (0, 1)
    (tmp_path / "dark" / "code" / "inference.py").write_text(DARK)
    serves(empty_server, "unloadable")
    assert "VariantStatus" not in shadow_of(empty_server, "unloadable")
