"""AddTags, ListTags, DeleteTags: for every resource with an ARN."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from penstock.api.sagemaker import names
from penstock.api.sagemaker.context import SagemakerContext, tags_of
from penstock.control.store.records import TooManyTags
from penstock.control.store.store import Store

PAGE_SIZE_DEFAULT = 50


async def add_tags(context: SagemakerContext, params: dict[str, Any]) -> dict[str, Any]:
    arn = params["ResourceArn"]
    await _require(context, arn)
    try:
        tags = await context.database.call(Store.add_tags, arn, tags_of(params))
    except TooManyTags as error:
        raise names.invalid(error.message) from error
    return {"Tags": _as_list(tags)}


async def list_tags(context: SagemakerContext, params: dict[str, Any]) -> dict[str, Any]:
    """Tags sorted by key; the token is the last key of the page before."""
    arn = params["ResourceArn"]
    await _require(context, arn)
    tags = await context.database.call(Store.list_tags, arn)
    after = _key_of(params.get("NextToken", ""))
    keys = sorted(key for key in tags if key > after) if after else sorted(tags)
    size = params.get("MaxResults", PAGE_SIZE_DEFAULT)
    page = {key: tags[key] for key in keys[:size]}
    result: dict[str, Any] = {"Tags": _as_list(page)}
    if len(keys) > size:
        result["NextToken"] = base64.urlsafe_b64encode(keys[size - 1].encode()).decode()
    return result


async def delete_tags(context: SagemakerContext, params: dict[str, Any]) -> dict[str, Any]:
    arn = params["ResourceArn"]
    await _require(context, arn)
    await context.database.call(Store.delete_tags, arn, params["TagKeys"])
    return {}


async def _require(context: SagemakerContext, arn: str) -> None:
    kind, _ = names.parse_arn(arn)
    if not await context.database.call(Store.arn_exists, arn):
        raise names.not_found(kind, arn)


def _key_of(token: str) -> str:
    try:
        return base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError) as error:
        raise names.invalid("NextToken is not one of this list call's.") from error


def _as_list(tags: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": tags[key]} for key in sorted(tags)]
