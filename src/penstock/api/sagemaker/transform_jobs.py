"""CreateTransformJob, DescribeTransformJob, ListTransformJobs, StopTransformJob.

What can be known before any work is said by Create, as a ValidationException: a model or an input
that is not there, an output that can't be written, a filter that is none. AWS accepts some of these
and ends the job as Failed. There is no DeleteTransformJob, and no name is used twice.
"""

from __future__ import annotations

from typing import Any

from penstock.api.sagemaker import names
from penstock.api.sagemaker.context import SagemakerContext, tags_of
from penstock.api.sagemaker.listing import list_query, page_of
from penstock.api.sagemaker.transform_specs import spec_of
from penstock.control.store.records import AlreadyExists, NotFound
from penstock.control.store.store import Store
from penstock.jobs.transform import transactions
from penstock.jobs.transform.records import JobNotRunning, JobRecord
from penstock.wire.aws.errors import AwsError

KIND = "transform-job"
PROGRESS = "PenstockProgress"

_FAILURE_REASON_CHARS_MAX = 1024


async def create_transform_job(context: SagemakerContext, params: dict[str, Any]) -> dict[str, Any]:
    name, database = params["TransformJobName"], context.database
    try:
        model = await database.call(Store.describe_model, params["ModelName"])
    except NotFound as error:
        raise context.not_found("model", params["ModelName"]) from error
    spec = spec_of(params, model.request, owner=context.access_key)
    await _require_unused(context, name)
    await context.jobs.check(spec)
    arn = context.arn(KIND, name)
    kept = {key: value for key, value in params.items() if key != "Tags"}
    try:
        await database.call(
            transactions.create, spec, kept, arn=arn, now=context.clock.wall(), tags=tags_of(params)
        )
    except AlreadyExists as error:
        raise _in_use(error.arn) from error
    context.jobs.notify(name)
    return {"TransformJobArn": arn}


async def describe_transform_job(
    context: SagemakerContext, params: dict[str, Any]
) -> dict[str, Any]:
    """As SageMaker's, with what the job has done and when it will be through beside it."""
    record = await _record(context, params["TransformJobName"])
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


async def list_transform_jobs(context: SagemakerContext, params: dict[str, Any]) -> dict[str, Any]:
    page = await context.database.call(transactions.page, list_query(params))
    found = [
        {
            "TransformJobName": record.name,
            "TransformJobArn": record.arn,
            "CreationTime": record.created,
            "TransformEndTime": record.ended,
            "LastModifiedTime": record.modified,
            "TransformJobStatus": record.status,
            "FailureReason": record.failure_reason[:_FAILURE_REASON_CHARS_MAX] or None,
        }
        for record in page.items
    ]
    return page_of("TransformJobSummaries", found, page.next_token)


async def stop_transform_job(context: SagemakerContext, params: dict[str, Any]) -> dict[str, Any]:
    """Objects that were processed whole keep their output."""
    name = params["TransformJobName"]
    try:
        await context.database.call(transactions.begin_stop, name, now=context.clock.wall())
    except NotFound as error:
        raise context.not_found(KIND, name) from error
    except JobNotRunning as error:
        raise names.invalid(f"{error.message}.") from error
    context.jobs.notify(name)
    return {}


async def _record(context: SagemakerContext, name: str) -> JobRecord:
    try:
        return await context.database.call(transactions.describe, name)
    except NotFound as error:
        raise context.not_found(KIND, name) from error


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
