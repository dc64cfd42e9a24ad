"""What front doors have in common: methods of a path, heads of replies, the end of an answer."""

from __future__ import annotations

from penstock.api.runtime.heads import header_value
from penstock.errors import CallerError
from penstock.gateway.dispatch.invocation import Invocation
from penstock.gateway.http.call import Call, status_line
from penstock.wire.frames import Reply

_EVENT_STREAM = "text/event-stream"


class CallResponder:
    """The part of a `Responder` that is the same for answers that were and were not begun."""

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
        # Proxies on the way would otherwise gather events before they pass them on.
        head += b"cache-control: no-cache\r\nx-accel-buffering: no\r\n"
    return head
