"""Names, ARNs, error texts that clients search for (waiters and SDKs match them), and the
parameters that all List operations share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.control.store.records import ListQuery
from penstock.wire.aws.errors import AwsError

#: Resource type in ARNs -> its name in AWS's error texts.
WORDS = {
    "model": "model",
    "endpoint-config": "endpoint configuration",
    "endpoint": "endpoint",
    "inference-component": "inference component",
    "transform-job": "transform job",
}


def arn(kind: str, name: str, *, region: str, account_id: str) -> str:
    """The ARN of a resource; `kind` is a key of WORDS."""
    return f"arn:aws:sagemaker:{region}:{account_id}:{kind}/{name}"


def not_found(kind: str, arn_: str) -> AwsError:
    """The error of Describe, Update and Delete for a missing resource."""
    return AwsError("ValidationException", f'Could not find {WORDS[kind]} "{arn_}".')


def already_exists(kind: str, arn_: str) -> AwsError:
    """The error for a taken name. SageMaker Python SDK v2 matches its text and reuses the
    resource."""
    return AwsError(
        "ValidationException", f'Cannot create already existing {WORDS[kind]} "{arn_}".'
    )


def invalid(message: str) -> AwsError:
    return AwsError("ValidationException", message)


def parse_arn(text: str) -> tuple[str, str]:
    """(kind, name) of one of our ARNs. Raises ValidationException for anything else."""
    parts = text.split(":", 5)
    kind, slash, name = parts[5].partition("/") if len(parts) == 6 else ("", "", "")
    if parts[:3] != ["arn", "aws", "sagemaker"] or kind not in WORDS or not slash or not name:
        raise invalid(f"Invalid ARN: {text[:256]!r} is not the ARN of a model or an endpoint.")
    return kind, name


def list_query(params: Mapping[str, Any]) -> ListQuery:
    """The query of a List call; SageMaker's defaults are newest first, ten a page."""
    return ListQuery(
        name_contains=params.get("NameContains", ""),
        created_before=params.get("CreationTimeBefore"),
        created_after=params.get("CreationTimeAfter"),
        modified_before=params.get("LastModifiedTimeBefore"),
        modified_after=params.get("LastModifiedTimeAfter"),
        status_equals=params.get("StatusEquals", ""),
        sort_by=params.get("SortBy", "CreationTime"),
        sort_order=params.get("SortOrder", "Descending"),
        max_results=params.get("MaxResults", 10),
        next_token=params.get("NextToken", ""),
    )


def page_of(member: str, rows: list[dict[str, Any]], next_token: str) -> dict[str, Any]:
    """A List result; NextToken only where there is a next page."""
    return {member: rows} | ({"NextToken": next_token} if next_token else {})
