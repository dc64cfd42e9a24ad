"""Which trace a request belongs to (W3C Trace Context, level 1), and whether it is recorded.

The caller's decision (its `sampled` flag) is followed, so that a trace is recorded as a whole or
not at all. Without a caller's decision, the configured share of requests is recorded, at random.
Source: https://www.w3.org/TR/trace-context/
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Final

#: version, trace id, span id, flags; a later version may have more behind a dash
_PARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_NO_VERSION: Final = "ff"
_SAMPLED: Final = 1
#: Length of `tracestate` that the standard requires everybody to pass on at least.
STATE_CHARS_MAX: Final = 512
_STATE: Final = re.compile(rf"[ -~]{{0,{STATE_CHARS_MAX}}}")


@dataclass(frozen=True, slots=True)
class TraceContext:
    """One span, in the form that later spans receive."""

    trace_id: int  #: 128 bits, not 0
    span_id: int  #: 64 bits, not 0
    sampled: bool  #: whether it is recorded
    state: str = ""  #: `tracestate`: data of other tracing systems, passed on unread

    @property
    def traceparent(self) -> str:
        """The value of the header."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{int(self.sampled):02x}"


def read(traceparent: str | None, tracestate: str | None = None) -> TraceContext | None:
    """Parses a caller's headers; None where there are none, or where they can't be parsed."""
    if traceparent is None:
        return None
    found = _PARENT.fullmatch(traceparent.strip())
    if found is None:
        return None
    version, trace_id, span_id, flags, rest = found.groups()
    if version == _NO_VERSION or (version == "00" and rest is not None):
        return None
    if not int(trace_id, 16) or not int(span_id, 16):
        return None
    state = (tracestate or "").strip()
    return TraceContext(
        int(trace_id, 16),
        int(span_id, 16),
        bool(int(flags, 16) & _SAMPLED),
        state if _STATE.fullmatch(state) else "",
    )


def begin(caller: TraceContext | None, *, share: float, rng: random.Random) -> TraceContext | None:
    """A request's own span; None: the request is not traced.

    Args:
        caller: the span that the request came with.
        share: of requests whose caller makes no decision, 0 to 1, that are recorded.
    """
    if caller is not None:
        return TraceContext(caller.trace_id, span_id(rng), caller.sampled, caller.state)
    if rng.random() >= share:
        return None
    return TraceContext(rng.getrandbits(128) or 1, span_id(rng), sampled=True)


def unrecorded(rng: random.Random) -> TraceContext:
    """A trace that is not recorded; it is passed on so that nobody decides a second time."""
    return TraceContext(rng.getrandbits(128) or 1, span_id(rng), sampled=False)


def span_id(rng: random.Random) -> int:
    """A new random id."""
    return rng.getrandbits(64) or 1
