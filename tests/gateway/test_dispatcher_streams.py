"""Answers in pieces through the dispatcher: their time, what is counted of them, how they break."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from tests.kit.gateway import Bench, MemoryLink, reply, routes

from penstock.errors import NotNowError
from penstock.gateway.dispatch.invocation import Invocation
from penstock.gateway.dispatch.streaming import StreamObserved
from penstock.wire import frames

GENERATION = {"tokens_in": 5, "tokens_out": 11, "queue_s": 0.1, "first_token_s": 0.25}


def end(**said: Any) -> frames.Reply:
    """The last frame: 0.3 ms in the queue, 4 ms of run, and what the engine says."""
    meta = frames.ReplyMeta(generation=orjson.dumps(said).decode()) if said else frames.ReplyMeta()
    return reply(b"", frames.encode_reply_meta(meta))


def stream(bench: Bench) -> tuple[Invocation, MemoryLink]:
    """A request whose first piece came 0.5 s after it."""
    invocation, _ = bench.invoke()
    bench.timers.advance(0.5)
    link = bench.link(1)
    link.events.on_chunk(invocation, b"one", b"[]")
    return invocation, link


def counted(bench: Bench) -> list[tuple[Any, ...]]:
    return [row[2:] for row in bench.counting.told if row[2] in ("streamed", "generated", "broken")]


def test_an_answer_in_pieces_is_measured_from_the_request_to_its_first_and_last() -> None:
    bench = Bench(1)
    invocation, link = stream(bench)
    bench.timers.advance(2.0)
    link.events.on_chunk(invocation, b"two", None)
    link.events.on_end(invocation, end(**GENERATION))
    bench.dispatcher.written(invocation)
    assert counted(bench) == [("streamed", 0.5), ("generated", 5, 11, 0.5, 0.2)]
    story = bench.dispatcher.explain(bench.dispatcher.ids.text(invocation.number))
    assert story is not None
    assert story["stream"] == {
        "chunks": 2,
        "first_chunk_ms": 500.0,
        "tokens_in": 5,
        "tokens_out": 11,
        "time_to_first_token_ms": 500.0,
        "time_per_output_token_ms": 200.0,
    }


def test_a_whole_answer_of_an_engine_is_described_by_the_engines_own_times() -> None:
    bench = Bench(1)
    bench.dispatcher.publish(routes(1, model={"task": "text-generation"}))
    invocation, _ = bench.invoke()
    link = bench.link(1)
    meta = frames.encode_reply_meta(
        frames.ReplyMeta("application/json", generation=orjson.dumps(GENERATION).decode())
    )
    link.events.on_reply(link.take(), reply(b"{}", meta)._replace(queue_us=0, run_us=1_250_000))
    bench.dispatcher.written(invocation)
    assert counted(bench) == [("generated", 5, 11, 0.25, 0.1)]


def test_nothing_is_counted_of_tokens_where_no_engine_says_so() -> None:
    bench = Bench(1)
    link = bench.link(1)
    invocation, _ = bench.invoke()
    link.reply()
    bench.dispatcher.written(invocation)
    assert counted(bench) == []
    invocation, link = stream(bench)
    link.events.on_end(invocation, end())
    bench.dispatcher.written(invocation)
    assert counted(bench) == [("streamed", 0.5)]


def test_a_pipelines_answer_counts_no_tokens_they_count_where_its_steps_are_served() -> None:
    bench = Bench(1)
    invocation, link = stream(bench)
    link.events.on_end(invocation, end(tokens_in=0, tokens_out=0, queue_s=0.1, finish=""))
    bench.dispatcher.written(invocation)
    assert counted(bench) == [("streamed", 0.5)]


def test_what_can_not_be_read_of_a_generation_costs_its_counts_and_nothing_else() -> None:
    bench = Bench(1)
    invocation, link = stream(bench)
    meta = frames.encode_reply_meta(frames.ReplyMeta(generation="{torn"))
    link.events.on_end(invocation, reply(b"", meta))
    bench.dispatcher.written(invocation)
    assert counted(bench) == [("streamed", 0.5)]
    assert bench.dispatcher.in_flight == 0


def test_a_stream_that_breaks_is_the_models_failure_and_no_refusal() -> None:
    bench = Bench(1)
    invocation, link = stream(bench)
    error = NotNowError("stream-broken", "the engine ended", retry_after_s=1.0)
    body = orjson.dumps(error.to_dict())
    link.events.on_error(invocation, reply(body))
    bench.dispatcher.written(invocation)
    [finished] = [row for row in bench.counting.told if row[2] == "finished"]
    assert (finished[3], finished[-1]) == (503, 500)
    assert counted(bench) == [("streamed", 0.5), ("broken",)]


def test_an_instance_that_goes_away_breaks_its_streams_and_gives_back_the_rest() -> None:
    bench = Bench(1, 2)
    first, first_told = bench.invoke()
    bench.link(1).events.on_chunk(first, b"one", b"[]")
    second, _ = bench.invoke()
    third, third_told = bench.invoke()
    bench.link(1).lose()
    assert first_told.told == [("chunk", b"one"), ("error", "stream-broken")]
    assert third_told.told == []
    assert [item[0] for item in bench.link(2).sent] == [second, third]


def test_a_client_that_leaves_a_stream_frees_its_slot_at_once() -> None:
    bench = Bench(1)
    invocation, link = stream(bench)
    assert bench.outstanding() == {1: 1}
    bench.dispatcher.cancel(invocation)
    assert link.cancelled == [invocation]
    assert bench.outstanding() == {1: 0}
    assert bench.dispatcher.in_flight == 0
    assert counted(bench) == [("streamed", 0.5)]


def test_a_stream_is_in_flight_until_its_last_byte_is_written() -> None:
    bench = Bench(1)
    invocation, link = stream(bench)
    link.events.on_end(invocation, end(**GENERATION))
    assert (bench.outstanding(), bench.dispatcher.in_flight) == ({1: 1}, 1)
    bench.dispatcher.written(invocation)
    assert (bench.outstanding(), bench.dispatcher.in_flight) == ({1: 0}, 0)


def test_a_stream_has_eight_minutes_where_other_answers_have_one() -> None:
    bench = Bench(1)
    now = bench.clock.monotonic()
    told = _Errors()
    streamed, plain = (
        Invocation("echo", b"[]", b"", told, received=now, deadline=None) for _ in range(2)
    )
    streamed.stream = StreamObserved()
    bench.dispatcher.invoke(streamed)
    bench.dispatcher.invoke(plain)
    assert [item[2] for item in bench.link(1).sent] == [480_000, 60_000]
    bench.timers.advance(60.0)
    assert told.told == [(plain, "deadline-passed")]
    bench.timers.advance(419.0)
    assert len(told.told) == 1
    bench.timers.advance(1.0)
    assert told.told[1:] == [(streamed, "deadline-passed")]


@pytest.mark.parametrize(("stream_timeout_s", "left_ms"), [(90.0, 90_000), (5.0, 60_000)])
def test_a_streams_time_is_a_setting_and_never_less_than_a_whole_answers(
    stream_timeout_s: float, left_ms: int
) -> None:
    bench = Bench(1, stream_timeout_s=stream_timeout_s)
    now = bench.clock.monotonic()
    streamed = Invocation("echo", b"[]", b"", _Errors(), received=now, deadline=None)
    streamed.stream = StreamObserved()
    bench.dispatcher.invoke(streamed)
    assert [item[2] for item in bench.link(1).sent] == [left_ms]


def test_a_callers_own_deadline_ends_a_stream_sooner() -> None:
    bench = Bench(1)
    told = _Errors()
    now = bench.clock.monotonic()
    invocation = Invocation("echo", b"[]", b"", told, received=now, deadline=now + 2.0)
    invocation.stream = StreamObserved()
    bench.dispatcher.invoke(invocation)
    bench.timers.advance(2.0)
    assert told.told == [(invocation, "deadline-passed")]
    assert bench.link(1).cancelled == [invocation]


class _Errors:
    """A responder that writes down errors alone."""

    def __init__(self) -> None:
        self.told: list[tuple[Invocation, str]] = []

    def on_error(self, invocation: Invocation, error: Any) -> None:
        self.told.append((invocation, error.code))

    def on_reply(self, invocation: Invocation, reply: frames.Reply) -> None:
        raise AssertionError("nothing was answered")

    on_chunk = on_end = on_reply  # type: ignore[assignment]
