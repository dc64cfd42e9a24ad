"""Requests one at a time, with pauses: what one takes where nobody else asks."""

from __future__ import annotations

import http.client
import socket
import statistics
import time
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from bench.arithmetic import alternated

GAP_S = 0.005
_SLICE = 40  #: requests to one server before it is another's turn


def lone_ms(
    urls: Mapping[str, str], bodies: Sequence[bytes], *, requests: int
) -> dict[str, list[float]]:
    """P50 of each slice, in ms, by server; they take turns. Each request leaves `GAP_S` after the
    answer to the one before."""
    found: dict[str, list[float]] = {name: [] for name in urls}
    open_to = {name: _Connection(url) for name, url in urls.items()}
    for turn in range(max(1, requests // _SLICE)):
        for name in alternated(list(urls), turn):
            took = []
            for number in range(_SLICE):
                time.sleep(GAP_S)
                took.append(open_to[name].ask_s(bodies[number % len(bodies)]) * 1e3)
            found[name].append(statistics.median(took))
    for each in open_to.values():
        each.close()
    return found


class _Connection:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._path = parts.path or "/"
        self._http = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
        self._http.connect()
        self._http.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask_s(self, body: bytes) -> float:
        began = time.perf_counter()
        self._http.request("POST", self._path, body, {"Content-Type": "application/json"})
        answer = self._http.getresponse()
        answer.read()
        took = time.perf_counter() - began
        if answer.status != 200:
            raise RuntimeError(f"{self._path}: answered {answer.status}")
        return took

    def close(self) -> None:
        self._http.close()
