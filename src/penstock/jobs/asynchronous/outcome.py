"""Outcomes of asynchronous requests: failure objects, notifications, metrics and shared commits.

The notification has the members of SageMaker's notifications of asynchronous inference.

The CloudWatch metrics have SageMaker's names, in its namespace, by EndpointName; alarms and
policies on a backlog watch them. A backlog is published even when it is 0: so an endpoint can scale
in to no instances. Backlog per instance is not published while there is no instance.

`Commits` lets writes share transactions: what arrives during one commit goes with the next. A
commit waits for the disk, so one per request would limit the queue's speed; nobody gets an answer
before the write is done.
"""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Generic, TypeVar

import orjson

from penstock.artifacts.sources.source import shown_uri
from penstock.errors import CallerError, ModelError, NotNowError, PenstockError, with_hint
from penstock.jobs.asynchronous.rows import AsyncRequest, Notification
from penstock.metrics.catalogue import work_catalogue as catalogue
from penstock.metrics.counts.work_counts import WorkCounts
from penstock.metrics.series.series import metric_key
from penstock.metrics.series.statistics import StatisticSet
from penstock.metrics.series.store import MetricStore

#: Longer answers are left out of the notification (SNS takes 256 KB; SageMaker includes 128 KB).
ANSWER_BYTES_MAX: Final = 128_000
#: Message ids are derived from the request: a notification that is made twice has one id.
_IDS: Final = uuid.UUID("5f3b5c0e-9d1f-4f7e-8f5c-0d0a4f1f6f51")


def failure_of(reason: str, error: PenstockError | None, request: AsyncRequest) -> PenstockError:
    """The error of a failed request: the one that was raised, or the one that its reason stands
    for."""
    if reason == "expired":
        return NotNowError(
            "request-expired",
            f"The request was not sent to endpoint {request.endpoint} within"
            f" {request.expires - request.accepted:g} s.",
            hint="Allow more time (RequestTTLSeconds), or raise the endpoint's instance count.",
        )
    if reason == "endpoint-deleted":
        return CallerError(
            "endpoint-deleted", f"Endpoint {request.endpoint} was deleted while the request waited."
        )
    if reason == "invocation-timeout":
        return NotNowError(
            "invocation-timeout",
            f"Endpoint {request.endpoint} did not answer within {request.timeout_s:g} s.",
            hint="Allow more time (InvocationTimeoutSeconds, at most 3600).",
        )
    assert error is not None, "other failures begin with an error"
    return error


def failure_body(reason: str, error: PenstockError, request: AsyncRequest) -> bytes:
    """The content of the failure object: JSON."""
    fields: dict[str, Any] = {
        "InferenceId": request.inference_id,
        "Reason": reason,
        "ErrorCode": error.code,
        "Message": _message(error),
    }
    if isinstance(error, ModelError):
        fields["OriginalStatusCode"] = error.original_status
        fields["OriginalMessage"] = error.original_message
    return orjson.dumps(fields)


def succeeded(
    request: AsyncRequest, number: int, answer: bytes, content_type: str, *, region: str, now: float
) -> Notification | None:
    """The notification of an answer; None where the request names no topic for it."""
    if not request.success_topic:
        return None
    message = _common(request, "Completed", region, now)
    message["responseParameters"] = {
        "contentType": content_type,
        "outputLocation": request.output_uri,
    }
    if request.answer_in_success and len(answer) <= ANSWER_BYTES_MAX:
        message["responseBody"] = _included(answer)
    return _notification(request.success_topic, message, number, now)


def failed(
    request: AsyncRequest,
    number: int,
    error: PenstockError,
    body: bytes,
    *,
    region: str,
    now: float,
) -> Notification | None:
    """The notification of a failure; None where the request names no topic for it."""
    if not request.error_topic:
        return None
    message = _common(request, "Failed", region, now)
    kind = "ModelError" if isinstance(error, ModelError) else "ClientError"
    message["failureReason"] = f"{kind}: {_message(error)}"
    if request.failure_uri:
        message["responseParameters"] = {
            "contentType": "application/json",
            "outputLocation": request.failure_uri,
        }
    if request.answer_in_error and len(body) <= ANSWER_BYTES_MAX:
        message["responseBody"] = _included(body)
    return _notification(request.error_topic, message, number, now)


def _common(request: AsyncRequest, status: str, region: str, now: float) -> dict[str, Any]:
    asked = {"endpointName": request.endpoint, "contentType": request.content_type}
    if request.input_uri:
        asked["inputLocation"] = shown_uri(request.input_uri)
    return {
        "awsRegion": region,
        "eventTime": _time(now),
        "receivedTime": _time(request.accepted),
        "invocationStatus": status,
        "requestParameters": asked,
        "inferenceId": request.inference_id,
        "eventVersion": "1.0",
        "eventSource": "aws:sagemaker",
        "eventName": "InferenceResult",
    }


def _included(answer: bytes) -> dict[str, str]:
    return {"content": base64.b64encode(answer).decode(), "encoding": "BASE64"}


def _notification(topic: str, message: dict[str, Any], number: int, now: float) -> Notification:
    ident = uuid.uuid5(_IDS, f"{message['inferenceId']} {message['receivedTime']} {number}")
    return Notification(str(ident), topic, orjson.dumps(message).decode(), now)


def _message(error: PenstockError) -> str:
    if error.family == "internal":
        return f"Internal failure ({error.code})."
    return with_hint(error.message, error.hint)


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


NAMESPACE: Final = "AWS/SageMaker"
EVERY_S: Final = 10.0  #: as often as the concurrency of other endpoints


class Published:
    """Writes the metrics of one server into its store."""

    def __init__(self, store: MetricStore, work: WorkCounts) -> None:
        self._store = store
        self._work = work
        #: Endpoint -> (backlog, age of the oldest request in s), as put last
        self._shown: dict[str, tuple[int, float]] = {}
        self._due_at = 0.0
        #: (endpoint, metric) -> values since the last flush
        self._counts: dict[tuple[str, str], StatisticSet] = {}

    def is_due(self, now: float) -> bool:
        """Whether every endpoint is to be `put` now; True once each `EVERY_S`."""
        if now < self._due_at:
            return False
        self._due_at = now + EVERY_S
        self.flush(now)
        return True

    def flush(self, now: float) -> None:
        """Writes what was counted since the last flush as datapoints."""
        for (endpoint, name), stats in self._counts.items():
            self._put(endpoint, name, stats, now, "Milliseconds" if "Time" in name else "Count")
        self._counts.clear()

    def at_once(self) -> None:
        """Makes the next `put` due now: an event deserves a datapoint of its own."""
        self._due_at = 0.0

    def put(self, endpoint: str, *, backlog: int, ready: int, age_s: float, now: float) -> None:
        """The present state of an endpoint. `age_s`: of its oldest request."""
        self._shown[endpoint] = backlog, age_s
        values = {
            "ApproximateBacklogSize": backlog,
            "HasBacklogWithoutCapacity": int(backlog > 0 and not ready),
        }
        for name, value in values.items():
            self._put(endpoint, name, StatisticSet.of(value), now, "Count")
        age = StatisticSet.of(age_s)
        self._put(endpoint, "ApproximateAgeOfOldestRequest", age, now, "Seconds")
        if ready:
            share = StatisticSet.of(backlog / ready)
            self._put(endpoint, "ApproximateBacklogSizePerInstance", share, now, "Count")

    def put_all(self, now: float) -> None:
        """Call this after every endpoint was `put`: updates the page at /metrics."""
        shown, self._shown = self._shown, {}
        backlogs = [((name,), float(backlog)) for name, (backlog, _) in shown.items()]
        ages = [((name,), age_s) for name, (_, age_s) in shown.items()]
        self._work.gauge(catalogue.ASYNC_BACKLOG, backlogs)
        self._work.gauge(catalogue.ASYNC_AGE, ages)
        self._work.keep(catalogue.ASYNC_ENDED, shown, catalogue.ASYNC_ENDS, now)

    def processed(self, endpoint: str, total_s: float) -> None:
        """A request was answered and its output written, `total_s` after it was accepted."""
        self._work.count(catalogue.ASYNC_ENDED, endpoint, "completed")
        self._count(endpoint, "InvocationsProcessed", 1.0)
        self._count(endpoint, "TotalProcessingTime", 1e3 * total_s)

    def failed(self, endpoint: str, reason: str) -> None:
        """A request failed, or expired."""
        expired = reason == "expired"
        self._work.count(catalogue.ASYNC_ENDED, endpoint, "expired" if expired else "failed")
        self._count(endpoint, "ExpiredRequests" if expired else "InvocationFailures", 1.0)

    def given_up(self, endpoint: str) -> None:
        """The outcome of a request was never written: its store failed for too long."""
        self._count(endpoint, "OutcomesGivenUp", 1.0)

    def _count(self, endpoint: str, name: str, value: float) -> None:
        self._counts.setdefault((endpoint, name), StatisticSet()).add(value)

    def _put(self, endpoint: str, name: str, stats: StatisticSet, now: float, unit: str) -> None:
        key = metric_key(NAMESPACE, name, {"EndpointName": endpoint}, unit)
        self._store.put(key, now, stats, now=now, high_resolution=True)


T = TypeVar("T")
R = TypeVar("R")

#: Writes per transaction: it must not block the database for long.
TOGETHER_MAX: Final = 256


class Commits(Generic[T, R]):
    """Writes of one kind. `write` gets several items, in order, and returns a result for each."""

    def __init__(self, write: Callable[[Sequence[T]], Awaitable[Sequence[R]]]) -> None:
        self._write = write
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._task: asyncio.Task[None] | None = None

    async def put(self, item: T) -> R:
        """Returns once the item is written; raises what writing raised. Cancelling the caller does
        not cancel the write."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="asynchronous-commits")
        return await future

    async def close(self) -> None:
        """Waits for running writes. Idempotent."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while self._waiting:
            some, self._waiting = self._waiting[:TOGETHER_MAX], self._waiting[TOGETHER_MAX:]
            await self._commit(some)
        self._task = None

    async def _commit(self, some: Sequence[tuple[T, asyncio.Future[R]]]) -> None:
        try:
            results = await self._write([item for item, _ in some])
        except Exception as error:  # each caller handles it
            if len(some) > 1 and not isinstance(error, NotNowError):
                for one in some:  # one of them can't be written, and is to fail alone
                    await self._commit([one])
                return
            for _, future in some:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), result in zip(some, results, strict=True):
            if not future.done():
                future.set_result(result)
