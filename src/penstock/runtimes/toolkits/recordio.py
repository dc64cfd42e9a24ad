"""RecordIO with SageMaker's protobuf records: rows of features, dense or sparse.

A record's frame is a magic number, its length and padding to four bytes. Its message is Record of
aialgs.data: `features` (field 1) maps a name to a Value, whose tensor (float32: field 2, float64:
3, int32: 7) has values (1), keys (2) and shape (3). The few wire types that occur are read and
written here, so that a model's environment needs no protobuf.
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

RECORDIO: Final = "application/x-recordio-protobuf"
#: A column's number gives the width of a matrix, and the library's memory for it.
COLUMNS_MAX: Final = 100_000_000
_MAGIC: Final = 0xCED7230A
_FEATURES: Final = 1
_KEY, _VALUE = 1, 2  # of an entry of a map
_TENSORS: Final = {2: "<f4", 3: "<f8", 7: ""}  #: field -> dtype of packed values; "" = varints
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VALUES, _KEYS, _SHAPE = 1, 2, 3

#: One row: columns (empty: all of them in order), values, number of columns (0: not said).
Row = tuple[list[int], list[float], int]


def features(body: bytes) -> Any:
    """The rows' features: an array, or a CSR matrix if a record is sparse. Raises ValueError."""
    import numpy as np

    rows = [_row(record) for record in _records(body)]
    if not rows:
        raise ValueError("there are no records")
    if any(columns or width for columns, _, width in rows):
        return sparse([(columns or list(range(len(v))), v, width) for columns, v, width in rows])
    return np.array([values for _, values, _ in rows], dtype=np.float32)


def sparse(rows: list[Row]) -> Any:
    """A CSR matrix, in which what is absent is missing."""
    import numpy as np

    csr_matrix = importlib.import_module("scipy.sparse").csr_matrix
    starts = np.cumsum([0, *(len(columns) for columns, _, _ in rows)])
    columns = [each for row in rows for each in row[0]]
    values = [each for row in rows for each in row[1]]
    highest = max(columns, default=0)
    width = max((row[2] for row in rows), default=0) or highest + 1
    if min(columns, default=0) < 0 or highest >= width or width > COLUMNS_MAX:
        raise ValueError(f"it has column {highest} of {width}: from 0 to {COLUMNS_MAX} are read")
    return csr_matrix((values, columns, starts), shape=(len(rows), width), dtype=np.float32)


def _records(body: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(body):
        if at + 8 > len(body):
            raise ValueError(f"a record's head is cut off at byte {at}")
        magic, size = struct.unpack_from("<II", body, at)
        if magic != _MAGIC:
            raise ValueError(f"no record begins at byte {at}")
        at += 8
        if at + size > len(body):
            raise ValueError(f"a record is cut off at byte {at}")
        yield body[at : at + size]
        at += (size + 3) // 4 * 4


def _row(record: bytes) -> Row:
    for field, _, entry in _fields(record):
        if field != _FEATURES:
            continue
        parts = {number: value for number, _, value in _fields(_as_bytes(entry))}
        if parts.get(_KEY) in (b"values", None):
            return _tensor(_as_bytes(parts.get(_VALUE, b"")))
    raise ValueError("a record has no features named 'values'")


def _tensor(value: bytes) -> Row:
    for field, _, content in _fields(value):
        if field in _TENSORS:
            return _numbers(_as_bytes(content), _TENSORS[field])
    raise ValueError("a record's features are no tensor of numbers")


def _numbers(tensor: bytes, dtype: str) -> Row:
    import numpy as np

    values: list[float] = []
    columns: list[int] = []
    shape: list[int] = []
    for field, wire_type, content in _fields(tensor):
        if field == _VALUES and dtype:
            values += np.frombuffer(_as_bytes(content), dtype).tolist()
        elif field == _VALUES:
            values += map(float, _signed(_integers(wire_type, content)))
        elif field == _KEYS:
            columns += _integers(wire_type, content)
        elif field == _SHAPE:
            shape += _integers(wire_type, content)
    width = shape[0] if shape else 0
    if not columns:
        return [], values, width if len(values) != width else 0
    if len(columns) != len(values):
        raise ValueError("a sparse record has other numbers of keys and values")
    return columns, values, width


def _signed(numbers: list[int]) -> list[int]:
    """int32 is written as 64 bits, in two's complement."""
    return [each - (1 << 64) if each >= 1 << 63 else each for each in numbers]


def _integers(wire_type: int, content: int | bytes) -> list[int]:
    """Packed or single varints."""
    if wire_type == _VARINT:
        return [int(content)]
    data, at, found = _as_bytes(content), 0, []
    while at < len(data):
        number, at = _varint(data, at)
        found.append(number)
    return found


def _as_bytes(content: int | bytes) -> bytes:
    if isinstance(content, int):
        raise ValueError("a record is not SageMaker's protobuf message")
    return content


def _fields(message: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """(field number, wire type, content) of a protobuf message; fixed numbers stay bytes."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        wire_type = tag & 7
        if wire_type == _VARINT:
            number, at = _varint(message, at)
            yield tag >> 3, wire_type, number
            continue
        if wire_type == _BYTES:
            size, at = _varint(message, at)
        elif wire_type in (_FIXED32, _FIXED64):
            size = 4 if wire_type == _FIXED32 else 8
        else:
            raise ValueError(f"a record has a field of wire type {wire_type}")
        if at + size > len(message):
            raise ValueError("a record's message is cut off")
        yield tag >> 3, wire_type, message[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, at
    raise ValueError("a record's number is cut off")


def written(rows: Sequence[Mapping[str, Sequence[float]]]) -> bytes:
    """A record for each row, whose labels are float32 tensors."""
    import numpy as np

    made = []
    for row in rows:
        record = b""
        for name, values in row.items():
            value = _field(2, _field(_VALUES, np.asarray(values, "<f4").tobytes()))
            record += _field(2, _field(_KEY, name.encode()) + _field(_VALUE, value))
        made.append(struct.pack("<II", _MAGIC, len(record)) + record + b"\0" * (-len(record) % 4))
    return b"".join(made)


def _field(number: int, content: bytes) -> bytes:
    length, size = b"", len(content)
    while size > 0x7F:
        length += bytes([size & 0x7F | 0x80])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content
