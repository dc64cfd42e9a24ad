"""Create, Describe, List and Delete of models and endpoint configurations, which are only records.

AddTags, ListTags, DeleteTags: for every resource with an ARN.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
from typing import Any

from penstock.api.aws import Members
from penstock.api.sagemaker import security_members
from penstock.api.sagemaker.async_inference import check_async_inference
from penstock.api.sagemaker.containers import model_source
from penstock.api.sagemaker.context import (
    SagemakerContext,
    invalid,
    list_query,
    not_found,
    page_of,
    parse_arn,
    summary,
    tags_of,
    untagged,
)
from penstock.api.sagemaker.data_capture import check_data_capture
from penstock.api.sagemaker.deployments import check_config
from penstock.api.sagemaker.variants import SHADOWS, all_variants, model_names
from penstock.control.store.records import (
    COMPONENT,
    ENDPOINT,
    ENDPOINT_CONFIG,
    MODEL,
    NotFound,
    TooManyTags,
    UnreadableRecord,
)
from penstock.control.store.store import Store


async def create_model(context: SagemakerContext, params: Members) -> Members:
    """The artifact is read when an endpoint loads it, as in SageMaker."""
    security_members.check("CreateModel", params)
    source = model_source(params)  # refuses containers that could never be loaded
    for part in source.parts:
        context.check_trust(dict(part.environment), multi_model=part.multi_model)
    name, kept = params["ModelName"], untagged(params)
    return {"ModelArn": await context.create(MODEL, Store.create_model, name, kept, params)}


async def describe_model(context: SagemakerContext, params: Members) -> Members:
    record = await context.call(Store.describe_model, params["ModelName"])
    return record.request | {"ModelArn": record.arn, "CreationTime": record.created}


async def list_models(context: SagemakerContext, params: Members) -> Members:
    page = await context.database.call(Store.list_models, list_query(params))
    rows = [summary("Model", item) for item in page.items]
    return page_of("Models", rows, page.next_token)


async def delete_model(context: SagemakerContext, params: Members) -> Members:
    """Deletes it; endpoints made from it have a copy of what they need."""
    await context.call(Store.delete_model, params["ModelName"])
    return {}


async def create_endpoint_config(context: SagemakerContext, params: Members) -> Members:
    """The models must exist now; their content is copied when an endpoint is created."""
    security_members.check("CreateEndpointConfig", params)
    check_config(params)
    await check_async_inference(params, context.asynchronous)
    await check_data_capture(params, context.asynchronous)
    models = [one for variant in all_variants(params) for one in model_names(variant)]
    arn = await context.create(
        ENDPOINT_CONFIG,
        Store.create_endpoint_config,
        params["EndpointConfigName"],
        untagged(params),
        params,
        models=models,
    )
    return {"EndpointConfigArn": arn}


async def describe_endpoint_config(context: SagemakerContext, params: Members) -> Members:
    record = await context.call(Store.describe_endpoint_config, params["EndpointConfigName"])
    variants = {
        member: [
            {"InitialInstanceCount": 1, "InitialVariantWeight": 1.0} | variant
            for variant in record.request[member]
        ]
        for member in ("ProductionVariants", SHADOWS)
        if record.request.get(member)
    }
    return (
        record.request
        | variants
        | {
            "EndpointConfigArn": record.arn,
            "CreationTime": record.created,
        }
    )


async def list_endpoint_configs(context: SagemakerContext, params: Members) -> Members:
    page = await context.database.call(Store.list_endpoint_configs, list_query(params))
    rows = [summary("EndpointConfig", item) for item in page.items]
    return page_of("EndpointConfigs", rows, page.next_token)


async def delete_endpoint_config(context: SagemakerContext, params: Members) -> Members:
    """Deletes it even if an endpoint uses it: the endpoint has a copy."""
    await context.call(Store.delete_endpoint_config, params["EndpointConfigName"])
    return {}


PAGE_SIZE_DEFAULT = 50


async def add_tags(context: SagemakerContext, params: Members) -> Members:
    arn = params["ResourceArn"]
    await _require(context, arn)
    try:
        tags = await context.database.call(Store.add_tags, arn, tags_of(params))
    except TooManyTags as error:
        raise invalid(error.message) from error
    await _tell(context, arn)
    return {"Tags": _as_list(tags)}


async def list_tags(context: SagemakerContext, params: Members) -> Members:
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


async def delete_tags(context: SagemakerContext, params: Members) -> Members:
    arn = params["ResourceArn"]
    await _require(context, arn)
    await context.database.call(Store.delete_tags, arn, params["TagKeys"])
    await _tell(context, arn)
    return {}


async def _require(context: SagemakerContext, arn: str) -> None:
    kind, _ = parse_arn(arn)
    if not await context.database.call(Store.arn_exists, arn):
        raise not_found(kind, arn)


async def _tell(context: SagemakerContext, arn: str) -> None:
    """The tags of an endpoint say under which names it is served, those of an inference component
    whose shadow it is."""
    kind, name = parse_arn(arn)
    if kind == ENDPOINT:
        context.plane.notify(name)
    elif kind == COMPONENT:
        with contextlib.suppress(NotFound, UnreadableRecord):  # then it is in no routes
            record = await context.database.call(Store.describe_component, name)
            context.plane.notify(record.endpoint)


def _key_of(token: str) -> str:
    try:
        return base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError) as error:
        raise invalid("NextToken is not one of this list call's.") from error


def _as_list(tags: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": tags[key]} for key in sorted(tags)]
