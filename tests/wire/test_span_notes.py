"""What an instance notes of a traced request's calls, and how it is told with the answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.request.trace_context import TraceContext
from penstock.instance import replies
from penstock.wire import frames
from penstock.wire.span_notes import NAME_CHARS_MAX, SPANS_MAX, SpanScope, read_told, scope_of

CONTEXT = TraceContext(0xABC, 0xDEF, sampled=True, state="a=1")


def scope() -> SpanScope:
    found = scope_of(
        frames.RequestMeta(traceparent=CONTEXT.traceparent, tracestate="a=1"), received=10.0
    )
    assert found is not None
    return found


def test_only_a_request_that_is_recorded_is_noted() -> None:
    silent = TraceContext(0xABC, 0xDEF, sampled=False).traceparent
    for meta in (
        frames.RequestMeta(),
        frames.RequestMeta(traceparent=silent),
        frames.RequestMeta(traceparent="x"),
    ):
        assert scope_of(meta, received=0.0) is None
    assert scope().traceparent == CONTEXT.traceparent


def test_calls_inside_calls_are_told_with_their_parents_and_times_since_the_request_came() -> None:
    request = scope()
    outer = request.begin("outer", now=10.5)
    inner = outer.begin("inner", now=10.75)
    inner.end(now=11.0, error="worker-died")
    outer.end(now=11.5)
    outer.end(now=99.0)  # says nothing
    told = request.told()
    assert told is not None
    first, second = read_told(told)
    assert (first.name, first.start_us, first.duration_us, first.error) == (
        "inner", 750_000, 250_000, "worker-died",
    )  # fmt: skip
    assert (second.name, second.start_us, second.duration_us, second.error) == (
        "outer", 500_000, 1_000_000, "",
    )  # fmt: skip
    assert (second.parent_id, first.parent_id) == (CONTEXT.span_id, second.span_id)
    assert outer.traceparent == f"00-{0xABC:032x}-{second.span_id:016x}-01"
    assert (outer.tracestate, request.is_request, outer.is_request) == ("a=1", True, False)


def test_what_is_open_or_too_many_is_not_told() -> None:
    request = scope()
    request.begin("open", now=10.0)
    assert request.told() is None
    for _ in range(SPANS_MAX + 5):
        request.begin("n" * (NAME_CHARS_MAX + 5), now=10.0).end(now=10.0)
    told = request.told()
    assert told is not None
    found = read_told(told)
    assert len(found) == SPANS_MAX
    assert len(found[0].name) == NAME_CHARS_MAX


@pytest.mark.parametrize("kind", [frames.REPLY, frames.END, frames.ERROR])
def test_an_answer_tells_them_beside_all_that_it_told_before(kind: int) -> None:
    request = scope()
    request.begin("step", now=10.0).end(now=10.5)
    meta = frames.encode_reply_meta(frames.ReplyMeta("text/csv", custom_attributes="c"))
    frame = frames.encode_reply(
        7, kind=kind, status=201, batch_rows=3, lane=1, reason=2, queue_us=5, run_us=6, lane_us=4,
        meta=meta, body=b"body",
    )  # fmt: skip
    (read,) = frames.FrameDecoder().feed(replies.with_spans(frame, request))
    assert (read.kind, read.ident) == (kind, 7)
    found = frames.decode_reply(read.payload, read.meta_bytes)
    assert found[:7] == (201, 3, 1, 2, 5, 6, 4)
    assert found.body == b"body"
    told = frames.decode_reply_meta(found.meta)
    assert told._replace(spans=None) == frames.ReplyMeta("text/csv", custom_attributes="c")
    assert told.spans is not None
    assert [one.name for one in read_told(told.spans)] == ["step"]


def test_a_frame_that_is_no_answer_or_has_nothing_to_tell_stays_as_it_is() -> None:
    request = scope()
    plain = frames.encode_reply(7, body=b"x")
    assert replies.with_spans(plain, request) == plain
    inner = request.begin("step", now=10.0)
    inner.end(now=10.5)
    assert replies.with_spans(plain, inner) == plain  # its caller is in this process
    returned = frames.encode(frames.RETURNED, 7, b"draining")
    assert replies.with_spans(returned, request) == returned
    full = frames.encode_reply_meta(frames.ReplyMeta(custom_attributes="x" * 65_500))
    frame = frames.encode_reply(7, meta=full)
    assert replies.with_spans(frame, request) == frame


@given(st.text(max_size=60))
def test_what_is_not_told_by_an_instance_is_a_torn_frame(text: str) -> None:
    try:
        read_told(text)
    except frames.FrameError:
        return
    assert text.strip() in ("[]", "{}", '""')


def test_spans_without_ids_are_refused() -> None:
    for row in ('["a","0","1",0,0,""]', '["a","10000000000000000","1",0,0,""]', '["a","x","1",0]'):
        with pytest.raises(frames.FrameError):
            read_told(f"[{row}]")
