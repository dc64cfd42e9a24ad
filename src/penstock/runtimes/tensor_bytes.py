"""Tensors as bytes: the raw form of the Open Inference Protocol, and a pack of several with names.

`decode_raw` and `encode_raw` are the protocol's: row-major, little endian, BYTES elements each
behind a u32 length. A *pack* is how tensors cross to a worker process: a u32 length, JSON `[[name,
dtype, shape, bytes], ...]`, then the raw tensors one after the other. Each begins at a multiple of
16 bytes: spaces behind the JSON and zeros behind a tensor see to it. On tensors that begin at odd
places a model's numpy computes up to sixteen times as long.

Everything is checked against the bytes at hand before anything is allocated: a shape from outside
can claim any size.

Some libraries have Unicode strings alone: for them bytes become text that loses nothing. UTF-8
becomes the text that it is. A byte that is no part of UTF-8 becomes one of the last 128 code
points of Unicode (private use, never assigned), and so does every byte of a text that has one of
those, so that no two byte strings become one text and the way back is exact. This is the idea of
PEP 383 with code points that UTF-8 can write: what only moves strings about (lookups of text,
gathering, concatenation) works on any bytes.

Runtimes and codecs share the table of dtypes, and the numpy arrays that carry them. BF16 has no
numpy dtype: such a tensor is a float32 array here and is narrowed only where bytes leave. BYTES
tensors are object arrays of `bytes`.

For native runtimes, `prepared` gives arrays in the form that a library needs, and `threads_of` the
threads of a lane. Those with a kernel for each shape pad batches to `row_steps`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson

from penstock.errors import ModelError

if TYPE_CHECKING:
    from penstock.artifacts.description.description import TensorSpec
    from penstock.runtimes.base import LoadContext, Tensors

NUMPY: Final[dict[str, np.dtype[Any]]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "BF16": np.dtype(np.float32),
    "BYTES": np.dtype(np.object_),
}

#: Bytes of one element on the wire; BYTES elements have their own length.
ELEMENT_BYTES: Final = {
    name: 2 if name == "BF16" else dtype.itemsize
    for name, dtype in NUMPY.items()
    if name != "BYTES"
}

#: As the protocol's bytes are
_LITTLE: Final = {name: dtype.newbyteorder("<") for name, dtype in NUMPY.items()}
_NAMES: Final = {dtype: name for name, dtype in NUMPY.items() if name != "BF16"}


def name_of(array: np.ndarray) -> str:
    """The protocol's name for an array's dtype. Raises ValueError for dtypes that it does not
    have."""
    if array.dtype.kind in "SUO":
        return "BYTES"
    name = _NAMES.get(array.dtype)
    if name is not None:
        return name
    try:
        return _NAMES[array.dtype.newbyteorder("=")]
    except KeyError:
        raise ValueError(f"dtype {array.dtype} is not one of the protocol's") from None


_LENGTH = struct.Struct("<I")
_ALIGNED: Final = 16
#: Below it a copy costs less than a view.
_COPIED_BYTES_MAX: Final = 16 << 10


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
    return np.frombuffer(data, dtype=_LITTLE[dtype]).reshape(shape)


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
    return np.ascontiguousarray(array, dtype=_LITTLE[dtype]).tobytes()


def raw_buffer(array: np.ndarray, dtype: str) -> bytes | memoryview:
    """As `encode_raw`, uncopied where the array is large and lies in memory as it is sent."""
    if array.nbytes < _COPIED_BYTES_MAX or dtype in ("BYTES", "BF16"):
        return encode_raw(array, dtype)
    plain = np.ascontiguousarray(array, dtype=_LITTLE[dtype])
    return plain.reshape(-1).view(np.uint8).data


def _bf16(array: np.ndarray) -> bytes:
    """Rounds to nearest even; NaN stays NaN although rounding could carry it into infinity."""
    words = array.view(np.uint32)
    rounded = (words + 0x7FFF + ((words >> 16) & 1)) >> 16
    quiet = (words >> 16) | 0x40
    return np.where(np.isnan(array), quiet, rounded).astype("<u2").tobytes()


def pack(tensors: Mapping[str, np.ndarray]) -> bytes:
    """Several named tensors in one body. Raises ValueError for dtypes the protocol lacks."""
    return b"".join(packed_parts(tensors))


def packed_parts(tensors: Mapping[str, np.ndarray]) -> list[bytes | memoryview]:
    """The pack, in parts that are not joined yet; raises as `pack`."""
    head = []
    parts: list[bytes | memoryview] = [b"", b""]
    for name, array in tensors.items():
        dtype = name_of(array)
        raw = raw_buffer(array, dtype)
        head.append([name, dtype, list(array.shape), len(raw)])
        parts.append(raw)
        parts.append(bytes(-len(raw) % _ALIGNED))
    described = aligned_behind(_LENGTH.size, orjson.dumps(head))
    parts[0], parts[1] = _LENGTH.pack(len(described)), described
    return parts


def aligned_behind(before: int, described: bytes) -> bytes:
    """JSON that stands behind so many bytes, with spaces, so that what follows begins as a tensor
    of a pack does."""
    return described + b" " * (-(before + len(described)) % _ALIGNED)


def unpack(data: bytes | memoryview) -> dict[str, np.ndarray]:
    """Inverse of `pack`. The arrays are read-only views of `data` where dtypes allow it."""
    view = memoryview(data)
    (size,) = _LENGTH.unpack_from(data)
    at = 4 + size
    tensors: dict[str, np.ndarray] = {}
    for name, dtype, shape, count in orjson.loads(view[4:at]):
        tensors[name] = decode_raw(view[at : at + count], dtype, shape)
        at += count + -count % _ALIGNED
    return tensors


_FIRST: Final = 0x10FF80  #: stands for the byte 0x80; the next code points for 0x81 and so on
_BASE: Final = _FIRST - 0x80
#: The UTF-8 bytes of the 128 code points begin with one of these.
_MARKS: Final = (b"\xf4\x8f\xbe", b"\xf4\x8f\xbf")
_LONE: Final = 0xDC00  #: Python's own stand-ins for bytes ("surrogateescape"), which start here

_ESCAPED: Final[dict[int, int | str]] = {
    **{_LONE + byte: _BASE + byte for byte in range(0x80, 0x100)},
    **{
        point: "".join(chr(_BASE + byte) for byte in chr(point).encode())
        for point in range(_FIRST, 0x110000)
    },
}
_BYTES: Final = {_BASE + byte: _LONE + byte for byte in range(0x80, 0x100)}


def text_of(data: bytes) -> str:
    """The text that stands for `data`."""
    if not any(mark in data for mark in _MARKS):
        try:
            return data.decode()
        except UnicodeDecodeError:
            pass
    return data.decode("utf-8", "surrogateescape").translate(_ESCAPED)


def bytes_of(text: str) -> bytes:
    """The bytes that `text` stands for. Raises UnicodeEncodeError for lone surrogates."""
    data = text.encode()
    if not any(mark in data for mark in _MARKS):
        return data
    return text.translate(_BYTES).encode("utf-8", "surrogateescape")


def prepared(specs: tuple[TensorSpec, ...], inputs: Tensors) -> Iterator[tuple[str, np.ndarray]]:
    """Every input in the model's order, contiguous and in the model's dtype.

    Callers validate requests; a missing name here comes from our own code or a wrong description.
    """
    for spec in specs:
        array = inputs.get(spec.name)
        if array is None:
            raise ModelError(
                "input-missing",
                f"the model needs {spec.name!r}, which is not among {', '.join(inputs)}",
            )
        dtype = NUMPY.get(spec.dtype)
        if dtype is not None and array.dtype != dtype:
            array = array.astype(dtype)
        # numpy's ascontiguousarray would give a tensor without dimensions one
        yield spec.name, np.asarray(array, order="C")


def threads_of(context: LoadContext, lanes: int) -> int:
    """Intra-op threads of one lane: the description's number, else an equal share of the copy's
    cores."""
    described = context.description.threads_per_lane
    return described if described > 0 else max(1, int(context.cores / lanes))


def row_steps(rows_max: int) -> tuple[int, ...]:
    """The numbers of rows that batches are padded to: 1, 2, 4 ... and `rows_max` itself; () without
    a batch dimension."""
    if rows_max < 1:
        return ()
    return (*(1 << power for power in range((rows_max - 1).bit_length())), rows_max)
