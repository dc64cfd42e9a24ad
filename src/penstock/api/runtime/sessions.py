"""Sessions of InvokeEndpoint: opened by NEW_SESSION, kept by their id, closed by the caller.

Where a session's requests go is the router's; here are its words on the wire. A request with
`SessionId: NEW_SESSION` opens one, and its answer names it in `New-Session-Id`. A request within a
session whose body is `{"requestType": "CLOSE"}` ends it: the gateway answers that itself, with
`Closed-Session-Id`, for the session is its own and the model need not know. That is how DJL's
containers spell it; `{"requestType": "NEW_SESSION"}` opens one without asking the model either.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import orjson

from penstock.core.routing.sessions import UNKNOWN
from penstock.errors import PenstockError
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.http.call import Call, status_line

#: (endpoint, session): returns once the dispatcher knows the copy that other gateways know of, if
#: any does. Raises PenstockError for a session that is lost, and where nobody can be asked.
FindSession = Callable[[str, str], Awaitable[None]]
#: Context of a call whose session other gateways were asked for.
_LOOKED_UP = object()

#: A request that only opens or closes a session has no room for anything else.
_BODY_BYTES_MAX = 64
_JSON_HEAD = b"content-type: application/json\r\n"


class SessionHeaders:
    """Reads and writes what requests say of their session."""

    def __init__(self, dispatcher: Dispatcher, find: FindSession | None = None) -> None:
        """`find`: asks other gateways; None: there are none."""
        self._dispatcher = dispatcher
        self._find = find
        self._looking: set[asyncio.Task[None]] = set()

    def is_elsewhere(self, call: Call) -> bool:
        """Whether the session is not known here, and others have not been asked yet."""
        affinity = call.affinity
        if self._find is None or affinity is None or affinity.opens or affinity.session is None:
            return False
        known = self._dispatcher.sessions.find(call.endpoint, affinity.session)
        return known == UNKNOWN.reason and call.context is not _LOOKED_UP

    def look_up(self, call: Call, then: Callable[[Call, PenstockError | None], None]) -> None:
        """Asks other gateways for it; `then` takes the request up again, or refuses it."""
        call.context = _LOOKED_UP
        task = asyncio.get_running_loop().create_task(self._look_up(call, then))
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    async def _look_up(
        self, call: Call, then: Callable[[Call, PenstockError | None], None]
    ) -> None:
        assert self._find is not None
        assert call.affinity is not None
        assert call.affinity.session is not None
        refusal = None
        try:
            await self._find(call.endpoint, call.affinity.session)
        except PenstockError as error:
            refusal = error
        if call.connection is not None:
            then(call, refusal)

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
            self._dispatcher.sessions.open(
                call.endpoint, affinity.session, call.variant, affinity.component
            )
            call.answer(status_line(200) + _JSON_HEAD + self.head(call), b"{}")
            return True
        if not affinity.opens and asked == "CLOSE":
            self._dispatcher.sessions.close(call.endpoint, affinity.session)
            closed = b"x-amzn-sagemaker-closed-session-id: %b\r\n" % affinity.session.encode()
            call.answer(status_line(200) + _JSON_HEAD + closed, b"{}")
            return True
        return False

    def head(self, call: Call) -> bytes:
        """The header line that names a new session and when it ends if nobody uses it."""
        affinity = call.affinity
        if affinity is None or not affinity.opens or affinity.session is None:
            return b""
        ends = time.gmtime(self._dispatcher.clock.wall() + self._dispatcher.sessions.idle_s_max)
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
