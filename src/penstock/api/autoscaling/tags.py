"""TagResource, UntagResource, ListTagsForResource: of scalable targets, by ARN."""

from __future__ import annotations

from typing import Any

from penstock.api.autoscaling.context import AutoscalingContext
from penstock.control.scaling import calls
from penstock.control.store.records import TooManyTags
from penstock.control.store.store import Store
from penstock.wire.aws.errors import AwsError


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
    """The ARN of a target. Raises ResourceNotFoundException."""
    arn: str = params["ResourceARN"]
    if not await context.database.call(calls.known_arn, arn):
        raise AwsError(
            "ResourceNotFoundException",
            f"The specified resource doesn't exist: {arn}",
            members={"ResourceName": arn},
        )
    return arn
