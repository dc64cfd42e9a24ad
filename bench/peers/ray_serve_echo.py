"""The echo on Ray Serve: `ray_serve_echo.py PORT`, its settings in the environment.

REPLICAS; ROWS: of `@serve.batch`, 0 without it; ONGOING: `max_ongoing_requests`. Access log and
dashboard are off, JSON is read and written by orjson. Ray's own variables come from outside: with
RAY_SERVE_THROUGHPUT_OPTIMIZED a replica answers HTTP itself, on a port of its own.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import orjson
import ray
from ray import serve
from ray.serve.schema import LoggingConfig
from starlette.requests import Request
from starlette.responses import Response

ROWS = int(os.environ["ROWS"])
QUIET = LoggingConfig(enable_access_log=False, log_level="WARNING")
SETTINGS = {
    "num_replicas": int(os.environ["REPLICAS"]),
    "max_ongoing_requests": int(os.environ["ONGOING"]),
    "logging_config": QUIET,
    "ray_actor_options": {"num_cpus": 0.5},
}


@serve.deployment(**SETTINGS)
class Echo:
    async def __call__(self, request: Request) -> Response:
        row = orjson.loads(await request.body())
        return Response(orjson.dumps(row), media_type="application/json")


@serve.deployment(**SETTINGS)
class BatchedEcho:
    @serve.batch(max_batch_size=max(1, ROWS), batch_wait_timeout_s=0.0)
    async def run(self, rows: list[Any]) -> list[Any]:
        return rows

    async def __call__(self, request: Request) -> Response:
        row = await self.run(orjson.loads(await request.body()))
        return Response(orjson.dumps(row), media_type="application/json")


if __name__ == "__main__":
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, configure_logging=False)
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])}, logging_config=QUIET)
    serve.run((BatchedEcho if ROWS else Echo).bind(), name="echo", route_prefix="/")
    print("ready", flush=True)
    while True:
        time.sleep(3600)
