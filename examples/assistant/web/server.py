"""The page's own small server: three files, and `POST /ask`, which passes the stream on.

    python examples/assistant/web/server.py --platform http://127.0.0.1:8080 --port 8090

A browser never talks to the platform itself, so no key of it reaches a page (`PENSTOCK_KEY` stays
here). What the platform says leaves at once, and a reader who goes away ends the answer everywhere.
Loopback only; standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

HERE = Path(__file__).resolve().parent
_FILES = {
    "/": ("index.html", "text/html"),
    "/app.js": ("app.js", "text/javascript"),
    "/style.css": ("style.css", "text/css"),
}
_BODY_BYTES_MAX = 256 * 1024
_TIMEOUT_S = 120.0
#: Pictures come from the catalogue's port; scripts and styles from here alone.
_POLICY = "default-src 'self'; img-src 'self' data: http://127.0.0.1:*; frame-ancestors 'none'"


def serve(platform: str, port: int, *, endpoint: str = "assistant", key: str = "") -> Any:
    """A server that listens; the caller runs `serve_forever`."""
    parts = urlsplit(platform)
    asked = {"content-type": "application/json"}
    if key:
        asked["authorization"] = f"Bearer {key}"

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            name, kind = _FILES.get(self.path, ("", ""))
            if not name or not self._is_for_us():
                self._answer(404, "text/plain", b"nothing is here\n")
                return
            self._answer(200, kind, (HERE / name).read_bytes())

        def do_POST(self) -> None:
            # A page of another origin may not send JSON here without asking first.
            json_sent = self.headers.get("content-type", "").startswith("application/json")
            size = self.headers.get("content-length", "")
            if self.path != "/ask" or not json_sent or not self._is_for_us():
                self._refuse(404, "nothing is here")
            elif not size.isdigit() or int(size) > _BODY_BYTES_MAX:
                self._refuse(413, "the conversation is too long")
            else:
                self._ask(self.rfile.read(int(size)))

        def _is_for_us(self) -> bool:
            """Whoever makes a name point at this machine does not get in by it."""
            host = urlsplit(f"//{self.headers.get('host', '')}").hostname
            return host in ("127.0.0.1", "localhost")

        def _ask(self, body: bytes) -> None:
            try:
                request = {**json.loads(body), "stream": True}
            except (ValueError, TypeError):
                self._refuse(400, "the body is no JSON object")
                return
            upstream = http.client.HTTPConnection(
                parts.hostname or "127.0.0.1", parts.port, timeout=_TIMEOUT_S
            )
            try:
                upstream.request(
                    "POST", f"/endpoints/{endpoint}/invocations", json.dumps(request), asked
                )
                watch = (self.connection, upstream.sock)
                threading.Thread(target=_end_with_reader, args=watch, daemon=True).start()
                answer = upstream.getresponse()
                if answer.status == 200:
                    self._pass_on(answer)
                else:
                    self._refuse(502, _words(answer.read()))
            except (OSError, http.client.HTTPException):
                self.close_connection = True
                with contextlib.suppress(OSError):  # the reader is gone, or half an answer went
                    self._refuse(502, "the platform does not answer")
            finally:
                upstream.close()

        def _pass_on(self, answer: http.client.HTTPResponse) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("cache-control", "no-cache")
            self.send_header("connection", "close")
            self.end_headers()
            self.close_connection = True
            with contextlib.suppress(OSError, http.client.HTTPException):
                while data := answer.read1(65_536):
                    self.wfile.write(data)

        def _refuse(self, status: int, message: str) -> None:
            self._answer(status, "application/json", json.dumps({"message": message}).encode())

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", f"{kind}; charset=utf-8")
            self.send_header("content-length", str(len(body)))
            self.send_header("content-security-policy", _POLICY)
            self.send_header("x-content-type-options", "nosniff")
            self.send_header("cache-control", "no-cache")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    return _Server(("127.0.0.1", port), Handler)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle of something is no error."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def _end_with_reader(reader: socket.socket, source: socket.socket) -> None:
    """Ends what is read of the platform once the browser has gone; it says nothing meanwhile."""
    with contextlib.suppress(OSError):
        reader.recv(1, socket.MSG_PEEK)
    with contextlib.suppress(OSError):  # it has ended by itself
        source.shutdown(socket.SHUT_RDWR)


def _words(body: bytes) -> str:
    """What an error of the platform says."""
    try:
        fields = json.loads(body)
    except ValueError:
        return "the platform refused"
    said = fields.get("OriginalMessage") or fields.get("Message") or fields.get("message")
    return str(said or "the platform refused").rstrip(".")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--platform", default="http://127.0.0.1:8080")
    parser.add_argument("--port", type=int, default=8090, help="0 = any free port")
    parser.add_argument("--endpoint", default="assistant")
    asked = parser.parse_args()
    key = os.environ.get("PENSTOCK_KEY", "")
    server = serve(asked.platform, asked.port, endpoint=asked.endpoint, key=key)
    print(f"page ready: http://127.0.0.1:{server.server_address[1]}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
