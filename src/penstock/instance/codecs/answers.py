"""Answers to plain requests (without the Open Inference Protocol): JSON predictions, CSV, NPY, NPZ.

The default is the request's own family; Accept chooses among all of them. JSON has a row per row of
the request: its value for one output, an object by output name for several. An output whose values
have names (`CodecModel.columns`) has rows that are objects, too; other types have its plain tensor.
An answer without rows (`in_rows`) is an object of whole tensors.
"""

from __future__ import annotations

import io
from typing import Any, Final

import numpy as np

from penstock.errors import ModelError
from penstock.instance.codecs.base import (
    CSV,
    JSON,
    NPY,
    NPZ,
    CodecModel,
    Encode,
    Tensors,
    in_rows,
    negotiate,
)
from penstock.instance.codecs.values import dump_json, jsonable, strings
from penstock.runtimes.tensor_bytes import element_bytes, objects
from penstock.wire.frames import ReplyMeta, encode_reply_meta

AFTER_JSON: Final = (JSON, CSV, NPY, NPZ)
AFTER_CSV: Final = (CSV, JSON, NPY, NPZ)
AFTER_NPY: Final = (NPY, JSON, CSV, NPZ)
AFTER_NPZ: Final = (NPZ, JSON, CSV, NPY)

_METAS: Final = {
    kind: encode_reply_meta(ReplyMeta(content_type=kind)) for kind in (JSON, CSV, NPY, NPZ)
}


def chosen(model: CodecModel, accept: str | None, offered: tuple[str, ...]) -> Encode:
    """The encoder for this Accept header. Raises ModelError 406.

    A type that holds one tensor is no default where the model has several outputs.
    """
    if len(model.outputs) > 1 and offered[0] in (CSV, NPY):
        offered = (JSON, *(kind for kind in offered if kind != JSON))
    kind = negotiate(accept, offered)
    write, meta = _WRITERS[kind], _METAS[kind]

    def encode(outputs: Tensors) -> tuple[bytes, bytes]:
        return write(outputs, model), meta

    return encode


def lines(model: CodecModel, accept: str | None, offered: tuple[str, ...]) -> Encode | None:
    """An encoder that writes a row as one line of JSON, without `predictions` around it; None where
    Accept asks for another type. Raises ModelError 406."""
    if negotiate(accept, offered) != JSON:
        return None

    def encode(outputs: Tensors) -> tuple[bytes, bytes]:
        if not in_rows(model, outputs) or len(next(iter(outputs.values()))) != 1:
            return predictions(outputs, model), _METAS[JSON]
        row = {name: _column(array, name, model)[0] for name, array in outputs.items()}
        return dump_json(next(iter(row.values())) if len(row) == 1 else row), _METAS[JSON]

    return encode


def predictions(outputs: Tensors, model: CodecModel) -> bytes:
    columns = {name: _column(array, name, model) for name, array in outputs.items()}
    if len(outputs) == 1:
        return dump_json({"predictions": next(iter(columns.values()))})
    if not in_rows(model, outputs):
        return dump_json({"predictions": columns})
    rows = len(next(iter(outputs.values())))
    listed: list[dict[str, Any]] = [
        {name: _row(column, at) for name, column in columns.items()} for at in range(rows)
    ]
    return dump_json({"predictions": listed})


def _column(array: np.ndarray, name: str, model: CodecModel) -> Any:
    """An output as `dump_json` takes it: an array, or a list."""
    keys = model.columns.get(name)
    if keys is None:
        return jsonable(array, name)
    return [dict(zip(keys, row, strict=True)) for row in jsonable(array, name)]


def _row(column: Any, at: int) -> Any:
    row = column[at]
    return np.ascontiguousarray(row) if isinstance(row, np.ndarray) else row


def _single(outputs: Tensors, kind: str) -> np.ndarray:
    if len(outputs) == 1:
        return next(iter(outputs.values()))
    raise ModelError(
        "not-acceptable",
        f"{kind} holds one tensor, the model has {len(outputs)} outputs: {', '.join(outputs)}",
        hint=f"Accept {JSON} or {NPZ}.",
        original_status=406,
    )


def csv(outputs: Tensors, model: CodecModel) -> bytes:
    """One row per line, all further dimensions flattened; a single vector is one row."""
    array = _single(outputs, CSV)
    name = next(iter(outputs))
    lines = len(array) if array.ndim >= (1 if in_rows(model, outputs) else 2) else 1
    flat = array.reshape(lines, array.size // lines if lines else 0)
    if array.dtype.kind in "OSU":
        texts = [[_quoted(cell) for cell in row] for row in strings(flat, name)]
    else:
        texts = [[str(cell) for cell in row] for row in flat.tolist()]
        if flat.dtype.kind == "f" and flat.dtype.itemsize < 8:
            # The shortest text that is read back as the same float32, not its float64 digits.
            texts = [[str(cell) for cell in row] for row in flat]
    return ("\n".join(",".join(row) for row in texts) + "\n").encode()


def _quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if any(c in cell for c in ',"\r\n') else cell


def npy(outputs: Tensors, model: CodecModel) -> bytes:
    buffer = io.BytesIO()
    array = _single(outputs, NPY)
    np.save(buffer, _plain(array, next(iter(outputs))), allow_pickle=False)
    return buffer.getvalue()


def npz(outputs: Tensors, model: CodecModel) -> bytes:
    buffer = io.BytesIO()
    plain: dict[str, Any] = {name: _plain(array, name) for name, array in outputs.items()}
    np.savez(buffer, **plain)
    return buffer.getvalue()


def _plain(array: np.ndarray, name: str) -> np.ndarray:
    """BYTES in a fixed-width dtype: object arrays would need pickle."""
    if array.dtype.kind != "O":
        return array
    items = [element_bytes(item) for item in array.reshape(-1).tolist()]
    if any(item.endswith(b"\0") for item in items):
        raise ModelError(
            "not-acceptable",
            f"output {name!r} has an element that ends with a zero byte, which NPY would lose",
            hint="Ask for it over the Open Inference Protocol.",
            original_status=406,
        )
    return objects(items).astype(np.bytes_).reshape(array.shape)


_WRITERS: Final = {JSON: predictions, CSV: csv, NPY: npy, NPZ: npz}
