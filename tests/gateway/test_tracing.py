"""Traces through the dispatcher, on a literal timeline: what instances are told, what is handed
over, and that nothing of a request is kept."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.kit.gateway import Bench, Recording, reply

from penstock.core.request.trace_context import TraceContext, read
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.dispatch.invocation import Invocation
from penstock.gateway.tracing.tracing import Traced, TracingDispatcher
from penstock.wire import frames

CALLER = TraceContext(0xABC, 0xDEF, sampled=True, state="a=1")


@dataclass
class Handed:
    """What a request was when it was over."""

    rows: list[tuple[Traced, Invocation, str, int, float]] = field(default_factory=list)
    broken: bool = False

    def ended(
        self, traced: Traced, invocation: Invocation, *, request_id: str, status: int, now: float
    ) -> None:
        if self.broken:
            raise ValueError("no")
        self.rows.append((traced, invocation, request_id, status, now))


class Carrying(Invocation):
    __slots__ = ("rare",)


class TracedBench(Bench):
    """`Bench`, whose dispatcher traces the share of requests that is wanted."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *copies: int, share: float = 1.0, **options: Any
    ) -> None:
        self.handed = Handed()

        def make(**parts: Any) -> Dispatcher:
            return TracingDispatcher(self.handed, share=share, trace_rng=random.Random(1), **parts)

        monkeypatch.setattr("tests.kit.gateway.Dispatcher", make)
        super().__init__(*copies, **options)

    def carry(self, *, meta: bytes = b"[]", **headers: str) -> tuple[Invocation, Recording]:
        """A request with headers."""
        recording = Recording()
        invocation = Carrying(
            "echo", meta, b"body", recording, received=self.clock.monotonic(), deadline=None
        )
        invocation.rare = {name.encode(): value.encode() for name, value in headers.items()}
        self.dispatcher.invoke(invocation)
        return invocation, recording


def told(invocation: Invocation) -> TraceContext | None:
    """What the instance is told of the trace."""
    meta = frames.decode_request_meta(invocation.meta)
    return read(meta.traceparent, meta.tracestate)


def test_a_recorded_request_is_handed_over_once_its_last_byte_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = TracedBench(monkeypatch, 1)
    invocation, _ = bench.carry(traceparent=CALLER.traceparent, tracestate="a=1")
    bench.timers.advance(0.5)
    bench.link(1).reply()
    assert bench.handed.rows == []
    bench.timers.advance(0.25)
    bench.dispatcher.written(invocation)
    [(traced, who, request_id, status, now)] = bench.handed.rows
    assert (who, status, now, traced.sent_at) == (invocation, 200, 100.75, 100.0)
    assert request_id == bench.dispatcher.ids.text(invocation.number)
    assert traced.caller == CALLER
    assert (traced.context.trace_id, traced.context.state) == (0xABC, "a=1")
    assert told(invocation) == TraceContext(0xABC, traced.run_id, True, "a=1")
    assert len({traced.run_id, traced.context.span_id, CALLER.span_id}) == 3
    bench.dispatcher.written(invocation)  # harmless
    assert len(bench.handed.rows) == 1


def test_meta_stays_what_it_was_but_for_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = TracedBench(monkeypatch, 1)
    asked = frames.RequestMeta(content_type="text/csv", target_model="m", parameters="{}")
    invocation, _ = bench.carry(meta=frames.encode_request_meta(asked))
    meta = frames.decode_request_meta(invocation.meta)
    assert meta._replace(traceparent=None, tracestate=None) == asked


def test_a_meta_with_no_room_for_it_goes_without(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = TracedBench(monkeypatch, 1)
    full = frames.encode_request_meta(frames.RequestMeta(custom_attributes="x" * 65_480))
    invocation, _ = bench.carry(meta=full)
    assert invocation.meta == full
    bench.link(1).reply()
    bench.dispatcher.written(invocation)
    assert len(bench.handed.rows) == 1


def test_what_nobody_records_is_told_on_and_not_handed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = TracedBench(monkeypatch, 1)
    silent = TraceContext(0xABC, 0xDEF, sampled=False)
    invocation, _ = bench.carry(traceparent=silent.traceparent)
    context = told(invocation)
    assert context is not None
    assert (context.trace_id, context.sampled) == (0xABC, False)
    bench.link(1).reply()
    bench.dispatcher.written(invocation)
    assert bench.handed.rows == []


def test_with_share_zero_a_request_without_a_trace_is_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = TracedBench(monkeypatch, 1, share=0.0)
    for headers in ({}, {"traceparent": "what is this"}):
        invocation, _ = bench.carry(**headers)
        assert invocation.meta == b"[]"
        bench.link(1).reply()
        bench.dispatcher.written(invocation)
    invocation, _ = bench.invoke()  # of a protocol without headers
    assert invocation.meta == b"[]"
    assert bench.handed.rows == []


def test_a_request_that_is_refused_or_cancelled_is_handed_over_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = TracedBench(monkeypatch, 1)
    refused, _ = bench.invoke(endpoint="nowhere")
    bench.dispatcher.written(refused)
    cancelled, _ = bench.carry()
    bench.dispatcher.cancel(cancelled)
    assert [(row[1], row[3]) for row in bench.handed.rows] == [(refused, 404), (cancelled, 499)]
    assert bench.handed.rows[0][0].sent_at == 0.0


def test_a_retry_is_measured_from_when_it_was_sent_last(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = TracedBench(monkeypatch, 1, 2)
    invocation, _ = bench.carry()
    bench.timers.advance(1.0)
    first = next(link for link in bench.links.values() if link.sent)
    first.give_back("worker-died")
    second = next(link for link in bench.links.values() if link.sent)
    assert second is not first
    second.events.on_reply(second.take(), reply())
    bench.dispatcher.written(invocation)
    [(traced, *_)] = bench.handed.rows
    assert traced.sent_at == 101.0


def test_explain_names_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = TracedBench(monkeypatch, 1)
    invocation, _ = bench.carry(traceparent=CALLER.traceparent)
    bench.link(1).reply()
    bench.dispatcher.written(invocation)
    story = bench.dispatcher.explain(bench.dispatcher.ids.text(invocation.number))
    assert story is not None
    assert story["trace_id"] == f"{0xABC:032x}"
    silent, _ = bench.carry(traceparent=TraceContext(1, 2, sampled=False).traceparent)
    bench.link(1).reply()
    bench.dispatcher.written(silent)
    story = bench.dispatcher.explain(bench.dispatcher.ids.text(silent.number))
    assert story is not None
    assert "trace_id" not in story


def test_spans_that_can_not_be_made_cost_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = TracedBench(monkeypatch, 1)
    bench.handed.broken = True
    invocation, _ = bench.carry()
    bench.link(1).reply()
    bench.dispatcher.written(invocation)
    assert bench.dispatcher.in_flight == 0
    assert bench.outstanding() == {1: 0}
