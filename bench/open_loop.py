"""Open-loop HTTP load: requests leave at Poisson times, whether or not earlier ones were answered.

Latency counts from the moment a request was due, so a server that stalls is charged for the wait
(Tene's "coordinated omission"). Runs in a process of its own: `python -m bench.open_loop` reads one
JSON object of options and prints one of figures.

The generator shares the cores with what it measures, so it does as little as it can: plain sockets,
requests made beforehand, one loop over epoll. It waits in `select` on the epoll descriptor itself,
whose timeout counts microseconds where epoll's counts milliseconds: due times are not bunched.
Beside it, `MachineStalls` sees when the machine itself gave no processor to anybody.
"""

from __future__ import annotations

import json
import random
import select
import socket
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from bench.arithmetic import percentile_ms
from bench.machine import MachineStalls
from penstock import scheduling

_HEAD_END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Figures:
    """What came of one run; latencies in ms, from due time to the last byte of the answer."""

    sent: int
    answered: int
    refused: int  #: 429 and 503
    failed: int  #: any other answer, or none
    rps: float  #: answered with 2xx, per second
    p50_ms: float
    p90_ms: float
    p99_ms: float
    refused_p99_ms: float
    p99_calm_ms: float  #: P99 of those that were not on their way during a stall of the machine
    stalled_share: float  #: of the time, on any core
    stall_ms_max: float
    generator_cores: float  #: processor time that the generator took, per second


class _Connection:
    """One kept-alive connection with one request on its way at a time."""

    __slots__ = ("busy", "due", "kept", "recv", "send", "socket")

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.send, self.recv = self.socket.send, self.socket.recv
        self.due = 0.0
        self.busy = False
        self.kept = b""  #: of an answer whose end is not here yet


class _Load:
    """The connections, what waits for one, and what came back."""

    def __init__(self, options: dict[str, Any]) -> None:
        host, port = options["host"], options["port"]
        self._requests = [_request(options, body.encode()) for body in options["bodies"]]
        self._epoll = select.epoll()
        self._by_fd: dict[int, _Connection] = {}
        for _ in range(options["connections"]):
            connection = _Connection(host, port)
            fd = connection.socket.fileno()
            self._by_fd[fd] = connection
            self._epoll.register(fd, select.EPOLLIN)
        self._idle = list(self._by_fd.values())
        self._waiting: deque[tuple[bytes, float]] = deque()
        self.sent = 0
        self.failed = 0
        self.statuses: list[str] = []  #: of answers that are neither 2xx nor refusals
        self.outstanding = 0
        self.answered: list[tuple[float, float]] = []  #: due, answered; with 2xx
        self.refused: list[tuple[float, float]] = []

    def run(self, *, rate: float, seconds: float, patience_s: float, rng: random.Random) -> None:
        clock, wait, poll = time.perf_counter, select.select, self._epoll.poll
        watched = [self._epoll.fileno()]
        due = clock() + 0.05
        end = due + seconds
        stop = end + patience_s
        while True:
            now = clock()
            while due <= now and due < end:
                self._submit(due)
                due += rng.expovariate(rate)
            if due >= end and (not self.outstanding or now >= stop):
                return
            left_s = (due if due < end else stop) - clock()
            if left_s <= 0 or wait(watched, (), (), left_s)[0]:
                for fd, _ in poll(0, 256):
                    self._read(self._by_fd[fd])

    def _submit(self, due: float) -> None:
        request = self._requests[self.sent % len(self._requests)]
        self.sent += 1
        self.outstanding += 1
        if self._idle:
            self._send(self._idle.pop(), request, due)
        else:
            self._waiting.append((request, due))

    def _send(self, connection: _Connection, request: bytes, due: float) -> None:
        connection.due = due
        connection.busy = True
        try:
            if connection.send(request) != len(request):
                self._lost(connection)  # the server reads nothing: a socket holds far more
        except OSError:
            self._lost(connection)

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lost(connection)
            return
        if connection.kept:
            data = connection.kept + data
        if not _whole(data):
            connection.kept = data
            return
        connection.kept = b""
        connection.busy = False
        self.outstanding -= 1
        status = data[9:12]
        if status[:1] == b"2":
            self.answered.append((connection.due, time.perf_counter()))
        elif status in {b"429", b"503"}:
            self.refused.append((connection.due, time.perf_counter()))
        else:
            self.failed += 1
            self.statuses.append(status.decode("latin-1"))
        if self._waiting:
            self._send(connection, *self._waiting.popleft())
        else:
            self._idle.append(connection)

    def _lost(self, connection: _Connection) -> None:
        self._epoll.unregister(connection.socket.fileno())
        connection.socket.close()
        if connection.busy:
            self.failed += 1
            self.outstanding -= 1
        elif connection in self._idle:
            self._idle.remove(connection)


def _request(options: dict[str, Any], body: bytes) -> bytes:
    head = (
        f"POST {options['path']} HTTP/1.1\r\nHost: {options['host']}:{options['port']}\r\n"
        f"Content-Type: {options['content_type']}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _whole(data: bytes) -> bool:
    """Whether an answer with a content length is here to its last byte."""
    end = data.find(_HEAD_END)
    if end < 0:
        return False
    at = data.find(b"ontent-", 0, end)
    while at >= 0:
        if data[at + 7 : at + 14].lower() == b"length:":
            line = data.find(b"\r\n", at)
            return len(data) >= end + 4 + int(data[at + 14 : line])
        at = data.find(b"ontent-", at + 7, end)
    raise RuntimeError(f"an answer without a content length: {data[:end]!r}")


def _drive(options: dict[str, Any]) -> dict[str, Any]:
    load = _Load(options)
    seconds = options["seconds"]
    stalls = MachineStalls(0.0 if options.get("each") else seconds + 0.1)
    cpu_s = time.process_time()
    load.run(
        rate=options["rate"],
        seconds=seconds,
        patience_s=options.get("patience_s", 15.0),
        rng=random.Random(options["seed"]),
    )
    cpu_s = time.process_time() - cpu_s
    intervals = stalls.intervals()
    if options.get("each"):
        return {
            "answered": load.answered,
            "refused": load.refused,
            "failed": load.failed,
            "statuses": load.statuses,
            "unanswered": load.outstanding,
            "sent": load.sent,
        }
    answered = sorted(at - due for due, at in load.answered)
    calm = sorted(at - due for due, at in load.answered if not _met(intervals, due, at))
    return {
        "sent": load.sent,
        "answered": len(answered),
        "refused": len(load.refused),
        "failed": load.failed + load.outstanding,
        "rps": len(answered) / seconds,
        "p50_ms": percentile_ms(answered, 0.5),
        "p90_ms": percentile_ms(answered, 0.9),
        "p99_ms": percentile_ms(answered, 0.99),
        "refused_p99_ms": percentile_ms(sorted(at - due for due, at in load.refused), 0.99),
        "p99_calm_ms": percentile_ms(calm, 0.99),
        "stalled_share": sum(stop - start for start, stop in intervals) / seconds,
        "stall_ms_max": max((stop - start for start, stop in intervals), default=0.0) * 1e3,
        "generator_cores": cpu_s / seconds,
    }


def _met(intervals: list[tuple[float, float]], due: float, at: float) -> bool:
    return any(start < at and due < stop for start, stop in intervals)


def open_loop(
    url: str,
    bodies: list[str],
    *,
    rate: float,
    seconds: float,
    connections: int = 64,
    seed: int = 1,
    content_type: str = "application/json",
) -> Figures:
    """Sends `bodies` in turn at `rate` per s for `seconds`, from a process of its own."""
    run = subprocess.run(
        _PROGRAM,
        input=_options(
            url,
            bodies=bodies,
            rate=rate,
            seconds=seconds,
            connections=connections,
            seed=seed,
            content_type=content_type,
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise RuntimeError(f"the load on {url} broke off:\n{run.stderr[-2000:]}")
    return Figures(**json.loads(run.stdout))


@dataclass(frozen=True, slots=True)
class Requests:
    """All requests of one run; times are of `time.perf_counter`, which processes share."""

    sent: int
    answered: list[tuple[float, float]]  #: due, answered; with 2xx
    refused: list[tuple[float, float]]  #: the same, with 429 or 503
    failed: int  #: connections that were lost, and other answers
    statuses: list[str]  #: of other answers
    unanswered: int  #: when patience ended


class BackgroundLoad:
    """The same load, begun at once; what becomes of each request is told in the end."""

    def __init__(
        self,
        url: str,
        bodies: list[str],
        *,
        rate: float,
        seconds: float,
        connections: int = 256,
        seed: int = 1,
        patience_s: float = 20.0,
    ) -> None:
        """`patience_s`: for answers after the last request."""
        options = _options(
            url, bodies=bodies, rate=rate, seconds=seconds, connections=connections, seed=seed,
            content_type="application/json", patience_s=patience_s, each=True,
        )  # fmt: skip
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(_PROGRAM, stdin=pipe, stdout=pipe, text=True)
        assert self._process.stdin is not None
        self._process.stdin.write(options)
        self._process.stdin.close()

    def result(self) -> Requests:
        """Waits for its end. Raises RuntimeError where it broke off."""
        assert self._process.stdout is not None
        told = self._process.stdout.read()
        if self._process.wait(60):
            raise RuntimeError("the load broke off")
        return Requests(**json.loads(told))

    def kill(self) -> None:
        """Idempotent; nothing is told then."""
        self._process.kill()


def _options(url: str, **options: Any) -> str:
    """What the process of a load reads."""
    head, _, path = url.removeprefix("http://").partition("/")
    host, _, port = head.partition(":")
    return json.dumps({"host": host, "port": int(port), "path": f"/{path}"} | options)


_PROGRAM = (sys.executable, "-m", "bench.open_loop")


if __name__ == "__main__":
    # Clients elsewhere would take no core from a lane that computes, each time they wake.
    scheduling.wait_for_messages()
    print(json.dumps(_drive(json.loads(sys.stdin.read()))))
