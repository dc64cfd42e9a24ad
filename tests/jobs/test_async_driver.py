"""Asynchronous requests through a real record, a real dispatcher, and a fake instance."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.kit.gateway import FakeInstance, echo, fail_with, routes, run, silent
from tests.kit.metrics_page import shown
from tests.kit.polling import until

from penstock.artifacts.sources.source import ArtifactSettings
from penstock.clock import SystemClock
from penstock.config import LimitConfig
from penstock.control.store.store import Store
from penstock.control.store.store_thread import StoreThread
from penstock.core.deployment.deployment import AsyncSpec, DeploymentSpec, ModelSource, VariantSpec
from penstock.core.jobs.asynchronous import AsyncQueue
from penstock.core.jobs.asynchronous_actions import QueueSpec
from penstock.errors import CallerError, ModelError, NotNowError
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.request_id import RequestIds
from penstock.gateway.timers import LoopTimers
from penstock.jobs.asynchronous import driver as driver_module
from penstock.jobs.asynchronous import rows
from penstock.jobs.asynchronous.driver import AsynchronousDriver
from penstock.jobs.asynchronous.notifier import Notifier
from penstock.jobs.asynchronous.objects import Objects
from penstock.jobs.asynchronous.outcome import Published
from penstock.jobs.asynchronous.rows import AsyncRequest, Notification
from penstock.jobs.asynchronous.work import RequestWork
from penstock.metrics import item_failures
from penstock.metrics.counts.work_counts import WorkCounts
from penstock.metrics.series.series import MetricName
from penstock.metrics.series.store import MetricStore
from penstock.wire import frames

pytestmark = pytest.mark.loop(by=run)

LATER = "later"


class AsyncDriverSite:
    """A driver with everything around it but a server."""

    def __init__(self, folder: Path, spec: AsyncSpec, settings: ArtifactSettings) -> None:
        self.folder = folder
        self.spec = spec
        self.settings = settings
        self.wanted: list[int] = []
        self.posts: list[Notification] = []
        self.metrics = MetricStore()
        self.instance = FakeInstance(f"{folder}/i1")
        self.clock = SystemClock()
        self.bytes_max = 1 << 20
        self.database = StoreThread(lambda: Store(folder / "state"))
        self.dispatcher = Dispatcher(
            clock=self.clock,
            timers=LoopTimers(asyncio.get_running_loop(), self.clock),
            rng=random.Random(1),
            limits=LimitConfig(request_timeout_s=5.0, stream_timeout_s=5.0),
            ids=RequestIds("00000000-0000-4000-8000-"),
        )
        self.counts = WorkCounts()
        self.driver: AsynchronousDriver | None = None

    async def start(self) -> AsynchronousDriver:
        def post(_: str, told: Notification) -> int:
            self.posts.append(told)
            return 200

        self.work = RequestWork(
            database=self.database,
            dispatcher=self.dispatcher,
            objects=Objects(self.settings),
            clock=self.clock,
            bytes_max=self.bytes_max,
            region="us-east-1",
        )
        driver = self.driver = AsynchronousDriver(
            database=self.database,
            dispatcher=self.dispatcher,
            work=self.work,
            notifier=Notifier(
                self.database,
                {"arn:ok": "http://x/", "arn:bad": "http://x/"},
                self.clock,
                self.counts,
                post=post,
            ),
            published=Published(self.metrics, self.counts),
            clock=self.clock,
            configured=lambda endpoint: self.spec if endpoint == LATER else None,
            capacity_wanted=lambda *wanted: self.wanted.append(wanted[3]),
        )
        await driver.start()
        return driver

    def publish(self, *copies: int) -> None:
        self.dispatcher.publish(
            dataclasses.replace(
                routes(*copies, endpoint=LATER, outstanding_max=100), asynchronous=True
            )
        )

    def request(self, number: int, body: bytes = b"x", **changed: Any) -> AsyncRequest:
        now = self.clock.wall()
        made = AsyncRequest(
            endpoint=LATER,
            inference_id=f"r{number}",
            accepted=now,
            expires=now + 600.0,
            timeout_s=60.0,
            input_uri="",
            body_bytes=len(body),
            meta=frames.encode_request_meta(frames.RequestMeta("text/csv")),
            content_type="text/csv",
            output_uri=(self.folder / "out" / f"{number}").as_uri(),
            failure_uri=(self.folder / "bad" / f"{number}").as_uri(),
            success_topic="arn:ok",
            error_topic="arn:bad",
            answer_in_success=True,
            answer_in_error=False,
        )
        return dataclasses.replace(made, **changed)

    async def ask(self, number: int, body: bytes = b"x", **changed: Any) -> None:
        assert self.driver is not None
        await self.driver.accept(self.request(number, body, **changed), body)

    async def on_record(self) -> int:
        return sum((await self.database.call(rows.queues)).values())

    async def settled(self, timeout_s: float = 20.0) -> None:
        """Until the record is empty and all is told."""

        async def over() -> bool:
            return not (await self.on_record() or (await self.database.call(rows.due, 1e12, 1))[0])

        await until(over, "the end of all requests", timeout_s)

    def failure(self, number: int) -> dict[str, Any]:
        return dict(orjson.loads((self.folder / "bad" / f"{number}").read_bytes()))

    def outputs(self) -> dict[str, bytes]:
        place = self.folder / "out"
        found = place.iterdir() if place.exists() else ()
        return {one.name: one.read_bytes() for one in found}


@asynccontextmanager
async def site(
    *,
    copies: tuple[int, ...] = (1,),
    settings: ArtifactSettings = ArtifactSettings(),  # noqa: B008 - frozen
    **spec: Any,
) -> AsyncIterator[AsyncDriverSite]:
    with tempfile.TemporaryDirectory() as folder:
        made = AsyncDriverSite(
            Path(folder), AsyncSpec(output_uri="file:///unused", **spec), settings
        )
        await made.database.open()
        await made.database.call(_endpoint, made.spec)
        await made.instance.start()
        await made.dispatcher.connect("i1", made.instance.address)
        made.publish(*copies)
        await made.start()
        try:
            yield made
        finally:
            assert made.driver is not None
            await made.driver.close()
            await made.dispatcher.close()
            await made.instance.stop()
            await made.database.close()


def _endpoint(store: Store, spec: AsyncSpec) -> None:
    variant = VariantSpec(
        name="AllTraffic",
        model=ModelSource(model_name="m"),
        instance_type="ml.local.small",
        instance_count=1,
    )
    deployment = DeploymentSpec(
        endpoint=LATER, generation=1, config_name="c", variants=(variant,), asynchronous=spec
    )
    store.create_endpoint(LATER, deployment, arn=LATER, now=1.0)
    store.set_status(LATER, "InService", now=1.0, active_generation=1)


async def test_a_request_goes_behind_all_others_with_all_its_time_and_its_answer_is_written() -> (
    None
):
    """More time than the server gives those whose callers wait."""
    async with site() as served:
        await served.ask(1, b"1,2", timeout_s=3600.0)
        await served.settled()
        [invoke] = served.instance.invokes
        assert (invoke.priority, invoke.body) == (255, b"1,2")
        assert 3_590_000 < invoke.deadline_ms <= 3_600_000
        assert frames.decode_request_meta(invoke.meta).content_type == "text/csv"
        assert served.outputs() == {"1": b"1,2"}
        assert served.dispatcher.in_flight == 0
        [told] = served.posts
        message = orjson.loads(told.message)
        assert told.topic == "arn:ok"
        assert message.pop("eventTime") >= message.pop("receivedTime")
        assert message == {
            "awsRegion": "us-east-1",
            "invocationStatus": "Completed",
            "requestParameters": {"endpointName": LATER, "contentType": "text/csv"},
            "responseParameters": {
                "contentType": "text/csv",
                "outputLocation": (served.folder / "out" / "1").as_uri(),
            },
            "responseBody": {"content": "MSwy", "encoding": "BASE64"},
            "inferenceId": "r1",
            "eventVersion": "1.0",
            "eventSource": "aws:sagemaker",
            "eventName": "InferenceResult",
        }


async def test_an_input_is_read_from_where_it_lies() -> None:
    async with site() as served:
        (served.folder / "in").write_bytes(b"from a file")
        await served.ask(1, b"", input_uri=(served.folder / "in").as_uri())
        await served.settled()
        assert served.outputs() == {"1": b"from a file"}


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_no_more_are_sent_at_once_than_the_configuration_allows(concurrency: int) -> None:
    async with site(concurrency_max=concurrency) as served:
        waiting: list[Callable[[], None]] = []
        most = 0

        def later(connection: Any, ident: int, invoke: frames.Invoke) -> None:
            nonlocal most
            waiting.append(lambda: echo(connection, ident, invoke))
            most = max(most, len(waiting))

        served.instance.on_invoke = later
        for number in range(9):
            await served.ask(number)
        for left in range(9, 0, -1):
            await until(lambda: len(waiting) == min(concurrency, left))  # noqa: B023
            waiting.pop(0)()
        await served.settled()
        assert most == concurrency
        assert len(served.outputs()) == 9


async def test_ten_times_more_requests_than_the_memory_holds_are_done_within_it() -> None:
    """Bodies that wait are in the record; in memory are those that were sent."""
    async with site(concurrency_max=64) as served:
        body = bytes(100_000)

        def short(connection: Any, ident: int, invoke: frames.Invoke) -> None:
            data = frames.encode_reply(ident, batch_rows=1, run_us=50, body=invoke.body[:7])
            asyncio.get_running_loop().call_later(0.002, connection.write, data)

        served.instance.on_invoke = short
        await asyncio.gather(*(served.ask(number, body) for number in range(110)))
        await served.settled()
        assert len(served.outputs()) == 110
        assert served.driver is not None
        # Answers, of seven bytes each, are there whether or not there is room for them.
        assert served.work.room.bytes_peak <= served.bytes_max + 7 * 128
        assert served.work.room.bytes_used == 0


async def test_an_input_that_never_fits_fails_and_says_which_setting_it_is() -> None:
    async with site() as served:
        (served.folder / "in").write_bytes(bytes(served.bytes_max + 1))
        await served.ask(1, b"", input_uri=(served.folder / "in").as_uri())
        await served.settled()
        assert served.failure(1)["ErrorCode"] == "input-too-large"
        assert "limits.async_bytes_max" in served.failure(1)["Message"]


async def test_what_was_under_way_when_the_driver_ended_is_done_by_the_next_one() -> None:
    async with site(concurrency_max=2) as served:
        served.instance.on_invoke = silent
        for number in range(5):
            await served.ask(number, b"%d" % number)
        await until(lambda: len(served.instance.invokes) == 2)
        assert served.driver is not None
        await served.driver.close()
        assert await served.on_record() == 5
        await until(lambda: len(served.instance.cancelled) == 2)
        served.instance.on_invoke = echo
        await served.start()
        await served.settled()
        assert served.outputs() == {str(number): b"%d" % number for number in range(5)}


async def test_the_order_of_acceptance_is_kept() -> None:
    async with site(copies=(), concurrency_max=1) as served:
        for number in range(20):
            await served.ask(number, b"%d" % number)
        served.publish(1)
        await served.settled()
        sent = [int(bytes(one.body)) for one in served.instance.invokes]
        assert sent == list(range(20))


async def test_at_no_copy_capacity_is_asked_for_and_the_backlog_is_a_metric() -> None:
    async with site(copies=()) as served:
        await served.ask(1)
        await served.ask(2)
        assert served.driver is not None
        await until(lambda: served.wanted and served.wanted[-1] == 2)
        assert served.driver.backlog(LATER) == 2
        metric = MetricName(
            "AWS/SageMaker", "HasBacklogWithoutCapacity", (("EndpointName", LATER),)
        )

        def highest() -> float:
            now = served.clock.wall()
            points = served.metrics.read_merged(metric, 0, now + 60, 60).values()
            return max((point.maximum for point in points), default=0.0)

        await until(lambda: highest() == 1.0)
        served.publish(1)
        await served.settled()
        await until(lambda: served.wanted[-1] == 0)


def test_metrics_of_a_backlog_have_sagemakers_names() -> None:
    store = MetricStore()
    published = Published(store, WorkCounts())
    published.put(LATER, backlog=6, ready=0, age_s=4.5, now=1000.0)
    published.put(LATER, backlog=6, ready=3, age_s=4.5, now=1060.0)
    published.put(LATER, backlog=0, ready=3, age_s=0.0, now=1120.0)

    def of(name: str) -> dict[int, float]:
        metric = MetricName("AWS/SageMaker", name, (("EndpointName", LATER),))
        return {at: one.total for at, one in store.read_merged(metric, 0, 2000, 60).items()}

    assert of("ApproximateBacklogSize") == {960: 6.0, 1020: 6.0, 1080: 0.0}
    assert of("ApproximateBacklogSizePerInstance") == {1020: 2.0, 1080: 0.0}
    assert of("HasBacklogWithoutCapacity") == {960: 1.0, 1020: 0.0, 1080: 0.0}
    assert of("ApproximateAgeOfOldestRequest") == {960: 4.5, 1020: 4.5, 1080: 0.0}
    published.processed(LATER, 1.5)
    published.failed(LATER, "expired")
    published.failed(LATER, "model-failed")
    assert published.is_due(1180.0)
    assert not published.is_due(1189.9)
    assert of("InvocationsProcessed") == {1140: 1.0}
    assert of("TotalProcessingTime") == {1140: 1500.0}
    assert of("ExpiredRequests") == {1140: 1.0}
    assert of("InvocationFailures") == {1140: 1.0}


def test_a_backlog_is_on_the_page_and_what_was_counted_last_becomes_datapoints() -> None:
    store, counts = MetricStore(), WorkCounts()
    published = Published(store, counts)
    published.failed(LATER, "model-failed")
    published.put(LATER, backlog=6, ready=0, age_s=4.5, now=1000.0)
    published.put_all(1000.0)
    assert shown(counts, "penstock_async_backlog") == {(LATER,): 6.0}
    assert shown(counts, "penstock_async_oldest_seconds") == {(LATER,): 4.5}
    ended = {(LATER, "completed"): 0.0, (LATER, "failed"): 1.0, (LATER, "expired"): 0.0}
    assert shown(counts, "penstock_async_requests_ended") == ended
    published.flush(1001.0)
    metric = MetricName("AWS/SageMaker", "InvocationFailures", (("EndpointName", LATER),))
    assert [one.total for one in store.read_merged(metric, 0, 2000, 60).values()] == [1.0]
    for now in (1002.0, 1040.0):  # it is deleted
        published.put_all(now)
    assert shown(counts, "penstock_async_backlog") == {}
    assert shown(counts, "penstock_async_requests_ended") == {}


@pytest.mark.parametrize(
    ("error", "reason", "fields"),
    [
        (
            ModelError("model-code-failed", "boom", original_status=422, original_message="no"),
            "model-failed",
            {"ErrorCode": "model-code-failed", "OriginalStatusCode": 422, "OriginalMessage": "no"},
        ),
        (
            CallerError("bad-shape", "The shape is wrong.", hint="Send 4 numbers."),
            "refused",
            {"ErrorCode": "bad-shape", "Message": "The shape is wrong. Send 4 numbers."},
        ),
        (
            NotNowError("deadline-passed", "Too late."),
            "invocation-timeout",
            {"ErrorCode": "invocation-timeout"},
        ),
    ],
)
async def test_a_failure_leaves_an_object_with_its_reason(
    error: CallerError, reason: str, fields: dict[str, Any]
) -> None:
    async with site() as served:
        served.instance.on_invoke = fail_with(error)
        await served.ask(1)
        await served.settled()
        failure = served.failure(1)
        assert failure | fields | {"InferenceId": "r1", "Reason": reason} == failure
        assert served.outputs() == {}
        [told] = served.posts
        message = orjson.loads(told.message)
        assert (told.topic, message["invocationStatus"]) == ("arn:bad", "Failed")
        assert message["failureReason"].endswith(failure["Message"])
        assert message["responseParameters"]["outputLocation"].endswith("/bad/1")


async def test_a_request_that_was_not_sent_in_time_has_expired() -> None:
    async with site(copies=()) as served:
        await served.ask(1, expires=served.clock.wall() + 0.2)
        await served.settled()
        assert served.failure(1)["Reason"] == "expired"
        assert served.instance.invokes == []


async def test_what_is_missing_or_unwritable_fails_and_says_so() -> None:
    async with site() as served:
        (served.folder / "file").touch()
        await served.ask(1, b"", input_uri=(served.folder / "none").as_uri())
        await served.ask(2, output_uri=(served.folder / "file" / "out").as_uri())
        # Where not even the failure can be written, it stays on record until it can.
        nowhere = (served.folder / "file" / "bad").as_uri()
        await served.ask(3, output_uri=nowhere, failure_uri=nowhere)
        await until(lambda: len(served.posts) == 2)
        assert await served.on_record() == 1
        assert served.failure(1)["ErrorCode"] == "input-not-found"
        assert served.failure(2)["ErrorCode"] == "output-unwritable"
        (served.folder / "file").unlink()
        await served.settled()
        told = orjson.loads((served.folder / "file" / "bad").read_bytes())
        assert told["ErrorCode"] == "output-unwritable"
        assert len(served.posts) == 3


async def test_refusals_for_want_of_capacity_are_tried_again() -> None:
    async with site() as served:
        refusal = NotNowError("queue-full", "Later.", retry_after_s=0.1)
        served.instance.on_invoke = fail_with(refusal)
        await served.ask(1)
        await until(lambda: served.instance.invokes)
        served.instance.on_invoke = echo
        await served.settled()
        assert served.outputs() == {"1": b"x"}


async def test_a_request_whose_workers_die_is_computed_alone_after_two_deaths_and_ends_four() -> (
    None
):
    """A caller who waits is told after two; here each later try ends one more, and others go on."""
    alone: list[bool] = []
    async with site() as served:

        def die(connection: Any, ident: int, invoke: frames.Invoke) -> None:
            if invoke.body == b"poison":
                alone.append(bool(served.instance.flags[-1] & frames.ALONE))
                connection.write(frames.encode(frames.RETURNED, ident, b"worker-died"))
            else:
                echo(connection, ident, invoke)

        served.instance.on_invoke = die
        await served.ask(1, b"poison")
        await served.ask(2)
        await until(lambda: "2" in served.outputs())
        assert not (served.folder / "bad").exists(), "the first is not given up yet"
        await served.settled()
        assert served.failure(1)["ErrorCode"] == "model-worker-died"
        assert served.failure(1)["Reason"] == "model-failed"
        assert alone == [False, True, True, True]


async def test_an_endpoint_that_is_deleted_takes_its_requests_with_it() -> None:
    async with site(copies=()) as served:
        await served.ask(1)
        await until(lambda: served.wanted)
        await served.database.call(Store.begin_delete, LATER, now=2.0)
        served.dispatcher.withdraw(LATER)
        await served.settled()
        assert served.failure(1)["Reason"] == "endpoint-deleted"
        with pytest.raises(CallerError, match="not found"):
            await served.ask(2)


async def test_what_can_not_be_put_on_record_is_not_accepted() -> None:
    async with site() as served:
        with pytest.raises(CallerError, match="not found"):
            await served.ask(1, endpoint="other")
        await served.database.close()
        with pytest.raises(NotNowError):
            await served.ask(1)


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_wherever_drivers_end_each_request_is_done_and_told_of(seed: int) -> None:
    """Drivers end at drawn moments, in whatever step a request is; the next one goes on."""
    rng = random.Random(seed)
    async with site(concurrency_max=4) as served:
        for number in range(40):
            await served.ask(number, b"%d" % number)
        for _ in range(12):
            await asyncio.sleep(rng.uniform(0.0, 0.02))  # where it ends
            assert served.driver is not None
            await served.driver.close()
            await served.start()
        await served.settled()
        assert served.outputs() == {str(number): b"%d" % number for number in range(40)}
        assert len({told.message_id for told in served.posts}) == 40
        assert served.work.room.bytes_used == 0
        assert served.dispatcher.in_flight == 0


async def test_a_queue_whose_turn_fails_keeps_no_other_from_theirs() -> None:
    """It comes first, at each look and each deadline."""

    class Poisoned(AsyncQueue):
        def next_deadline(self) -> float | None:
            raise ZeroDivisionError("float division by zero")

        def configure(self, *args: Any, **kwargs: Any) -> Any:
            raise ZeroDivisionError("float division by zero")

    async with site() as served:
        assert served.driver is not None
        bad = driver_module._Queue(rows.QueueId(LATER, 0.5), 0)
        bad.machine = Poisoned(QueueSpec(concurrency_max=1), backlog=0)
        bad.unsure = False
        served.driver._queues = {bad.id: bad, **served.driver._queues}
        before = item_failures.counts().get("asynchronous", 0)
        await served.ask(1, b"1,2")
        await served.settled()
        assert served.outputs() == {"1": b"1,2"}
        assert item_failures.counts()["asynchronous"] > before
        del served.driver._queues[bad.id]
