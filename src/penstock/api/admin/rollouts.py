"""The admin API of rollouts.

GET  /admin/endpoints/{name}/rollout          how far it is, what comparisons of answers say, and
                                              what was done and why; also after it ended, while
                                              this server runs
POST /admin/endpoints/{name}/rollout/pause    no further step; alarms and comparisons may still send
                                              it back
POST /admin/endpoints/{name}/rollout/resume   the policy alone decides again
POST /admin/endpoints/{name}/rollout/promote  all traffic to the new generation, without waits
POST /admin/endpoints/{name}/rollout/abort    back to the old generation

With `?component=NAME` each is about the update of one of its inference components.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any, Final

from starlette.requests import Request
from starlette.routing import Route

from penstock.api.admin.answers import answered
from penstock.artifacts.sources.source import shown_uri
from penstock.control.plane import ControlPlane
from penstock.control.store.records import COMPONENT, ComponentRecord, EndpointRecord, NotFound
from penstock.control.store.store import Store
from penstock.core.deployment.capacity_spec import ComponentRevision, copies_name
from penstock.core.deployment.deployment import DeploymentSpec
from penstock.core.deployment.endpoint_state import READY
from penstock.core.rollout.agreement import AgreementCounts, AgreementSpec, judge
from penstock.core.rollout.policy import ORDERS, ROLLING, ROLLING_BACK, RolloutPolicy

_ONE: Final = "/endpoints/{name}/rollout"
_PUBLISHED: Final = "publish routes"
#: Beginnings of what is done in the course of a rollout.
_OF_ROLLOUTS: Final = ("rollout", "status", _PUBLISHED, "start instance", "stop instance")


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
        name, database = request.path_params["name"], self._plane.database
        if component := request.query_params.get("component"):
            found = await database.call(Store.describe_component, component)
            if found.endpoint.lower() != name.lower():
                raise NotFound(COMPONENT, component)
            return self._of_component(found)
        return self._described(await database.call(Store.describe_endpoint, name))

    async def order(self, request: Request) -> dict[str, Any]:
        name, order = request.path_params["name"], request.url.path.rpartition("/")[2]
        wall, database = self._plane.wall(), self._plane.database
        if component := request.query_params.get("component"):
            found = await database.call(
                Store.order_component_rollout, name, component, order, now=wall
            )
            self._plane.notify(found.endpoint)
            return self._of_component(found)
        record = await database.call(Store.order_rollout, name, order, now=wall)
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
            "timeline": self._timeline(record.name, _OF_ROLLOUTS),
        }

    def _of_component(self, record: ComponentRecord) -> dict[str, Any]:
        """The same of a component. On its way back the old revision is the one that is rolled
        out."""
        desired = record.desired
        old, new = desired.active, desired.target
        why_back = "" if new is None else new.goes_back
        if new is not None and why_back:
            old, new = new, old
        ready = self._ready(record.endpoint)
        beginnings = (f"component {record.name} ", f"load copy of {record.name}/", _PUBLISHED)
        return {
            "endpoint": record.endpoint,
            "component": record.name,
            "status": desired.status,
            "under_way": new is not None,
            "old": _revision(record, old, ready),
            "new": _revision(record, new, ready),
            "policy": _batches(new or old),
            "progress": {
                "stage": ROLLING_BACK if why_back else "rolling",
                "order": new.order,
                "copies": desired.copies,
            }
            if new is not None
            else None,
            "agreement": agreement_story(self._plane.last_agreement(record.endpoint, record.name)),
            "failure_reason": record.failure_reason or why_back,
            "timeline": self._timeline(record.endpoint, beginnings),
        }

    def _ready(self, endpoint: str) -> Counter[str]:
        """Name of copies -> ready ones."""
        return Counter(
            copy.component
            for instance in self._plane.instances(endpoint)
            for copy in instance.copies
            if copy.phase == READY
        )

    def _timeline(self, endpoint: str, beginnings: tuple[str, ...]) -> list[dict[str, Any]]:
        activities = self._plane.activities(endpoint)
        return [asdict(one) for one in activities if one.what.startswith(beginnings)]


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


def _revision(
    record: ComponentRecord, revision: ComponentRevision | None, ready: Counter[str]
) -> dict[str, Any] | None:
    if revision is None:
        return None
    return {
        "revision": revision.number,
        "model": revision.model.model_name,
        "source": shown_uri(revision.model.uri) or revision.model.image,
        "copies_ready": ready[copies_name(record.name, revision.number)],
    }


def _batches(revision: ComponentRevision) -> dict[str, Any] | None:
    """How the revision replaces, or has replaced, the one before."""
    if not revision.batch:
        return None
    return {
        "kind": ROLLING,
        "batch": revision.batch,
        "wait_s": revision.batch_wait_s,
        "alarms": list(revision.alarms),
    }


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
