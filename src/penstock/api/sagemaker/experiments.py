"""Create, Describe, List, Update, Start, Stop and Delete of inference experiments (shadow tests).

An operation writes the record and wakes the driver, which updates the endpoint
(`jobs/experiments/driver.py`). What could only fail later is refused here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from penstock.api.aws import Members
from penstock.api.sagemaker import rollouts, security_members
from penstock.api.sagemaker.context import (
    SagemakerContext,
    invalid,
    list_query,
    page_of,
    require_in_service,
    tags_of,
    untagged,
)
from penstock.api.sagemaker.data_capture import check_data_capture
from penstock.api.sagemaker.deployments import check_config, deployment
from penstock.api.sagemaker.variants import all_variants
from penstock.control.store.records import (
    ENDPOINT,
    EXPERIMENT,
    AlreadyExists,
    EndpointRecord,
    NotFound,
)
from penstock.control.store.store import Store
from penstock.core.experiments import configurations
from penstock.core.experiments.machine import ENDED, RUNNING, STOPPING
from penstock.jobs.experiments import book
from penstock.jobs.experiments.records import (
    EndpointHasExperiment,
    ExperimentChange,
    ExperimentConflict,
    ExperimentRecord,
)
from penstock.wire.aws.errors import AwsError

P = ParamSpec("P")
T = TypeVar("T")

_ARN: Final = "InferenceExperimentArn"
_TEXT_CHARS_MAX: Final = 1024  # of StatusReason and FailureReason
#: Members of an update that the endpoint's configuration is made of.
_DEPLOYED: Final = ("ModelVariants", "DataStorageConfig", "ShadowModeConfig")


async def create_inference_experiment(context: SagemakerContext, params: Members) -> Members:
    """The endpoint must be InService; its update begins when the Schedule says."""
    security_members.check("CreateInferenceExperiment", params)
    now = context.clock.wall()
    window = configurations.window(params.get("Schedule") or {}, now=now)
    configurations.names_of(params)
    endpoint = await context.call(Store.describe_endpoint, params["EndpointName"])
    require_in_service(ENDPOINT, endpoint.arn, endpoint.status)
    base = await _base(context, endpoint.config_name)
    if cause := book.unfit(endpoint, params, has_config=base is not None):
        raise invalid(cause)
    assert base is not None, "an endpoint without its configuration is unfit"
    config = configurations.experiment_config(base, params, "checked")
    await _check(context, endpoint.name, config)
    name, arn = params["Name"], context.arn(EXPERIMENT, params["Name"])
    await _call(
        context,
        book.create,
        name,
        untagged(params) | {"EndpointName": endpoint.name},
        window=window,
        arn=arn,
        now=now,
        tags=tags_of(params),
    )
    context.experiment_changed()
    return {_ARN: arn}


async def describe_inference_experiment(context: SagemakerContext, params: Members) -> Members:
    record = await _call(context, book.describe, params["Name"])
    try:
        endpoint = await context.database.call(Store.describe_endpoint, record.endpoint)
    except NotFound:
        endpoint = None
    counts = context.plane.pool_counts(record.endpoint) if endpoint is not None else {}
    kept = ("Description", "RoleArn", "DataStorageConfig", "ShadowModeConfig")
    described = (
        _summary(record)
        | {member: record.request.get(member) for member in kept}
        | {
            "Arn": record.arn,
            "EndpointMetadata": _endpoint_metadata(record, endpoint),
            "ModelVariants": [
                variant | {"Status": _variant_status(record, endpoint, variant, counts)}
                for variant in record.request["ModelVariants"]
            ],
        }
    )
    _, shadow = configurations.names_of(record.request)
    if record.status == RUNNING and not sum(counts.get(shadow, {}).values()):
        # No endpoint waits for its shadow: why it does not start is seen here.
        failure = context.plane.last_failure(record.endpoint, shadow)
        described["StatusReason"] = failure[:_TEXT_CHARS_MAX] or None
    return described


async def list_inference_experiments(context: SagemakerContext, params: Members) -> Members:
    page = await context.database.call(book.page, list_query(params))
    rows = [
        _summary(record) | {one: record.request.get(one) for one in ("Description", "RoleArn")}
        for record in page.items
    ]
    return page_of("InferenceExperiments", rows, page.next_token)


async def update_inference_experiment(context: SagemakerContext, params: Members) -> Members:
    """Of one that is Created or Running. Its variants and their models stay the same."""
    security_members.check("UpdateInferenceExperiment", params)
    seen, now = await _call(context, book.describe, params["Name"]), context.clock.wall()
    deployed = any(params.get(member) is not None for member in _DEPLOYED)

    def plan(record: ExperimentRecord) -> ExperimentChange:
        request = configurations.changed(record.request, params)
        window = (record.starts, record.ends)
        if params.get("Schedule"):
            started = record.starts if record.started else None
            window = configurations.window(request["Schedule"], now=now, starts=started)
        config = None
        if deployed and record.started:
            config = configurations.experiment_config(record.base, request, record.next_config_name)
        return ExperimentChange(request=request, window=window, config=config)

    if deployed:
        base = seen.base or await _base(context, await _config_of(context, seen.endpoint))
        if base:  # else its start says that it is not there
            request = configurations.changed(seen.request, params)
            config = configurations.experiment_config(base, request, "checked")
            await _check(context, seen.endpoint, config)
    await _call(context, book.change, seen.name, plan, now=now)
    context.experiment_changed()
    return {_ARN: seen.arn}


async def start_inference_experiment(context: SagemakerContext, params: Members) -> Members:
    """Starts one ahead of its StartTime; its EndTime stays."""
    record = await _call(context, book.describe, params["Name"])
    await _call(context, book.start, record.name, now=context.clock.wall())
    context.experiment_changed()
    return {_ARN: record.arn}


async def stop_inference_experiment(context: SagemakerContext, params: Members) -> Members:
    """What becomes of the endpoint is said by ModelVariantActions, and DesiredModelVariants."""
    seen = await _call(context, book.describe, params["Name"])
    kept = configurations.survivors(seen.request, params["ModelVariantActions"])
    desired = params.get("DesiredModelVariants")
    source, _ = configurations.names_of(seen.request)

    def plan(record: ExperimentRecord) -> Mapping[str, Any] | None:
        if not record.started:
            if kept[0] != source or desired is not None:
                raise invalid("The experiment has not started: there is nothing to promote.")
            return {}
        same = configurations.keeps_model(record.base, record.request)
        if desired is None and kept == (source, "") and same:
            return {}
        if desired is None and kept[1]:
            return None
        config = configurations.final_config(
            record.base, record.request, kept, desired, record.next_config_name
        )
        check_config(config)
        return config

    if seen.started and (wanted := plan(seen)):
        await _models(context, wanted)
    await _call(
        context,
        book.begin_stop,
        seen.name,
        plan,
        end_status=params.get("DesiredState", ""),
        reason=params.get("Reason", ""),
        now=context.clock.wall(),
    )
    context.experiment_changed()
    return {_ARN: seen.arn}


async def delete_inference_experiment(context: SagemakerContext, params: Members) -> Members:
    """Deletes the record of one that has ended; the endpoint and the configurations stay."""
    name = params["Name"]
    await _call(context, book.delete, name)
    return {_ARN: context.arn(EXPERIMENT, name)}


async def _call(
    context: SagemakerContext,
    method: Callable[Concatenate[Store, P], T],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """As `StoreThread.call`, with the error codes that these operations declare."""
    try:
        return await context.database.call(method, *args, **kwargs)
    except NotFound as error:
        raise AwsError(
            "ResourceNotFound",
            f'Could not find inference experiment "{context.arn(error.kind, error.name)}".',
        ) from error
    except (AlreadyExists, EndpointHasExperiment) as error:
        raise AwsError("ResourceInUse", error.message) from error
    except ExperimentConflict as error:
        raise AwsError("ConflictException", error.message) from error


async def _base(context: SagemakerContext, config: str) -> dict[str, Any] | None:
    try:
        return (await context.database.call(Store.describe_endpoint_config, config)).request
    except NotFound:
        return None


async def _config_of(context: SagemakerContext, endpoint: str) -> str:
    return (await context.call(Store.describe_endpoint, endpoint)).config_name


async def _check(context: SagemakerContext, endpoint: str, config: Mapping[str, Any]) -> None:
    """Raises what CreateEndpointConfig and UpdateEndpoint would raise for the configuration."""
    check_config(config)
    models = await _models(context, config)
    spec = deployment(endpoint, 1, config, models)
    multi = [one.model for one in spec.hosted if one.model is not None and one.model.multi_model]
    if multi:
        raise invalid(
            f"Model {multi[0].model_name!r} has a multi-model container; an experiment compares two"
            " models."
        )
    await check_data_capture(config, context.asynchronous)


async def _models(
    context: SagemakerContext, config: Mapping[str, Any]
) -> dict[str, Mapping[str, Any]]:
    names = {one["ModelName"]: None for one in all_variants(config)}
    return {one: (await context.call(Store.describe_model, one)).request for one in names}


def _summary(record: ExperimentRecord) -> Members:
    """What Describe and List have in common."""
    return {
        "Name": record.name,
        "Type": record.request.get("Type", "ShadowMode"),
        "Schedule": {"StartTime": record.starts, "EndTime": record.ends},
        "Status": record.status,
        "StatusReason": record.status_reason or None,
        "CreationTime": record.created,
        "CompletionTime": record.completed,
        "LastModifiedTime": record.modified,
    }


def _endpoint_metadata(record: ExperimentRecord, endpoint: EndpointRecord | None) -> Members:
    if endpoint is None:
        return {"EndpointName": record.endpoint}
    return {
        "EndpointName": endpoint.name,
        "EndpointConfigName": endpoint.config_name or None,
        "EndpointStatus": rollouts.status_shown(endpoint),
        "FailureReason": endpoint.failure_reason[:_TEXT_CHARS_MAX] or None,
    }


def _variant_status(
    record: ExperimentRecord,
    endpoint: EndpointRecord | None,
    variant: Mapping[str, Any],
    counts: Mapping[str, Mapping[str, int]],
) -> str:
    name = variant["VariantName"]
    shown = endpoint.desired().shown if endpoint is not None else None
    if shown is None or all(one.name != name for one in shown.hosted):
        return "Deleted" if record.status in ENDED else "Creating"
    if record.status == STOPPING:
        return "Updating"
    return "InService" if sum(counts.get(name, {}).values()) else "Creating"
