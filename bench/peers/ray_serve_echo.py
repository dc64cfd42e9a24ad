"""The echo on Ray Serve: one replica."""

from __future__ import annotations

import sys
import time
from typing import Any

import ray
from ray import serve
from starlette.requests import Request


@serve.deployment(max_ongoing_requests=256, num_replicas=1)
class Echo:
    async def __call__(self, request: Request) -> Any:
        return await request.json()


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
    serve.run(Echo.bind(), name="echo", route_prefix="/")
    print("ready", flush=True)
    while True:
        time.sleep(3600)
