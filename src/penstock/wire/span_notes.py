"""Spans inside an instance for a traced request: noted there, and sent with its answer.

An instance exports nothing itself. It notes when the calls of a request began and ended, relative
to the request's arrival. The gateway knows that time and makes spans of the notes. So no two
machines' clocks are compared, and only requests that are recorded cost anything.
"""

from __future__ import annotations

import random
from typing import Final, NamedTuple

import orjson

from penstock.core.request import trace_context
from penstock.core.request.trace_context import TraceContext
from penstock.wire.frames import FrameError, RequestMeta

#: Most spans of one request; a model that calls others in a loop may have more, which are dropped.
SPANS_MAX: Final = 128
NAME_CHARS_MAX: Final = 128
_rng = random.Random()


class SpanTold(NamedTuple):
    """One span, in us since the request reached the instance."""

    name: str
    span_id: int
    parent_id: int
    start_us: int
    duration_us: int
    error: str  #: error code; "" = none


class SpanScope:
    """An open span, or the request itself; other spans begin inside it."""

    __slots__ = ("_context", "_name", "_parent_id", "_received", "_rows", "_started")

    def __init__(self, context: TraceContext, *, received: float) -> None:
        """`context`: from the request; `received`: its arrival, in monotonic s."""
        self._context = context
        self._received = received
        self._rows: list[SpanTold] = []
        self._name = ""
        self._parent_id = 0
        self._started = received

    @property
    def is_request(self) -> bool:
        """Whether this is the request, not a span inside it."""
        return not self._parent_id

    @property
    def traceparent(self) -> str:
        """The header for calls made inside this span."""
        return self._context.traceparent

    @property
    def tracestate(self) -> str:
        return self._context.state

    def begin(self, name: str, *, now: float) -> SpanScope:
        """Begins a span inside this one; `end` notes it."""
        mine = self._context
        inner = SpanScope(
            TraceContext(mine.trace_id, trace_context.span_id(_rng), mine.sampled, mine.state),
            received=self._received,
        )
        inner._rows = self._rows
        inner._name = name[:NAME_CHARS_MAX]
        inner._parent_id = mine.span_id
        inner._started = now
        return inner

    def end(self, *, now: float, error: str = "") -> None:
        """Ends it; later calls of `end` have no effect."""
        if self._name and len(self._rows) < SPANS_MAX:
            self._rows.append(
                SpanTold(
                    self._name,
                    self._context.span_id,
                    self._parent_id,
                    int((self._started - self._received) * 1e6),
                    int((now - self._started) * 1e6),
                    error,
                )
            )
        self._name = ""

    def told(self) -> str | None:
        """All spans that have ended, for `ReplyMeta.spans`; None if there are none."""
        if not self._rows:
            return None
        rows = [
            (one.name, f"{one.span_id:016x}", f"{one.parent_id:016x}", *one[3:])
            for one in self._rows
        ]
        return orjson.dumps(rows).decode()


def scope_of(meta: RequestMeta, *, received: float) -> SpanScope | None:
    """The scope of a request; None unless it is recorded."""
    context = trace_context.read(meta.traceparent, meta.tracestate)
    if context is None or not context.sampled:
        return None
    return SpanScope(context, received=received)


def read_told(text: str) -> list[SpanTold]:
    """Inverse of `SpanScope.told`. Raises FrameError for text that no instance sends."""
    try:
        rows = orjson.loads(text)
        found = [
            SpanTold(
                str(name),
                int(span_id, 16),
                int(parent_id, 16),
                int(start_us),
                int(duration_us),
                str(error),
            )
            for name, span_id, parent_id, start_us, duration_us, error in rows
        ]
    except (ValueError, TypeError) as error:
        raise FrameError(f"the spans of a reply can't be read: {error}") from None
    if len(found) > SPANS_MAX or not all(0 < one.span_id < 1 << 64 for one in found):
        raise FrameError("the spans of a reply are too many, or have no ids")
    return found
