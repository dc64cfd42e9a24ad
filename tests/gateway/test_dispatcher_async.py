"""Asynchronous requests among others: all the time that they asked for, and a door of their own."""

from __future__ import annotations

import dataclasses

from tests.kit.gateway import Bench, Recording, routes

from penstock.gateway.dispatch.invocation import Invocation
from penstock.gateway.dispatch.streaming import StreamObserved


def asynchronous(bench: Bench, timeout_s: float, *, door: str = "async") -> Recording:
    now = bench.clock.monotonic()
    recording = Recording()
    invocation = Invocation(
        "echo", b"[]", b"body", recording,
        received=now, deadline=now + timeout_s, priority=255, door=door,
    )  # fmt: skip
    if door == "async":
        invocation.stream = StreamObserved.taking(timeout_s)
    bench.dispatcher.invoke(invocation)
    return recording


def test_it_may_take_longer_than_requests_and_streams_whose_callers_wait() -> None:
    bench = Bench(1, timeout_s=60.0, stream_timeout_s=480.0)
    recording = asynchronous(bench, 3600.0)
    [(sent, _, deadline_ms)] = bench.link(1).sent
    assert (deadline_ms, sent.priority) == (3_600_000, 255)
    bench.timers.advance(3599.0)
    assert recording.told == []
    bench.timers.advance(2.0)
    assert recording.told == [("error", "deadline-passed")]
    assert bench.link(1).cancelled == [sent]


def test_those_beside_it_keep_the_servers_limit() -> None:
    bench = Bench(1, timeout_s=60.0)
    asynchronous(bench, 3600.0)
    _, waits = bench.invoke()
    bench.timers.advance(61.0)
    assert waits.told == [("error", "deadline-passed")]


def test_its_answer_counts_as_no_stream() -> None:
    seen = StreamObserved.taking(5.0)
    assert (seen.timeout_s, seen.story(0.0)) == (5.0, None)
    assert StreamObserved().timeout_s is None


def test_only_asynchronous_requests_come_in_by_the_runtimes_door_where_they_are_wished() -> None:
    bench = Bench(1)
    bench.dispatcher.publish(dataclasses.replace(routes(1), asynchronous=True))
    _, refused = bench.invoke()
    assert refused.told == [("error", "endpoint-asynchronous")]
    asynchronous(bench, 60.0)
    asynchronous(bench, 30.0, door="oip")
    assert [sent.door for sent, _, _ in bench.link(1).sent] == ["async", "oip"]
    # An update may take the configuration away again.
    bench.dispatcher.publish(routes(1))
    bench.invoke()
    assert bench.link(1).sent[-1][0].door == "runtime"


def test_copies_that_could_take_a_request_are_counted() -> None:
    bench = Bench(1, 2)
    assert bench.dispatcher.ready_count("echo") == 2
    bench.link(2).lose()
    assert bench.dispatcher.ready_count("echo") == 1
    assert bench.dispatcher.ready_count("other") == 0
