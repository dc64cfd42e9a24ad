"""Loads a model and lets it answer its own sample requests before all others, within the time limit
of its start.

The requests are in its description. They take the way of all requests, through codec, batcher and
runtime. So everything that is made on first use exists afterwards: kernels, caches, connections,
modules that the model's own code loads lazily. A separate copy takes them; the copy that serves
begins with empty counts. A model that does not answer them is not loaded. The text runtimes' own
warm-up of each shape has run before. Generated requests have the same bytes in each load.

This module uses a loaded model through a copy, as the server does; it does not know which copies
exist, and where other requests come from.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson

from penstock.artifacts.description.description import ModelDescription, WarmUp, WarmUpTensor
from penstock.artifacts.files.model_files import inside
from penstock.cleanup import shielded
from penstock.clock import SystemClock
from penstock.errors import ModelError, PenstockError
from penstock.instance.copy import Copy, CopyCall
from penstock.instance.loading.load import Prepared
from penstock.instance.loading.load import load as load_cold
from penstock.instance.loading.loaded import Loaded
from penstock.instance.loading.phases import WARMING_UP
from penstock.runtimes.base import LaneListener, LoadContext, Returned
from penstock.runtimes.tensor_bytes import NUMPY, encode_raw, objects
from penstock.wire import frames
from penstock.wire.frames import RequestMeta

#: The default limit of a request, and more than a warm-up should need.
FILE_BYTES_MAX: Final = 64 << 20
_TYPES: Final = {
    ".json": "application/json",
    ".jsonl": "application/jsonlines",
    ".csv": "text/csv",
    ".txt": "text/plain",
    ".npy": "application/x-npy",
    ".npz": "application/x-npz",
    ".jpg": "image/jpeg",
    ".png": "image/png",
}
_KEY: Final = "warmup"
_SEED: Final = 0
#: Small enough to be a valid index in any vocabulary.
_INTEGER_MAX: Final = 100


def request_of(root: Path, warm_up: WarmUp) -> tuple[RequestMeta, bytes]:
    """Reads files; raises ModelError (`warmup-failed`) or CallerError where they are missing."""
    if warm_up.tensors:
        return _tensors(root, warm_up)
    accept = warm_up.accept or None
    if warm_up.file:
        kind = warm_up.content_type or _TYPES.get(Path(warm_up.file).suffix.lower(), "")
        if not kind:
            raise ModelError(
                "warmup-failed",
                f"warm-up file {warm_up.file} has no content type",
                hint="Give its content_type in model.yaml.",
            )
        return RequestMeta(kind, accept), _read(root, warm_up.file)
    kind = warm_up.content_type or "application/json"
    return RequestMeta(kind, accept), warm_up.body.encode()


def _tensors(root: Path, warm_up: WarmUp) -> tuple[RequestMeta, bytes]:
    """The tensors in the Open Inference Protocol's binary form."""
    raws = [_raw(root, tensor) for tensor in warm_up.tensors]
    inputs = [
        {
            "name": tensor.name,
            "datatype": tensor.dtype,
            "shape": tensor.shape,
            "parameters": {"binary_data_size": len(raw)},
        }
        for tensor, raw in zip(warm_up.tensors, raws, strict=True)
    ]
    head = orjson.dumps({"inputs": inputs})
    meta = RequestMeta("application/octet-stream", json_header_bytes=len(head), door="oip")
    return meta, b"".join((head, *raws))


def _raw(root: Path, tensor: WarmUpTensor) -> bytes:
    if tensor.file:
        return _read(root, tensor.file)
    count = math.prod(tensor.shape)
    if tensor.dtype == "BYTES":
        words = [b"warm" if tensor.fill == "random" else b""] * count
        return encode_raw(objects(words), tensor.dtype)
    dtype = NUMPY[tensor.dtype]
    if tensor.fill == "zeros":
        return encode_raw(np.zeros(count, dtype), tensor.dtype)
    random = np.random.default_rng(_SEED)
    if dtype.kind == "f":
        return encode_raw(random.random(count).astype(dtype), tensor.dtype)
    top = 2 if dtype.kind == "b" else _INTEGER_MAX
    return encode_raw(random.integers(0, top, count).astype(dtype), tensor.dtype)


def _read(root: Path, file: str) -> bytes:
    path = inside(root, file, key=_KEY)
    size = path.stat().st_size
    if size > FILE_BYTES_MAX:
        raise ModelError(
            "warmup-failed",
            f"warm-up file {file} has {size} bytes, {FILE_BYTES_MAX} at most",
            hint="Warm up with less.",
        )
    return path.read_bytes()


_CODE: Final = "warmup-failed"


async def load(model: Prepared, listener: LaneListener) -> Loaded:
    """Like `loading.load.load`, with warm-up. Raises ModelError: `warmup-failed` with the model's
    wrong answer, or `worker-died` where its worker died; then nothing of it is left."""
    loop = asyncio.get_running_loop()
    context = model.context
    until = loop.time() + context.startup_timeout_s
    loaded = await load_cold(model, listener)
    loaded.described["sample"] = await asyncio.to_thread(_sample, context)
    if not context.description.warmup:
        return loaded
    began = loop.time()
    context.phase(WARMING_UP)
    try:
        async with asyncio.timeout_at(until):
            await _warm_up(loaded, context.model_dir, context.description)
    except TimeoutError:
        await shielded(loaded.close())
        raise ModelError(
            _CODE,
            f"the model did not start and warm up within {context.startup_timeout_s:g} s",
            hint="Warm up with less, or raise ContainerStartupHealthCheckTimeoutInSeconds.",
        ) from None
    except BaseException:
        await shielded(loaded.close())
        raise
    loaded.warm_up_s = loop.time() - began
    return loaded


_SAMPLE_BYTES_MAX: Final = 8192


def _sample(context: LoadContext) -> dict[str, str] | None:
    """The first warm-up request that is a short text, to be shown as an example of a request."""
    for each in context.description.warmup:
        if each.tensors:
            continue
        try:
            meta, body = request_of(context.model_dir, each)
            if len(body) <= _SAMPLE_BYTES_MAX:
                return {"content_type": meta.content_type or "", "body": body.decode()}
        except (PenstockError, UnicodeDecodeError):
            continue  # a wrong request is told by the warm-up itself
    return None


async def _warm_up(loaded: Loaded, root: Path, description: ModelDescription) -> None:
    """Sends each request as often as it says, on every lane."""
    clock = SystemClock()
    loop = asyncio.get_running_loop()
    # No other requests come: waiting for more would only take time.
    spec = replace(loaded.spec, wait_s_max=0.0, latency_s_p99_max=None)
    copy = Copy(
        0,
        loaded.work,
        spec,
        clock=clock,
        call_at=lambda at, call: loop.call_later(max(0.0, at - clock.monotonic()), call),
        elsewhere=elsewhere,
    )
    lanes = 1 if loaded.work.one_worker else spec.lanes
    try:
        for number, each in enumerate(description.warmup):
            try:
                asked = [await asyncio.to_thread(request_of, root, each)] * lanes
            except PenstockError as error:
                raise _failed(each, number, error.message, error.hint) from None
            if description.sequences is not None:
                asked = [_in_sequence(*one, lane + 1) for lane, one in enumerate(asked)]
            for _ in range(each.times):
                calls = [CopyCall() for _ in range(lanes)]
                for ident, (call, (meta, body)) in enumerate(zip(calls, asked, strict=True)):
                    call.begin(copy, ident, frames.encode_request_meta(meta), body)
                outcomes = await asyncio.gather(*(call.outcome for call in calls))
                for returned in (one for one in outcomes if isinstance(one, Returned)):
                    words = f"{_name(each, number)} was given back: {returned.reason}"
                    raise ModelError("worker-died", words)
                for wrong in (one for one in outcomes if isinstance(one, PenstockError)):
                    raise _failed(each, number, wrong.message, wrong.hint)
    finally:
        copy.driver.close()


def _in_sequence(meta: RequestMeta, body: bytes, sequence: int) -> tuple[RequestMeta, bytes]:
    """The request as the only one of a sequence; one of another form is left as it is."""
    at = meta.json_header_bytes
    if at is None:
        return meta, body
    flags = {"sequence_id": sequence, "sequence_start": True, "sequence_end": True}
    head = orjson.dumps({**orjson.loads(body[:at]), "parameters": flags})
    return meta._replace(json_header_bytes=len(head)), head + body[at:]


def elsewhere(work: Callable[[], Any], done: Callable[[Any], None]) -> None:
    """Runs the work on a thread, so that other models of the instance can answer meanwhile."""

    def over(future: asyncio.Future[Any]) -> None:
        if not future.cancelled():
            done(future.exception() or future.result())

    asyncio.get_running_loop().run_in_executor(None, work).add_done_callback(over)


def _failed(request: WarmUp, number: int, message: str, hint: str) -> ModelError:
    return ModelError(
        _CODE,
        f"{_name(request, number)} was not answered: {message}",
        hint=hint or "Correct it in model.yaml or config.pbtxt, or take it out.",
    )


def _name(request: WarmUp, number: int) -> str:
    return f"warm-up request {request.name or number + 1}"
