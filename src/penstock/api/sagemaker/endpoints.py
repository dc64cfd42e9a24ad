"""CreateEndpoint, DescribeEndpoint, ListEndpoints, UpdateEndpoint, …WeightsAndCapacities, Delete.

An operation stores the desired state in one transaction and wakes the reconciler; the next Describe
shows it already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from penstock.api.aws import Members
from penstock.api.sagemaker import rollouts, security_members
from penstock.api.sagemaker.agreements import agreeing, check_scorer
from penstock.api.sagemaker.async_inference import async_config
from penstock.api.sagemaker.context import (
    SagemakerContext,
    busy,
    invalid,
    list_query,
    page_of,
    require_in_service,
    summary,
)
from penstock.api.sagemaker.data_capture import capture_summary
from penstock.api.sagemaker.deployments import deployment, metrics_config
from penstock.api.sagemaker.variants import (
    SHADOWS,
    all_variants,
    managed_instance_scaling,
    model_names,
    pool_summaries,
    routing_config,
)
from penstock.control.store.records import (
    ENDPOINT,
    EndpointBusy,
    EndpointRecord,
    ListedResource,
    NotFound,
    TargetRolloutUnderWay,
    UnknownVariant,
    UnreadableRecord,
)
from penstock.control.store.store import Store
from penstock.core.deployment.deployment import DeploymentSpec, VariantSpec
from penstock.core.deployment.endpoint_state import UPDATING

#: While an endpoint has one of these, so have its variants; a variant in service has no status.
VARIANT_STATUSES = ("Updating", "Deleting")


async def create_endpoint(context: SagemakerContext, params: Members) -> Members:
    """A DeploymentConfig has no effect on the first instances, which replace none. It is what
    RetainDeploymentConfig of the first update refers to."""
    name = params["EndpointName"]
    spec = await _deployment_of(context, name, params["EndpointConfigName"])
    config = params.get("DeploymentConfig") or {}
    await rollouts.policy_of(context, config, spec)
    kept = {"DeploymentConfig": config}
    arn = await context.create(ENDPOINT, Store.create_endpoint, name, spec, params, request=kept)
    context.plane.notify(name)
    return {"EndpointArn": arn}


async def describe_endpoint(context: SagemakerContext, params: Members) -> Members:
    record = await context.call(Store.describe_endpoint, params["EndpointName"])
    described: Members = {
        "EndpointName": record.name,
        "EndpointArn": record.arn,
        "EndpointConfigName": record.config_name,
        "EndpointStatus": rollouts.status_shown(record),
        "CreationTime": record.created,
        "LastModifiedTime": record.modified,
    }
    if not record.config_name:  # an unreadable record, which is being deleted
        return described
    if metrics := metrics_config(record.shown):
        described["MetricsConfig"] = metrics
    if record.shown.asynchronous is not None:
        described["AsyncInferenceConfig"] = async_config(record.shown.asynchronous)
    if record.shown.capture is not None:
        described["DataCaptureConfig"] = capture_summary(record.shown.capture)
    if record.failure_reason:
        described["FailureReason"] = record.failure_reason[:1024]  # the shape's limit
    if record.status != "Creating":
        counts = context.plane.pool_counts(record.name)
        described["ProductionVariants"] = [
            _variant(record, variant, counts.get(variant.name, {}), context.plane.kept_counts)
            for variant in record.shown.variants
        ]
        if record.shown.shadows:
            described[SHADOWS] = [
                _shadow(context, record, variant, counts.get(variant.name, {}))
                for variant in record.shown.shadows
            ]
    if record.target is not None and record.active is not None:
        described["PendingDeploymentSummary"] = rollouts.pending_summary(record, record.target)
    if last := record.request.get("DeploymentConfig"):
        described["LastDeploymentConfig"] = last
    return described


async def list_endpoints(context: SagemakerContext, params: Members) -> Members:
    page = await context.database.call(Store.list_endpoints, list_query(params))
    rows = [
        summary("Endpoint", item)
        | {"LastModifiedTime": item.modified, "EndpointStatus": await _listed(context, item)}
        for item in page.items
    ]
    return page_of("Endpoints", rows, page.next_token)


async def _listed(context: SagemakerContext, item: ListedResource) -> str:
    """The status that DescribeEndpoint shows."""
    if item.status != UPDATING:
        return item.status
    try:
        record = await context.database.call(Store.describe_endpoint, item.name)
    except (NotFound, UnreadableRecord):  # it was deleted just now, or it is unreadable
        return item.status
    return rollouts.status_shown(record)


async def update_endpoint(context: SagemakerContext, params: Members) -> Members:
    """The old copies serve until all new ones are ready; the DeploymentConfig says how these then
    take over. Without one it is all at once."""
    name = params["EndpointName"]
    record = await context.call(Store.describe_endpoint, name)
    require_in_service(ENDPOINT, record.arn, record.status)
    spec = await _deployment_of(context, record.name, params["EndpointConfigName"])
    if params.get("RetainAllVariantProperties"):
        excluded = {
            item["VariantPropertyType"]
            for item in params.get("ExcludeRetainedVariantProperties") or []
        }
        spec = _retaining(spec, record.shown, excluded)
    _check_components(record, spec)
    _check_targets(record, spec)
    config = _deployment_config(record, params)
    policy = await rollouts.policy_of(context, config, spec)
    rollouts.check_variants(policy, record.shown, spec)
    config_record = await context.call(Store.describe_endpoint_config, spec.config_name)
    tags = await context.database.call(Store.list_tags, config_record.arn)
    policy = agreeing(policy, tags, record.shown, spec)
    if policy is not None:
        agreement = await check_scorer(context, policy.agreement, record.name)
        policy = replace(policy, agreement=agreement)
    try:
        await context.database.call(
            Store.begin_update,
            record.name,
            replace(spec, rollout=policy),
            now=context.clock.wall(),
            request={"DeploymentConfig": config},
        )
    except EndpointBusy as error:
        raise busy(ENDPOINT, record.arn) from error
    context.plane.notify(record.name)
    return {"EndpointArn": record.arn}


async def update_endpoint_weights_and_capacities(
    context: SagemakerContext, params: Members
) -> Members:
    security_members.check("UpdateEndpointWeightsAndCapacities", params)
    record = await context.call(Store.describe_endpoint, params["EndpointName"])
    require_in_service(ENDPOINT, record.arn, record.status)
    changes: dict[str, tuple[float | None, int | None]] = {}
    for change in params["DesiredWeightsAndCapacities"]:
        name = change["VariantName"]
        if name in changes:
            raise invalid(f'The variant name "{name}" was non-unique within the request.')
        managed = any(one.managed for one in record.shown.variants if one.name == name)
        if managed and change.get("DesiredInstanceCount") is not None:
            raise invalid(
                f"DesiredInstanceCount of variant {name!r} follows the copies of its inference"
                " components (ManagedInstanceScaling). Change their CopyCount."
            )
        changes[name] = (change.get("DesiredWeight"), change.get("DesiredInstanceCount"))
    try:
        await context.database.call(
            Store.update_weights, record.name, changes, now=context.clock.wall()
        )
    except UnknownVariant as error:
        raise invalid(
            f'The variant name(s) "{error.variant}" is/are not present within endpoint '
            f'configuration "{record.config_name}".'
        ) from error
    except EndpointBusy as error:
        raise busy(ENDPOINT, record.arn) from error
    context.plane.notify(record.name)
    return {"EndpointArn": record.arn}


async def delete_endpoint(context: SagemakerContext, params: Members) -> Members:
    now = context.clock.wall()
    record = await context.call(Store.begin_delete, params["EndpointName"], now=now)
    context.plane.notify(record.name)
    return {}


async def _deployment_of(
    context: SagemakerContext, endpoint: str, config_name: str
) -> DeploymentSpec:
    config = await context.call(Store.describe_endpoint_config, config_name)
    models: dict[str, Mapping[str, Any]] = {}
    named = (model_names(variant) for variant in all_variants(config.request))
    for model in dict.fromkeys(name for each in named for name in each):
        models[model] = (await context.call(Store.describe_model, model)).request
    return deployment(endpoint, 1, config.request, models)  # the store assigns the generation


def _deployment_config(record: EndpointRecord, params: Members) -> Members:
    """The given one, or with RetainDeploymentConfig the last one; empty: the default."""
    given: Members = params.get("DeploymentConfig") or {}
    if not params.get("RetainDeploymentConfig"):
        return given
    if given:
        # AWS's documents do not say which of the two counts; to guess could roll out wrongly.
        raise invalid("Give either DeploymentConfig or RetainDeploymentConfig, not both.")
    last: Members = record.request.get("DeploymentConfig") or {}
    return last


def _retaining(new: DeploymentSpec, old: DeploymentSpec, excluded: set[str]) -> DeploymentSpec:
    """The new deployment, in which variants of the same name keep their present weight and count,
    and the endpoint keeps what it captures."""
    before = {variant.name: variant for variant in old.hosted}

    def retained(variant: VariantSpec) -> VariantSpec:
        kept = before.get(variant.name)
        if kept is None:
            return variant
        weight = variant.weight if "DesiredWeight" in excluded else kept.weight
        count = (
            variant.instance_count if "DesiredInstanceCount" in excluded else kept.instance_count
        )
        return replace(variant, weight=weight, instance_count=count)

    return replace(
        new,
        variants=tuple(retained(variant) for variant in new.variants),
        shadows=tuple(retained(variant) for variant in new.shadows),
        capture=new.capture if "DataCaptureConfig" in excluded else old.capture,
    )


def _variant(
    record: EndpointRecord,
    variant: VariantSpec,
    counts: Mapping[str, int],
    kept_counts: Callable[[str], Mapping[str, int]],
) -> dict[str, Any]:
    """Current values lag behind desired ones while weights or counts change. `counts`: its serving
    instances, by type."""
    before = record.previous if record.status == "Updating" else None
    current = (
        next((item for item in before.hosted if item.name == variant.name), variant)
        if (before is not None)
        else variant
    )
    described: dict[str, Any] = {
        "VariantName": variant.name,
        "CurrentWeight": rollouts.serving_weight(record, current.weight),
        "DesiredWeight": variant.weight,
        "CurrentInstanceCount": sum(counts.values()),
        "DesiredInstanceCount": variant.instance_count,
        "RoutingConfig": routing_config(
            variant.strategy, variant.prefix_length_max, variant.concurrency_threshold
        ),
    }
    if variant.pools:
        described["InstancePools"] = pool_summaries(variant.pools, counts)
    if variant.managed is not None:
        described["ManagedInstanceScaling"] = managed_instance_scaling(variant.managed)
        described["DesiredInstanceCount"] = kept_counts(record.name).get(variant.name, 0)
    if record.status in VARIANT_STATUSES:
        described["VariantStatus"] = [rollouts.serving_status(record)]
    parts = variant.model.parts if variant.model is not None else ()
    if images := [part for part in parts if part.image]:
        described["DeployedImages"] = [
            {
                "SpecifiedImage": part.image,
                "ResolvedImage": part.image_resolved or part.image,
                "ResolutionTime": record.modified,
            }
            for part in images
        ]
    return described


def _shadow(
    context: SagemakerContext,
    record: EndpointRecord,
    variant: VariantSpec,
    counts: Mapping[str, int],
) -> dict[str, Any]:
    """An endpoint waits for no shadow variant, so one that lacks instances says so itself."""
    described = _variant(record, variant, counts, context.plane.kept_counts)
    missing = described["CurrentInstanceCount"] < variant.instance_count
    if missing and "VariantStatus" not in described:
        described["VariantStatus"] = [{"Status": "Creating"}]
        if failed := context.plane.last_failure(record.name, variant.name):
            described["VariantStatus"][0]["StatusMessage"] = failed[:1024]  # the shape's limit
    return described


def _check_targets(record: EndpointRecord, new: DeploymentSpec) -> None:
    """Target models that other artifacts answer for keep the prefixes where these lie."""
    if not record.targets:
        return
    if moving := next((one for one in record.targets if one.incoming), None):
        raise invalid(TargetRolloutUnderWay(record.name, moving.target, moving.incoming).message)
    moved = [one for one in record.targets if one.serves != one.target]
    if moved and _prefixes(record.shown) != _prefixes(new):
        raise invalid(
            f"Target model {moved[0].target!r} of endpoint {record.name!r} is answered by artifact"
            f" {moved[0].serves!r}, and {new.config_name!r} has another prefix. Give it its own"
            f" artifact again first: penstock rollout start {record.name} --model"
            f" {moved[0].target} --to {moved[0].target} --all-at-once"
        )


def _prefixes(deployment: DeploymentSpec) -> set[str]:
    models = (one.model for one in deployment.hosted)
    return {one.uri for one in models if one is not None and one.multi_model}


def _check_components(record: EndpointRecord, new: DeploymentSpec) -> None:
    """Existing components must have a variant in the new configuration."""
    takes = {variant.name for variant in new.variants if variant.model is None}
    for component in record.components:
        if component.variant not in takes:
            raise invalid(
                f"Endpoint configuration {new.config_name!r} has no variant"
                f" {component.variant!r} that takes inference components, and"
                f" {component.name!r} is on it. Delete the component first."
            )
