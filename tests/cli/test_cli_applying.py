"""How `penstock apply` carries out a plan: what it waits for, and what a failure comes to."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.cli.endpoints.applying import carry_out, look
from penstock.core.apply.plan import (
    Action,
    AppliedEndpointObserved,
    AppliedEndpointSpec,
    Plan,
    PlanStep,
)
from penstock.errors import CallerError, ModelError
from penstock.packaging.wishes import Deployment

WISH = AppliedEndpointSpec(
    name="shop", config="new", models=("model",), tags={"penstock:stack": "s"}
)
UPDATE = Plan((PlanStep(Action.UPDATE_ENDPOINT, "shop", "other-config"),), unchanged=0)
GONE = CallerError("ValidationException", 'Could not find endpoint "arn".')


def described(status: str, config: str, **more: Any) -> dict[str, Any]:
    """What DescribeEndpoint answers."""
    return {
        "EndpointName": "shop",
        "EndpointArn": "arn",
        "EndpointStatus": status,
        "EndpointConfigName": config,
    } | more


def on_its_way(config: str, to: str) -> dict[str, Any]:
    return described("Updating", config, PendingDeploymentSummary={"EndpointConfigName": to})


class Scripted:
    """Answers DescribeEndpoint by its script, the last answer for ever; keeps the other calls."""

    def __init__(self, *script: dict[str, Any] | CallerError) -> None:
        self.script = list(script)
        self.called: list[str] = []

    def sagemaker(self, operation: str, **members: Any) -> dict[str, Any]:
        if operation == "DescribeEndpoint":
            answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
            if isinstance(answer, CallerError):
                raise answer
            return answer
        self.called.append(operation)
        lists = {"ListTags": "Tags", "ListModels": "Models"}
        if operation.startswith("List"):
            return {lists.get(operation, "EndpointConfigs"): []}
        return {}


def run(server: Scripted, planned: Plan, *, wait: bool = True) -> list[str]:
    carry_out(server, Deployment(endpoints=[WISH]), planned, wait=wait, say=str)
    return server.called


NEW, OLD = described("InService", "new"), described("InService", "old")


@pytest.mark.parametrize(
    ("script", "called"),
    [
        ((OLD, OLD, on_its_way("old", "new"), NEW), ["UpdateEndpoint"]),
        # What another run began is waited for, and then this one's comes.
        ((on_its_way("old", "other"), OLD, OLD, NEW), ["UpdateEndpoint"]),
        ((described("Creating", "old"), OLD, OLD, NEW), ["UpdateEndpoint"]),
        # Another run asked for the same meanwhile.
        ((on_its_way("old", "new"), on_its_way("old", "new"), NEW), []),
        ((described("Deleting", "old"), GONE, GONE, NEW), ["CreateEndpoint"]),
        ((described("Deleting", "new"), GONE, GONE, NEW), ["CreateEndpoint"]),
        (
            (described("Failed", "new"), described("Failed", "new"), GONE, NEW),
            ["DeleteEndpoint", "CreateEndpoint"],
        ),
    ],
)
def test_an_endpoint_that_is_on_its_way_elsewhere_is_waited_for(
    script: tuple[Any, ...], called: list[str]
) -> None:
    assert run(Scripted(*script), UPDATE) == called


def test_all_endpoints_are_in_service_behind_it_also_those_of_a_killed_run() -> None:
    server = Scripted(described("Creating", "new"), described("Creating", "new"), NEW)
    assert run(server, Plan((), unchanged=1)) == []
    assert len(server.script) == 1


def test_nothing_is_waited_for_where_nobody_wants_to() -> None:
    server = Scripted(described("Creating", "new"))
    assert run(server, Plan((), unchanged=1), wait=False) == []


def test_nothing_is_deleted_where_the_new_does_not_come_into_service() -> None:
    planned = Plan(
        (*UPDATE.steps, PlanStep(Action.DELETE_MODEL, "old", "not-asked-for")), unchanged=0
    )
    server = Scripted(OLD, OLD, described("InService", "old", FailureReason="no room"))
    with pytest.raises(ModelError, match="no room"):
        run(server, planned)
    assert server.called == ["UpdateEndpoint"]


@pytest.mark.parametrize(
    "action", [Action.DELETE_MODEL, Action.DELETE_ENDPOINT_CONFIG, Action.DELETE_ENDPOINT]
)
def test_what_is_gone_already_need_not_be_deleted(action: Action) -> None:
    class Gone(Scripted):
        def sagemaker(self, operation: str, **members: Any) -> dict[str, Any]:
            super().sagemaker(operation, **members)
            raise GONE

    planned = Plan((PlanStep(action, "shop", "not-asked-for"),), unchanged=0)
    assert len(run(Gone(GONE), planned, wait=False)) == 1


def test_the_configuration_that_an_endpoint_is_on_its_way_to_is_the_one_that_is_seen() -> None:
    calls: list[tuple[dict[str, Any], AppliedEndpointObserved]] = [
        (OLD, AppliedEndpointObserved(status="InService", config="old")),
        (on_its_way("old", "new"), AppliedEndpointObserved(status="Updating", config="new")),
    ]
    for answer, seen in calls:
        found = look(Scripted(answer), Deployment(endpoints=[WISH]), prune=False)
        assert found.endpoints == {"shop": seen}
    assert look(Scripted(GONE), Deployment(endpoints=[WISH]), prune=False).endpoints == {}


def test_a_step_that_fails_ends_the_run_behind_those_that_were_begun() -> None:
    class Refusing(Scripted):
        def sagemaker(self, operation: str, **members: Any) -> dict[str, Any]:
            if members.get("ModelName") == "m3":
                raise CallerError("ValidationException", "no")
            return super().sagemaker(operation, **members)

    names = [f"m{number}" for number in range(5)]
    wanted = Deployment(requests={name: {"ModelName": name} for name in names})
    steps = [PlanStep(Action.CREATE_MODEL, name, "not-there") for name in names]
    config = PlanStep(Action.CREATE_ENDPOINT_CONFIG, "config", "not-there")
    server = Refusing(GONE)
    with pytest.raises(CallerError, match="no"):
        carry_out(server, wanted, Plan((*steps, config), unchanged=0), wait=True, say=str)
    assert "CreateEndpointConfig" not in server.called
