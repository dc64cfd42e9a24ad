"""Steady load for fault tests: a few threads that call one endpoint until told to stop."""

from __future__ import annotations

import http.client
from collections import Counter

from tests.kit.repeating import Repeating


class Load(Repeating):
    """Calls `path` from `workers` kept-alive connections; counts every outcome.

    `statuses` counts HTTP statuses; `broken` counts requests that got no whole answer. Bodies are
    numbered and must come back unchanged: `wrong` holds those that did not.
    """

    def __init__(
        self, port: int, path: str, *, workers: int = 8, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(threads=workers)
        self.statuses: Counter[int] = Counter()
        self.broken = 0
        self.wrong: list[tuple[bytes, bytes]] = []
        self.errors: list[bytes] = []  #: bodies of the first answers that are not 2xx
        self._port = port
        self._path = path
        self._headers = {"Content-Type": "application/json"} | (headers or {})

    @property
    def answered(self) -> int:
        return self.statuses.total()

    def run(self, worker: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        number = 0
        while not self.over.is_set():
            number += 1
            body = b"[%d.0,%d.0,3.0,4.0]" % (worker, number)
            try:
                connection.request("POST", self._path, body, self._headers)
                answer = connection.getresponse()
                reply = answer.read()
            except (OSError, http.client.HTTPException):
                connection.close()
                with self.lock:
                    self.broken += 1
                self.over.wait(0.02)
                continue
            with self.lock:
                self.statuses[answer.status] += 1
                if answer.status == 200 and reply.replace(b" ", b"") != body:
                    self.wrong.append((body, reply))
                if answer.status >= 300 and len(self.errors) < 5:
                    self.errors.append(reply)
            if answer.status >= 300:
                self.over.wait(0.02)  # a client backs off
        connection.close()
