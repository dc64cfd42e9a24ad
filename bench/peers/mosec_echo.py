"""The echo on mosec: `mosec_echo.py --port N`, its settings in the environment.

WORKERS processes; batches of ROWS at most, waited for WAIT_MS (1 is the shortest that mosec takes).
JSON is read and written by orjson, which is faster than mosec's default and what ours uses.
"""

from __future__ import annotations

import os
from typing import Any

import orjson
from mosec import Server, Worker

ROWS = int(os.environ["ROWS"])


class Echo(Worker):
    def deserialize(self, data: bytes) -> Any:
        return orjson.loads(data)

    def serialize(self, data: Any) -> bytes:
        return orjson.dumps(data)

    def forward(self, data: Any) -> Any:  # one request, or a list of them where ROWS is above 1
        return data


if __name__ == "__main__":
    server = Server()
    server.append_worker(
        Echo,
        num=int(os.environ["WORKERS"]),
        max_batch_size=ROWS,
        max_wait_time=int(os.environ["WAIT_MS"]),
    )
    server.run()
