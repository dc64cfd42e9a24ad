"""The door to an ASGI application, for every path that is not on the hot path.

Implements the server side of ASGI's HTTP protocol (asgi.readthedocs.io, version 3, spec 2.3). A
request's body is passed whole, because a signature covers all of it. A response's body streams,
with backpressure on `send`. `http.disconnect` comes when the client has gone. One task per request,
which is fast enough here. Lifespan and WebSocket are not served.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import unquote_to_bytes

from penstock.errors import CallerError, InternalError, PenstockError
from penstock.gateway.http.call import Call, status_line
from penstock.wire.http_client import BODYLESS

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
AsgiApp = Callable[
    [Scope, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]

#: A gateway process passes its request id to the control plane in this header.
REQUEST_ID_HEADER = b"x-penstock-request-id"
#: Headers that the connection sets itself, because they describe its framing.
_OURS = (
    b"date",
    b"server",
    b"x-amzn-requestid",
    b"connection",
    b"transfer-encoding",
    b"content-length",
)


class AsgiDoor:
    """Runs the application for each call."""

    def __init__(
        self,
        app: AsgiApp,
        *,
        refusal: Callable[[Call, PenstockError], bool] | None = None,
        handed_on: bool = False,
    ) -> None:
        """
        Args:
            app: the application.
            handed_on: requests come from gateway processes, which send the ids of the requests.
            refusal: answers a refused request in the form of the request's protocol; returns False
                if it knows no form for it. Then the client gets the plain JSON form.
        """
        self._app = app
        self._refusal = refusal
        self._handed_on = handed_on
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(self, call: Call) -> bool:
        if not call.url.startswith(b"/"):
            call.answer_error(CallerError("target-unknown", "The request target is not a path."))
            return True
        exchange = _Exchange(call, handed_on=self._handed_on)
        call.context = exchange
        task = asyncio.get_running_loop().create_task(exchange.run(self._app))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    def refuse(self, call: Call, error: PenstockError) -> None:
        if self._refusal is None or not self._refusal(call, error):
            call.answer_error(error)

    def written(self, call: Call) -> None:
        if call.context is not None:
            call.context.gone.set()

    def abandoned(self, call: Call) -> None:
        if call.context is not None:
            call.context.gone.set()


class _Exchange:
    """One run of the application."""

    def __init__(self, call: Call, *, handed_on: bool) -> None:
        self._call = call
        self._request_id = _handed_on_id(call) if handed_on else call.request_id
        self._body, self._give_body_back = call.take_body()
        self._status_and_headers: tuple[int, list[tuple[bytes, bytes]]] | None = None
        self._body_given = False
        #: set once the request was answered or abandoned: then `http.disconnect` is sent
        self.gone = asyncio.Event()

    async def run(self, app: AsgiApp) -> None:
        call = self._call
        try:
            await app(_scope(call, self._request_id), self.receive, self.send)
        except Exception:
            log.exception("%s %s failed", call.method.decode(), call.url[:256])
        finally:
            # The application may continue after the client has its answer, or has gone.
            self._body = b""
            self._give_body_back()
        if call.finished or call.connection is None:
            return
        if call.started:
            call.abort()
        else:
            call.answer_error(InternalError("internal", "The request failed inside Penstock."))

    async def receive(self) -> Message:
        if not self._body_given:
            self._body_given = True
            body, self._body = self._body, b""
            return {"type": "http.request", "body": body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        call = self._call
        if message["type"] == "http.response.start":
            if self._status_and_headers is not None:
                raise InternalError("asgi-misuse", "http.response.start was sent twice.")
            headers = [(bytes(n).lower(), bytes(v)) for n, v in message.get("headers", ())]
            self._status_and_headers = int(message["status"]), headers
        elif message["type"] == "http.response.body":
            if self._status_and_headers is None or call.finished:
                raise InternalError("asgi-misuse", "http.response.body out of order.")
            more = bool(message.get("more_body", False))
            self._send_body(bytes(message.get("body", b"")), more=more)
            if more and call.connection is not None:
                await call.connection.wait_writable(call)
        else:
            raise InternalError("asgi-misuse", f"{message['type']} is not an HTTP message.")

    def _send_body(self, body: bytes, *, more: bool) -> None:
        call = self._call
        assert self._status_and_headers is not None
        status, headers = self._status_and_headers
        if call.started:
            call.send(body)
            if not more:
                call.finish()
            return
        head = head_of(status, headers)
        if status in BODYLESS:
            if not more:
                call.start_without_body(head)
        elif not more and (call.method != b"HEAD" or not _length(headers)):
            call.answer(head, body)
        else:
            call.start(head, length=_length(headers))
            call.send(body)
            if not more:
                call.finish()


def head_of(status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
    """Status line and headers. Refuses a value with a line break."""
    lines = [status_line(status)]
    for name, value in headers:
        if name in _OURS:
            continue
        if b"\r" in name + value or b"\n" in name + value or b"\0" in name + value:
            raise InternalError("header-unsafe", f"The header {name[:64]!r} spans lines.")
        lines.append(b"%b: %b\r\n" % (name, value))
    return b"".join(lines)


def _length(headers: list[tuple[bytes, bytes]]) -> int | None:
    for name, value in headers:
        if name == b"content-length":
            return int(value)
    return None


def _handed_on_id(call: Call) -> str:
    """The request id that the client gets from the gateway process."""
    for name, value in call.headers:
        if name.lower() == REQUEST_ID_HEADER:
            return value.decode("latin-1")
    return call.request_id


def _scope(call: Call, request_id: str) -> Scope:
    connection = call.connection
    path, _, query = call.url.partition(b"?")
    peer = connection.about("peername") if connection is not None else None
    local = connection.about("sockname") if connection is not None else None
    tls = connection is not None and connection.about("sslcontext") is not None
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": connection.http_version if connection is not None else "1.1",
        "method": call.method.decode("latin-1"),
        "scheme": "https" if tls else "http",
        "path": unquote_to_bytes(path).decode("utf-8", "replace"),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in call.headers],
        "client": tuple(peer[:2]) if peer else None,
        "server": tuple(local[:2]) if local else None,
        "state": {},
        "extensions": {},
        "penstock.request_id": request_id,
    }
