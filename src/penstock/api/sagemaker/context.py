"""The context of every operation of the control plane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.api.sagemaker import names
from penstock.clock import Clock
from penstock.control.store.store_thread import StoreThread
from penstock.core.jobs.spec import TransformSpec
from penstock.jobs.transform.records import JobRecord
from penstock.wire.aws.errors import AwsError


class Plane(Protocol):
    """What operations need from the control plane besides its database."""

    def notify(self, endpoint: str) -> None:
        """Reports a changed record of the endpoint, so that it is reconciled."""

    def pool_counts(self, endpoint: str) -> Mapping[str, Mapping[str, int]]:
        """Variant -> instances that serve it now, by their type."""

    def kept_counts(self, endpoint: str) -> Mapping[str, int]:
        """Variant -> instances that are running or starting."""

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

    def arn(self, kind: str, name: str) -> str:
        return names.arn(kind, name, region=self.region, account_id=self.account_id)

    def not_found(self, kind: str, name: str) -> AwsError:
        return names.not_found(kind, self.arn(kind, name))


def tags_of(params: Mapping[str, Any]) -> dict[str, str]:
    """The request's Tags as a map; a key given twice is refused as AWS does."""
    tags: dict[str, str] = {}
    for tag in params.get("Tags") or []:
        if tag["Key"] in tags:
            raise names.invalid(f"Duplicate tag key {tag['Key']!r}.")
        tags[tag["Key"]] = tag["Value"]
    return tags
