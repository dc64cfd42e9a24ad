"""A copy answers each request exactly once, whatever happens to workers, clients and deadlines."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.kit.fake_runtimes import FakePayloadRuntime
from tests.kit.timers import ManualTimers

from penstock.clock import ManualClock
from penstock.core.batching.batcher import BatchSpec
from penstock.errors import ModelError, PenstockError
from penstock.instance import broken
from penstock.instance.copy import Copy
from penstock.instance.engines.batches import Batches
from penstock.instance.engines.tensor import PayloadEngine
from penstock.instance.request import Request
from penstock.runtimes.base import NOT_BEGUN, Returned
from penstock.wire import frames

GONE = ModelError("worker-died", "it died")


class ReplySink:
    """A connection that keeps what it is sent."""

    def __init__(self) -> None:
        self.said: list[tuple[int, str]] = []

    def forget(self, ident: int) -> None:
        """Nothing is looked up here."""

    def send(self, frame: bytes) -> None:
        (one,) = frames.FrameDecoder().feed(frame)
        if one.kind == frames.RETURNED:
            self.said.append((one.ident, f"returned {one.payload.decode()}"))
            return
        reply = frames.decode_reply(one.payload, one.meta_bytes)
        if one.kind == frames.ERROR:
            self.said.append((one.ident, f"error {json.loads(reply.body)['code']}"))
        else:
            self.said.append((one.ident, reply.body.decode()))


class CopyRig:
    def __init__(self, *, shares_worker: bool = False, **spec: Any) -> None:
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.sink = ReplySink()
        self.events: list[str] = []
        batching = BatchSpec(**({"rows_max": 4} | spec))
        self.runtime = FakePayloadRuntime(batching.lanes, hold=True)
        self.runtime.shares_worker = shares_worker
        self.copy = Copy(
            7,
            Batches(PayloadEngine(self.runtime)),
            batching,
            clock=self.clock,
            call_at=self.timers.call_at,
            on_state=self._note,
        )

    def _note(self, event: str, error: PenstockError | None) -> None:
        self.events.append(event)

    def read(self, *bodies: bytes, start: int = 1, deadline: float | None = None) -> list[Request]:
        now = self.clock.monotonic()
        requests = [
            Request(self.sink, start + at, b"", body, now, deadline, 0)
            for at, body in enumerate(bodies)
        ]
        for request in requests:
            self.copy.accept(request, now)
        self.copy.driver.turn(now)
        return requests

    def finish(self, *, died: bool = False) -> None:
        """The oldest batch under way is over."""
        _, batch, done = self.runtime.held.pop(0)
        done(None if died else self.runtime.answers(batch))

    def accept_alone(self, ident: int, body: bytes) -> None:
        now = self.clock.monotonic()
        self.copy.accept(Request(self.sink, ident, b"", body, now, None, 0, True), now)
        self.copy.driver.turn(now)


def test_replies_and_errors_go_to_their_own_requests() -> None:
    rig = CopyRig()
    rig.read(b"a", b"fail", b"c")
    rig.finish()
    assert rig.sink.said == [(1, "a"), (2, "error model-code-failed"), (3, "c")]
    assert rig.copy.unanswered == 0


def test_answers_leave_in_the_order_of_their_requests_where_that_is_preserved() -> None:
    rig = CopyRig(lanes=2, rows_max=1, preserves_order=True)
    _, second, _ = rig.read(b"a", b"b", b"c")
    rig.runtime.held.reverse()
    rig.finish()  # b
    assert rig.sink.said == []
    rig.finish()  # a, and c begins
    assert rig.sink.said == [(1, "a"), (2, "b")]
    rig.finish()
    assert rig.sink.said == [(1, "a"), (2, "b"), (3, "c")]
    assert (second.answered, rig.copy.unanswered) == (True, 0)


def test_a_cancelled_request_holds_back_no_answer() -> None:
    rig = CopyRig(lanes=2, rows_max=1, preserves_order=True)
    first, _ = rig.read(b"a", b"b")
    rig.runtime.held.reverse()
    rig.finish()
    rig.copy.cancel(first)
    assert rig.sink.said == [(2, "b")]


def test_a_reply_explains_its_batch() -> None:
    rig = CopyRig()
    frames_sent: list[bytes] = []
    rig.sink.send = frames_sent.append  # type: ignore[method-assign]
    rig.read(b"a", b"b")
    rig.clock.advance(0.002)
    rig.finish()
    (frame,) = frames.FrameDecoder().feed(frames_sent[0])
    reply = frames.decode_reply(frame.payload, frame.meta_bytes)
    assert (reply.status, reply.batch_rows, reply.lane) == (200, 2, 0)
    assert frames.BATCH_REASONS[reply.reason] == "lane-free"
    assert (reply.queue_us, reply.run_us, reply.lane_us) == (0, 2000, 1000)


def test_a_dead_worker_gives_back_what_runs_and_what_waits() -> None:
    rig = CopyRig(rows_max=1)
    rig.read(b"a", b"b")
    rig.copy.lane_lost(0, GONE)
    rig.finish(died=True)
    assert rig.sink.said == [(2, "returned copy-lost"), (1, "returned worker-died")]
    rig.read(b"c", start=3)
    assert rig.sink.said[2:] == [(3, "returned copy-lost")]
    rig.copy.lane_ready(0)
    rig.read(b"d", start=4)
    rig.finish()
    assert rig.sink.said[3:] == [(4, "d")]
    assert rig.events == ["copy-lost", "copy-ready"]


def test_of_a_batch_whose_worker_died_each_is_told_what_is_known_of_it() -> None:
    """The second was being computed, so the first had been and the third had not begun."""
    rig = CopyRig(rows_max=3)
    rig.read(b"a", b"b", b"c")
    _, _, done = rig.runtime.held.pop(0)
    done([Returned("worker-died-in-company"), Returned("worker-died"), NOT_BEGUN])
    assert rig.sink.said == [
        (1, "returned worker-died-in-company"),
        (2, "returned worker-died"),
        (3, "returned worker-lost"),
    ]
    rig.read(b"d", b"e", start=4)
    rig.finish(died=True)
    assert rig.sink.said[3:] == [
        (4, "returned worker-died-in-company"),
        (5, "returned worker-died-in-company"),
    ]


def test_what_is_tried_alone_has_no_batch_mates() -> None:
    rig = CopyRig(rows_max=4, lanes=1, wait_s_max=0.0)
    rig.read(b"a")
    rig.read(b"b", start=2)
    rig.accept_alone(3, b"c")
    rig.read(b"d", start=4)
    batches = []
    while rig.runtime.held:
        batches.append([item.body for item in rig.runtime.held[0][1]])
        rig.finish()
    assert [b"c"] in batches
    assert sorted(body for batch in batches for body in batch) == [b"a", b"b", b"c", b"d"]


def test_where_lanes_share_a_process_one_suspect_is_tried_at_a_time() -> None:
    """Its death then is its own, whoever ran beside it."""
    rig = CopyRig(rows_max=1, lanes=3, shares_worker=True)
    rig.read(b"fresh")
    rig.accept_alone(2, b"suspect")
    rig.accept_alone(3, b"another")
    assert rig.sink.said == [(3, "returned another-is-tried-alone")]
    for ident in (1, 2):
        _, _, done = rig.runtime.held.pop(0)
        done([Returned("worker-died-in-company")])
        reason = "worker-died-in-company" if ident == 1 else "worker-died"
        assert rig.sink.said[ident:] == [(ident, f"returned {reason}")]
    rig.accept_alone(4, b"another")
    assert len(rig.sink.said) == 3


def test_a_copy_with_another_living_lane_goes_on() -> None:
    rig = CopyRig(rows_max=1, lanes=2)
    rig.read(b"a", b"b", b"c")
    rig.copy.lane_lost(0, GONE)
    rig.finish(died=True)  # lane 0 is the first that runs
    assert rig.sink.said == [(1, "returned worker-died")]
    rig.finish()
    rig.finish()
    assert rig.sink.said[1:] == [(2, "b"), (3, "c")]
    assert rig.events == []


def test_a_failed_copy_returns_everything() -> None:
    rig = CopyRig(rows_max=1)
    rig.copy.lane_lost(0, GONE)
    rig.copy.lane_failed(0, GONE)
    rig.read(b"a")
    assert rig.sink.said == [(1, "returned copy-failed")]
    assert rig.events == ["copy-lost", "copy-failed"]


def test_a_cancelled_request_is_never_answered() -> None:
    rig = CopyRig(rows_max=1)
    running, queued = rig.read(b"a", b"b")
    rig.copy.cancel(running)
    rig.copy.cancel(queued)
    rig.finish()
    assert rig.sink.said == []
    assert rig.runtime.held == []
    assert rig.copy.unanswered == 0


def test_a_deadline_that_passes_in_the_queue_is_not_now() -> None:
    rig = CopyRig(rows_max=1)
    rig.read(b"a")
    rig.read(b"b", start=2, deadline=1.0)
    rig.timers.move_to(1.0)
    assert rig.sink.said == [(2, "error deadline-passed")]


def test_a_full_queue_refuses_at_once() -> None:
    rig = CopyRig(rows_max=1, queue_rows_max=1)
    rig.read(b"a")
    rig.read(b"b", b"c", start=2)
    assert rig.sink.said == [(3, "error queue-full")]


def test_draining_answers_the_queue_and_gives_back_the_rest() -> None:
    rig = CopyRig(rows_max=1)
    idle: list[bool] = []
    rig.read(b"a", b"b")
    rig.copy.drain(lambda: idle.append(True))
    rig.read(b"c", start=3)
    assert rig.sink.said == [(3, "returned draining")]
    rig.finish()
    assert idle == []
    rig.finish()
    assert rig.sink.said[1:] == [(1, "a"), (2, "b")]
    assert idle == [True]


def test_a_copy_that_drains_without_a_worker_gives_its_queue_back_at_once() -> None:
    """Other copies can answer it sooner than a worker starts."""
    rig = CopyRig(rows_max=1)
    rig.read(b"a", b"b")
    rig.copy.drain(lambda: None)
    rig.copy.lane_lost(0, GONE)
    rig.finish(died=True)
    assert rig.sink.said == [(2, "returned copy-lost"), (1, "returned worker-died")]
    assert (rig.copy.state, rig.events) == ("draining", [])


def test_the_start_of_a_new_worker_is_no_run_time() -> None:
    """Else deadlines would be judged by the seconds that a worker takes to start."""
    rig = CopyRig(lanes=1)
    rig.read(b"a")
    rig.copy.lane_lost(0, GONE)
    rig.finish(died=True)
    rig.timers.move_to(5.0)
    rig.copy.lane_ready(0)
    assert rig.copy.driver.running == 0
    assert rig.copy.explain()["batcher"]["run_times"] == []


def test_where_the_process_is_lost_requests_are_given_back_and_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A GPU's context: whose fault it was is not known, and nothing runs there any more."""
    ended: list[str] = []
    monkeypatch.setattr(broken, "end_soon", lambda error: ended.append(error.code))
    lost = ModelError("device-lost", "the GPU's context is lost")
    lost.ends_process = True
    rig = CopyRig(rows_max=2, lanes=2)
    rig.read(b"a", b"b", b"c", b"d", b"e")
    assert len(rig.runtime.held) == 2
    for at in range(2):
        rig.runtime.held.pop(0)[2]([lost] * 2)
        if not at:
            rig.read(b"f", start=6)
    assert rig.sink.said == [
        (5, "returned copy-failed"),
        *((ident, "returned worker-died-in-company") for ident in (1, 2)),
        (6, "returned copy-failed"),
        *((ident, "returned worker-died-in-company") for ident in (3, 4)),
    ]
    assert (rig.events, ended, rig.copy.unanswered) == (["copy-failed"], ["device-lost"], 0)


def test_what_ran_alone_when_the_process_was_lost_is_the_only_suspect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broken, "end_soon", lambda error: None)
    lost = ModelError("device-lost", "the GPU's context is lost")
    lost.ends_process = True
    rig = CopyRig(rows_max=1)
    rig.read(b"a")
    rig.runtime.held.pop(0)[2]([lost])
    assert rig.sink.said == [(1, "returned worker-died")]
