"""CreateModel, DescribeModel, ListModels, DeleteModel."""

from __future__ import annotations

from typing import Any

from penstock.api.sagemaker import names, security_members
from penstock.api.sagemaker.context import SagemakerContext, tags_of
from penstock.api.sagemaker.deployments import model_source
from penstock.api.sagemaker.names import list_query, page_of
from penstock.control.store.records import AlreadyExists, NotFound
from penstock.control.store.store import Store

KIND = "model"


async def create_model(context: SagemakerContext, params: dict[str, Any]) -> dict[str, Any]:
    """The artifact is read when an endpoint loads it, as in SageMaker."""
    name = params["ModelName"]
    security_members.check("CreateModel", params)
    model_source(params)  # refuses containers that could never be loaded
    arn = context.arn(KIND, name)
    kept = {key: value for key, value in params.items() if key != "Tags"}
    try:
        await context.database.call(
            Store.create_model, name, kept, arn=arn, now=context.clock.wall(), tags=tags_of(params)
        )
    except AlreadyExists as error:
        raise names.already_exists(KIND, error.arn) from error
    return {"ModelArn": arn}


async def describe_model(context: SagemakerContext, params: dict[str, Any]) -> dict[str, Any]:
    name = params["ModelName"]
    try:
        record = await context.database.call(Store.describe_model, name)
    except NotFound as error:
        raise context.not_found(KIND, name) from error
    return record.request | {"ModelArn": record.arn, "CreationTime": record.created}


async def list_models(context: SagemakerContext, params: dict[str, Any]) -> dict[str, Any]:
    page = await context.database.call(Store.list_models, list_query(params))
    rows = [
        {"ModelName": item.name, "ModelArn": item.arn, "CreationTime": item.created}
        for item in page.items
    ]
    return page_of("Models", rows, page.next_token)


async def delete_model(context: SagemakerContext, params: dict[str, Any]) -> dict[str, Any]:
    """Deletes it; endpoints made from it have a copy of what they need."""
    name = params["ModelName"]
    try:
        await context.database.call(Store.delete_model, name)
    except NotFound as error:
        raise context.not_found(KIND, name) from error
    return {}
