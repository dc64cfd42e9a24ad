"""The server of images that do harm: one that answers as it should until its variable BAD says how
it goes wrong.

`bad_image_server.py serve`: what happens at its start is a function of `AT_START`; what a request
or a look at its health meets is a function of `ON_PING` or `ON_REQUEST`, which has the connection.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

BAD = os.environ.get("BAD", "")
SOME = threading.Event()
PIECE = b"x" * 2**20
#: Where programs write, and where they may try to.
PLACES = (
    "/", "/tmp", "/var/tmp", "/run", "/dev/shm", "/dev", "/data", "/etc", "/servers", "/opt",
    "/opt/ml", "/opt/ml/model", "/proc", "/sys/fs/cgroup", "/mine",
)  # fmt: skip


def fill(place: str) -> tuple[int, str]:
    """How many MiB a place takes, at most a terabyte, and the error that ended it."""
    written, file = 0, Path(place) / "filling"
    try:
        with file.open("wb", buffering=0) as opened:
            for written in range(2**20):  # noqa: B007
                opened.write(PIECE)
    except OSError as error:
        return written, errno.errorcode[error.errno or 0]
    finally:
        with contextlib.suppress(OSError):
            file.unlink()
    return written, ""


def fill_all() -> None:
    """What is in memory stays until the end, and no place is spared."""
    for place in ("/tmp", "/var/tmp", "/run", "/dev/shm", "/data"):
        with (
            contextlib.suppress(OSError),
            (Path(place) / "filling").open("wb", buffering=0) as file,
        ):
            for _ in range(2**20):
                file.write(PIECE)


def fork_bomb() -> None:
    """Each child forks, too, until the kernel says no; none of them ends."""
    while True:
        try:
            os.fork()
        except OSError:
            time.sleep(1)


def thread_bomb() -> None:
    """As many threads as there may be; a few end, so that the server has some."""
    go, threads = threading.Event(), 0
    try:
        while threads < 100_000:
            threading.Thread(target=go.wait if threads > 64 else SOME.wait, daemon=True).start()
            threads += 1
    except RuntimeError:
        print(f"{threads} threads", flush=True)
    SOME.set()


def spam() -> None:
    line = b"spam " * 200 + b"\n"
    while True:
        os.write(1, line * 1000)


def spin() -> None:
    while True:
        pass


def beside(does: Callable[[], object], threads: int = 1) -> None:
    for _ in range(threads):
        threading.Thread(target=does, daemon=True).start()


def endless(head: bytes, piece: bytes) -> Callable[[BadConnection], None]:
    def answer(connection: BadConnection) -> None:
        connection.wfile.write(head)
        while True:
            connection.wfile.write(piece)

    return answer


def wait_for_ever(_: BadConnection) -> None:
    threading.Event().wait()


def drip(connection: BadConnection) -> None:
    """An answer that goes on for ever, and never stands still."""
    connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        connection.send(b"1\r\nx\r\n")
        time.sleep(0.2)


AT_START: dict[str, Callable[[], object]] = {
    "exit": lambda: sys.exit(0),
    "fork-bomb": fork_bomb,
    "thread-bomb": thread_bomb,
    "fill": fill_all,
    "spam": lambda: beside(spam),
    "deaf": lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    "spin": lambda: beside(spin, 64),
}
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ON_PING: dict[str, Callable[[BadConnection], None]] = {
    "ping-never": wait_for_ever,
    "ping-slow": lambda _: time.sleep(5),
    "ping-endless": endless(CHUNKED, b"1\r\nx\r\n"),
    "ping-huge": endless(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n", PIECE),
    "ping-garbage": lambda connection: connection.send(b"\x00\xff" * 100),
    "ping-close": lambda connection: connection.hang_up(),
}
ON_REQUEST: dict[str, Callable[[BadConnection], None]] = {
    "head": lambda connection: connection.send(
        b"HTTP/1.1 two hundred\r\nContent-Length: x\r\n\r\n"
    ),
    "head-endless": endless(b"HTTP/1.1 200 OK\r\n", b"X-More: 1\r\n" * 1000),
    "two-lengths": lambda connection: connection.send(
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx"
    ),
    "close": lambda connection: connection.hang_up(),
    "endless": endless(CHUNKED, b"%x\r\n" % len(PIECE) + PIECE + b"\r\n"),
    "endless-slow": drip,
    "never": wait_for_ever,
}


def drip(connection: BadConnection) -> None:
    connection.send(CHUNKED)
    while True:
        connection.send(b"1\r\nx\r\n")
        time.sleep(0.2)


class BadConnection(socketserver.StreamRequestHandler):
    """Requests of one connection, by hand: a library would not say what is wrong."""

    def handle(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while first := self.rfile.readline():
                length = 0
                while (line := self.rfile.readline().strip().lower()) != b"":
                    if line.startswith(b"content-length:"):
                        length = int(line.partition(b":")[2])
                body = self.rfile.read(length)
                self.answer(first.split()[1].decode(), body)

    def answer(self, path: str, body: bytes) -> None:
        special = (ON_PING if path == "/ping" else ON_REQUEST).get(BAD)
        if special is not None:
            special(self)
        if path != "/ping" and body == b"fill":
            body = json.dumps({place: fill(place) for place in PLACES}).encode()
        self.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    def hang_up(self) -> None:
        self.connection.shutdown(socket.SHUT_RDWR)

    def send(self, data: bytes) -> None:
        self.wfile.write(data)
        self.wfile.flush()


class BadServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    request_queue_size = 128


def main() -> None:
    # The first process of a container has no default action for signals.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    print("the bad server begins", flush=True)
    AT_START.get(BAD, lambda: None)()
    BadServer(("0.0.0.0", 8080), BadConnection).serve_forever()


if __name__ == "__main__":
    main()
