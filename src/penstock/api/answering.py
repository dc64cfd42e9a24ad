"""What front doors share: the methods of a path, heads of replies, the end of an answer, a
model's texts as header lines, and a bounded cache of repeated values.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

import orjson

from penstock.api.model_names import ModelName
from penstock.errors import CallerError
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.dispatch.invocation import Invocation
from penstock.gateway.http.call import Call, status_line
from penstock.wire.frames import Reply, decode_reply_meta

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

CACHE_MAX = 4096
KEY_BYTES_MAX = 512  #: longer keys are not cached, since callers choose them

_EVENT_STREAM = "text/event-stream"


class CallResponder:
    """The part of a door, as a `Responder`, that doors share."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.written: Callable[[Call], None] = dispatcher.written
        self.abandoned: Callable[[Call], None] = dispatcher.cancel

    def on_reply(self, invocation: Invocation, reply: Reply) -> None:
        raise NotImplementedError

    def on_end(self, invocation: Invocation, reply: Reply) -> None:
        assert isinstance(invocation, Call)
        if invocation.started:
            invocation.finish()
        else:
            self.on_reply(invocation, reply)


class JsonResponder(CallResponder):
    """The same where answers are JSON unless their model says otherwise."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        super().__init__(dispatcher)
        self._replies: dict[bytes, bytes] = {}  #: reply meta -> head of the answer

    def reply_head(self, reply_meta: bytes) -> bytes:
        """The head of an answer."""
        head = self._replies.get(reply_meta)
        if head is None:
            meta = decode_reply_meta(reply_meta)
            content_type = meta.content_type or "application/json"
            head = status_line(200) + b"content-type: %b\r\n" % header_value(content_type)
            if content_type.startswith(_EVENT_STREAM):
                # Proxies on the way would otherwise buffer events.
                head += b"cache-control: no-cache\r\nx-accel-buffering: no\r\n"
            if meta.json_header_bytes is not None:
                head += b"inference-header-content-length: %d\r\n" % meta.json_header_bytes
            if meta.generation is None:  # else the meta is unique to this request
                kept(self._replies, reply_meta, head, reply_meta)
        return head


def bound(dispatcher: Dispatcher, name: ModelName) -> tuple[str | None, str | None]:
    """(target model, inference component): which of the two a name has, if any."""
    takes = name.target is not None and dispatcher.takes_components(name.endpoint)
    return (None, name.target) if takes else (name.target, None)


def door_parameters(
    *,
    operation: str = "",
    version: str = "",
    model: str = "",
    headers: Mapping[str, str] | None = None,
) -> str | None:
    """`RequestMeta.parameters`: what a door says besides the body, without what is empty.

    `model`: the served name that the answer carries, in place of the model's own. `headers`: those
    that the model sees among the request's parameters.
    """
    given = {"operation": operation, "version": version, "model": model, "headers": headers}
    said = {name: value for name, value in given.items() if value}
    return orjson.dumps(said).decode() if said else None


def only(call: Call, *methods: bytes) -> None:
    """Raises CallerError (405) for a request with another method than these."""
    if call.method not in methods:
        raise CallerError(
            "method-not-allowed",
            f"{call.method.decode('latin-1')} is not allowed here; {methods[0].decode()} is.",
            status=405,
        )


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
