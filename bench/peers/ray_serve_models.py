"""Ray Serve's model multiplexing: `ray_serve_models.py PORT PREFIX`, settings in the environment.

REPLICAS; ONGOING: `max_ongoing_requests`; MODELS: `max_num_models_per_replica`; THREADS of a
model's runs; BLOBS: OpenVINO's cache of compiled models. A model is a folder below PREFIX with
model.xml and tokenizer.json, compiled with the settings that Penstock compiles the same artifact
with, threads apart. Access log and dashboard are off. Ray's own variables come from outside.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import orjson
import ray
from ray import serve
from ray.serve.schema import LoggingConfig
from starlette.requests import Request
from starlette.responses import Response
from tokenizers import Tokenizer

QUIET = LoggingConfig(enable_access_log=False, log_level="WARNING")
MODELS = int(os.environ["MODELS"])


class Encoder:
    def __init__(self, core: ov.Core, folder: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        settings = {
            "INFERENCE_NUM_THREADS": int(os.environ["THREADS"]),
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "ENABLE_CPU_PINNING": False,
        }
        self._model = core.compile_model(folder / "model.xml", "CPU", settings)
        self._request = self._model.create_infer_request()
        self._one_at_a_time = asyncio.Lock()

    async def embed(self, text: str) -> list[float]:
        ids = self._tokenizer.encode(text).ids[:640]
        given = np.array([ids], dtype=np.int64)
        inputs = {"input_ids": given, "attention_mask": np.ones_like(given)}
        async with self._one_at_a_time:
            answer = await asyncio.to_thread(self._request.infer, inputs)
        vector: list[float] = next(iter(answer.values()))[0].tolist()
        return vector


@serve.deployment(
    num_replicas=int(os.environ["REPLICAS"]),
    max_ongoing_requests=int(os.environ["ONGOING"]),
    logging_config=QUIET,
    ray_actor_options={"num_cpus": 0.5},
)
class Embedder:
    def __init__(self, prefix: str) -> None:
        self._prefix = Path(prefix)
        self._core = ov.Core()
        self._core.set_property({"CACHE_DIR": os.environ["BLOBS"]})
        self.loads = 0

    @serve.multiplexed(max_num_models_per_replica=MODELS)
    async def model(self, name: str) -> Encoder:
        self.loads += 1
        return await asyncio.to_thread(Encoder, self._core, self._prefix / name)

    async def __call__(self, request: Request) -> Response:
        if request.url.path.endswith("/loads"):
            told = {"replica": str(os.getpid()), "loads": self.loads}
            return Response(orjson.dumps(told), media_type="application/json")
        asked: Any = orjson.loads(await request.body())
        model = await self.model(serve.get_multiplexed_model_id())
        vector = await model.embed(asked["inputs"])
        return Response(orjson.dumps([vector]), media_type="application/json")


if __name__ == "__main__":
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, configure_logging=False)
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])}, logging_config=QUIET)
    serve.run(Embedder.bind(sys.argv[2]), name="embedder", route_prefix="/")
    print("ready", flush=True)
    while True:
        time.sleep(3600)
