"""InvokeEndpointWithResponseStream: pieces of an answer as frames of an event stream.

Each piece from the model is one frame and one chunk of the body, and leaves as soon as it is made.
If the pieces are server-sent events, a frame holds exactly one, however the model and the frames
from the instance split them: clients parse a PayloadPart as one event. A whole answer (of a model
that does not stream) is a stream of one frame, or of its events. A failure before the first piece
is an ordinary error; a later one is the stream's last frame, as in AWS.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.api.answering import header_value, kept
from penstock.api.runtime.errors import RuntimeErrors
from penstock.errors import InternalError, PenstockError, with_hint
from penstock.gateway.dispatch.invocation import Invocation
from penstock.gateway.http.call import Call, status_line
from penstock.wire.aws import eventstream
from penstock.wire.frames import Reply, ReplyMeta, decode_reply_meta
from penstock.wire.server_sent_events import EventSplitter

_TIME_EXCEEDED = "deadline-passed"
_EVENTS = "text/event-stream"


class EventStreamResponder:
    """The `Responder` of invocations whose answer travels as an event stream."""

    def __init__(self, errors: RuntimeErrors, session_head: Callable[[Call], bytes]) -> None:
        """`session_head`: header lines about the request's session."""
        self._errors = errors
        self._session_head = session_head
        #: variant and reply meta -> the head, and whether server-sent events follow
        self._heads: dict[tuple[str | None, bytes], tuple[bytes, bool]] = {}

    def on_reply(self, invocation: Invocation, reply: Reply) -> None:
        assert isinstance(invocation, Call)
        self._start(invocation, reply.meta)
        _send(invocation, reply.body)
        _finish(invocation)

    def on_chunk(self, invocation: Invocation, chunk: bytes, meta: bytes | None) -> None:
        assert isinstance(invocation, Call)
        if not invocation.started:
            self._start(invocation, meta or b"")
        _send(invocation, chunk)

    def on_end(self, invocation: Invocation, reply: Reply) -> None:
        assert isinstance(invocation, Call)
        if not invocation.started:
            self._start(invocation, reply.meta)
        _finish(invocation)

    def on_error(self, invocation: Invocation, error: PenstockError) -> None:
        assert isinstance(invocation, Call)
        if not invocation.started:
            invocation.answer(*self._errors.render(error, invocation.endpoint))
            return
        _send_rest(invocation)
        invocation.send(last_frame(error))
        invocation.finish()

    def _start(self, call: Call, reply_meta: bytes) -> None:
        found = self._heads.get((call.variant, reply_meta))
        if found is None:
            found = _head(call.variant, reply_meta)
            kept(self._heads, (call.variant, reply_meta), found, reply_meta)
        head, events = found
        call.context = EventSplitter() if events else None
        if call.affinity is not None:
            head += self._session_head(call)
        call.start(head)


def _send(call: Call, piece: bytes) -> None:
    splitter: EventSplitter | None = call.context
    for part in (piece,) if splitter is None else splitter.feed(piece):
        if part:
            call.send(eventstream.payload_part(part))


def _send_rest(call: Call) -> None:
    splitter: EventSplitter | None = call.context
    rest = splitter.rest() if splitter is not None else b""
    if rest:
        call.send(eventstream.payload_part(rest))


def _finish(call: Call) -> None:
    _send_rest(call)
    call.finish()


def last_frame(error: PenstockError) -> bytes:
    """The frame that ends a broken stream: whose fault it was, and that it is over."""
    if isinstance(error, InternalError):
        return eventstream.internal_stream_failure(f"Internal failure ({error.code}).")
    message = with_hint(error.message, error.hint)
    if error.code == _TIME_EXCEEDED:
        return eventstream.model_stream_error(message, error_code="ModelInvocationTimeExceeded")
    return eventstream.model_stream_error(message)


def _head(variant: str | None, reply_meta: bytes) -> tuple[bytes, bool]:
    """Status and headers, and whether the answer consists of server-sent events."""
    meta = decode_reply_meta(reply_meta)
    events = (meta.content_type or "").partition(";")[0].strip().lower() == _EVENTS
    head = status_line(200) + b"content-type: %b\r\n" % eventstream.CONTENT_TYPE.encode()
    if meta.content_type is not None:
        content_type = header_value(meta.content_type)
        head += b"x-amzn-sagemaker-content-type: %b\r\n" % content_type
    return head + about(variant, meta), events


def about(variant: str | None, meta: ReplyMeta) -> bytes:
    """Header lines of every answer: the variant, and what the model says besides."""
    head = b""
    if variant is not None:
        head += b"x-amzn-invoked-production-variant: %b\r\n" % header_value(variant)
    if meta.custom_attributes is not None:
        attributes = header_value(meta.custom_attributes)
        head += b"x-amzn-sagemaker-custom-attributes: %b\r\n" % attributes
    return head
