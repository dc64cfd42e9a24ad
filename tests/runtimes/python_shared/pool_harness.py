"""A real pool of worker processes, models on disk, and what is asked of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
from tests.kit import model_files

from penstock.artifacts.detection.detect import detect
from penstock.core.residency.worker_sharing import SharingSpec
from penstock.errors import PenstockError
from penstock.runtimes.base import LoadContext, Payload, PayloadReply, Returned
from penstock.runtimes.loader import load_payload_runtime
from penstock.runtimes.python.shared.pool import WorkerPool
from penstock.wire.frames import RequestMeta, encode_request_meta

#: Every wait of these tests ends here, on the slowest machine.
PATIENCE_S = 90.0

META = encode_request_meta(RequestMeta(content_type="application/json"))


class PoolListener:
    """A model's listener and log."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.errors: list[PenstockError] = []
        self.lines: list[str] = []

    def lane_lost(self, lane: int, error: PenstockError) -> None:
        self.said.append(f"lost {lane}")
        self.errors.append(error)

    def lane_ready(self, lane: int) -> None:
        self.said.append(f"ready {lane}")

    def lane_failed(self, lane: int, error: PenstockError) -> None:
        self.said.append(f"failed {lane}")
        self.errors.append(error)


class LanesOfPool:
    """`load` a folder, then `ask` the model."""

    def __init__(self, workers: WorkerPool) -> None:
        self.workers = workers
        self.heard: dict[str, PoolListener] = {}

    async def load(self, folder: Path, *, name: str = "", **more: Any) -> Any:
        """`more`: fields of LoadContext."""
        name = name or folder.name
        heard = self.heard[name] = PoolListener()
        detected = detect(folder)
        fields: dict[str, Any] = {
            "model_dir": detected.root,
            "description": detected.description,
            "endpoint_name": "e",
            "variant_name": "v",
            "target_model": name,
            "cores": 1.0,
            "memory_bytes_max": 0,
            "startup_timeout_s": PATIENCE_S,
            "log": heard.lines.append,
            "shared_workers": self.workers,
        }
        return await load_payload_runtime(LoadContext(**(fields | more)), heard)

    def said(self, name: str) -> list[str]:
        return self.heard[name].said


@asynccontextmanager
async def pool(
    tmp_path: Path, *, worker_bytes_max: int = 0, lines: list[str] | None = None, **spec: int
) -> AsyncIterator[LanesOfPool]:
    workers = WorkerPool(
        folder=tmp_path / "shown",
        spec=SharingSpec(**spec),
        worker_bytes_max=worker_bytes_max,
        log=(lines if lines is not None else []).append,
    )
    try:
        yield LanesOfPool(workers)
    finally:
        await workers.close()
        await workers.close()  # closing twice is allowed


def model(folder: Path, source: str, *, helpers: str = "", **fields: Any) -> Path:
    """code/inference.py, and code/helpers.py beside it."""
    made = model_files.code(folder, source, **fields)
    if helpers:
        (made / "code" / "helpers.py").write_text(helpers)
    return made


def start(runtime: Any, *data: Any, lane: int = 0) -> asyncio.Future[list[PayloadReply | Returned]]:
    """A batch with one request for each of `data`."""
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    batch = [Payload(META, orjson.dumps(each)) for each in data]
    runtime.invoke(lane, batch, answered.set_result)
    assert not answered.done(), "done is called later, never from within invoke"
    return answered


async def ask(runtime: Any, data: Any = None, *, lane: int = 0) -> Any:
    """One request's answer as a value; its error, or what was `Returned`."""
    (reply,) = await asyncio.wait_for(start(runtime, data, lane=lane), PATIENCE_S)
    if isinstance(reply, Returned):
        return reply
    return reply.error if reply.error is not None else orjson.loads(reply.body)


async def ask_until_answered(runtime: Any, data: Any = None) -> Any:
    """As a gateway holds a request that came back."""
    async with asyncio.timeout(PATIENCE_S):
        told = await ask(runtime, data)
        while isinstance(told, Returned):
            await asyncio.sleep(0.05)
            told = await ask(runtime, data)
        return told
