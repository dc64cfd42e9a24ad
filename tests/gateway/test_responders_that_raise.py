"""A front door that raises costs its own client the answer, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kit.gateway import Bench, Recording, reply, routes

from penstock.errors import CallerError, PenstockError
from penstock.gateway.dispatch.invocation import Invocation
from penstock.wire import frames


class FailingResponder(Recording):
    """Raises where it is told to, having written down what it heard."""

    def __init__(self, *fails: str, times: int = 1, error: Exception | None = None) -> None:
        super().__init__()
        self._fails = fails
        self._left = times
        self._error = error or ValueError("a head that can't be read")

    def _maybe(self, what: str) -> None:
        if what in self._fails and self._left:
            self._left -= 1
            raise self._error

    def on_reply(self, invocation: Invocation, reply: frames.Reply) -> None:
        self._maybe("reply")
        super().on_reply(invocation, reply)

    def on_chunk(self, invocation: Invocation, chunk: bytes, meta: bytes | None) -> None:
        super().on_chunk(invocation, chunk, meta)
        self._maybe("chunk")

    def on_end(self, invocation: Invocation, reply: frames.Reply) -> None:
        self._maybe("end")
        super().on_end(invocation, reply)

    def on_error(self, invocation: Invocation, error: PenstockError) -> None:
        self._maybe("error")
        super().on_error(invocation, error)


class Cuttable(Invocation):
    """As a call over HTTP: its client can be cut off."""

    finished: Any = False
    cut = 0

    def abort(self) -> None:
        self.cut += 1


def invoke(bench: Bench, responder: FailingResponder, *, deadline_s: float = 30.0) -> Cuttable:
    now = bench.clock.monotonic()
    invocation = Cuttable(
        "echo", b"[]", b"body", responder, received=now, deadline=now + deadline_s
    )
    bench.dispatcher.invoke(invocation)
    return invocation


def is_over(bench: Bench) -> bool:
    counts = [entry[2] for entry in bench.counting.told]
    assert counts.count("started") == counts.count("finished") + counts.count("cancelled")
    return (
        bench.dispatcher.in_flight == 0
        and set(bench.outstanding().values()) == {0}
        and bench.dispatcher._bodies_bytes == 0
    )


@pytest.mark.parametrize("step", ["reply", "chunk", "end", "error"])
def test_its_client_is_told_and_the_slot_is_free(step: str) -> None:
    bench = Bench(1)
    responder = FailingResponder(step)
    invocation = invoke(bench, responder)
    events = bench.dispatcher
    if step == "reply":
        events.on_reply(bench.link(1).take(), reply())
    elif step == "chunk":
        events.on_chunk(invocation, b"first", b"")
    elif step == "end":
        events.on_chunk(invocation, b"first", b"")
        events.on_end(bench.link(1).take(), reply())
    else:
        events.on_error(bench.link(1).take(), reply(b'{"code": "x", "family": "model"}'))
    assert responder.final == [("error", "internal")]
    assert invocation.cut == 0
    assert is_over(bench)


def test_a_stream_whose_piece_could_not_be_passed_on_is_stopped_on_the_instance() -> None:
    bench = Bench(1)
    invocation = invoke(bench, FailingResponder("chunk"))
    bench.dispatcher.on_chunk(invocation, b"first", b"")
    assert bench.link(1).cancelled == [invocation]


def test_a_client_that_can_not_even_be_told_is_cut_off() -> None:
    bench = Bench(1)
    responder = FailingResponder("reply", "error", times=9)
    invocation = invoke(bench, responder)
    bench.link(1).reply()
    assert (responder.told, invocation.cut) == ([], 1)
    assert is_over(bench)


def test_a_client_that_may_have_half_of_a_whole_answer_is_cut_off_and_not_told_a_second_one() -> (
    None
):
    class HalfWay(FailingResponder):
        def on_reply(self, invocation: Invocation, reply: frames.Reply) -> None:
            invocation.finished = True
            raise OSError("the head is out")

    bench = Bench(1)
    responder = HalfWay()
    invocation = invoke(bench, responder)
    bench.link(1).reply()
    assert (responder.told, invocation.cut) == ([], 1)
    assert is_over(bench)
    assert [row[3] for row in bench.counting.told if row[2] == "finished"] == [500]


def test_a_deadline_that_can_not_be_told_does_not_keep_the_others_from_theirs() -> None:
    bench = Bench(1)
    failing = [FailingResponder("error", times=9) for _ in range(2)]
    for responder in failing:
        invoke(bench, responder, deadline_s=1.0)
    fine = FailingResponder()
    late = invoke(bench, fine, deadline_s=1.0)
    bench.timers.advance(1.0)
    assert fine.told == [("error", "deadline-passed")]
    bench.dispatcher.written(late)
    assert is_over(bench)
    _, told = bench.invoke(deadline_s=5.0)
    bench.timers.advance(6.0)
    assert told.told == [("error", "deadline-passed")], "the timer of deadlines is still set"


def test_what_a_lost_connection_had_is_retried_though_one_door_raises() -> None:
    bench = Bench(1)
    streamed = invoke(bench, FailingResponder("error", times=9))
    bench.dispatcher.on_chunk(streamed, b"first", b"")
    plain, told = bench.invoke()
    bench.connect("i2")
    bench.dispatcher.publish(routes(1, 2))
    bench.link(1).lose()
    assert [item[0] for item in bench.link(2).sent] == [plain]
    bench.link(2).reply()
    bench.dispatcher.written(plain)
    assert told.told == [("reply", b"answer")]
    assert (streamed.cut, is_over(bench)) == (1, True)


def test_a_door_may_say_why_it_can_not_pass_on_an_answer() -> None:
    bench = Bench(1)
    responder = FailingResponder("reply", error=CallerError("answer-unwanted", "not this one"))
    invoke(bench, responder)
    bench.link(1).reply()
    assert responder.told == [("error", "answer-unwanted")]
    assert is_over(bench)


def test_metrics_that_raise_cost_no_slot() -> None:
    class Raising:
        def finished(self, *_: object) -> None:
            raise ZeroDivisionError

    bench = Bench(1)
    invocation, told = bench.invoke()
    bench.link(1).reply()
    invocation.recorder = Raising()
    bench.dispatcher.written(invocation)
    assert told.told == [("reply", b"answer")]
    assert (bench.dispatcher.in_flight, bench.outstanding()) == (0, {1: 0})


def test_a_whole_answer_behind_a_piece_is_a_broken_stream() -> None:
    """An instance that mixes the two forms: the client got a part, and the rest can't be true."""
    bench = Bench(1)
    responder = FailingResponder()
    invocation = invoke(bench, responder)
    bench.dispatcher.on_chunk(invocation, b"first", b"")
    bench.dispatcher.on_reply(bench.link(1).take(), reply())
    assert responder.told == [("chunk", b"first"), ("error", "stream-broken")]
    bench.dispatcher.written(invocation)
    assert is_over(bench)
