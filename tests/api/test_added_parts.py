"""docs/hacking.md is right when it is followed: an operation and a routing strategy are added to a
copy of Penstock, in the places that the page names, and in no other.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "penstock"


class ChangedCopy:
    """A copy of the package, in which files are changed and others are added."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._root = folder / "penstock"
        shutil.copytree(SOURCE, self._root)

    def add(self, path: str, text: str) -> None:
        (self._root / path).write_text(text)

    def insert(self, path: str, text: str, *, before: str) -> None:
        """Adds `text` before a place that is there once."""
        whole = (self._root / path).read_text()
        assert whole.count(before) == 1, f"{before!r} in {path}"
        (self._root / path).write_text(whole.replace(before, f"{text}{before}"))

    def touched(self) -> list[str]:
        return sorted(
            path
            for file in self._root.rglob("*.py")
            for path in [file.relative_to(self._root).as_posix()]
            if not (SOURCE / path).exists() or (SOURCE / path).read_bytes() != file.read_bytes()
        )

    def run(self, script: str) -> Any:
        """What a script that uses the copy prints, as JSON."""
        code = f"import sys; sys.path.insert(0, {str(self._folder)!r})\n{script}"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def changed(tmp_path: Path) -> ChangedCopy:
    return ChangedCopy(tmp_path)


LIST_ALGORITHMS = '''"""ListAlgorithms: there is one."""

from __future__ import annotations

from penstock.api.aws import Members
from penstock.api.sagemaker.context import SagemakerContext


async def list_algorithms(context: SagemakerContext, params: Members) -> Members:
    made = {
        "AlgorithmName": "echo",
        "AlgorithmArn": f"arn:aws:sagemaker:{context.region}:{context.account_id}:algorithm/echo",
        "CreationTime": context.clock.wall(),
        "AlgorithmStatus": "Completed",
    }
    return {"AlgorithmSummaryList": [made][: params.get("MaxResults", 10)]}
'''

#: Two calls of the operation through the door of AWS's services, and which keys may make them.
CALLS = """
import asyncio, json
from penstock.api.access import asked_of
from penstock.api.aws import AwsFrontDoor, AwsService
from penstock.api.sagemaker.context import SagemakerContext
from penstock.api.sagemaker.operations import OPERATIONS
from penstock.clock import ManualClock
from penstock.core.request.grants import SCOPES, Grant, allowed
from penstock.wire.aws.http import HttpRequest
from penstock.wire.aws.models import SAGEMAKER

def context(region):
    clock = ManualClock(wall_s=1_700_000_000.0)
    return SagemakerContext(None, None, clock, region, "123456789012", None)

door = AwsFrontDoor((AwsService(SAGEMAKER, OPERATIONS, context),), region_default="eu-central-1")
headers = {"x-amz-target": "SageMaker.ListAlgorithms"}

async def call(**members):
    http = HttpRequest("POST", "/", "", headers, json.dumps(members).encode())
    answer = await door.handle(http, "id-1")
    return [answer.status, json.loads(answer.body)]

named = asked_of("POST", b"/", [(b"x-amz-target", b"SageMaker.ListAlgorithms")]).operation
print(json.dumps({
    "listed": asyncio.run(call()),
    "refused": asyncio.run(call(MaxResults=1000)),
    "scopes": [one for one in SCOPES if allowed(Grant(one), named)],
}))
"""


def test_an_operation_is_a_function_a_line_and_a_scope(changed: ChangedCopy) -> None:
    """What it takes, its checks and its answer's form come from the service's model."""
    operations = "api/sagemaker/operations.py"
    changed.add("api/sagemaker/algorithms.py", LIST_ALGORITHMS)
    changed.insert(operations, "    algorithms,\n", before="    endpoints,\n")
    line = '        "ListAlgorithms": algorithms.list_algorithms,\n'
    changed.insert(operations, line, before='        "CreateModel":')
    scope = '        "ListAlgorithms",\n'
    changed.insert("core/request/grants.py", scope, before="        # metrics and alarms\n")
    told = changed.run(CALLS)
    [status, listed] = told["listed"]
    assert status == 200
    assert listed["AlgorithmSummaryList"] == [
        {
            "AlgorithmName": "echo",
            "AlgorithmArn": "arn:aws:sagemaker:eu-central-1:123456789012:algorithm/echo",
            "CreationTime": 1_700_000_000,
            "AlgorithmStatus": "Completed",
        }
    ]
    [status, refused] = told["refused"]
    assert (status, refused["__type"]) == (400, "ValidationException")
    assert told["scopes"] == ["operate", "admin"]
    assert changed.touched() == [
        "api/sagemaker/algorithms.py", operations, "core/request/grants.py",
    ]  # fmt: skip


def test_an_operation_that_nobody_added_is_unknown_and_for_admins(changed: ChangedCopy) -> None:
    told = changed.run(CALLS)
    [status, refused] = told["listed"]
    assert (status, refused["__type"]) == (400, "UnknownOperationException")
    assert told["scopes"] == ["admin"]
    assert changed.touched() == []


PICKER = '''def first_with_room(copies: Sequence[CopyState]) -> CopyState | None:
    """The copy of the lowest number that has room: others stay idle while it can."""
    roomy = [state for state in copies if state.outstanding < state.outstanding_max]
    return min(roomy, key=lambda state: state.copy, default=None)


'''

#: From a model's environment to the copies that the router picks.
PICKS = """
import json, random
from penstock.api.sagemaker.deployments import deployment
from penstock.core.deployment.deployment import (
    ROUTING_STRATEGIES, CopyRoute, EndpointRoutes, VariantRoutes,
)
from penstock.core.routing import EndpointRouter

environment = {"PENSTOCK_ROUTING": "LOWEST_FIRST"}
container = {"ModelDataUrl": "file:///m", "Environment": environment}
models = {"m": {"ModelName": "m", "PrimaryContainer": container}}
variant = {"VariantName": "blue", "ModelName": "m", "InstanceType": "ml.local.small"}
config = {"EndpointConfigName": "c", "ProductionVariants": [variant]}
[spec] = deployment("e", 1, config, models).variants
copies = tuple(CopyRoute(copy=one, instance_id=f"i{one}", outstanding_max=2) for one in (3, 1, 2))
served = VariantRoutes(name="blue", weight=1.0, strategy=spec.strategy, copies=copies)
router = EndpointRouter(EndpointRoutes(endpoint="e", variants=(served,)), random.Random(1))
picked = [router.pick() for _ in range(3)]
router.check_invariants()
print(json.dumps({
    "picked": [[one.state.copy, one.reason] for one in picked],
    "twin": [one for one in ROUTING_STRATEGIES if one == spec.strategy],
}))
"""


def test_a_strategy_is_a_name_a_picker_and_a_line(changed: ChangedCopy) -> None:
    """Models name it in their environment, and scenarios of the twin in a variant."""
    names, pickers = "core/deployment/deployment.py", "core/routing/pickers.py"
    strategies = "core/routing/strategies.py"
    changed.insert(names, 'LOWEST_FIRST = "LOWEST_FIRST"\n', before="#: Penstock's own: ")
    changed.insert(names, "LOWEST_FIRST, ", before="ROUND_ROBIN,)\n")
    changed.insert(pickers, PICKER, before="def least_recent(")
    changed.insert(strategies, "LOWEST_FIRST, ", before="PREFIX_AWARE, RANDOM, ROUND_ROBIN, ")
    changed.insert(strategies, "    first_with_room,\n", before="    least_outstanding,\n")
    line = """    if routes.strategy == LOWEST_FIRST:
        return Strategy(LOWEST_FIRST, first_with_room, "lowest-first")
"""
    changed.insert(strategies, line, before="    if routes.strategy == ROUND_ROBIN:\n")
    told = changed.run(PICKS)
    picked = [[1, "lowest-first"], [1, "lowest-first"], [2, "lowest-first"]]
    assert told == {"picked": picked, "twin": ["LOWEST_FIRST"]}
    assert changed.touched() == [names, pickers, strategies]
