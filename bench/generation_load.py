"""Load of streamed answers over server-sent events: when each was due, begun and over.

Requests leave when they are due, whether or not earlier ones were answered (an open loop), as long
as the gate lets them: `in_flight_max` holds more back in the client, and `one_batch` lets the next
ones go only when all before are answered, which is static batching. Times count from the moment a
request was due. Runs in a process of its own: `python -m bench.generation_load` reads one JSON
object of options and prints one of answers. It shares the cores with what it measures, so a read
only keeps bytes; they are understood when all is over.
"""

from __future__ import annotations

import contextlib
import gc
import json
import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock import scheduling

_END = b"0\r\n\r\n"  #: of a chunked body
_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Answer:
    """One request's story; times in s from the start of the load."""

    due: float
    sent: float
    first: float  #: the first token's bytes
    last: float
    tokens: int
    gap_s_max: float  #: the longest silence between two reads of it
    text: str
    error: str = ""  #: what came instead of a whole answer

    @property
    def first_token_s(self) -> float:
        return self.first - self.due


class _Connection:
    """One kept-alive connection with one request on its way at a time."""

    __slots__ = ("at", "begun", "gap_s_max", "got", "kept", "request", "socket")

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.request = -1
        self.got: list[bytes] = []
        self.begun = False
        self.kept = False  #: it stood idle before this request
        self.at = 0.0  #: of the last read
        self.gap_s_max = 0.0


class _Load:
    def __init__(self, options: dict[str, Any]) -> None:
        self._host, self._port = options["host"], options["port"]
        self._path = options["path"]
        self._bodies = [body.encode() for body in options["bodies"]]
        self._due: list[float] = options["due"]
        self._in_flight_max: int = options["in_flight_max"] or len(self._due)
        self._one_batch: bool = options["one_batch"]
        self._patience_s: float = options["patience_s"]
        self._start_at: float = options["start_at"]
        count = len(self._due)
        self._sent = [0.0] * count
        self._first = [0.0] * count
        self._last = [0.0] * count
        self._gap_s_max = [0.0] * count
        self._bytes: list[bytes] = [b""] * count
        self._epoll = select.epoll()
        self._busy: dict[int, _Connection] = {}
        self._idle: list[_Connection] = []
        self._waiting: deque[int] = deque()
        self._start = 0.0

    def run(self) -> list[dict[str, Any]]:
        for _ in range(min(64, self._in_flight_max, len(self._due))):
            connection = self._connection()
            connection.kept = True
            self._idle.append(connection)
        gc.disable()
        clock, wait, poll = time.perf_counter, select.select, self._epoll.poll
        watched = [self._epoll.fileno()]
        self._start = clock() + max(0.05, self._start_at - time.time())
        at, count = 0, len(self._due)
        stop = self._start + (self._due[-1] if self._due else 0.0) + self._patience_s
        while at < count or self._busy or self._waiting:
            now = clock()
            while at < count and self._start + self._due[at] <= now:
                self._waiting.append(at)
                at += 1
            self._release()
            until = self._start + self._due[at] if at < count else stop
            if clock() >= stop:
                break
            if wait(watched, (), (), max(0.0, until - clock()))[0]:
                for fd, _ in poll(0, 256):
                    self._read(self._busy[fd])
        return [self._told(each) for each in range(count)]

    def _release(self) -> None:
        if self._one_batch and self._busy:
            return
        while self._waiting and len(self._busy) < self._in_flight_max:
            self._send(self._waiting.popleft())

    def _connection(self) -> _Connection:
        return _Connection(self._host, self._port)

    def _send(self, at: int) -> None:
        self._send_on(self._idle.pop() if self._idle else self._connection(), at)

    def _send_on(self, connection: _Connection, at: int) -> None:
        connection.request, connection.got, connection.begun = at, [], False
        connection.gap_s_max = 0.0
        body = self._bodies[at]
        head = (
            f"POST {self._path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._sent[at] = time.perf_counter()
        with contextlib.suppress(OSError):  # closed: it is read as that
            connection.socket.send(head.encode() + body)
        fd = connection.socket.fileno()
        self._busy[fd] = connection
        self._epoll.register(fd, select.EPOLLIN)

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        at = connection.request
        if not data:
            self._over(connection)
            connection.socket.close()
            if connection.kept and not connection.got:
                # The server closed it while nobody used it, and has not read the request.
                self._send_on(self._connection(), at)
            return
        connection.got.append(data)
        now = time.perf_counter()
        if connection.begun:
            connection.gap_s_max = max(connection.gap_s_max, now - connection.at)
        elif b"data:" in data:
            connection.begun = True
            self._first[at] = now
        connection.at = now
        if data.endswith(_END) or not connection.begun:
            whole = b"".join(connection.got)
            if whole.endswith(_END) or _plain_and_whole(whole):
                self._over(connection)
                connection.kept = True
                self._idle.append(connection)

    def _over(self, connection: _Connection) -> None:
        fd = connection.socket.fileno()
        self._epoll.unregister(fd)
        del self._busy[fd]
        self._last[connection.request] = time.perf_counter()
        self._gap_s_max[connection.request] = connection.gap_s_max
        self._bytes[connection.request] = b"".join(connection.got)

    def _told(self, at: int) -> dict[str, Any]:
        text, tokens, error = _understood(self._bytes[at])
        start = self._start
        return {
            "due": self._due[at],
            "sent": self._sent[at] - start,
            "first": self._first[at] - start,
            "last": self._last[at] - start,
            "tokens": tokens,
            "gap_s_max": self._gap_s_max[at],
            "text": text,
            "error": error,
        }


def _plain_and_whole(data: bytes) -> bool:
    """Whether this is an answer with a content length, an error then, to its last byte."""
    head, ended, body = data.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if ended and line.startswith(b"content-length:"):
            return len(body) >= int(line.partition(b":")[2])
    return False


def _understood(data: bytes) -> tuple[str, int, str]:
    """Text, tokens by the server's own count, and what is wrong with it."""
    head, _, body = data.partition(b"\r\n\r\n")
    if not data:
        return "", 0, "there was no answer"
    if head[9:12] != b"200":
        return "", 0, (head[9:12].decode() + " " + body.decode(errors="replace"))[:300].strip()
    pieces, tokens, done = [], 0, False
    for line in _unchunked(body).split(b"\n\n"):
        if line == b"data: [DONE]":
            done = True
        elif line.startswith(b"data:"):
            event = json.loads(line[5:])
            if "error" in event:
                return "", 0, json.dumps(event["error"])[:300]
            pieces += [choice["text"] for choice in event["choices"]]
            if event.get("usage"):
                tokens = event["usage"]["completion_tokens"]
    return "".join(pieces), tokens, "" if done else "the stream broke off"


def _unchunked(body: bytes) -> bytes:
    parts: list[bytes] = []
    at = 0
    while True:
        end = body.find(b"\r\n", at)
        if end < 0:
            return b"".join(parts)
        size = int(body[at:end], 16)
        if not size:
            return b"".join(parts)
        parts.append(body[end + 2 : end + 2 + size])
        at = end + 2 + size + 2


def completion(prompt: str, tokens: int, model: str) -> str:
    """The body of a greedy, streamed completion of exactly so many tokens."""
    return json.dumps(
        {
            "model": model,
            "prompt": prompt,
            "max_tokens": tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    )


def streamed(
    base_url: str,
    bodies: Sequence[str],
    due: Sequence[float],
    *,
    in_flight_max: int = 0,
    one_batch: bool = False,
    patience_s: float = 120.0,
    start_at: float = 0.0,
) -> list[Answer]:
    """Sends each body to /v1/completions when it is due (ascending, s); answers in their order.

    `in_flight_max` 0 is no limit. After the last one is due, `patience_s` is how long to wait. The
    load starts at the wall time `start_at`, or as soon as it can.
    """
    host, _, port = base_url.removeprefix("http://").partition(":")
    options = {
        "host": host,
        "port": int(port),
        "path": "/v1/completions",
        "bodies": list(bodies),
        "due": list(due),
        "in_flight_max": in_flight_max,
        "one_batch": one_batch,
        "patience_s": patience_s,
        "start_at": start_at,
    }
    run = subprocess.run(
        [sys.executable, "-m", "bench.generation_load"],
        input=json.dumps(options),
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise RuntimeError(f"the load on {base_url} broke off:\n{run.stderr[-2000:]}")
    return [Answer(**each) for each in json.loads(run.stdout)]


def whole(answers: Sequence[Answer]) -> list[Answer]:
    """The same answers; RuntimeError if one is not there to its last token."""
    for answer in answers:
        if answer.error:
            raise RuntimeError(f"an answer failed: {answer.error}")
    return list(answers)


if __name__ == "__main__":
    scheduling.wait_for_messages()
    print(json.dumps(_Load(json.load(sys.stdin)).run()))
