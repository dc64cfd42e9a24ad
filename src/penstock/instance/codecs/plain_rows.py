"""Plain JSON and text/csv for tensor models: rows of values, without names of types and shapes.

JSON is a bare array of rows, `{"instances": ...}` or `{"inputs": ...}`. A model with one input
takes its rows directly; one with several takes `{"inputs": {name: rows}}` or instances that are
objects by input name. Where a row is one value, it may come without a list around it: a table's
columns as converters export them, each an input of its own. `answers` has the form of what is
answered.

CSV has one row per line and no header. All its cells are of one input, whose fixed dimensions they
fill row by row; if its rows have one free dimension, it takes as many cells as there are. A model
of several inputs takes it where each of them is one column of a table.
"""

from __future__ import annotations

import csv
import io
import math
from typing import Any

import numpy as np

from penstock.artifacts.description.description import TensorSpec
from penstock.instance.codecs import answers
from penstock.instance.codecs.base import (
    CodecModel,
    Decoded,
    Tensors,
    bad,
    check_inputs,
    input_spec,
)
from penstock.instance.codecs.values import cast, parse_json, to_array
from penstock.runtimes.tensor_bytes import objects
from penstock.wire.plain_json import without_collector


def decode_parsed(model: CodecModel, parsed: Any, accept: str | None) -> Decoded:
    return _decoded(model, parsed, answers.chosen(model, accept, answers.AFTER_JSON))


def decode_lines(model: CodecModel, body: bytes, accept: str | None) -> Decoded:
    """Bodies of `application/jsonlines`: one instance per line."""
    rows = [parse_json(line) for line in body.splitlines() if line.strip()]
    return _decoded(model, rows, answers.chosen(model, accept, answers.AFTER_JSON))


def _decoded(model: CodecModel, parsed: Any, encode: Any) -> Decoded:
    tensors = _tensors(model, parsed)
    return Decoded(tensors, check_inputs(model, tensors), encode)


def _tensors(model: CodecModel, parsed: Any) -> Tensors:
    if isinstance(parsed, dict):
        if "instances" in parsed:
            parsed = parsed["instances"]
        elif "inputs" in parsed:
            parsed = parsed["inputs"]
            if isinstance(parsed, dict):
                return _by_name(model, parsed)
        else:
            raise bad(
                'a JSON object needs "instances" or "inputs"; '
                f"its keys are {', '.join(sorted(map(repr, parsed)))[:200] or 'none'}"
            )
    if isinstance(parsed, list) and parsed and isinstance(parsed[0], dict):
        return _by_name(model, _columns(parsed))
    if len(model.inputs) != 1:
        names = ", ".join(repr(spec.name) for spec in model.inputs)
        raise bad(
            f"the model has several inputs ({names})", hint='Send {"inputs": {name: rows, ...}}.'
        )
    spec = model.inputs[0]
    return {spec.name: _fitted(to_array(parsed, spec.dtype, spec.name), spec)}


def _fitted(array: np.ndarray, spec: TensorSpec) -> np.ndarray:
    """One value for each row, where a row of the model is a list of one."""
    if spec.shape[-1:] == (1,) and array.ndim == len(spec.shape) - 1 > 0:
        return array[..., np.newaxis]
    return array


def _columns(instances: list[Any]) -> dict[str, list[Any]]:
    """Turns one object per row (keys are input names) into rows by input name."""
    names = list(instances[0])
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for at, instance in enumerate(instances):
        if not isinstance(instance, dict) or instance.keys() != columns.keys():
            raise bad(f"instance {at} does not have the inputs of instance 0: {', '.join(names)}")
        for name, value in instance.items():
            columns[name].append(value)
    return columns


def _by_name(model: CodecModel, values: dict[str, Any]) -> Tensors:
    specs = {spec.name: spec for spec in model.inputs}
    tensors: Tensors = {}
    for name, value in values.items():
        spec = input_spec(specs, name)
        tensors[name] = _fitted(to_array(value, spec.dtype, name), spec)
    return tensors


def decode_csv(model: CodecModel, body: bytes, accept: str | None) -> Decoded:
    encode = answers.chosen(model, accept, answers.AFTER_CSV)
    if len(model.inputs) != 1 and not _is_table(model):
        raise bad(
            f"text/csv fills one input, the model has {len(model.inputs)}",
            code="unsupported-content-type",
            status=415,
            hint='Send JSON: {"inputs": {name: rows, ...}}.',
        )
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise bad(f"the CSV is not UTF-8: byte {error.start} cannot be read") from None
    if len(model.inputs) != 1:
        tensors = _table(model, text)
        return Decoded(tensors, check_inputs(model, tensors), encode)
    spec = model.inputs[0]
    with without_collector():  # a body of short rows makes millions of lists
        array = _bytes(text) if spec.dtype == "BYTES" else _numbers(text, spec.dtype, spec.name)
    inner = spec.shape[1:] if model.batched else spec.shape
    lead = (array.shape[0],) if model.batched else ()
    tensors = {spec.name: array.reshape(_filled(lead, inner, array.size, spec.name))}
    return Decoded(tensors, check_inputs(model, tensors), encode)


def _is_table(model: CodecModel) -> bool:
    """Whether each input is one column: a value a row."""
    return all(len(spec.shape) == 2 and spec.shape[1] == 1 for spec in model.inputs)


def _table(model: CodecModel, text: str) -> Tensors:
    """The columns of the CSV as the model's inputs, in their order."""
    rows = _lines(text)
    if len(rows[0]) != len(model.inputs):
        names = ", ".join(repr(spec.name) for spec in model.inputs)
        raise bad(
            f"a row of the CSV has {len(rows[0])} cells, the model has {len(model.inputs)} "
            f"columns: {names}",
            code="bad-shape",
        )
    tensors: Tensors = {}
    for at, spec in enumerate(model.inputs):
        column = [row[at] for row in rows]
        if spec.dtype == "BYTES":
            array = objects([cell.encode() for cell in column])
        else:
            try:
                array = cast(np.array([_number(cell) for cell in column]), spec.dtype, spec.name)
            except ValueError:
                raise bad(f"column {at + 1} of the CSV has a cell that is not a number") from None
        tensors[spec.name] = array.reshape(-1, 1)
    return tensors


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
