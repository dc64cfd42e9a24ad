"""A copy that is asked gives back what waits: the oldest first, spread over the queue, and nothing
that has begun."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.instance.test_copy import CopyRig, ReplySink
from tests.instance.test_sequences import SequencesRig

from penstock.core.batching.batcher import BatchSpec
from penstock.instance.codecs.base import Decoded
from penstock.instance.copy import Copy
from penstock.instance.engines.batches import Batches
from penstock.instance.engines.tensor import PayloadEngine
from penstock.instance.request import Request
from penstock.runtimes.statistics import EngineStatistics
from penstock.wire import frames

BACK = "returned rebalanced"


def test_every_other_one_of_the_queue_goes_and_what_runs_stays() -> None:
    rig = CopyRig(rows_max=1)
    rig.read(*[b"%d" % number for number in range(1, 8)])
    assert rig.copy.give_back_waiting(3, rig.sink) == 3
    assert rig.sink.said == [(2, BACK), (4, BACK), (6, BACK)]
    assert (rig.copy.unanswered, rig.copy.driver.queue_rows) == (4, 3)
    for _ in range(4):
        rig.finish()
    assert rig.sink.said[3:] == [(1, "1"), (3, "3"), (5, "5"), (7, "7")]
    assert rig.copy.unanswered == 0


def test_no_more_is_given_back_than_waits() -> None:
    rig = CopyRig(rows_max=1)
    rig.read(b"a", b"b", b"c")
    assert rig.copy.give_back_waiting(9, rig.sink) == 2
    assert rig.copy.give_back_waiting(9, rig.sink) == 0
    rig.finish()
    assert rig.sink.said == [(2, BACK), (3, BACK), (1, "a")]


def test_each_connection_gets_back_its_own_only() -> None:
    """Another gateway asked for none, and would count them as returned."""
    rig = CopyRig(rows_max=1)
    other = ReplySink()
    rig.read(b"a", b"b")
    now = rig.clock.monotonic()
    rig.copy.accept(Request(other, 1, b"", b"c", now, None, 0), now)
    assert rig.copy.give_back_waiting(9, other) == 1
    assert (rig.sink.said, other.said) == ([], [(1, BACK)])


def test_what_is_computed_alone_and_what_belongs_to_a_session_stays() -> None:
    rig = CopyRig(rows_max=1)
    rig.read(b"a")
    rig.accept_alone(2, b"b")
    meta = frames.encode_request_meta(frames.RequestMeta(session_id="s"))
    now = rig.clock.monotonic()
    rig.copy.accept(Request(rig.sink, 3, meta, b"c", now, None, 0), now)
    assert rig.copy.give_back_waiting(9, rig.sink) == 0
    assert rig.copy.unanswered == 3


class _Cut(PayloadEngine):
    def cut(self, data: object, start: int, stop: int) -> object:
        return data


class _Joined(_Cut):
    def __init__(self) -> None:
        self.held: list[Callable[[Any], None]] = []

    def join(self, results: list[object]) -> object:
        return results[0]

    def run(self, lane: int, items: list[Any], bucket: int, done: Callable[[Any], None]) -> None:
        self.held.append(lambda result: done([result] * len(items)))


def test_a_request_of_several_parts_goes_whole_or_not_at_all() -> None:
    """Each is one request, however many places it has in the queue."""
    rig = CopyRig()
    rig.copy = Copy(
        7,
        Batches(_Cut(rig.runtime)),
        BatchSpec(rows_max=1),
        clock=rig.clock,
        call_at=rig.timers.call_at,
    )
    rig.read(b"a")
    now = rig.clock.monotonic()
    large = [Request(rig.sink, ident, b"", b"", now, None, 0) for ident in (2, 3)]
    for request in large:
        rig.copy.accept_read(request, (Decoded({}, 3, lambda _: (None, b"")), None, 0), now)
    parts = large[0].parts
    assert parts is not None
    assert rig.copy.driver.cancel(parts[0].number)  # it has left the queue: it is computed
    assert rig.copy.give_back_waiting(9, rig.sink) == 1
    assert rig.sink.said == [(3, BACK)]
    assert rig.copy.driver.queue_rows == 2


def test_the_lane_time_of_several_parts_is_that_of_all_their_rows() -> None:
    """Five rows in runs of two and 2 s each, the last with a row of another request."""
    rig, engine = CopyRig(), _Joined()
    rig.copy = Copy(
        7,
        Batches(engine),
        BatchSpec(rows_max=2),
        clock=rig.clock,
        call_at=rig.timers.call_at,
    )
    frames_sent: list[bytes] = []
    rig.sink.send = frames_sent.append  # type: ignore[method-assign]
    now = rig.clock.monotonic()
    for ident, rows in ((1, 5), (2, 1)):
        request = Request(rig.sink, ident, b"", b"", now, None, 0)
        rig.copy.accept_read(request, (Decoded({}, rows, lambda _: (b"", b"")), None, 0), now)
    rig.copy.driver.turn(now)
    for _ in range(3):
        rig.clock.advance(2.0)
        engine.held.pop(0)({})
    told = {}
    for frame in frames.FrameDecoder().feed(b"".join(frames_sent)):
        told[frame.ident] = frames.decode_reply(frame.payload, frame.meta_bytes).lane_us
    assert told == {1: 5_000_000, 2: 1_000_000}


def test_a_slot_is_given_back_where_the_engine_has_not_begun_with_it() -> None:
    """Its cache is full: of four with a slot one waits inside, the newest without a token."""
    rig = SequencesRig()
    rig.ask(11, 12, 13, 14)
    rig.token(1)
    rig.runtime.statistics = EngineStatistics(1, 1, 1.0, 0)
    assert rig.copy.give_back_waiting(2, rig) == 2
    assert rig.said == [(12, BACK), (13, BACK)]
    assert list(rig.runtime.prompts) == [1, 3]  # 14 has the slot now
    rig.token(1, f="length")
    rig.token(3, f="length")
    assert [ident for ident, _ in rig.said[2:]] == [11, 14]
    assert rig.copy.unanswered == 0


def test_what_an_engine_computes_stays() -> None:
    rig = SequencesRig()
    rig.ask(11, 12, 13)
    assert rig.copy.give_back_waiting(9, rig) == 1
    assert rig.said == [(13, BACK)]
    assert list(rig.runtime.prompts) == [1, 2]
