"""Warm-up requests of a description as heads and bodies, the same bytes in each load."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

import numpy as np
import orjson

from penstock.artifacts.description.description import WarmUp, WarmUpTensor
from penstock.artifacts.files.model_files import inside
from penstock.errors import ModelError
from penstock.runtimes.dtypes import NUMPY
from penstock.runtimes.tensor_bytes import encode_raw, objects
from penstock.wire.frames import RequestMeta

#: As large as a request may be by default, and more than a warm-up should need.
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
#: Small enough to be an index into any vocabulary.
_INTEGER_MAX: Final = 100


def request_of(root: Path, warm_up: WarmUp) -> tuple[RequestMeta, bytes]:
    """Reads files; raises ModelError (`warmup-failed`) or CallerError where they are not there."""
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
    """In the Open Inference Protocol's binary form."""
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
