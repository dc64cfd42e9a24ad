"""A DeploymentConfig as a `RolloutPolicy`, and a rollout as DescribeEndpoint shows it.

Checked against the new generation before anything is stored: an update that could never be carried
out as it was asked for is refused, not found out minutes later. The rules are those of SageMaker's
deployment guardrails (BlueGreenUpdatePolicy, RollingUpdatePolicy and AutoRollbackConfiguration in
its API reference).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.api.aws import Members
from penstock.api.sagemaker.context import SagemakerContext, invalid
from penstock.api.sagemaker.variants import SHADOWS, pool_summaries
from penstock.control.alarms import rows as alarm_rows
from penstock.control.store.records import EndpointRecord
from penstock.control.store.store import Store
from penstock.core.deployment.deployment import DeploymentSpec, VariantSpec
from penstock.core.deployment.endpoint_state import UPDATING
from penstock.core.rollout.policy import (
    ALL_AT_ONCE,
    BAKING,
    CANARY,
    CAPACITY_PERCENT,
    LINEAR,
    ROLLING,
    ROLLING_BACK,
    TERMINATING,
    RolloutPolicy,
    RolloutSize,
)

Json = Mapping[str, Any]

#: Type of routing -> the member that says how large its parts are, and their least percentage.
_PARTS: Final = {CANARY: ("CanarySize", 0), LINEAR: ("LinearStepSize", 10)}
_PERCENT_MAX: Final = 50


async def policy_of(
    context: SagemakerContext, config: Json, new: DeploymentSpec
) -> RolloutPolicy | None:
    """The policy for a rollout of `new`; None where nothing is configured.

    Raises ValidationException.
    """
    if not config:
        return None
    blue_green, rolling = config.get("BlueGreenUpdatePolicy"), config.get("RollingUpdatePolicy")
    if blue_green and rolling:
        raise _invalid("give either BlueGreenUpdatePolicy or RollingUpdatePolicy, not both.")
    if rolling and new.takes_components:
        raise _invalid(
            "RollingUpdatePolicy is for variants with a model of their own. The inference"
            " components of this endpoint have one in UpdateInferenceComponent."
        )
    instances = sum(variant.instance_count for variant in new.variants)
    made = _blue_green(blue_green, instances) if blue_green else {}
    policy = RolloutPolicy(
        **_rolling(rolling, instances) if rolling else made,
        alarms=await alarms_of(context, config),
    )
    _check_time(policy, instances)
    return policy


async def alarms_of(context: SagemakerContext, config: Json) -> tuple[str, ...]:
    """Names of the alarms of a DeploymentConfig's AutoRollbackConfiguration. Raises
    ValidationException, also for alarms that do not exist."""
    names = _alarms(config.get("AutoRollbackConfiguration") or {})
    missing = await context.database.call(_missing, names)
    if missing:
        raise _invalid(
            f"AutoRollbackConfiguration names alarms that do not exist: {', '.join(missing)}."
            " Create them with PutMetricAlarm first."
        )
    return names


def check_variants(policy: RolloutPolicy | None, old: DeploymentSpec, new: DeploymentSpec) -> None:
    """A part of a variant's traffic can only move to a variant of the same name."""
    if policy is None or policy.kind == ALL_AT_ONCE:
        return
    names = [sorted(variant.name for variant in each.variants) for each in (old, new)]
    if names[0] != names[1]:
        raise _invalid(
            f"traffic routing of Type {policy.kind} needs the same variants before and after:"
            f" {', '.join(names[0])} serve, and {new.config_name!r} has {', '.join(names[1])}."
        )
    forms = [{one.name: _form(one) for one in each.variants} for each in (old, new)]
    for name, form in forms[0].items():
        if forms[1][name] != form:
            raise _invalid(
                f"traffic routing of Type {policy.kind} needs callers to ask both generations in"
                f" the same way: variant {name!r} {form}, and in {new.config_name!r} it"
                f" {forms[1][name]}."
            )


def _form(variant: VariantSpec) -> str:
    """What a request of the variant has to name."""
    if variant.model is None:
        return "takes inference components"
    if variant.model.multi_model:
        return "takes target models"
    return "takes containers by name" if variant.model.direct else "has one model"


def pending_summary(record: EndpointRecord, target: DeploymentSpec) -> Members:
    """The PendingDeploymentSummary of an endpoint that is being updated."""
    progress = record.progress

    def pending(variants: tuple[VariantSpec, ...]) -> list[Members]:
        return [
            {
                "VariantName": variant.name,
                "CurrentWeight": variant.weight * _share(record),
                "DesiredWeight": variant.weight,
                "DesiredInstanceCount": variant.instance_count,
                **_types(variant),
                **_pending_status(record),
            }
            for variant in variants
        ]

    return {
        "EndpointConfigName": target.config_name,
        "ProductionVariants": pending(target.variants),
        **({SHADOWS: pending(target.shadows)} if target.shadows else {}),
        "StartTime": record.modified if progress is None else progress.began,
    }


def serving_weight(record: EndpointRecord, weight: float) -> float:
    """The part of a serving variant's weight that a rollout has not taken away yet."""
    return weight * (1 - _share(record))


def serving_status(record: EndpointRecord) -> Members:
    """The VariantStatus of variants that serve, while they are replaced, changed or deleted."""
    progress = record.progress
    if progress is None or record.status != UPDATING:
        return {"Status": record.status, "StartTime": record.modified}
    if progress.stage == TERMINATING:
        return {"Status": "Deleting", "StartTime": progress.since}
    return {"Status": record.status, "StartTime": progress.began}


def status_shown(record: EndpointRecord) -> str:
    """EndpointStatus. The record says Updating until all is over."""
    progress = record.progress
    goes_back = progress is not None and progress.stage == ROLLING_BACK
    return "RollingBack" if goes_back and record.status == UPDATING else record.status


def _pending_status(record: EndpointRecord) -> Members:
    """Traffic moves in one moment, so there is no time in which it would be ActivatingTraffic."""
    progress = record.progress
    if progress is not None and progress.stage == TERMINATING:
        return {}
    stage = "" if progress is None else progress.stage
    status = {
        "Status": {BAKING: "Baking", ROLLING_BACK: "Deleting"}.get(stage, "Creating"),
        "StartTime": record.modified if progress is None else progress.since,
    }
    return {"VariantStatus": [status]}


def _share(record: EndpointRecord) -> float:
    return 0.0 if record.progress is None else record.progress.share


def _types(variant: VariantSpec) -> Members:
    """The pools of a variant that is being created: none of its instances serves yet."""
    if variant.pools:
        return {"InstancePools": pool_summaries(variant.pools, {})}
    return {"InstanceType": variant.instance_type}


def _blue_green(policy: Json, instances: int) -> dict[str, Any]:
    """Fields of `RolloutPolicy`."""
    routing = policy["TrafficRoutingConfiguration"]
    return {
        "kind": routing["Type"],
        "size": _size(routing, instances),
        "wait_s": float(routing["WaitIntervalInSeconds"]),
        "termination_wait_s": float(policy.get("TerminationWaitInSeconds", 0)),
        "execution_s_max": float(policy.get("MaximumExecutionTimeoutInSeconds", 0)),
    }


def _rolling(policy: Json, instances: int) -> dict[str, Any]:
    """Fields of `RolloutPolicy`."""
    back = policy.get("RollbackMaximumBatchSize")
    return {
        "kind": ROLLING,
        "size": _part("MaximumBatchSize", policy["MaximumBatchSize"], (5, 50), instances),
        "rollback_size": _part("RollbackMaximumBatchSize", back, (5, 100), instances)
        if back
        else None,
        "wait_s": float(policy["WaitIntervalInSeconds"]),
        "execution_s_max": float(policy.get("MaximumExecutionTimeoutInSeconds", 0)),
    }


def _size(routing: Json, instances: int) -> RolloutSize | None:
    kind = routing["Type"]
    for other, (member, _) in _PARTS.items():
        if routing.get(member) and other != kind:
            raise _invalid(f"{member} is for traffic routing of Type {other}, and this is {kind}.")
    if kind == ALL_AT_ONCE:
        return None
    member, percent_min = _PARTS[kind]
    given = routing.get(member)
    if not given:
        raise _invalid(f"traffic routing of Type {kind} needs {member}.")
    return _part(member, given, (percent_min, _PERCENT_MAX), instances)


def _part(member: str, given: Json, percents: tuple[int, int], instances: int) -> RolloutSize:
    """`percents`: the least and the most that it may be of the new instances."""
    least, most = percents
    size = RolloutSize(kind=given["Type"], value=given["Value"])
    whole = 100 if size.kind == CAPACITY_PERCENT else instances
    if least * whole <= size.value * 100 <= most * whole:
        return size
    given_as = "percent" if size.kind == CAPACITY_PERCENT else f"of {instances} instances"
    bounds = f"{least} to {most}" if least else f"at most {most}"
    raise _invalid(
        f"{member} is {size.value} {given_as}; use {bounds} percent of the new instances."
    )


def _check_time(policy: RolloutPolicy, instances: int) -> None:
    steps = len(tuple(policy.shares(instances)))
    waits_s = steps * policy.wait_s + policy.termination_wait_s
    if policy.execution_s_max and policy.execution_s_max <= waits_s:
        raise _invalid(
            f"MaximumExecutionTimeoutInSeconds is {policy.execution_s_max:g}, and the waits alone"
            f" take {waits_s:g} s ({steps} times WaitIntervalInSeconds, and"
            " TerminationWaitInSeconds): it would always go back."
        )


def _alarms(rollback: Json) -> tuple[str, ...]:
    names: list[str] = []
    for alarm in rollback.get("Alarms") or []:
        name = alarm.get("AlarmName")
        if not name:
            raise _invalid("each of AutoRollbackConfiguration's Alarms needs AlarmName.")
        if name in names:
            raise _invalid(f"AutoRollbackConfiguration names alarm {name!r} twice.")
        names.append(name)
    return tuple(names)


def _missing(store: Store, names: tuple[str, ...]) -> list[str]:
    with store.read() as db:
        known = {alarm.name for alarm in alarm_rows.find(db, names)}
    return [name for name in names if name not in known]


def _invalid(cause: str) -> Exception:
    return invalid(f"DeploymentConfig: {cause}")
