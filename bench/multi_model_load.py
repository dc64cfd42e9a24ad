"""Calls of many models over HTTP at the times of a trace, from threads with a connection each."""

from __future__ import annotations

import http.client
import queue
import select
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from bench.arithmetic import percentile_ms


@dataclass(slots=True)
class Calls:
    """What became of the calls of one run."""

    latency_s: list[float] = field(default_factory=list)  #: ascending, from when they were due
    failed: int = 0
    first_failure: str = ""

    @property
    def p50_ms(self) -> float:
        return percentile_ms(self.latency_s, 0.50)

    @property
    def p99_ms(self) -> float:
        return percentile_ms(self.latency_s, 0.99)


class Door:
    """One server's way to be asked for a model."""

    def __init__(self, url: str, header: str) -> None:
        """`header` names the model of a request. Servers end connections that say nothing for long:
        one that was is opened again, as every client's pool does."""
        parts = urlsplit(url)
        self._host, self._port, self._path = parts.hostname or "", parts.port or 80, parts.path
        self._header = header

    def connect(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=60)
        connection.connect()
        return connection

    def ask(
        self, connection: http.client.HTTPConnection, model: str, body: bytes
    ) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"}
        if connection.sock is None or select.select([connection.sock], [], [], 0)[0]:
            connection.close()
            connection.connect()
        if model:
            headers[self._header] = model
        connection.request("POST", self._path or "/", body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


def played(
    door: Door, calls: Sequence[tuple[float, str]], body: bytes, *, threads: int = 64
) -> Calls:
    """An open loop: a call that is late because all threads wait counts from when it was due."""
    due: queue.SimpleQueue[tuple[float, str] | None] = queue.SimpleQueue()
    seen = Calls()
    lock = threading.Lock()

    def work() -> None:
        connection = door.connect()
        while (call := due.get()) is not None:
            at, model = call
            try:
                status, answer = door.ask(connection, model, body)
            except OSError as error:
                status, answer = 0, str(error).encode()
                connection.close()
                connection = door.connect()
            took = time.perf_counter() - at
            with lock:
                if status == 200:
                    seen.latency_s.append(took)
                else:
                    seen.failed += 1
                    seen.first_failure = seen.first_failure or f"{status}: {answer[:200]!r}"
        connection.close()

    pool = [threading.Thread(target=work) for _ in range(threads)]
    for thread in pool:
        thread.start()
    begin = time.perf_counter() + 0.1
    for at, model in calls:
        time.sleep(max(0.0, begin + at - time.perf_counter()))
        due.put((begin + at, model))
    for _ in pool:
        due.put(None)
    for thread in pool:
        thread.join()
    seen.latency_s.sort()
    return seen


def sequential(door: Door, model: str, body: bytes, *, count: int) -> list[float]:
    """Latencies in s of one connection that asks again when it has its answer."""
    connection = door.connect()
    taken = []
    for _ in range(count):
        begin = time.perf_counter()
        status, answer = door.ask(connection, model, body)
        taken.append(time.perf_counter() - begin)
        if status != 200:
            raise RuntimeError(f"{model or 'the model'} answered {status}: {answer[:300]!r}")
    connection.close()
    return taken


def at_once(door: Door, model: str, body: bytes, *, count: int) -> list[float]:
    """Latencies of `count` calls that begin together, each over a connection that is open."""
    connections = [door.connect() for _ in range(count)]
    gate = threading.Barrier(count)
    taken: list[float] = []

    def work(connection: http.client.HTTPConnection) -> None:
        gate.wait()
        begin = time.perf_counter()
        status, _ = door.ask(connection, model, body)
        if status == 200:
            taken.append(time.perf_counter() - begin)

    threads = [threading.Thread(target=work, args=(each,)) for each in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in connections:
        each.close()
    if len(taken) != count:
        raise RuntimeError(f"{count - len(taken)} of {count} calls at once failed")
    return taken


def median_ms(samples_s: Sequence[float]) -> float:
    return percentile_ms(sorted(samples_s), 0.5)
