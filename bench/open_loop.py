"""Open-loop HTTP load: requests leave at Poisson times, whether or not earlier ones were answered.

Latency counts from the moment a request was due, so a server that stalls is charged for the wait
(Tene's "coordinated omission"). Runs in a process of its own: `python -m bench.open_loop` reads one
JSON object of options and prints one of figures.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import httptools
import uvloop


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


class _Connection(asyncio.Protocol):
    """One kept-alive connection with one request on its way at a time."""

    def __init__(self, pool: _Pool) -> None:
        self._pool = pool
        self._status = 0
        self.due = 0.0
        self.busy = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._parser = httptools.HttpResponseParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        self.busy = False
        self._pool.answered(self, status)

    def connection_lost(self, _error: Exception | None) -> None:
        self._pool.lost(self)

    def send(self, request: bytes, due: float) -> None:
        self.due = due
        self.busy = True
        self.transport.write(request)


class _Pool:
    def __init__(self) -> None:
        self.idle: deque[_Connection] = deque()
        self.waiting: deque[tuple[bytes, float]] = deque()
        self.latency_ok_s: list[float] = []
        self.latency_refused_s: list[float] = []
        self.failed = 0
        self.outstanding = 0

    def submit(self, request: bytes, due: float) -> None:
        self.outstanding += 1
        if self.idle:
            self.idle.pop().send(request, due)
        else:
            self.waiting.append((request, due))

    def answered(self, connection: _Connection, status: int) -> None:
        latency_s = time.perf_counter() - connection.due
        self.outstanding -= 1
        if 200 <= status < 300:
            self.latency_ok_s.append(latency_s)
        elif status in {429, 503}:
            self.latency_refused_s.append(latency_s)
        else:
            self.failed += 1
        if self.waiting:
            connection.send(*self.waiting.popleft())
        else:
            self.idle.append(connection)

    def lost(self, connection: _Connection) -> None:
        if connection.busy:
            self.failed += 1
            self.outstanding -= 1
        elif connection in self.idle:
            self.idle.remove(connection)


async def _drive(options: dict[str, Any]) -> dict[str, Any]:
    rng = random.Random(options["seed"])
    host, port, path = options["host"], options["port"], options["path"]
    requests = [
        (
            f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\n"
            f"Content-Type: {options['content_type']}\r\n"
            f"Content-Length: {len(body.encode())}\r\n\r\n{body}"
        ).encode()
        for body in options["bodies"]
    ]
    loop = asyncio.get_running_loop()
    pool = _Pool()
    for _ in range(options["connections"]):
        _, protocol = await loop.create_connection(lambda: _Connection(pool), host, port)
        pool.idle.append(protocol)
    start = time.perf_counter() + 0.05
    due, end, sent = start, start + options["seconds"], 0
    while due < end:
        now = time.perf_counter()
        while due <= now and due < end:
            pool.submit(requests[sent % len(requests)], due)
            sent += 1
            due += rng.expovariate(options["rate"])
        await asyncio.sleep(max(0.0, min(due - time.perf_counter(), 0.05)))
    deadline = time.perf_counter() + options.get("patience_s", 15.0)
    while pool.outstanding and time.perf_counter() < deadline:  # noqa: ASYNC110 - a poll, bounded
        await asyncio.sleep(0.01)
    answered = sorted(pool.latency_ok_s)
    refused = sorted(pool.latency_refused_s)
    return {
        "sent": sent,
        "answered": len(answered),
        "refused": len(refused),
        "failed": pool.failed + pool.outstanding,
        "rps": len(answered) / options["seconds"],
        "p50_ms": _quantile_ms(answered, 0.5),
        "p90_ms": _quantile_ms(answered, 0.9),
        "p99_ms": _quantile_ms(answered, 0.99),
        "refused_p99_ms": _quantile_ms(refused, 0.99),
    }


def _quantile_ms(values_s: list[float], q: float) -> float:
    return values_s[min(len(values_s) - 1, int(q * len(values_s)))] * 1e3 if values_s else 0.0


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
    head, _, path = url.removeprefix("http://").partition("/")
    host, _, port = head.partition(":")
    options = {
        "host": host,
        "port": int(port),
        "path": f"/{path}",
        "bodies": bodies,
        "rate": rate,
        "seconds": seconds,
        "connections": connections,
        "seed": seed,
        "content_type": content_type,
    }
    run = subprocess.run(
        [sys.executable, "-m", "bench.open_loop"],
        input=json.dumps(options),
        capture_output=True,
        text=True,
        check=True,
    )
    return Figures(**json.loads(run.stdout))


if __name__ == "__main__":
    print(json.dumps(uvloop.run(_drive(json.loads(sys.stdin.read())))))
