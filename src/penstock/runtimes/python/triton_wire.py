"""What travels with the tensors of Triton's Python models: metadata of a request, and of an answer.

    request   JSON [id, correlation id, flags, priority, timeout us, parameters, outputs, trace], in
              the place of an item's meta; empty: a request that says nothing
    answer    u32 length, JSON object of the response's parameters, a pack of tensors

Both ends are ours, but the worker shares its process with the model's code: what comes from there
is checked. Imports nothing that a worker's environment may lack.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import orjson

from penstock.errors import ModelError
from penstock.runtimes.infer_metadata import InferAnswer, InferMetadata, Parameter
from penstock.runtimes.tensor_bytes import pack, unpack

_LENGTH: Final = struct.Struct("<I")
#: All response parameters of an answer together; they are no place for data.
PARAMETERS_BYTES_MAX: Final = 64 << 10

_NOTHING: Final = InferMetadata()


def pack_metadata(metadata: InferMetadata, trace: str = "") -> bytes:
    """`trace`: JSON of the request's trace context; empty = it is not traced."""
    if metadata == _NOTHING and not trace:
        return b""
    return orjson.dumps(
        (
            metadata.request_id, metadata.correlation_id, metadata.flags, metadata.priority,
            metadata.timeout_us, dict(metadata.parameters), metadata.outputs, trace,
        )
    )  # fmt: skip


def unpack_metadata(data: bytes) -> tuple[InferMetadata, str]:
    if not data:
        return _NOTHING, ""
    ident, correlation_id, flags, priority, timeout_us, parameters, outputs, trace = orjson.loads(
        data
    )
    metadata = InferMetadata(
        request_id=ident, correlation_id=correlation_id, flags=flags, priority=priority,
        timeout_us=timeout_us, parameters=parameters, outputs=tuple(outputs),
    )  # fmt: skip
    return metadata, trace


def pack_answer(tensors: Mapping[str, np.ndarray], parameters: bytes) -> bytes:
    """`parameters`: a JSON object. Raises ValueError for dtypes that the protocol lacks."""
    if len(parameters) > PARAMETERS_BYTES_MAX:
        raise ModelError(
            "answer-too-large",
            f"the response's parameters have {len(parameters)} bytes, {PARAMETERS_BYTES_MAX} at "
            "most",
            hint="Answer with a tensor in their place.",
        )
    return b"".join((_LENGTH.pack(len(parameters)), parameters, pack(tensors)))


def unpack_answer(data: bytes) -> InferAnswer:
    """Raises an Exception for bytes that are none."""
    (size,) = _LENGTH.unpack_from(data)
    parameters = plain_parameters(orjson.loads(data[4 : 4 + size])) if size else {}
    return InferAnswer(unpack(data[4 + size :]), parameters)


def plain_parameters(given: Any) -> dict[str, Parameter]:
    """Parameters that a worker wrote. Raises an Exception where they are none."""
    for value in given.values():
        if not isinstance(value, bool | int | float | str):
            raise ValueError("a parameter is no plain value")
    return dict(given)
