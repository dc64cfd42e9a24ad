"""What is known of a request, as spans that a collector receives."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from tests.kit.gateway import Recording, reply
from tests.kit.otlp_receiver import OtlpReceiver, SpanSeen, receiver

from penstock.clock import ManualClock
from penstock.core.request.trace_context import TraceContext
from penstock.errors import CallerError, ModelError
from penstock.gateway.dispatch.invocation import Affinity, Invocation
from penstock.gateway.dispatch.streaming import StreamObserved
from penstock.gateway.tracing.tracing import OtlpSpans, SpanExport, Traced
from penstock.wire import frames
from penstock.wire.span_notes import SpanScope

CONTEXT = TraceContext(0xABC, 0xDEF, sampled=True)
RUN = 0x123
WALL = 1_700_000_000.0  #: at monotonic 100


@pytest.fixture
def collector() -> Iterator[OtlpReceiver]:
    with receiver() as found:
        yield found


def clock() -> ManualClock:
    return ManualClock(monotonic_s=100.0, wall_s=WALL)


def over(invocation: Invocation, answer: frames.Reply | None = None) -> Invocation:
    """As the dispatcher leaves it."""
    invocation.route = invocation.error = None
    invocation.reply = answer
    invocation.attempts = 1 if answer else 0
    return invocation


def request(door: str = "runtime") -> Invocation:
    return Invocation("echo", b"[]", b"", Recording(), received=100.0, deadline=None, door=door)


def sent(
    collector: OtlpReceiver, traced: Traced, invocation: Invocation, status: int, now: float
) -> dict[str, SpanSeen]:
    export = SpanExport(collector.url, resource={"service.name": "test"})
    spans = OtlpSpans(export, clock())
    spans.ended(traced, invocation, request_id="r-1", status=status, now=now)
    export.close()
    found = collector.spans
    assert {one.trace_id for one in found} == {f"{0xABC:032x}"}
    return {one.name: one for one in found}


def ms(span: SpanSeen) -> tuple[float, float]:
    """Begin and end in ms after the request came."""
    return (
        round((span.start_ns - WALL * 1e9) / 1e6, 1),
        round((span.end_ns - WALL * 1e9) / 1e6, 1),
    )


def test_where_the_time_of_a_request_went(collector: OtlpReceiver) -> None:
    """Held for 0.5 s, then 0.3 ms in the queue and 4 ms in the model, out after 510 ms."""
    invocation = over(request(), reply())
    invocation.affinity = Affinity(model="m", component="c")
    found = sent(collector, Traced(CONTEXT, None, RUN, 100.5), invocation, 200, 100.51)
    assert {name: ms(span) for name, span in found.items()} == {
        "runtime echo": (0.0, 510.0),
        "held": (0.0, 500.0),
        "queue": (500.0, 500.3),
        "run": (500.3, 504.3),
    }
    own, run = found["runtime echo"], found["run"]
    assert (own.span_id, own.parent_id) == (f"{0xDEF:016x}", "")
    assert (run.span_id, run.parent_id) == (f"{RUN:016x}", own.span_id)
    assert run.attributes == {
        "penstock.batch.rows": 2, "penstock.batch.reason": "batch-full", "penstock.lane": 0,
    }  # fmt: skip
    assert own.attributes == {
        "penstock.status": 200, "penstock.request_id": "r-1", "penstock.endpoint": "echo",
        "penstock.door": "runtime", "penstock.attempts": 1, "penstock.target_model": "m",
        "penstock.component": "c",
    }  # fmt: skip
    assert own.resource["service.name"] == "test"


def test_a_stream_has_a_span_from_its_first_piece_and_its_tokens(collector: OtlpReceiver) -> None:
    invocation = over(request("openai"), reply())
    stream = invocation.stream = StreamObserved()
    stream.first_at, stream.chunks, stream.tokens_in, stream.tokens_out = 100.2, 7, 5, 11
    caller = TraceContext(0xABC, 0x77, sampled=True)
    found = sent(collector, Traced(CONTEXT, caller, RUN, 100.0), invocation, 200, 101.0)
    assert ms(found["stream"]) == (200.0, 1000.0)
    assert found["stream"].attributes == {"penstock.stream.chunks": 7}
    own = found["openai echo"]
    assert own.parent_id == f"{0x77:016x}"
    assert own.attributes["gen_ai.usage.output_tokens"] == 11
    assert "held" not in found


def test_the_instances_own_spans_are_placed_from_when_the_request_was_sent(
    collector: OtlpReceiver,
) -> None:
    scope = SpanScope(TraceContext(0xABC, RUN, sampled=True), received=5.0)
    scope.begin("tokenize", now=5.001).end(now=5.003, error="worker-died")
    meta = frames.encode_reply_meta(frames.ReplyMeta(spans=scope.told()))
    invocation = over(request(), reply(meta=meta))
    found = sent(collector, Traced(CONTEXT, None, RUN, 100.0), invocation, 200, 100.01)
    assert ms(found["tokenize"]) == (1.0, 3.0)
    assert found["tokenize"].parent_id == found["run"].span_id
    assert found["tokenize"].failed == "worker-died"


@pytest.mark.parametrize(
    ("error", "status", "failed"),
    [
        (ModelError("model-failed", "no"), 424, "model-failed"),
        (CallerError("endpoint-not-found", "no"), 404, ""),
    ],
)
def test_a_span_has_failed_where_the_fault_is_not_the_callers(
    collector: OtlpReceiver, error: ModelError | CallerError, status: int, failed: str
) -> None:
    invocation = over(request())
    invocation.error = error
    found = sent(collector, Traced(CONTEXT, None, RUN), invocation, status, 100.1)
    (own,) = found.values()  # it never met a copy
    assert own.failed == failed
    assert own.attributes["penstock.error"] == error.code


def test_spans_of_an_instance_that_can_not_be_read_cost_only_themselves(
    collector: OtlpReceiver,
) -> None:
    meta = frames.encode_reply_meta(frames.ReplyMeta(spans="what"))
    invocation = over(request(), reply(meta=meta))
    found = sent(collector, Traced(CONTEXT, None, RUN, 100.0), invocation, 200, 100.1)
    assert set(found) == {"runtime echo", "queue", "run"}


def test_a_collector_that_takes_and_never_answers_keeps_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither a request nor, for long, a server that stops."""
    monkeypatch.setattr("penstock.gateway.tracing.tracing.STOP_S_MAX", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        export = SpanExport(url, resource={})
        spans = OtlpSpans(export, clock())
        for _ in range(3000):  # more than the library keeps
            spans.ended(
                Traced(CONTEXT, None, RUN), over(request()), request_id="r", status=200, now=100.1
            )
        export.close()
