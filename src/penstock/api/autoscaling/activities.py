"""DescribeScalingActivities."""

from __future__ import annotations

from typing import Any, Final

from penstock.api.autoscaling import parts
from penstock.api.autoscaling.context import AutoscalingContext, check_filters
from penstock.control.scaling import calls
from penstock.control.scaling.records import ActivityRecord
from penstock.core.scaling.activity import AT_MAX, AT_MIN, NotScaled
from penstock.wire.aws.errors import AwsError

_PAGE: Final = 50


async def describe_scaling_activities(
    context: AutoscalingContext, params: dict[str, Any]
) -> dict[str, Any]:
    """Activities, the newest first; those that changed nothing only on request."""
    check_filters(params)
    size = parts.size_of(params, _PAGE)
    place = parts.place_of(params)
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
    answer: dict[str, Any] = {"ScalingActivities": [_described(one) for one in found[:size]]}
    if len(found) > size:
        answer["NextToken"] = parts.token_of(params, str(found[size - 1].number))
    return answer


def _described(record: ActivityRecord) -> dict[str, Any]:
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
    told: dict[str, Any] = {"Code": why.code, "CurrentCapacity": why.capacity}
    if why.code == AT_MAX:
        told["MaxCapacity"] = why.capacity_max
    if why.code == AT_MIN:
        told["MinCapacity"] = why.capacity_min
    return told
