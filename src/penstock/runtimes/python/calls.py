"""Calls of a Python model to other models of its artifact, as messages on its worker's socket.

    CALL     u32 length, JSON {"i": number, "m": model, "v": version, "o": outputs, "t": timeout in
             us}, a pack of tensors (`tensor_bytes`); worker to instance
    CALLED   u32 length, JSON {"i": number} and a pack of tensors, or {"i", "e": words, "c": code}
             without one; instance to worker

A worker may have many calls under way; they are answered in any order.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import orjson

from penstock.runtimes.tensor_bytes import pack, unpack
from penstock.runtimes.workers.wire import PAYLOAD_BYTES_MAX, message

CALL: Final = 12
CALLED: Final = 13

_LENGTH: Final = struct.Struct("<I")


class WorkerCall(NamedTuple):
    number: int
    model: str
    version: int  #: -1: whichever is served
    outputs: tuple[str, ...]
    timeout_s: float | None
    tensors: dict[str, np.ndarray]


class Called(NamedTuple):
    number: int
    tensors: dict[str, np.ndarray]
    error: str | None  #: words; then there are no tensors
    code: int  #: of `pb_utils.TritonError`


def pack_call(
    number: int,
    model: str,
    version: int,
    outputs: Sequence[str],
    timeout_us: int,
    tensors: Mapping[str, np.ndarray],
) -> bytes:
    """A CALL message. Raises ValueError for tensors that the protocol lacks, or too large ones."""
    head = {"i": number, "m": model, "v": version, "o": list(outputs), "t": timeout_us}
    return _message(CALL, head, pack(tensors))


def unpack_call(payload: bytes) -> WorkerCall:
    """What a worker says; its process is also the model's. Raises an Exception for what is none."""
    head, rest = _split(payload)
    outputs = tuple(str(name) for name in head["o"])
    timeout_us = int(head["t"])
    return WorkerCall(
        number=int(head["i"]),
        model=str(head["m"]),
        version=int(head["v"]),
        outputs=outputs,
        timeout_s=timeout_us / 1e6 if timeout_us > 0 else None,
        tensors=unpack(rest),
    )


def pack_called(number: int, tensors: Mapping[str, np.ndarray]) -> bytes:
    """A CALLED message with an answer. Raises ValueError for one that is too large."""
    return _message(CALLED, {"i": number}, pack(tensors))


def pack_refused(number: int, words: str, code: int) -> bytes:
    """A CALLED message with an error."""
    return _message(CALLED, {"i": number, "e": words, "c": code}, b"")


def unpack_called(payload: bytes) -> Called:
    head, rest = _split(payload)
    if "e" in head:
        return Called(head["i"], {}, head["e"], head["c"])
    return Called(head["i"], unpack(rest), None, 0)


def _message(kind: int, head: dict[str, Any], body: bytes) -> bytes:
    written = orjson.dumps(head)
    payload = b"".join((_LENGTH.pack(len(written)), written, body))
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise ValueError(f"the tensors have {len(payload)} bytes, {PAYLOAD_BYTES_MAX} at most")
    return message(kind, payload)


def _split(payload: bytes) -> tuple[dict[str, Any], bytes]:
    (size,) = _LENGTH.unpack_from(payload)
    head = orjson.loads(payload[4 : 4 + size])
    if not isinstance(head, dict):
        raise ValueError("a call's head is no object")
    return head, payload[4 + size :]
