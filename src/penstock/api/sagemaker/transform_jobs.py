"""CreateTransformJob, DescribeTransformJob, ListTransformJobs, StopTransformJob.

Create reports what can be known before any work as a ValidationException: a missing model or input,
an output that can't be written, an invalid filter. AWS accepts some of these and ends the job as
Failed. There is no DeleteTransformJob, and no name is used twice.

A CreateTransformJob request becomes a `TransformSpec`, the form in which the job is run. The model
is copied into it: deleting it afterwards does not affect the job. An unsupported member is refused
here, with what to do instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from penstock.api.aws import Members
from penstock.api.refused_members import REFUSED
from penstock.api.sagemaker import security_members
from penstock.api.sagemaker.containers import model_source
from penstock.api.sagemaker.context import (
    SagemakerContext,
    invalid,
    list_query,
    page_of,
    summary,
    tags_of,
    untagged,
)
from penstock.control.store.records import TRANSFORM_JOB, AlreadyExists, NotFound
from penstock.control.store.store import Store
from penstock.core.deployment.deployment import ModelSource
from penstock.core.jobs.container import PAYLOAD_MB_MAX, TransformOptions, options_of
from penstock.core.jobs.spec import (
    MANIFEST_FILE,
    MIB,
    MULTI_RECORD,
    NONE,
    S3_PREFIX,
    DataProcessing,
    TransformCapture,
    TransformInput,
    TransformOutput,
    TransformSpec,
)
from penstock.jobs.transform import transactions
from penstock.jobs.transform.records import JobNotRunning
from penstock.wire.aws.errors import AwsError

_PAYLOAD_MB_DEFAULT: Final = 6
_INVOCATION_TIMEOUT_S: Final = 600.0
_INVOCATION_RETRIES: Final = 3

#: Members that the model's container may set if a job does not, and their fields in the spec.
_OF_CONTAINER: Final = (("BatchStrategy", "strategy"), ("MaxPayloadInMB", "payload_bytes_max"))

Json = Mapping[str, Any]


def spec_of(params: Json, model: Json, *, owner: str) -> TransformSpec:
    """The spec. `model`: its CreateModel request. Raises ValidationException, and CallerError
    (`transform-option`)."""
    security_members.check("CreateTransformJob", params)
    options, environment = options_of(params.get("Environment") or {})
    resources, client = params["TransformResources"], params.get("ModelClientConfig") or {}
    if not str(resources["InstanceType"]).startswith("ml."):
        raise invalid(f"InstanceType {resources['InstanceType']!r} is unknown.")
    processing = params.get("DataProcessing") or {}
    payload_mb = params.get("MaxPayloadInMB", _PAYLOAD_MB_DEFAULT)
    concurrency = params.get("MaxConcurrentTransforms", 0)
    _check_payload(payload_mb, concurrency)
    return TransformSpec(
        job=params["TransformJobName"],
        model=_model(model, environment),
        instance_type=resources["InstanceType"],
        instance_count=resources["InstanceCount"],
        input=_input(params["TransformInput"], options),
        output=_output(params["TransformOutput"]),
        processing=DataProcessing(
            input_filter=processing.get("InputFilter") or "$",
            output_filter=processing.get("OutputFilter") or "$",
            join=processing.get("JoinSource", NONE),
        ),
        capture=_capture(params.get("DataCaptureConfig")),
        strategy=params.get("BatchStrategy", MULTI_RECORD),
        payload_bytes_max=payload_mb * MIB,
        unset=tuple(field for member, field in _OF_CONTAINER if member not in params),
        concurrency_max=concurrency,
        invocation_timeout_s=float(
            client.get("InvocationsTimeoutInSeconds", _INVOCATION_TIMEOUT_S)
        ),
        invocation_retries_max=client.get("InvocationsMaxRetries", _INVOCATION_RETRIES),
        refused_max=options.refused_max,
        priority=options.priority,
        cores_max=options.cores_max,
        owner=owner,
    )


def _check_payload(payload_mb: int, concurrency: int) -> None:
    if payload_mb > PAYLOAD_MB_MAX:
        raise invalid(f"MaxPayloadInMB {payload_mb} must be at most {PAYLOAD_MB_MAX}.")
    if payload_mb * concurrency > PAYLOAD_MB_MAX:
        raise invalid(
            f"MaxConcurrentTransforms ({concurrency}) times MaxPayloadInMB ({payload_mb}) must be"
            f" at most {PAYLOAD_MB_MAX}."
        )


def _model(model: Json, environment: Mapping[str, str]) -> ModelSource:
    """The model's source, with the job's Environment over the model's own."""
    source = model_source(model)
    if source.multi_model:
        raise invalid(
            f"Model {source.model_name!r} has a container with Mode MultiModel: a transform job"
            " names no target model. Create a model of the one that is meant."
        )
    if source.direct:
        raise invalid(
            f"Model {source.model_name!r} has the Mode Direct, and a transform job names no"
            " container. Create a model of the container that is meant."
        )
    parts = tuple(_with_environment(part, environment) for part in source.containers)
    return replace(_with_environment(source, environment), containers=parts)


def _with_environment(source: ModelSource, environment: Mapping[str, str]) -> ModelSource:
    merged = dict(source.environment) | dict(environment)
    return replace(source, environment=tuple(sorted(merged.items())))


def _input(given: Json, options: TransformOptions) -> TransformInput:
    source = given["DataSource"]["S3DataSource"]
    if source["S3DataType"] not in (S3_PREFIX, MANIFEST_FILE):
        path = "CreateTransformJob.TransformInput.DataSource.S3DataSource.S3DataType"
        cause = REFUSED[path].format(source["S3DataType"])
        raise invalid(f"{cause} use {S3_PREFIX} or {MANIFEST_FILE}.")
    return TransformInput(
        uri=source["S3Uri"],
        data_type=source["S3DataType"],
        content_type=given.get("ContentType", ""),
        compression=given.get("CompressionType", NONE),
        split=given.get("SplitType", NONE),
        columns=options.columns,
    )


def _output(given: Json) -> TransformOutput:
    return TransformOutput(
        uri=_written(given, "S3OutputPath"),
        accept=given.get("Accept", ""),
        assemble=given.get("AssembleWith", NONE),
    )


def _capture(given: Json | None) -> TransformCapture | None:
    if not given:
        return None
    return TransformCapture(
        uri=_written(given, "DestinationS3Uri"),
        inference_ids=bool(given.get("GenerateInferenceId", False)),
    )


def _written(given: Json, member: str) -> str:
    uri = str(given[member])
    if uri.startswith("https://"):
        raise invalid(f"{member} must be an s3:// prefix or a file:// folder.")
    return uri


PROGRESS = "PenstockProgress"

_FAILURE_REASON_CHARS_MAX = 1024


async def create_transform_job(context: SagemakerContext, params: Members) -> Members:
    name = params["TransformJobName"]
    model = await context.call(Store.describe_model, params["ModelName"])
    context.check_trust(params.get("Environment") or {})
    spec = spec_of(params, model.request, owner=context.access_key)
    await _require_unused(context, name)
    await context.jobs.check(spec)
    arn, now, tags = context.arn(TRANSFORM_JOB, name), context.clock.wall(), tags_of(params)
    try:
        await context.database.call(
            transactions.create, spec, untagged(params), arn=arn, now=now, tags=tags
        )
    except AlreadyExists as error:
        raise _in_use(error.arn) from error
    context.jobs.notify(name)
    return {"TransformJobArn": arn}


async def describe_transform_job(context: SagemakerContext, params: Members) -> Members:
    """SageMaker's members, together with the finished work and the expected end."""
    record = await context.call(transactions.describe, params["TransformJobName"])
    described = record.request | {
        "TransformJobArn": record.arn,
        "TransformJobStatus": record.status,
        "CreationTime": record.created,
        "TransformStartTime": record.started,
        "TransformEndTime": record.ended,
        PROGRESS: context.jobs.progress(record),
    }
    if record.failure_reason:
        described["FailureReason"] = record.failure_reason[:_FAILURE_REASON_CHARS_MAX]
    return described


async def list_transform_jobs(context: SagemakerContext, params: Members) -> Members:
    page = await context.database.call(transactions.page, list_query(params))
    found = [
        summary("TransformJob", record)
        | {
            "TransformEndTime": record.ended,
            "LastModifiedTime": record.modified,
            "TransformJobStatus": record.status,
            "FailureReason": record.failure_reason[:_FAILURE_REASON_CHARS_MAX] or None,
        }
        for record in page.items
    ]
    return page_of("TransformJobSummaries", found, page.next_token)


async def stop_transform_job(context: SagemakerContext, params: Members) -> Members:
    """Stops the job. Objects that were processed as a whole keep their output."""
    name = params["TransformJobName"]
    try:
        await context.call(transactions.begin_stop, name, now=context.clock.wall())
    except JobNotRunning as error:
        raise invalid(f"{error.message}.") from error
    context.jobs.notify(name)
    return {}


async def _require_unused(context: SagemakerContext, name: str) -> None:
    try:
        record = await context.database.call(transactions.describe, name)
    except NotFound:
        return
    raise _in_use(record.arn)


def _in_use(arn: str) -> AwsError:
    return AwsError(
        "ResourceInUse",
        "Job name must be unique within an AWS account and region, and a job with this name"
        f" already exists ({arn})",
    )
