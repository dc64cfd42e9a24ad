"""RegisterScalableTarget, DescribeScalableTargets, DeregisterScalableTarget.

DescribeScalingActivities: what was done with them.

TagResource, UntagResource, ListTagsForResource: tags of scalable targets, by ARN.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.api.autoscaling.context import (
    AutoscalingContext,
    after_of,
    check_filters,
    invalid,
    named,
    next_token,
    page,
    passes,
    size_of,
)
from penstock.api.aws import Members
from penstock.control.scaling import calls
from penstock.control.scaling.records import (
    ActivityRecord,
    BoundsCross,
    ResourceMissing,
    TargetRecord,
)
from penstock.control.store.records import TooManyTags
from penstock.control.store.store import Store
from penstock.core.scaling.activity import AT_MAX, AT_MIN, NotScaled
from penstock.core.scaling.spec import VARIANT
from penstock.wire.aws.errors import AwsError

CAPACITY_MAX: Final = 100_000  #: more than anybody has; AWS's shape has no bound
#: Members of SuspendedState -> fields of `Suspended`.
_SUSPENDED: Final = {
    "DynamicScalingInSuspended": "scale_in",
    "DynamicScalingOutSuspended": "scale_out",
    "ScheduledScalingSuspended": "scheduled",
}


async def register_scalable_target(context: AutoscalingContext, params: Members) -> Members:
    target = named(params)
    low, high = params.get("MinCapacity"), params.get("MaxCapacity")
    check_bounds(low, high)
    suspended = params.get("SuspendedState")
    try:
        record, written = await context.database.call(
            calls.register,
            calls.Registration(
                resource_id=target.resource_id,
                dimension=target.dimension,
                capacity_min=low,
                capacity_max=high,
                role_arn=params.get("RoleARN"),
                suspended=None
                if suspended is None
                else {field: bool(suspended.get(name)) for name, field in _SUSPENDED.items()},
                tags=params.get("Tags"),
            ),
            arn=(
                f"arn:aws:application-autoscaling:{context.region}:{context.account_id}"
                f":scalable-target/{context.new_id()}"
            ),
            role_arn=(
                f"arn:aws:iam::{context.account_id}:role/aws-service-role/sagemaker.application-"
                "autoscaling.amazonaws.com/AWSServiceRoleForApplicationAutoScaling_SageMakerEndpoint"
            ),
            activity_id=context.new_id(),
            now=context.clock.wall(),
        )
    except ResourceMissing as error:
        kind = "endpoint variant" if target.dimension == VARIANT else "inference component"
        raise invalid(f"SageMaker {kind} doesn't exist: {target.resource_id}") from error
    except BoundsCross as error:
        raise invalid("Maximum capacity cannot be less than minimum capacity") from error
    except TooManyTags as error:
        raise AwsError("ValidationException", error.message) from error
    except ValueError as error:
        raise invalid(
            "Minimum and maximum capacity are required to register a new scalable target"
        ) from error
    context.changed()
    if written.endpoint:
        context.notify(written.endpoint)
    return {"ScalableTargetARN": record.arn}


async def describe_scalable_targets(context: AutoscalingContext, params: Members) -> Members:
    check_filters(params)
    records = [
        one
        for one in await context.database.call(calls.targets)
        if passes(params, one.spec.resource_id, one.spec.dimension)
    ]
    found, rest = page(params, records, lambda one: one.key)
    return {"ScalableTargets": [_described(one) for one in found]} | rest


async def deregister_scalable_target(context: AutoscalingContext, params: Members) -> Members:
    """A wrong dimension counts as a missing target: clients catch only that error."""
    resource_id, dimension = params["ResourceId"], params["ScalableDimension"]
    now = context.clock.wall()
    await context.call(params, calls.deregister, resource_id, dimension, now=now)
    context.changed()
    return {}


def check_bounds(low: int | None, high: int | None) -> None:
    """Raises ValidationException for bounds that contradict each other."""
    for name, value in (("Minimum", low), ("Maximum", high)):
        if value is not None and not 0 <= value <= CAPACITY_MAX:
            raise invalid(f"{name} capacity must be between 0 and {CAPACITY_MAX}")
    if low is not None and high is not None and low > high:
        raise invalid("Maximum capacity cannot be less than minimum capacity")


def _described(record: TargetRecord) -> dict[str, Any]:
    spec = record.spec
    return {
        "ServiceNamespace": "sagemaker",
        "ResourceId": spec.resource_id,
        "ScalableDimension": spec.dimension,
        "MinCapacity": spec.capacity_min,
        "MaxCapacity": spec.capacity_max,
        "RoleARN": record.role_arn,
        "CreationTime": record.created,
        "SuspendedState": {
            name: getattr(spec.suspended, field) for name, field in _SUSPENDED.items()
        },
        "ScalableTargetARN": record.arn,
    }


async def tag_resource(context: AutoscalingContext, params: Members) -> Members:
    arn = await _known(context, params)
    try:
        await context.database.call(Store.add_tags, arn, params["Tags"])
    except TooManyTags as error:
        raise AwsError(
            "TooManyTagsException", error.message, members={"ResourceName": arn}
        ) from error
    context.changed()
    return {}


async def untag_resource(context: AutoscalingContext, params: Members) -> Members:
    arn = await _known(context, params)
    await context.database.call(Store.delete_tags, arn, params["TagKeys"])
    context.changed()
    return {}


async def list_tags_for_resource(context: AutoscalingContext, params: Members) -> Members:
    arn = await _known(context, params)
    return {"Tags": await context.database.call(Store.list_tags, arn)}


async def _known(context: AutoscalingContext, params: Members) -> str:
    """The ARN of an existing target. Raises ResourceNotFoundException."""
    arn: str = params["ResourceARN"]
    if not await context.database.call(calls.known_arn, arn):
        raise AwsError(
            "ResourceNotFoundException",
            f"The specified resource doesn't exist: {arn}",
            members={"ResourceName": arn},
        )
    return arn


async def describe_scaling_activities(context: AutoscalingContext, params: Members) -> Members:
    """Activities, the newest first; those that changed nothing only on request."""
    check_filters(params)
    size = size_of(params)
    place = after_of(params)
    if place is not None and not (place.isascii() and place.isdigit() and len(place) < 19):
        raise AwsError("InvalidNextTokenException", "The NextToken is invalid.")
    found = await context.database.call(
        calls.activities,
        resource_id=params.get("ResourceId") or "",
        dimension=params.get("ScalableDimension") or "",
        not_scaled=bool(params.get("IncludeNotScaledActivities")),
        before=None if place is None else int(place),
        limit=size + 1,
    )
    answer: dict[str, Any] = {"ScalingActivities": [_activity(one) for one in found[:size]]}
    if len(found) > size:
        answer["NextToken"] = next_token(params, str(found[size - 1].number))
    return answer


def _activity(record: ActivityRecord) -> dict[str, Any]:
    described: dict[str, Any] = {
        "ActivityId": record.id,
        "ServiceNamespace": "sagemaker",
        "ResourceId": record.resource_id,
        "ScalableDimension": record.dimension,
        "Description": record.description,
        "Cause": record.cause,
        "StartTime": record.started,
        "StatusCode": record.status,
        "StatusMessage": record.message,
        "Details": record.details,
    }
    if record.ended is not None:
        described["EndTime"] = record.ended
    if record.not_scaled is not None:
        described["NotScaledReasons"] = [_reason(record.not_scaled)]
    return described


def _reason(why: NotScaled) -> dict[str, Any]:
    shown: dict[str, Any] = {"Code": why.code, "CurrentCapacity": why.capacity}
    if why.code == AT_MAX:
        shown["MaxCapacity"] = why.capacity_max
    if why.code == AT_MIN:
        shown["MinCapacity"] = why.capacity_min
    return shown
