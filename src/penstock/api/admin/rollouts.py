"""The admin API of rollouts.

GET  /admin/endpoints/{name}/rollout          how far it is, what comparisons of answers say, and
                                              what was done and why; also after it ended, while
                                              this server runs
POST /admin/endpoints/{name}/rollout/pause    no further step; alarms and comparisons may still send
                                              it back
POST /admin/endpoints/{name}/rollout/resume   the policy alone decides again
POST /admin/endpoints/{name}/rollout/promote  all traffic to the new generation, without waits
POST /admin/endpoints/{name}/rollout/abort    back to the old generation
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from starlette.requests import Request
from starlette.routing import Route

from penstock.api.admin.answers import answered
from penstock.control.plane import ControlPlane
from penstock.control.store.records import EndpointRecord
from penstock.control.store.store import Store
from penstock.core.deployment.deployment import DeploymentSpec
from penstock.core.rollout.agreement import AgreementCounts, AgreementSpec, judge
from penstock.core.rollout.policy import ORDERS, RolloutPolicy

_ONE: Final = "/endpoints/{name}/rollout"
#: Beginnings of what is done in the course of a rollout.
_OF_ROLLOUTS: Final = ("rollout", "status", "publish routes", "start instance", "stop instance")


def routes(plane: ControlPlane) -> list[Route]:
    """The routes below /admin."""
    pages = _RolloutPages(plane)
    orders = (Route(f"{_ONE}/{one}", answered(pages.order), methods=["POST"]) for one in ORDERS)
    return [Route(_ONE, answered(pages.describe)), *orders]


class _RolloutPages:
    """One method for each path; raises PenstockError."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    async def describe(self, request: Request) -> dict[str, Any]:
        name = request.path_params["name"]
        return self._described(await self._plane.database.call(Store.describe_endpoint, name))

    async def order(self, request: Request) -> dict[str, Any]:
        name, order = request.path_params["name"], request.url.path.rpartition("/")[2]
        wall = self._plane.wall()
        record = await self._plane.database.call(Store.order_rollout, name, order, now=wall)
        self._plane.notify(record.name)
        return self._described(record)

    def _described(self, record: EndpointRecord) -> dict[str, Any]:
        """The rollout under way, or else what is known of the one before it."""
        target = record.target if record.active is not None else None
        shown = target or record.active
        policy = shown.rollout if shown is not None else None
        return {
            "endpoint": record.name,
            "status": record.status,
            "under_way": target is not None,
            "old": _generation(record.active),
            "new": _generation(target),
            "policy": _policy(policy, shown),
            "progress": asdict(record.progress) if target and record.progress else None,
            "agreement": agreement_story(self._plane.last_agreement(record.name)),
            "failure_reason": record.failure_reason,
            "timeline": [
                asdict(one)
                for one in self._plane.activities(record.name)
                if one.what.startswith(_OF_ROLLOUTS)
            ],
        }


def agreement_story(found: tuple[AgreementSpec, AgreementCounts] | None) -> dict[str, Any] | None:
    """What answers are held to, what was found, and what that says."""
    if found is None:
        return None
    spec, counts = found
    verdict = judge(spec, counts)
    return {
        "held_to": asdict(spec),
        "pairs": asdict(counts),
        "verdict": verdict.verdict,
        "why": verdict.why,
        "tests": [one.snapshot() for one in verdict.tests],
    }


def _generation(deployment: DeploymentSpec | None) -> dict[str, Any] | None:
    if deployment is None:
        return None
    return {"generation": deployment.generation, "config": deployment.config_name}


def _policy(policy: RolloutPolicy | None, shown: DeploymentSpec | None) -> dict[str, Any] | None:
    if policy is None or shown is None:
        return None
    return policy_story(policy, sum(variant.instance_count for variant in shown.variants))


def policy_story(policy: RolloutPolicy, instances: int) -> dict[str, Any]:
    """`instances`: of the new generation."""
    return {
        "kind": policy.kind,
        "shares": list(policy.shares(instances)),
        "wait_s": policy.wait_s,
        "termination_wait_s": policy.termination_wait_s,
        "execution_s_max": policy.execution_s_max,
        "alarms": list(policy.alarms),
    }
