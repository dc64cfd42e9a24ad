"""RegisterScalableTarget, DescribeScalableTargets, DeregisterScalableTarget.

TagResource, UntagResource, ListTagsForResource: tags of scalable targets, by ARN.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.api.autoscaling import parts
from penstock.api.autoscaling.context import (
    AutoscalingContext,
    check_filters,
    invalid,
    named,
    no_target,
    passes,
)
from penstock.control.scaling import calls
from penstock.control.scaling.records import (
    BoundsCross,
    NoSuchTarget,
    ResourceMissing,
    TargetRecord,
)
from penstock.control.store.records import TooManyTags
from penstock.control.store.store import Store
from penstock.core.scaling.spec import VARIANT
from penstock.wire.aws.errors import AwsError

CAPACITY_MAX: Final = 100_000  #: more than anybody has; AWS's shape has no bound
_PAGE: Final = 50
#: Members of SuspendedState -> fields of `Suspended`.
_SUSPENDED: Final = {
    "DynamicScalingInSuspended": "scale_in",
    "DynamicScalingOutSuspended": "scale_out",
    "ScheduledScalingSuspended": "scheduled",
}


async def register_scalable_target(
    context: AutoscalingContext, params: dict[str, Any]
) -> dict[str, Any]:
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


async def describe_scalable_targets(
    context: AutoscalingContext, params: dict[str, Any]
) -> dict[str, Any]:
    check_filters(params)
    records = [
        one
        for one in await context.database.call(calls.targets)
        if passes(params, one.spec.resource_id, one.spec.dimension)
    ]
    found, rest = parts.page(params, records, lambda one: one.key, _PAGE)
    return {"ScalableTargets": [_described(one) for one in found]} | rest


async def deregister_scalable_target(
    context: AutoscalingContext, params: dict[str, Any]
) -> dict[str, Any]:
    """A wrong dimension counts as a missing target: clients catch only that error."""
    try:
        await context.database.call(
            calls.deregister,
            params["ResourceId"],
            params["ScalableDimension"],
            now=context.clock.wall(),
        )
    except NoSuchTarget as error:
        raise no_target(params) from error
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


async def tag_resource(context: AutoscalingContext, params: dict[str, Any]) -> dict[str, Any]:
    arn = await _known(context, params)
    try:
        await context.database.call(Store.add_tags, arn, params["Tags"])
    except TooManyTags as error:
        raise AwsError(
            "TooManyTagsException", error.message, members={"ResourceName": arn}
        ) from error
    context.changed()
    return {}


async def untag_resource(context: AutoscalingContext, params: dict[str, Any]) -> dict[str, Any]:
    arn = await _known(context, params)
    await context.database.call(Store.delete_tags, arn, params["TagKeys"])
    context.changed()
    return {}


async def list_tags_for_resource(
    context: AutoscalingContext, params: dict[str, Any]
) -> dict[str, Any]:
    arn = await _known(context, params)
    return {"Tags": await context.database.call(Store.list_tags, arn)}


async def _known(context: AutoscalingContext, params: dict[str, Any]) -> str:
    """The ARN of an existing target. Raises ResourceNotFoundException."""
    arn: str = params["ResourceARN"]
    if not await context.database.call(calls.known_arn, arn):
        raise AwsError(
            "ResourceNotFoundException",
            f"The specified resource doesn't exist: {arn}",
            members={"ResourceName": arn},
        )
    return arn
