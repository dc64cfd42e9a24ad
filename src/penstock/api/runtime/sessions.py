"""Sessions of InvokeEndpoint: opened by NEW_SESSION, kept by their id, closed by the caller.

Where a session's requests go is the router's; here are its words on the wire. A request with
`SessionId: NEW_SESSION` opens one, and its answer names it in `New-Session-Id`. A request within a
session whose body is `{"requestType": "CLOSE"}` ends it: the gateway answers that itself, with
`Closed-Session-Id`, for the session is its own and the model need not know. That is how DJL's
containers spell it; `{"requestType": "NEW_SESSION"}` opens one without asking the model either.
"""

from __future__ import annotations

import time

import orjson

from penstock.gateway.call import Call, status_line
from penstock.gateway.dispatcher import Dispatcher

#: A request that only opens or closes a session has no room for anything else.
_BODY_BYTES_MAX = 64
_JSON_HEAD = b"content-type: application/json\r\n"


class Sessions:
    """Reads and writes what requests say of their session."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def answer(self, call: Call) -> bool:
        """Answers a request that is about its session alone; False: it is for the model.

        Raises PenstockError as the dispatcher does, for a session or an endpoint that is unknown.
        """
        affinity = call.affinity
        assert affinity is not None
        if affinity.session is None or len(call.body) > _BODY_BYTES_MAX:
            return False
        asked = _request_type(call.body)
        if affinity.opens and asked == "NEW_SESSION":
            self._dispatcher.open_session(
                call.endpoint, affinity.session, call.variant, affinity.component
            )
            call.answer(status_line(200) + _JSON_HEAD + self.head(call), b"{}")
            return True
        if not affinity.opens and asked == "CLOSE":
            self._dispatcher.close_session(call.endpoint, affinity.session)
            closed = b"x-amzn-sagemaker-closed-session-id: %b\r\n" % affinity.session.encode()
            call.answer(status_line(200) + _JSON_HEAD + closed, b"{}")
            return True
        return False

    def head(self, call: Call) -> bytes:
        """The header line that names a new session and when it ends if nobody uses it."""
        affinity = call.affinity
        if affinity is None or not affinity.opens or affinity.session is None:
            return b""
        ends = time.gmtime(self._dispatcher.clock.wall() + self._dispatcher.session_idle_s_max)
        return b"x-amzn-sagemaker-new-session-id: %b; Expires=%b\r\n" % (
            affinity.session.encode(),
            time.strftime("%Y-%m-%dT%H:%M:%SZ", ends).encode(),
        )


def _request_type(body: bytes) -> str | None:
    """`requestType` of a body that has nothing else in it."""
    if not body.startswith(b"{"):
        return None
    try:
        asked = orjson.loads(body)
    except ValueError:
        return None
    if isinstance(asked, dict) and len(asked) == 1:
        kind = asked.get("requestType")
        return kind if isinstance(kind, str) else None
    return None
