"""What is counted of a request that failed, and what is kept of those that are over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.kit.gateway import PREFIX, Recording, reply

from penstock.clock import ManualClock
from penstock.errors import InternalError, ModelError, NotNowError, PenstockError
from penstock.gateway.dispatch.invocation import Invocation
from penstock.gateway.dispatch.recording import SIZE, ExplainRing, NoRecorder, record_failure
from penstock.gateway.dispatch.streaming import StreamObserved
from penstock.gateway.request_id import RequestIds
from penstock.wire.frames import BATCH_REASONS, Reply


class RecorderCalls:
    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []

    def finished(self, *args: Any) -> None:
        self.rows.append(args)


def invocation(number: int = 1) -> Invocation:
    made = Invocation("shop", b"", b"", Recording(), received=100.0, deadline=None, number=number)
    made.reply = made.error = made.route = None
    made.attempts = 1
    return made


def failure(
    error: PenstockError | None, answered: Reply | None, stream: StreamObserved | None = None
) -> tuple[Any, ...]:
    told, failed = RecorderCalls(), invocation()
    failed.error, failed.reply, failed.stream = error, answered, stream
    failed.recorder = told
    record_failure(failed, 424, 1.5)
    [row] = told.rows
    return row


def a_stream(first_at: float) -> StreamObserved:
    stream = StreamObserved()
    stream.first_at = first_at
    return stream


MODEL_400 = ModelError("model-failed", "No.", original_status=400, original_message="no")
BUSY = NotNowError("busy", "Later.")


@pytest.mark.parametrize(
    ("error", "answered", "stream", "row"),
    [
        pytest.param(BUSY, None, None, (424, 1.5, 0.0, 0.0, 0, "runtime", 0), id="never sent"),
        pytest.param(BUSY, reply(), None, (424, 1.5, 0.0003, 0.004, 2, "runtime", 0),
                     id="by an instance"),
        pytest.param(MODEL_400, reply(), None, (424, 1.5, 0.0003, 0.004, 2, "runtime", 400),
                     id="by a model"),
        pytest.param(BUSY, None, a_stream(0.0), (424, 1.5, 0.0, 0.0, 0, "runtime", 0),
                     id="before its first piece"),
        pytest.param(BUSY, None, a_stream(101.0), (424, 1.5, 0.0, 0.0, 0, "runtime", 500),
                     id="a break, as the client saw it"),
        pytest.param(MODEL_400, None, a_stream(101.0), (424, 1.5, 0.0, 0.0, 0, "runtime", 500),
                     id="a break by a model"),
        pytest.param(None, reply(), a_stream(101.0), (424, 1.5, 0.0003, 0.004, 2, "runtime", 0),
                     id="no error of ours"),
    ],
)  # fmt: skip
def test_a_failure_is_counted_with_what_an_instance_said_of_it(
    error: PenstockError | None,
    answered: Reply | None,
    stream: StreamObserved | None,
    row: tuple[Any, ...],
) -> None:
    assert failure(error, answered, stream) == pytest.approx(row)


def test_a_recorder_of_nothing_takes_whatever_it_is_told() -> None:
    nothing = NoRecorder()
    assert nothing.recorder("shop", "blue") is nothing
    nothing.started(1)
    nothing.finished(200, 1.0, 0.0, 0.0, 1, "runtime", 0)
    nothing.streamed(1.0)
    nothing.broken()


# What `explain` keeps


class RecordedRing:
    def __init__(self) -> None:
        self.clock = ManualClock(monotonic_s=100.0, wall_s=1_700_000_000.0)
        self.ring = ExplainRing(self.clock, RequestIds(PREFIX))

    def explain(self, number: int) -> dict[str, Any] | None:
        return self.ring.explain(f"{PREFIX}{number:012x}")

    def told(self, made: Invocation) -> dict[str, Any]:
        self.ring.record(made, 200, 0.0123456)
        story = self.explain(made.number)
        assert story is not None
        return story


def test_a_request_that_met_no_copy_is_told_of_in_whole() -> None:
    ring = RecordedRing()
    ring.clock.advance(3.0)
    refused = invocation(7)
    refused.error, refused.attempts = BUSY, 0
    assert ring.told(refused) == {
        "request_id": PREFIX + "000000000007",
        "endpoint": "shop",
        "door": "runtime",
        "status": 200,
        "error": "busy",
        "received": 1_700_000_000.0,
        "total_ms": 12.346,
        "attempts": 0,
        "route": None,
        "batch": None,
    }


def test_a_request_without_an_answer_and_without_an_error_was_cancelled() -> None:
    assert RecordedRing().told(invocation())["error"] == "cancelled"


def test_a_route_says_why_this_copy() -> None:
    ring, routed = RecordedRing(), invocation()
    state = SimpleNamespace(copy=3, instance_id="i3")
    route = SimpleNamespace(variant="blue", state=state, reason="least", outstanding=2)
    routed.route, routed.reply = cast(Any, route), reply()
    story = ring.told(routed)
    assert (story["error"], story["attempts"]) == (None, 1)
    assert story["route"] == {
        "variant": "blue", "copy": 3, "instance_id": "i3", "reason": "least", "outstanding": 2,
    }  # fmt: skip
    assert story["batch"] == {
        "rows": 2, "reason": "batch-full", "queue_ms": 0.3, "run_ms": 4.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "queue_us", "run_us", "told"),
    [(0, 0, 0, False), (1, 0, 0, True), (0, 1, 0, True), (0, 0, 1, True)],
)
def test_a_batch_is_told_of_where_there_was_one(
    rows: int, queue_us: int, run_us: int, told: bool
) -> None:
    made = invocation()
    made.reply = reply()._replace(batch_rows=rows, queue_us=queue_us, run_us=run_us)
    made.error = InternalError("late", "After it ran.")
    story = RecordedRing().told(made)
    assert (story["batch"] is not None, story["error"]) == (told, "late")


def test_a_reason_of_a_newer_instance_is_unknown_and_no_mistake() -> None:
    last, newer = invocation(1), invocation(2)
    last.reply = reply()._replace(reason=len(BATCH_REASONS) - 1)
    newer.reply = reply()._replace(reason=len(BATCH_REASONS))
    ring = RecordedRing()
    assert ring.told(last)["batch"]["reason"] == BATCH_REASONS[len(BATCH_REASONS) - 1]
    assert ring.told(newer)["batch"]["reason"] == "unknown"


def test_a_stream_is_told_of_where_a_piece_came() -> None:
    made = invocation()
    made.stream = a_stream(0.0)
    assert "stream" not in RecordedRing().told(made)
    made.stream = a_stream(100.5)
    assert RecordedRing().told(made)["stream"] == {"chunks": 0, "first_chunk_ms": 500.0}


def test_the_newest_take_the_place_of_the_oldest() -> None:
    ring = RecordedRing()
    assert ring.explain(1) is None
    ring.told(invocation(1))
    ring.told(invocation(2))
    ring.told(invocation(SIZE + 1))
    assert ring.explain(1) is None
    assert ring.explain(2) is not None
    assert ring.explain(2 * SIZE + 1) is None
    assert ring.ring.explain("of another process") is None
