"""What travels with the tensors of Triton's Python models: metadata of a request, and of an answer.

    request   JSON [id, correlation id, flags, priority, timeout us, parameters, outputs, trace,
              key, slot], in the place of an item's meta; empty: a request that says nothing. A
              response names its request by the key; the slot is where `Busy` has marks for it.
    answer    u32 length, JSON object of the response's parameters, a pack of tensors
    response  RESPONSE: key u64, final u8, outcome u8, an answer or an error's bytes; worker to
              instance, at any time, in the order of each request's responses

Both ends are ours, but the worker shares its process with the model's code: what comes from there
is checked. Imports nothing that a worker's environment may lack.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import orjson

from penstock.errors import ModelError, PenstockError
from penstock.runtimes.infer_metadata import InferAnswer, InferMetadata, Parameter
from penstock.runtimes.python.batches import ERROR, RESPONSE, Answer
from penstock.runtimes.tensor_bytes import aligned_behind, packed_parts, unpack
from penstock.runtimes.workers.failures import error_of
from penstock.runtimes.workers.wire import message

_LENGTH: Final = struct.Struct("<I")
#: All response parameters of an answer together; they are no place for data.
PARAMETERS_BYTES_MAX: Final = 64 << 10

_NOTHING: Final = InferMetadata()
#: In the place of an answer's outcome: there is no answer.
_END: Final = 255


def pack_metadata(
    metadata: InferMetadata, trace: str = "", *, key: int = 0, slot: int = 0
) -> bytes:
    """`trace`: JSON of the request's trace context; empty = it is not traced."""
    if metadata == _NOTHING and not trace and not key and not slot:
        return b""
    return orjson.dumps(
        (
            metadata.request_id, metadata.correlation_id, metadata.flags, metadata.priority,
            metadata.timeout_us, dict(metadata.parameters), metadata.outputs, trace, key, slot,
        )
    )  # fmt: skip


class Told(NamedTuple):
    """What a worker knows of a request beside its tensors."""

    metadata: InferMetadata = _NOTHING
    trace: str = ""
    key: int = 0
    slot: int = 0


def unpack_metadata(data: bytes) -> Told:
    if not data:
        return Told()
    ident, correlation_id, flags, priority, timeout_us, parameters, outputs, *rest = orjson.loads(
        data
    )
    metadata = InferMetadata(
        request_id=ident, correlation_id=correlation_id, flags=flags, priority=priority,
        timeout_us=timeout_us, parameters=parameters, outputs=tuple(outputs),
    )  # fmt: skip
    return Told(metadata, *rest)


def pack_answer(tensors: Mapping[str, np.ndarray], parameters: bytes) -> bytes:
    """`parameters`: a JSON object. Raises ValueError for dtypes that the protocol lacks."""
    if len(parameters) > PARAMETERS_BYTES_MAX:
        raise ModelError(
            "answer-too-large",
            f"the response's parameters have {len(parameters)} bytes, {PARAMETERS_BYTES_MAX} at "
            "most",
            hint="Answer with a tensor in their place.",
        )
    parameters = aligned_behind(_LENGTH.size, parameters)
    return b"".join((_LENGTH.pack(len(parameters)), parameters, *packed_parts(tensors)))


def unpack_answer(data: bytes) -> InferAnswer:
    """Raises an Exception for bytes that are none."""
    (size,) = _LENGTH.unpack_from(data)
    told = data[4 : 4 + size].strip()
    parameters = plain_parameters(orjson.loads(told)) if told else {}
    return InferAnswer(unpack(memoryview(data)[4 + size :]), parameters)


def plain_parameters(given: Any) -> dict[str, Parameter]:
    """Parameters that a worker wrote. Raises an Exception where they are none."""
    for value in given.values():
        if not isinstance(value, bool | int | float | str):
            raise ValueError("a parameter is no plain value")
    return dict(given)


_RESPONSE: Final = struct.Struct("<QBB")


class Response(NamedTuple):
    """One of the responses to a request of a decoupled model."""

    key: int
    final: bool
    body: bytes | None  #: None: it only marks the end
    error: PenstockError | None


def pack_response(key: int, answer: Answer | None, *, final: bool) -> bytes:
    """A RESPONSE message; `answer` None: there are no more."""
    if answer is None:
        return message(RESPONSE, _RESPONSE.pack(key, final, _END))
    body, _, _, outcome = answer
    return message(RESPONSE, _RESPONSE.pack(key, final, outcome) + body)


def unpack_response(payload: bytes) -> Response:
    """Raises an Exception for bytes that are none."""
    key, final, outcome = _RESPONSE.unpack_from(payload)
    body = payload[_RESPONSE.size :]
    if outcome == _END:
        return Response(key, bool(final), None, None)
    if outcome == ERROR:
        return Response(key, bool(final), None, error_of(body))
    return Response(key, bool(final), body, None)
