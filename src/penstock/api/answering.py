"""What front doors share: the methods of a path, heads of replies, the end of an answer, a
model's texts as header lines, and a bounded cache of repeated values.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

from penstock.errors import CallerError
from penstock.gateway.dispatch.invocation import Invocation
from penstock.gateway.http.call import Call, status_line
from penstock.wire.frames import Reply

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

CACHE_MAX = 4096
KEY_BYTES_MAX = 512  #: longer keys are not cached, since callers choose them

_EVENT_STREAM = "text/event-stream"


class CallResponder:
    """The part of a `Responder` that is the same before and after an answer has begun."""

    def on_reply(self, invocation: Invocation, reply: Reply) -> None:
        raise NotImplementedError

    def on_end(self, invocation: Invocation, reply: Reply) -> None:
        assert isinstance(invocation, Call)
        if invocation.started:
            invocation.finish()
        else:
            self.on_reply(invocation, reply)


def only(call: Call, *methods: bytes) -> None:
    """Raises CallerError (405) for a request with another method than these."""
    if call.method not in methods:
        raise CallerError(
            "method-not-allowed",
            f"{call.method.decode('latin-1')} is not allowed here; {methods[0].decode()} is.",
            status=405,
        )


def reply_head(content_type: str | None) -> bytes:
    """The head of an answer that is JSON unless it says otherwise."""
    content_type = content_type or "application/json"
    head = status_line(200) + b"content-type: %b\r\n" % header_value(content_type)
    if content_type.startswith(_EVENT_STREAM):
        # Proxies on the way would otherwise buffer events.
        head += b"cache-control: no-cache\r\nx-accel-buffering: no\r\n"
    return head


def kept(memory: dict[Key, Value], key: Key, value: Value, chosen: bytes) -> None:
    """Caches a value under its key. `chosen` is the part of the key whose length has no bound."""
    if len(chosen) <= KEY_BYTES_MAX:
        if len(memory) >= CACHE_MAX:
            memory.clear()
        memory[key] = value


def header_value(text: str) -> bytes:
    """A model's text as one header line: any character that could end the line becomes a space."""
    data = text.encode("utf-8") if not text.isascii() else text.encode("ascii")
    return bytes(byte if byte >= 32 and byte != 127 else 32 for byte in data).strip()
