"""Bodies that AWS's XGBoost image reads beside JSON: text/libsvm and recordio-protobuf, and CSV as
it reads it.

A record of recordio-protobuf is framed (magic, length, padding to 4 bytes), and is a protobuf
message `Record` of Amazon's algorithms: features (1) and label (2) are maps of text to Value, whose
tensors are float32 (2), float64 (3) and int32 (7), each with values (1), keys (2) of sparse ones
and shape (3). Its wire form is read here as it is: workers need no protobuf library for it.
"""

from __future__ import annotations

import csv as csv_module
import importlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from penstock.runtimes.python.tables import bad

RECORDIO: Final = "application/x-recordio-protobuf"
_MAGIC: Final = 0xCED7230A


def libsvm(body: bytes) -> Any:
    """A sparse matrix: what a line leaves out is missing. Columns that count from 1 are shifted."""
    csr_matrix = importlib.import_module("scipy.sparse").csr_matrix
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    lines = _text(body).split("\n")
    for at, line in enumerate(lines):
        for item in line.split():
            column, colon, value = item.partition(":")
            if not colon:
                continue  # a label
            try:
                rows.append(at)
                columns.append(int(column))
                values.append(float(value))
            except ValueError:
                raise bad(
                    f"line {at + 1} of the libsvm has {item[:40]!r}, not COLUMN:VALUE"
                ) from None
    if columns and min(columns) < 0:
        raise bad("the libsvm has a column below 0")
    if columns and max(columns) > _COLUMNS_MAX:
        raise bad(f"the libsvm has column {max(columns)}, {_COLUMNS_MAX} at most")
    shift = 1 if columns and min(columns) >= 1 else 0
    width = max(columns) + 1 - shift if columns else 1
    places = (rows, [column - shift for column in columns])
    return csr_matrix((values, places), shape=(len(lines), width), dtype=np.float32)


#: A column's number gives the width of a matrix.
_COLUMNS_MAX: Final = 100_000_000


def widened(matrix: Any, columns: int) -> Any:
    """The sparse matrix with `columns`, where it has fewer; one with more is unchanged, and the
    library refuses it."""
    if matrix.shape[1] < columns:
        matrix.resize((matrix.shape[0], columns))
    return matrix


def _text(body: bytes) -> str:
    try:
        text = body.decode().strip()
    except UnicodeDecodeError as error:
        raise bad(f"the body is not UTF-8: byte {error.start} cannot be read") from None
    if not text:
        raise bad("the body is empty")
    return text


def csv(text: str) -> np.ndarray:
    """Cells as numbers, empty ones as NaN; the delimiter is found as the image finds it. Raises
    ValueError, and csv.Error where there is no delimiter."""
    text = text.strip()
    found = csv_module.Sniffer().sniff(text.split("\n")[0][:512]).delimiter
    delimiter = "," if found.isalnum() else found
    lines = [
        ["nan" if cell == "" else cell for cell in line.split(delimiter)]
        for line in text.split("\n")
    ]
    return np.array(lines).astype(float)


def recordio(body: bytes) -> Any:
    """Features of all records: an array, or a sparse matrix if one of them is sparse."""
    sparse = importlib.import_module("scipy.sparse")
    rows: list[Any] = []
    try:
        for record in _records(body):
            tensor = _features(record)
            if tensor is None:
                continue
            values, keys, shape = tensor
            if keys is None and len(values):
                rows.append(values.reshape(1, -1))
                continue
            taken = np.zeros(0, np.int64) if keys is None else keys
            width = int(shape[0]) if len(shape) else int(taken.max(initial=0)) + 1
            if width > _COLUMNS_MAX or taken.max(initial=0) >= width:
                raise ValueError(f"a record has key {taken.max(initial=0)} in a row of {width}")
            rows.append(sparse.csr_matrix((values, taken, [0, len(taken)]), shape=(1, width)))
        if not rows:
            raise ValueError("it has no records")
        if all(isinstance(row, np.ndarray) for row in rows):
            return np.vstack(rows).astype(np.float32)
        return sparse.vstack([sparse.csr_matrix(row) for row in rows]).tocsr()
    except (ValueError, IndexError, struct.error) as error:
        raise bad(f"the recordio-protobuf can't be read: {error}") from None


def _records(body: bytes) -> Iterator[bytes]:
    at = 0
    while at + 8 <= len(body):
        magic, length = struct.unpack_from("<II", body, at)
        at += 8
        if magic != _MAGIC or at + length > len(body):
            raise ValueError(f"byte {at - 8} begins no whole record")
        yield body[at : at + length]
        at += length + -length % 4


def _features(record: bytes) -> tuple[np.ndarray, np.ndarray | None, np.ndarray] | None:
    for number, entry in _fields(record):
        if number != 1 or not isinstance(entry, bytes):
            continue
        parts = dict(_fields(entry))
        value = parts.get(2)
        if parts.get(1) == b"values" and isinstance(value, bytes):
            return _tensor(value)
    return None


#: Field of Value -> numpy's dtype of its values; int32 is a varint.
_TENSORS: Final = {2: "<f4", 3: "<f8", 7: "varint"}


def _tensor(value: bytes) -> tuple[np.ndarray, np.ndarray | None, np.ndarray] | None:
    for number, content in _fields(value):
        if number in _TENSORS and isinstance(content, bytes):
            parts: dict[int, list[np.ndarray]] = {1: [], 2: [], 3: []}
            for field, data in _fields(content):
                kind = _TENSORS[number] if field == 1 else "varint"
                if field in parts:
                    parts[field].append(_numbers(data, kind))
            values = np.concatenate(parts[1]) if parts[1] else np.zeros(0, np.float32)
            keys = np.concatenate(parts[2]) if parts[2] else None
            shape = np.concatenate(parts[3]) if parts[3] else np.zeros(0, np.int64)
            return values, keys, shape
    return None


def _numbers(data: bytes | int, kind: str) -> np.ndarray:
    """One number, or several packed ones."""
    if isinstance(data, int):
        return np.array([data], np.int64)
    if kind != "varint":
        return np.frombuffer(data, kind)
    found, at = [], 0
    while at < len(data):
        number, at = _varint(data, at)
        found.append(number - (1 << 64) if number >> 63 else number)
    return np.array(found, np.int64)


def _fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(message, at)
            yield number, value
            continue
        if wire == 2:
            length, at = _varint(message, at)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise ValueError(f"byte {at} is no field")
        if at + length > len(message):
            raise ValueError(f"{length} bytes should follow byte {at}")
        yield number, message[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError(f"byte {at} ends no number")


def written(rows: Sequence[Mapping[str, Sequence[float]]]) -> bytes:
    """recordio-protobuf with a record per row, whose labels are float32 tensors."""
    made = []
    for row in rows:
        record = b""
        for name, values in row.items():
            packed = np.asarray(values, "<f4").tobytes()
            value = _field(2, _field(1, packed))
            record += _field(2, _field(1, name.encode()) + _field(2, value))
        made.append(struct.pack("<II", _MAGIC, len(record)) + record + b"\0" * (-len(record) % 4))
    return b"".join(made)


def _field(number: int, content: bytes) -> bytes:
    length, size = b"", len(content)
    while size > 0x7F:
        length += bytes([size & 0x7F | 0x80])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


#: Content types that are read for any model of XGBoost.
READERS: Final = {"text/libsvm": libsvm, "text/x-libsvm": libsvm, RECORDIO: recordio}
