"""Tensors as bytes: the raw form of the Open Inference Protocol, and a pack of several with names.

`decode_raw` and `encode_raw` are the protocol's: row-major, little endian, BYTES elements each
behind a u32 length. A *pack* is how tensors cross to a worker process: a u32 length, JSON `[[name,
dtype, shape, bytes], ...]`, then the raw tensors one after the other.

Everything is checked against the bytes at hand before anything is allocated: a shape from outside
can claim any size.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from penstock.runtimes.dtypes import ELEMENT_BYTES, NUMPY, name_of

_LENGTH = struct.Struct("<I")


def decode_raw(data: bytes | memoryview, dtype: str, shape: Sequence[int]) -> np.ndarray:
    """Array of `shape` over `data` (no copy where the bytes allow it). Raises ValueError."""
    if dtype == "BYTES":
        return _decode_bytes(data, shape)
    count = math.prod(shape)
    expected = count * ELEMENT_BYTES[dtype]
    if len(data) != expected:
        raise ValueError(f"shape {list(shape)} of {dtype} takes {expected} bytes, {len(data)} came")
    if dtype == "BF16":
        halves = np.frombuffer(data, dtype="<u2").astype(np.uint32)
        return (halves << 16).view(np.float32).reshape(shape)
    return np.frombuffer(data, dtype=NUMPY[dtype].newbyteorder("<")).reshape(shape)


def _decode_bytes(data: bytes | memoryview, shape: Sequence[int]) -> np.ndarray:
    count, end, at = math.prod(shape), len(data), 0
    if count * 4 > end:
        raise ValueError(
            f"shape {list(shape)} of BYTES takes at least {count * 4} bytes, {end} came"
        )
    items: list[bytes] = []
    while at < end:
        if end - at < 4:
            raise ValueError("the last BYTES element is cut short")
        (size,) = _LENGTH.unpack_from(data, at)
        at += 4
        if size > end - at:
            raise ValueError(f"a BYTES element claims {size} bytes, {end - at} are left")
        items.append(bytes(data[at : at + size]))
        at += size
    if len(items) != count:
        raise ValueError(f"shape {list(shape)} has {count} elements, {len(items)} came")
    return objects(items).reshape(shape)


def objects(items: Sequence[Any]) -> np.ndarray:
    """A flat object array; numpy would turn equal-length bytes into a fixed-width dtype."""
    array = np.empty(len(items), dtype=np.object_)
    array[:] = items
    return array


def element_bytes(item: Any) -> bytes:
    """The bytes of one element of a BYTES tensor. Text is UTF-8; anything else is sent as its text,
    as Triton does. Raises ValueError for text with lone surrogates."""
    if isinstance(item, bytes | bytearray | memoryview):
        return bytes(item)
    return str(item).encode()


def encode_raw(array: np.ndarray, dtype: str) -> bytes:
    """The wire bytes of an array whose protocol dtype is `dtype`."""
    if dtype == "BYTES":
        parts: list[bytes] = []
        for item in array.reshape(-1).tolist():
            data = item if isinstance(item, bytes) else element_bytes(item)
            parts += (_LENGTH.pack(len(data)), data)
        return b"".join(parts)
    if dtype == "BF16":
        return _bf16(np.ascontiguousarray(array, dtype=np.float32))
    return np.ascontiguousarray(array, dtype=NUMPY[dtype].newbyteorder("<")).tobytes()


def _bf16(array: np.ndarray) -> bytes:
    """Rounds to nearest even; NaN stays NaN although rounding could carry it into infinity."""
    words = array.view(np.uint32)
    rounded = (words + 0x7FFF + ((words >> 16) & 1)) >> 16
    quiet = (words >> 16) | 0x40
    return np.where(np.isnan(array), quiet, rounded).astype("<u2").tobytes()


def pack(tensors: Mapping[str, np.ndarray]) -> bytes:
    """Several named tensors in one body. Raises ValueError for dtypes the protocol lacks."""
    head, parts = [], []
    for name, array in tensors.items():
        dtype = name_of(array)
        raw = encode_raw(array, dtype)
        head.append([name, dtype, list(array.shape), len(raw)])
        parts.append(raw)
    described = orjson.dumps(head)
    return b"".join((_LENGTH.pack(len(described)), described, *parts))


def unpack(data: bytes) -> dict[str, np.ndarray]:
    """Inverse of `pack`. The arrays are read-only views of `data` where dtypes allow it."""
    view = memoryview(data)
    (size,) = _LENGTH.unpack_from(data)
    at = 4 + size
    tensors: dict[str, np.ndarray] = {}
    for name, dtype, shape, count in orjson.loads(view[4:at]):
        tensors[name] = decode_raw(view[at : at + count], dtype, shape)
        at += count
    return tensors
