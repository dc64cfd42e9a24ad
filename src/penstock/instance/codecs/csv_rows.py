"""text/csv for tensor models: one row per line, no header, all numbers are of one input.

Cells fill the model's fixed dimensions row by row. If its rows have one free dimension, it takes as
many cells as there are.
"""

from __future__ import annotations

import csv
import io
import math

import numpy as np

from penstock.instance.codecs import answers
from penstock.instance.codecs.base import CodecModel, Decoded, bad, check_inputs
from penstock.instance.codecs.values import cast
from penstock.runtimes.tensor_bytes import objects
from penstock.wire.plain_json import without_collector


def decode(model: CodecModel, body: bytes, accept: str | None) -> Decoded:
    encode = answers.chosen(model, accept, answers.AFTER_CSV)
    if len(model.inputs) != 1:
        raise bad(
            f"text/csv fills one input, the model has {len(model.inputs)}",
            code="unsupported-content-type",
            status=415,
            hint='Send JSON: {"inputs": {name: rows, ...}}.',
        )
    spec = model.inputs[0]
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise bad(f"the CSV is not UTF-8: byte {error.start} cannot be read") from None
    with without_collector():  # a body of short rows makes millions of lists
        array = _bytes(text) if spec.dtype == "BYTES" else _numbers(text, spec.dtype, spec.name)
    inner = spec.shape[1:] if model.batched else spec.shape
    lead = (array.shape[0],) if model.batched else ()
    tensors = {spec.name: array.reshape(_filled(lead, inner, array.size, spec.name))}
    return Decoded(tensors, check_inputs(model, tensors), encode)


def _lines(text: str) -> list[list[str]]:
    try:
        rows = [row for row in csv.reader(io.StringIO(text)) if row]
    except csv.Error as error:
        raise bad(f"the CSV cannot be read: {error}") from None
    if not rows:
        raise bad("the CSV has no rows")
    for at, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise bad(f"line {at + 1} of the CSV has {len(row)} cells, line 1 has {len(rows[0])}")
    return rows


def _numbers(text: str, dtype: str, name: str) -> np.ndarray:
    rows = _lines(text)
    values: list[float | int] = []
    for at, row in enumerate(rows):
        try:
            values += [_number(cell) for cell in row]
        except ValueError:
            raise bad(f"line {at + 1} of the CSV has a cell that is not a number") from None
    return cast(np.array(values).reshape(len(rows), -1), dtype, name)


def _number(cell: str) -> float | int:
    try:
        return int(cell)
    except ValueError:
        return float(cell)


def _bytes(text: str) -> np.ndarray:
    rows = _lines(text)
    return objects([cell.encode() for row in rows for cell in row]).reshape(len(rows), -1)


def _filled(lead: tuple[int, ...], inner: tuple[int, ...], size: int, name: str) -> tuple[int, ...]:
    """`inner` with its one free dimension computed. Raises ModelError if the cells do not fit."""
    cells = size // lead[0] if lead else size
    free = [at for at, dimension in enumerate(inner) if dimension == -1]
    fixed = math.prod(dimension for dimension in inner if dimension != -1)
    if len(free) > 1 or (free and fixed and cells % fixed) or (not free and cells != fixed):
        raise bad(
            f"{cells} cells a row do not fill input {name!r}, whose rows are {list(inner)}",
            code="bad-shape",
        )
    shape = list(inner)
    if free:
        shape[free[0]] = cells // fixed if fixed else 0
    return (*lead, *shape)
