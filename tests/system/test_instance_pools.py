"""One endpoint on instances of several types (InstancePools), on a server that has few of one.

The model of each pool answers with its own name, so that who has answered is a fact.
"""

from __future__ import annotations

import os
import signal
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit.polling import wait_until
from tests.kit.python_models import python_model
from tests.kit.servers import Server, up

from penstock.artifacts.description.builds import write_builds
from penstock.core.models.instruction_sets import Build
from penstock.runtimes.processor import instruction_set_here

pytestmark = pytest.mark.system

NAMED = """
def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept, context):
    return b"{name}", "text/plain"
"""
WANTED, OTHER = "ml.local.medium", "ml.local.small"
POOLS = [
    {"InstanceType": OTHER, "Priority": 2},
    {"InstanceType": WANTED, "Priority": 1, "ModelNameOverride": "wanted"},
]


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that may have one instance of the type that is wanted most."""
    folder = tmp_path_factory.mktemp("pools")
    limits = f'PENSTOCK_CONTROL_INSTANCE_LIMITS={{ "{WANTED}" = 1 }}'
    with up(folder, prefix=("env", limits)) as running:
        for name in ("wanted", "other"):
            running.prepare(name, python_model(folder / name, NAMED.format(name=name)))
        yield running


def deployed(server: Server, name: str, count: int, pools: list[dict[str, Any]] = POOLS) -> None:
    server.endpoint(
        name, wait=False, ModelName="other", InstanceType=None, InstancePools=pools,
        InitialInstanceCount=count,
    )  # fmt: skip


def counts(server: Server, name: str) -> dict[str, int]:
    described = server.client("sagemaker").describe_endpoint(EndpointName=name)
    (variant,) = described["ProductionVariants"]
    pools = {one["InstanceType"]: one["CurrentInstanceCount"] for one in variant["InstancePools"]}
    assert sum(pools.values()) == variant["CurrentInstanceCount"]
    assert list(pools) == [WANTED, OTHER]  # by priority, those without an instance too
    return pools


def answers_where_it_was_asked(server: Server) -> None:
    """What is told of a request, of the copies, and of what they cost: each by its type."""
    status, which, headers = server.ask("/endpoints/mixed/invocations", b"?")
    assert status == 200
    route = server.get(f"/admin/requests/{headers['x-amzn-RequestId']}")["route"]
    assert route["instance_type"] == {b"wanted": WANTED, b"other": OTHER}[which]
    copies = server.copies("mixed")
    assert Counter(one["instance_type"] for one in copies) == {WANTED: 1, OTHER: 2}
    assert all(one["request_cost"] is not None for one in copies)

    def costs() -> dict[str, float]:
        (cost,) = server.get("/admin/costs")["costs"]
        return dict(cost["dollars_by_type"])

    wait_until(lambda: costs().keys() == {WANTED, OTHER}, "a charge of both types", 60)


def test_what_one_type_has_no_room_for_runs_on_the_next_and_goes_first(limited: Server) -> None:
    """Three instances, of which one may be of the type that is wanted most: all three serve, each
    with its pool's model. With a lower count the one that is wanted most stays, and one that dies
    comes back where it is wanted most."""
    deployed(limited, "mixed", 3)
    limited.wait_in_service("mixed")
    assert counts(limited, "mixed") == {WANTED: 1, OTHER: 2}
    answers = Counter(limited.post("/endpoints/mixed/invocations", b"?")[1] for _ in range(30))
    assert answers.keys() == {b"wanted", b"other"}
    answers_where_it_was_asked(limited)
    limited.set_count("mixed", 1)
    wait_until(lambda: counts(limited, "mixed") == {WANTED: 1, OTHER: 0}, "scale-in", 40)
    assert limited.post("/endpoints/mixed/invocations", b"?") == (200, b"wanted")
    (pid,) = {one["pid"] for one in limited.copies("mixed") if one["state"] == "ready"}
    os.kill(pid, signal.SIGKILL)
    wait_until(
        lambda: {one["pid"] for one in limited.copies("mixed") if one["state"] == "ready"} - {pid},
        "a copy in its place",
        60,
    )
    assert counts(limited, "mixed") == {WANTED: 1, OTHER: 0}
    limited.delete("mixed")


def test_where_no_pool_has_room_the_endpoint_fails_and_says_what_each_lacks(
    limited: Server,
) -> None:
    deployed(limited, "full", 2, [{"InstanceType": WANTED, "Priority": 1}])
    client = limited.client("sagemaker")
    described = wait_until(
        lambda: (
            found
            if (found := client.describe_endpoint(EndpointName="full"))["EndpointStatus"]
            == "Failed"
            else None
        ),
        "the failure",
        60,
    )
    assert described["FailureReason"].startswith(
        f"CapacityError: no instance pool of variant all has room. {WANTED}: there are 1 instances"
        f" of type {WANTED} of at most 1 (control.instance_limits)."
    )
    limited.delete("full")


def test_an_artifact_with_builds_answers_with_the_one_for_its_processor(
    limited: Server, tmp_path: Path
) -> None:
    """And whoever asks about a request is told which, and why."""
    here = instruction_set_here()
    if not here.x86:
        pytest.skip(f"{here.name}: the sets that builds need are those of x86")
    builds = [Build(folder="any"), Build(folder="best", needs=here.name)]
    for build in builds:
        python_model(tmp_path / "model" / build.folder, NAMED.format(name=build.folder))
    write_builds(tmp_path / "model", builds)
    limited.deploy("chips", tmp_path / "model")
    request = urllib.request.Request(f"{limited.url}/endpoints/chips/invocations", data=b"?")
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.read() == b"best"
        number = answer.headers["x-amzn-RequestId"]
    told = limited.get(f"/admin/requests/{number}")["build"]
    assert (told["folder"], told["reason"]) == ("best", "needs-most-of-what-is-here")
    (copy,) = limited.copies("chips")
    assert copy["build"] == told
    (log,) = limited.get("/admin/endpoints/chips/logs")["logs"]
    assert any(
        f"build best, which needs {here.name}, on {here.name}" in line for line in log["lines"]
    )
    limited.delete("chips")
