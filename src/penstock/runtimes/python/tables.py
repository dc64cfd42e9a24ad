"""Bodies of requests as rows of values, in the worker of a model that takes a table.

JSON is a list of rows, a list of objects by column, `{"instances": ...}`, `{"inputs": ...}` (rows,
or columns by name), `{"columns": [...], "data": [...]}` as pandas writes it, or MLflow's
`dataframe_split` and `dataframe_records`. CSV has no header, unless its first line holds exactly
the model's names. NPY is one array. Nothing is guessed: a text is no number, and columns are put in
the model's order only by their names.

Runs in another environment than the server's: imports the standard library, numpy and orjson.
"""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson

from penstock.errors import ModelError
from penstock.wire import plain_json

JSON: Final = ("application/json", "")
JSON_LINES: Final = ("application/jsonlines", "application/x-jsonlines", "application/jsonl")
CSV: Final = "text/csv"
NPY: Final = "application/x-npy"
#: Names of columns that errors list.
_SHOWN_MAX: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """The columns that a model takes."""

    count: int = 0  #: 0 = it does not say
    names: tuple[str, ...] = ()
    mixed: bool = False  #: columns may hold text; else all are numbers
    texts: frozenset[int] = frozenset()  #: columns that hold text
    dtype: str = "FP64"  #: of the numbers, in the Open Inference Protocol

    def shown(self, at: int) -> str:
        name = f" ({self.names[at]!r})" if at < len(self.names) else ""
        return f"feature {at}{name}"

    def listed(self) -> str:
        more = ", ..." if len(self.names) > _SHOWN_MAX else ""
        return f" ({', '.join(self.names[:_SHOWN_MAX])}{more})" if self.names else ""


@dataclass(slots=True)
class BodyRows:
    rows: Any  #: a list of rows, or an array
    wanted: tuple[str, ...] = ()  #: outputs that the body names


def bad(message: str, *, code: str = "bad-input", status: int = 400, hint: str = "") -> ModelError:
    """The error for a body that the model can't take."""
    return ModelError(code, message, hint=hint, original_status=status)


def read(features: Features, kind: str, body: bytes) -> BodyRows | None:
    """The rows of a body; None for a content type that is not read here. Raises ModelError."""
    if kind not in (*JSON, *JSON_LINES, CSV, NPY):
        return None
    if not body.strip():
        raise bad("the body is empty", hint="Send rows, such as [[1.0, 2.0]].")
    if kind in JSON:
        return _json(features, _parsed(body))
    if kind in JSON_LINES:
        lines = [_parsed(line) for line in body.splitlines() if line.strip()]
        return BodyRows(_checked(features, _records_or_rows(features, lines)))
    if kind == CSV:
        return BodyRows(_checked(features, _csv(features, body)))
    return BodyRows(_checked(features, _npy(body)))


def _parsed(body: bytes) -> Any:
    try:
        return plain_json.loads(body)
    except orjson.JSONDecodeError as error:
        special = any(word in body for word in (b"NaN", b"Infinity"))
        hint = "JSON has no NaN and no Infinity: send null for a missing value." if special else ""
        raise bad(f"the body is not JSON: {error}", code="bad-json", hint=hint) from None


_FORMS: Final = 'Send rows, such as {"instances": [[1.0, 2.0]]}, or one object by column for each.'


def _json(features: Features, parsed: Any) -> BodyRows:
    wanted: tuple[str, ...] = ()
    if isinstance(parsed, dict):
        wanted = _wanted(parsed.get("outputs"))
        parsed = _rows_of(features, parsed)
    return BodyRows(_checked(features, _records_or_rows(features, parsed)), wanted)


def _wanted(given: Any) -> tuple[str, ...]:
    if given is None:
        return ()
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise bad('"outputs" is not a list of names', hint='As in {"outputs": ["predict_proba"]}.')
    return tuple(given)


def _rows_of(features: Features, parsed: dict[str, Any]) -> Any:
    if "dataframe_split" in parsed:
        parsed = parsed["dataframe_split"]
    if isinstance(parsed, dict) and {"columns", "data"} <= parsed.keys():
        return _split(features, parsed["columns"], parsed["data"])
    for key in ("instances", "inputs", "dataframe_records"):
        if key in parsed:
            value = parsed[key]
            return _by_column(features, value) if isinstance(value, dict) else value
    keys = ", ".join(sorted(map(repr, parsed)))[:200] or "none"
    raise bad(
        f'a JSON object needs "instances", "inputs" or "data"; its keys are {keys}', hint=_FORMS
    )


def _split(features: Features, names: Any, rows: Any) -> Any:
    if not isinstance(names, list) or not isinstance(rows, list):
        raise bad('"columns" and "data" are not both lists', hint=_FORMS)
    order = _order(features, [str(name) for name in names])
    for at, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != len(names):
            got = f"{len(row)} values" if isinstance(row, list) else "no list"
            raise bad(f'row {at} of "data" is {got}, and there are {len(names)} columns')
    return [[row[place] for place in order] for row in rows]


def _by_column(features: Features, columns: dict[str, Any]) -> list[list[Any]]:
    """Rows from `{name: [value, ...]}`; a value may be a list of one, as tensors [rows, 1] are."""
    values = []
    for name, column in columns.items():
        if not isinstance(column, list) or len(column) != len(next(iter(columns.values()))):
            raise bad(f"column {name[:80]!r} is no list as long as the others", hint=_FORMS)
        values.append(
            [one[0] if isinstance(one, list) and len(one) == 1 else one for one in column]
        )
    order = _order(features, list(columns))
    return [list(row) for row in zip(*(values[place] for place in order), strict=True)]


def _records_or_rows(features: Features, rows: Any) -> Any:
    if not isinstance(rows, list):
        raise bad(f"the rows are {type(rows).__name__}, not a list", hint=_FORMS)
    if not rows or not isinstance(rows[0], dict):
        return rows
    names = list(rows[0])
    order = [names[place] for place in _order(features, names)]
    for at, row in enumerate(rows):
        if not isinstance(row, dict) or row.keys() != rows[0].keys():
            raise bad(f"row {at} does not have the columns of row 0: {', '.join(names)[:300]}")
    return [[row[name] for name in order] for row in rows]


def _order(features: Features, given: list[str]) -> list[int]:
    """The places of the model's columns among those that came, in the model's order."""
    if not features.names:
        raise bad(
            "columns have names, and the model knows its columns by their places alone",
            hint="Send rows as lists, in the order in which the model was fitted.",
        )
    for name in features.names:
        if name not in given:
            raise bad(f"column {name!r} is missing; the model takes{features.listed()}")
    for name in given:
        if name not in features.names:
            raise bad(f"column {name[:80]!r} is not one of the model's{features.listed()}")
    places = {name: place for place, name in enumerate(given)}
    return [places[name] for name in features.names]


def _csv(features: Features, body: bytes) -> list[list[Any]]:
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise bad(f"the CSV is not UTF-8: byte {error.start} cannot be read") from None
    try:
        lines = [line for line in csv.reader(io.StringIO(text)) if line]
    except csv.Error as error:
        raise bad(f"the CSV cannot be read: {error}") from None
    if features.names and sorted(lines[0]) == sorted(features.names):
        order = _order(features, lines[0])
        _same_width(lines)
        lines = [[line[place] for place in order] for line in lines[1:]]
    return (
        _mixed(features, lines)
        if features.mixed
        else [_numbers(features, lines, at) for at in range(len(lines))]
    )


def _numbers(features: Features, lines: list[list[str]], at: int) -> list[float]:
    row = []
    for place, cell in enumerate(lines[at]):
        try:
            row.append(float(cell) if cell.strip() else float("nan"))
        except ValueError:
            where = f"row {at}, {features.shown(place)}"
            raise bad(
                f"{where}: {cell[:40]!r} is not a number",
                hint="A header is read only where its names are exactly the model's.",
            ) from None
    return row


def _mixed(features: Features, lines: list[list[str]]) -> list[list[Any]]:
    """A column is one of numbers where all of its cells are and the model does not take text
    there."""
    _same_width(lines)
    columns: list[list[Any]] = []
    for place, cells in enumerate(zip(*lines, strict=True)):
        values: list[Any] = [cell if cell.strip() else None for cell in cells]
        if place not in features.texts:
            with contextlib.suppress(ValueError):  # it holds text
                values = [_number(cell) for cell in values]
        columns.append(values)
    return [list(row) for row in zip(*columns, strict=True)]


def _number(cell: str | None) -> float | int | None:
    if cell is None:
        return None
    try:
        return int(cell)
    except ValueError:
        return float(cell)


def _npy(body: bytes) -> np.ndarray:
    try:
        array = np.load(io.BytesIO(body), allow_pickle=False)
    except (ValueError, EOFError, OSError, MemoryError) as error:
        raise bad(f"the NPY cannot be read: {str(error)[:200]}") from None
    if not isinstance(array, np.ndarray) or array.ndim != 2:
        shape = list(array.shape) if isinstance(array, np.ndarray) else "no array"
        raise bad(f"the NPY holds {shape}; rows and columns are needed", code="bad-shape")
    return array


def _same_width(rows: Sequence[Sequence[Any]]) -> None:
    for at, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise bad(f"row {at} has {len(row)} values, row 0 has {len(rows[0])}", code="bad-shape")


def _checked(features: Features, rows: Any) -> Any:
    """Checks that there are rows, and that each has as many values as the model takes."""
    if len(rows) == 0:
        raise bad("there are no rows; send at least one", code="bad-shape")
    if isinstance(rows, list):
        for at, row in enumerate(rows):
            if not isinstance(row, list):
                raise bad(
                    f"row {at} is {type(row).__name__}, not a list of values",
                    code="bad-shape",
                    hint="One row is a list in a list: [[1.0, 2.0]].",
                )
        _same_width(rows)
    width = len(rows[0])
    if features.count and width != features.count:
        raise bad(
            f"the model expects {features.count} features{features.listed()}, got {width}",
            code="bad-shape",
        )
    return rows


def matrix(features: Features, rows: Any) -> np.ndarray:
    """All values as numbers; None becomes NaN. Raises ModelError (400) for text."""
    dtype = np.float32 if features.dtype == "FP32" else np.float64
    array = rows if isinstance(rows, np.ndarray) else _plain(rows)
    if array is not None and array.dtype.kind in "fiub" and array.ndim == 2:
        return np.ascontiguousarray(array, dtype=dtype)
    cells = rows.tolist() if isinstance(rows, np.ndarray) else rows
    made = np.empty((len(cells), len(cells[0])), dtype=dtype)
    for at, row in enumerate(cells):
        for place, cell in enumerate(row):
            if cell is not None and not isinstance(cell, int | float):
                shown = cell.decode("utf-8", "replace") if isinstance(cell, bytes) else cell
                raise bad(f"row {at}, {features.shown(place)}: {str(shown)[:40]!r} is not a number")
            made[at, place] = np.nan if cell is None else cell
    return made


def _plain(rows: list[list[Any]]) -> np.ndarray | None:
    try:
        return np.array(rows)
    except (ValueError, OverflowError):  # lists inside of cells, or integers of any size
        return None


def objects(rows: Any) -> np.ndarray:
    """Values as they came, in an array of objects; bytes are text."""
    cells = rows.tolist() if isinstance(rows, np.ndarray) else rows
    made = np.empty((len(cells), len(cells[0])), dtype=object)
    for at, row in enumerate(cells):
        for place, cell in enumerate(row):
            made[at, place] = cell.decode() if isinstance(cell, bytes) else cell
    return made
