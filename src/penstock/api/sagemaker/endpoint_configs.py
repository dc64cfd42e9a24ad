"""CreateEndpointConfig, DescribeEndpointConfig, ListEndpointConfigs, DeleteEndpointConfig."""

from __future__ import annotations

from typing import Any

from penstock.api.sagemaker import names, security_members
from penstock.api.sagemaker.async_inference import check_async_inference
from penstock.api.sagemaker.context import SagemakerContext, tags_of
from penstock.api.sagemaker.deployments import check_config
from penstock.api.sagemaker.instance_pools import model_names
from penstock.api.sagemaker.names import list_query, page_of
from penstock.control.store.records import AlreadyExists, NotFound
from penstock.control.store.store import Store

KIND = "endpoint-config"


async def create_endpoint_config(
    context: SagemakerContext, params: dict[str, Any]
) -> dict[str, Any]:
    """The models must exist now; their content is copied when an endpoint is created."""
    name = params["EndpointConfigName"]
    security_members.check("CreateEndpointConfig", params)
    check_config(params)
    await check_async_inference(params, context.asynchronous)
    arn = context.arn(KIND, name)
    kept = {key: value for key, value in params.items() if key != "Tags"}
    try:
        await context.database.call(
            Store.create_endpoint_config,
            name,
            kept,
            arn=arn,
            now=context.clock.wall(),
            models=[
                name for variant in params["ProductionVariants"] for name in model_names(variant)
            ],
            tags=tags_of(params),
        )
    except AlreadyExists as error:
        raise names.already_exists(KIND, error.arn) from error
    except NotFound as error:
        raise context.not_found("model", error.name) from error
    return {"EndpointConfigArn": arn}


async def describe_endpoint_config(
    context: SagemakerContext, params: dict[str, Any]
) -> dict[str, Any]:
    name = params["EndpointConfigName"]
    try:
        record = await context.database.call(Store.describe_endpoint_config, name)
    except NotFound as error:
        raise context.not_found(KIND, name) from error
    variants = [
        {"InitialInstanceCount": 1, "InitialVariantWeight": 1.0} | variant
        for variant in record.request["ProductionVariants"]
    ]
    return record.request | {
        "ProductionVariants": variants,
        "EndpointConfigArn": record.arn,
        "CreationTime": record.created,
    }


async def list_endpoint_configs(
    context: SagemakerContext, params: dict[str, Any]
) -> dict[str, Any]:
    page = await context.database.call(Store.list_endpoint_configs, list_query(params))
    rows = [
        {
            "EndpointConfigName": item.name,
            "EndpointConfigArn": item.arn,
            "CreationTime": item.created,
        }
        for item in page.items
    ]
    return page_of("EndpointConfigs", rows, page.next_token)


async def delete_endpoint_config(
    context: SagemakerContext, params: dict[str, Any]
) -> dict[str, Any]:
    """Deletes it even if an endpoint uses it: the endpoint has a copy."""
    name = params["EndpointConfigName"]
    try:
        await context.database.call(Store.delete_endpoint_config, name)
    except NotFound as error:
        raise context.not_found(KIND, name) from error
    return {}
