"""The echo on mosec: one worker, dynamic batching. Started as `mosec_echo.py --port N`."""

from __future__ import annotations

from typing import Any

from mosec import Server, Worker


class Echo(Worker):
    def forward(self, data: list[Any]) -> list[Any]:
        return data


if __name__ == "__main__":
    server = Server()
    server.append_worker(Echo, num=1, max_batch_size=64, max_wait_time=1)
    server.run()
