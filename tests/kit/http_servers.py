"""HTTP servers on loopback that a test answers for: a function from request to answer is one."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class SeenRequest:
    method: str
    path: str  #: with its query
    headers: dict[str, str]  #: names in lower case
    body: bytes


#: Status, headers besides Content-Length, and body.
Reply = tuple[int, dict[str, str], bytes]


class QuietHandler(BaseHTTPRequestHandler):
    """Keeps connections, and no access log. `state` is the test's, one for all requests."""

    protocol_version = "HTTP/1.1"

    @property
    def state(self) -> Any:
        return self.server.state  # type: ignore[attr-defined]

    def log_message(self, *_: object) -> None:
        return

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """HEAD gets the length alone; `headers` may name another one."""
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class _AnsweredHandler(QuietHandler):
    def _answer(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        seen = SeenRequest(self.command, self.path, headers, self.body())
        self.reply(*self.state(seen))

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _answer


class _LoopbackServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    state: Any


@contextmanager
def listening(
    handler: type[QuietHandler], state: Any, *, tls: ssl.SSLContext | None = None
) -> Iterator[str]:
    """Its URL; one handler is made for each connection."""
    server = _LoopbackServer(("127.0.0.1", 0), handler)
    server.state = state
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@contextmanager
def answering(answer: Callable[[SeenRequest], Reply]) -> Iterator[str]:
    """The URL of a server whose every answer is the function's."""
    with listening(_AnsweredHandler, answer) as url:
        yield url
