"""The admin API of rollouts of target models: another artifact takes over the name of one.

GET  /admin/endpoints/{name}/models/{model}/rollout          how far it is, and why
POST /admin/endpoints/{name}/models/{model}/rollout          begins one, as the JSON object in the
                                                             body says (below)
POST /admin/endpoints/{name}/models/{model}/rollout/{order}  pause, resume, promote or abort

Members of the body: `artifact`, the name of the new one below the endpoint's prefix; `kind`
(CANARY, LINEAR or ALL_AT_ONCE), `percent` of its first part or of each, `wait_s` after each,
`execution_s_max`, `alarms`, and `agreement` in the words of `core/rollout/agreement_words.py`.

The artifact is loaded before anything changes: one that can't be is refused.
"""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.routing import Route

from penstock.api.admin.answers import answered
from penstock.api.admin.rollouts import agreement_story, policy_story
from penstock.api.sagemaker.agreements import with_scorer
from penstock.control.alarms import rows as alarm_rows
from penstock.control.plane import ControlPlane
from penstock.control.store.records import EndpointRecord
from penstock.control.store.store import Store
from penstock.control.target_models import TargetModels
from penstock.core.deployment.served_targets import ServedTarget
from penstock.core.rollout.agreement_words import agreement_of
from penstock.core.rollout.policy import (
    ALL_AT_ONCE,
    CANARY,
    CAPACITY_PERCENT,
    LINEAR,
    ORDERS,
    RolloutPolicy,
    RolloutSize,
)
from penstock.errors import CallerError

_ONE: Final = "/endpoints/{name}/models/{model:path}/rollout"
_KINDS: Final = (CANARY, LINEAR, ALL_AT_ONCE)
_MEMBERS: Final = (
    *("artifact", "kind", "percent", "wait_s", "execution_s_max", "alarms", "agreement"),
)
_WAIT_S_MAX: Final = 30 * 86_400.0
_ALARMS_MAX: Final = 10  #: as AWS's AutoRollbackConfiguration


def routes(plane: ControlPlane, models: TargetModels) -> list[Route]:
    """The routes below /admin."""
    pages = _TargetRolloutPages(plane, models)
    orders = (Route(f"{_ONE}/{one}", answered(pages.order), methods=["POST"]) for one in ORDERS)
    return [
        *orders,
        Route(_ONE, answered(pages.begin), methods=["POST"]),
        Route(_ONE, answered(pages.describe)),
    ]


class _TargetRolloutPages:
    """One method for each path; raises PenstockError."""

    def __init__(self, plane: ControlPlane, models: TargetModels) -> None:
        self._plane = plane
        self._models = models

    async def describe(self, request: Request) -> dict[str, Any]:
        name, model = _named(request)
        record = await self._plane.database.call(Store.describe_endpoint, name)
        return self._described(record, model)

    async def begin(self, request: Request) -> dict[str, Any]:
        name, model = _named(request)
        record = await self._plane.database.call(Store.describe_endpoint, name)
        artifact, policy = wanted_of(await request.body())
        await self._check_alarms(policy.alarms)
        if policy.agreement is not None:
            agreement = await with_scorer(self._plane.database, policy.agreement, record.name)
            policy = replace(policy, agreement=agreement)
        serves = _of(record, model).serves
        if artifact == serves:
            raise _invalid("artifact", f"another one than {serves!r}, which answers already")
        await self._models.require(record.name, serves)
        await self._models.load(record.name, artifact)
        wanted = ServedTarget(target=model, serves=serves, incoming=artifact, policy=policy)
        after = await self._plane.database.call(Store.begin_target_rollout, record.name, wanted)
        self._plane.notify(record.name)
        return self._described(after, model)

    async def order(self, request: Request) -> dict[str, Any]:
        (name, model), order = _named(request), request.url.path.rpartition("/")[2]
        record = await self._plane.database.call(Store.order_target_rollout, name, model, order)
        self._plane.notify(record.name)
        return self._described(record, model)

    async def _check_alarms(self, names: tuple[str, ...]) -> None:
        known = await self._plane.database.call(_known_alarms, names)
        if missing := [name for name in names if name not in known]:
            raise _invalid("alarms", f"alarms that exist; create {', '.join(missing)} first")

    def _described(self, record: EndpointRecord, model: str) -> dict[str, Any]:
        one = _of(record, model)
        return {
            "endpoint": record.name,
            "model": model,
            "status": record.status,
            "under_way": bool(one.incoming),
            "old": {"artifact": one.serves},
            "new": {"artifact": one.incoming} if one.incoming else None,
            "policy": policy_story(one.policy, 1) if one.policy is not None else None,
            "progress": asdict(one.progress) if one.progress is not None else None,
            "agreement": agreement_story(self._plane.last_agreement(record.name, model=model)),
            "failure_reason": one.why,
            "timeline": [
                asdict(each)
                for each in self._plane.activities(record.name)
                if each.what.startswith((f"model {model}:", f"model {model} "))
            ],
        }


def wanted_of(body: bytes) -> tuple[str, RolloutPolicy]:
    """(artifact, policy) of a request's body. Raises CallerError (`rollout-invalid`,
    `agreement-invalid`)."""
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError:
        given = None
    if not isinstance(given, dict):
        raise _invalid("the body", "a JSON object")
    if unknown := sorted(given.keys() - set(_MEMBERS)):
        raise _invalid(unknown[0][:40], f"left out: members are {', '.join(_MEMBERS)}")
    artifact = given.get("artifact")
    if not isinstance(artifact, str) or not artifact:
        raise _invalid("artifact", "the name of an artifact below the endpoint's prefix")
    kind = given.get("kind", CANARY)
    if kind not in _KINDS:
        raise _invalid("kind", f"one of {', '.join(_KINDS)}")
    alarms = given.get("alarms", [])
    if not isinstance(alarms, list) or not all(isinstance(one, str) for one in alarms):
        raise _invalid("alarms", "a list of names")
    if len(alarms) > _ALARMS_MAX:
        raise _invalid("alarms", f"at most {_ALARMS_MAX} names")
    words = given.get("agreement", "")
    if not isinstance(words, str):
        raise _invalid("agreement", "a text of words")
    if words and kind == ALL_AT_ONCE:
        raise _invalid(
            "kind", "CANARY or LINEAR with an agreement: answers are compared while both serve"
        )
    percent = int(_number(given, "percent", 10.0, 1.0, 50.0))
    return artifact, RolloutPolicy(
        kind=kind,
        size=None if kind == ALL_AT_ONCE else RolloutSize(kind=CAPACITY_PERCENT, value=percent),
        wait_s=_number(given, "wait_s", 300.0, 0.0, _WAIT_S_MAX),
        execution_s_max=_number(given, "execution_s_max", 0.0, 0.0, _WAIT_S_MAX),
        alarms=tuple(dict.fromkeys(alarms)),
        agreement=agreement_of(words) if words else None,
    )


def _number(given: dict[str, Any], name: str, default: float, least: float, most: float) -> float:
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        value = math.nan
    if not least <= value <= most:
        raise _invalid(name, f"a number from {least:g} to {most:g}")
    return float(value)


def _invalid(what: str, expected: str) -> CallerError:
    return CallerError(
        "rollout-invalid",
        f"{what} of a rollout has to be {expected}",
        hint='For example {"artifact": "team/second-2", "percent": 10, "wait_s": 300}.',
    )


def _of(record: EndpointRecord, model: str) -> ServedTarget:
    found = (one for one in record.targets if one.target == model)
    return next(found, ServedTarget(target=model, serves=model))


def _named(request: Request) -> tuple[str, str]:
    return request.path_params["name"], request.path_params["model"]


def _known_alarms(store: Store, names: tuple[str, ...]) -> set[str]:
    with store.read() as db:
        return {alarm.name for alarm in alarm_rows.find(db, names)}
