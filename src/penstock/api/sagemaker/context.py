"""The context of every operation of the control plane, and what they share.

SDKs and waiters search for the texts of the errors. All List operations have the same parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from penstock.api.aws import Members
from penstock.clock import Clock
from penstock.control.store.records import NOUNS, AlreadyExists, ListQuery, NotFound
from penstock.control.store.store import Store
from penstock.control.store.store_thread import StoreThread
from penstock.core.jobs.spec import TransformSpec
from penstock.core.request.grants import check_trust
from penstock.jobs.transform.records import JobRecord
from penstock.wire.aws.errors import AwsError

P = ParamSpec("P")
T = TypeVar("T")


def not_found(kind: str, arn_: str) -> AwsError:
    """The error of Describe, Update and Delete for a missing resource."""
    return AwsError("ValidationException", f'Could not find {NOUNS[kind]} "{arn_}".')


def already_exists(kind: str, arn_: str) -> AwsError:
    """The error for a taken name. SageMaker Python SDK v2 matches its text and reuses the
    resource."""
    return AwsError(
        "ValidationException", f'Cannot create already existing {NOUNS[kind]} "{arn_}".'
    )


def invalid(message: str) -> AwsError:
    return AwsError("ValidationException", message)


def busy(kind: str, arn: str) -> AwsError:
    return invalid(f'Cannot update in-progress {NOUNS[kind]} "{arn}".')


def require_in_service(kind: str, arn: str, status: str) -> None:
    """Only a resource that is InService can be updated. Raises ValidationException."""
    if status == "Failed":
        raise invalid(f'Cannot update {NOUNS[kind]} "{arn}": it is Failed and can only be deleted.')
    if status != "InService":
        raise busy(kind, arn)


def parse_arn(text: str) -> tuple[str, str]:
    """(kind, name) of one of our ARNs. Raises ValidationException for anything else."""
    parts = text.split(":", 5)
    kind, slash, name = parts[5].partition("/") if len(parts) == 6 else ("", "", "")
    if parts[:3] != ["arn", "aws", "sagemaker"] or kind not in NOUNS or not slash or not name:
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


def summary(prefix: str, item: Any) -> Members:
    """What every row of a List result begins with."""
    return {f"{prefix}Name": item.name, f"{prefix}Arn": item.arn, "CreationTime": item.created}


def page_of(member: str, rows: list[dict[str, Any]], next_token: str) -> dict[str, Any]:
    """A List result; NextToken only where there is a next page."""
    return {member: rows} | ({"NextToken": next_token} if next_token else {})


class Plane(Protocol):
    """What operations need from the control plane besides its database."""

    def notify(self, endpoint: str) -> None:
        """Reports a changed record of the endpoint, so that it is reconciled."""

    def pool_counts(self, endpoint: str) -> Mapping[str, Mapping[str, int]]:
        """Variant -> instances that serve it now, by their type."""

    def kept_counts(self, endpoint: str) -> Mapping[str, int]:
        """Variant -> instances that are running or starting."""

    def last_failure(self, endpoint: str, variant: str) -> str:
        """Why an instance or a copy of the variant failed last; empty: none has failed."""

    def copy_counts(self, endpoint: str) -> Mapping[str, int]:
        """Inference component -> copies that serve it now."""

    def copy_types(self, endpoint: str) -> Mapping[str, Mapping[str, int]]:
        """As `copy_counts`, by the type of their instances."""


class TransformJobs(Protocol):
    """What operations need from the driver of transform jobs."""

    async def check(self, spec: TransformSpec) -> None:
        """Checks what can be known before any work. Raises CallerError."""

    def notify(self, job: str) -> None:
        """Reports that a job was created, or must stop."""

    def progress(self, record: JobRecord) -> Mapping[str, Any]:
        """Its finished and remaining work."""


class AsyncOutputs(Protocol):
    """What operations need from the driver of asynchronous requests."""

    def knows(self, topic: str) -> bool:
        """Whether notifications to a topic have a destination."""

    async def check_writable(self, uri: str) -> None:
        """Returns if outputs can be written below a prefix. Raises PenstockError."""


@dataclass(frozen=True, slots=True)
class SagemakerContext:
    """The context of one call: the resources, and the region and account for ARNs."""

    database: StoreThread
    plane: Plane
    clock: Clock
    region: str
    account_id: str
    jobs: TransformJobs
    access_key: str = ""  #: id of the request's key; empty = unsigned
    asynchronous: AsyncOutputs | None = None  #: None = there is no asynchronous inference
    strangers: bool = False  #: other machines may call without credentials
    #: reports a changed record of an inference experiment
    experiment_changed: Callable[[], None] = lambda: None

    def check_trust(self, environment: Mapping[str, str], *, multi_model: bool = False) -> None:
        """Raises CallerError where a container's Environment vouches for an artifact and may
        not."""
        check_trust(environment, multi_model=multi_model, strangers=self.strangers)

    def arn(self, kind: str, name: str) -> str:
        """The ARN of a resource; `kind` is a key of NOUNS."""
        return f"arn:aws:sagemaker:{self.region}:{self.account_id}:{kind}/{name}"

    async def call(
        self, method: Callable[Concatenate[Store, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """As `StoreThread.call`; a missing resource and a taken name are ValidationExceptions."""
        try:
            return await self.database.call(method, *args, **kwargs)
        except NotFound as error:
            raise not_found(error.kind, self.arn(error.kind, error.name)) from error
        except AlreadyExists as error:
            raise already_exists(error.kind, error.arn) from error

    async def create(
        self,
        kind: str,
        method: Callable[..., object],
        name: str,
        wanted: Any,
        params: Members,
        **more: Any,
    ) -> str:
        """Stores a new resource with the request's tags, and returns its ARN."""
        arn, tags = self.arn(kind, name), tags_of(params)
        await self.call(method, name, wanted, arn=arn, now=self.clock.wall(), tags=tags, **more)
        return arn


def untagged(params: Members) -> Members:
    """The request as it is stored: tags are kept apart."""
    return {key: value for key, value in params.items() if key != "Tags"}


def tags_of(params: Mapping[str, Any]) -> dict[str, str]:
    """The request's Tags as a map; a key given twice is refused as AWS does."""
    tags: dict[str, str] = {}
    for tag in params.get("Tags") or []:
        if tag["Key"] in tags:
            raise invalid(f"Duplicate tag key {tag['Key']!r}.")
        tags[tag["Key"]] = tag["Value"]
    return tags
