"""PutScalingPolicy, DescribeScalingPolicies, DeleteScalingPolicy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from penstock.api.autoscaling import paging, policy_config
from penstock.api.autoscaling.context import (
    AutoscalingContext,
    Named,
    check_filters,
    invalid,
    named,
    no_target,
    not_found,
    passes,
    target_words,
)
from penstock.control.alarms.datapoints import Watched
from penstock.control.alarms.records import AlarmActions, AlarmRecord
from penstock.control.scaling import calls
from penstock.control.scaling.records import NoSuchPolicy, NoSuchTarget, PolicyRecord, TooMany
from penstock.core.alarms.spec import AlarmSpec
from penstock.core.scaling.metrics import tracking_alarms
from penstock.core.scaling.spec import POLICY_TYPES, STEP_SCALING, Policy
from penstock.errors import CallerError
from penstock.wire.aws.errors import AwsError

_PAGE: Final = 50
_CONFIGURATION: Final = {
    kind: f"{kind.removesuffix('Scaling')}ScalingPolicyConfiguration" for kind in POLICY_TYPES
}


async def put_scaling_policy(context: AutoscalingContext, params: dict[str, Any]) -> dict[str, Any]:
    target, name = named(context, params), params["PolicyName"]
    try:
        before = await context.database.call(
            calls.policy_of, target.resource_id, target.dimension, name
        )
    except NoSuchTarget as error:
        raise no_target(params) from error
    kind = params.get("PolicyType") or (before.kind if before is not None else STEP_SCALING)
    given = _configuration(params, kind)
    arn = before.policy.arn if before is not None else _arn(context, target, name)
    alarms: list[AlarmRecord] = []
    policy: Policy
    if kind == STEP_SCALING:
        policy = policy_config.step_policy(name, arn, given)
    else:
        tracked = policy_config.tracking_policy(name, arn, given, target, context.periods)
        policy = tracked.policy
        specs = tracking_alarms(
            resource_id=target.resource_id,
            policy_arn=arn,
            target_value=tracked.policy.target_value,
            queries=tracked.queries,
            high_resolution=tracked.high_resolution,
            counts=tracked.counts,
            periods=context.periods,
            ids=(context.new_id(), context.new_id()),
        )
        # Ten expressions as long as they may be take a moment to read and compute.
        await asyncio.to_thread(_check_computable, specs)
        alarms = [_alarm(context, spec, arn) for spec in specs]
    try:
        record = await context.database.call(
            calls.put_policy,
            PolicyRecord(
                resource_id=target.resource_id,
                dimension=target.dimension,
                policy=policy,
                kind=kind,
                request=given,
                created=context.clock.wall(),
            ),
            alarms,
            now=context.clock.wall(),
        )
    except NoSuchTarget as error:
        raise no_target(params) from error
    except TooMany as error:
        raise AwsError("LimitExceededException", error.message) from error
    context.changed()
    return {"PolicyARN": arn, "Alarms": _alarms(record)}


async def describe_scaling_policies(
    context: AutoscalingContext, params: dict[str, Any]
) -> dict[str, Any]:
    check_filters(params)
    names = params.get("PolicyNames")
    records = [
        one
        for one in await context.database.call(calls.policies)
        if passes(params, one.resource_id, one.dimension)
        and (not names or one.policy.name in names or one.policy.arn in names)
    ]
    found, rest = paging.page(params, sorted(records, key=_key), _key, _PAGE)
    return {"ScalingPolicies": [_described(one) for one in found]} | rest


async def delete_scaling_policy(
    context: AutoscalingContext, params: dict[str, Any]
) -> dict[str, Any]:
    try:
        await context.database.call(
            calls.delete_policy,
            params["ResourceId"],
            params["ScalableDimension"],
            params["PolicyName"],
            now=context.clock.wall(),
        )
    except (NoSuchTarget, NoSuchPolicy) as error:
        raise not_found(
            f"No scaling policy found for {target_words(params)}, policy name:"
            f" {params['PolicyName']}"
        ) from error
    context.changed()
    return {}


def _configuration(params: dict[str, Any], kind: str) -> dict[str, Any]:
    """The one configuration that goes with the type. Raises ValidationException."""
    if kind not in _CONFIGURATION or params.get("PredictiveScalingPolicyConfiguration"):
        raise invalid("Predictive scaling is not supported for the service namespace sagemaker")
    for other, member in _CONFIGURATION.items():
        if other != kind and params.get(member) is not None:
            raise invalid(f"{member} can't be specified when policy type is {kind}")
    given = params.get(_CONFIGURATION[kind])
    if given is None:
        raise invalid(f"{_CONFIGURATION[kind]} is required when policy type is {kind}")
    return dict(given)


def _arn(context: AutoscalingContext, target: Named, name: str) -> str:
    return (
        f"arn:aws:autoscaling:{context.region}:{context.account_id}:scalingPolicy"
        f":{context.new_id()}:resource/sagemaker/{target.resource_id}:policyName/{name}"
    )


def _check_computable(specs: Iterable[AlarmSpec]) -> None:
    """Nothing is kept that its alarms could not compute. Raises ValidationException."""
    for spec in specs:
        try:
            Watched(spec)
        except CallerError as error:
            raise invalid(error.message) from error


def _alarm(context: AutoscalingContext, spec: AlarmSpec, policy_arn: str) -> AlarmRecord:
    return AlarmRecord(
        spec=spec,
        arn=f"arn:aws:cloudwatch:{context.region}:{context.account_id}:alarm:{spec.name}",
        actions=AlarmActions(alarm=(policy_arn,)),
        owner=policy_arn,
    )


def _key(record: PolicyRecord) -> str:
    return f"{record.dimension}|{record.resource_id.lower()}|{record.policy.name}"


def _alarms(record: PolicyRecord) -> list[dict[str, str]]:
    return [{"AlarmName": name, "AlarmARN": arn} for name, arn in record.alarms]


def _described(record: PolicyRecord) -> dict[str, Any]:
    return {
        "PolicyARN": record.policy.arn,
        "PolicyName": record.policy.name,
        "ServiceNamespace": "sagemaker",
        "ResourceId": record.resource_id,
        "ScalableDimension": record.dimension,
        "PolicyType": record.kind,
        _CONFIGURATION[record.kind]: record.request,
        "Alarms": _alarms(record),
        "CreationTime": record.created,
    }
