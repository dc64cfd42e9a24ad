"""Outputs as Parquet: answers for a Parquet object become columns, beside its own if joined.

Rows of refused records are left out. Columns of the object keep their types; a column of answers
gets the narrowest type that holds all of them, else text. There are two passes. The first one
learns the types and holds a batch of rows; the second one writes and holds a row group of bounded
size.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from typing import Any, Final

from penstock.artifacts.sources.source import ArtifactSettings
from penstock.core.jobs.spec import INPUT, DataProcessing, InputObject, Span
from penstock.errors import CallerError
from penstock.records.formats import parquet
from penstock.records.formats.parquet import arrow, arrow_parquet
from penstock.records.formats.texts import OUTPUT_KEY, cell, json_value
from penstock.records.json_path import JsonPath, parse
from penstock.records.objects.sources import open_object
from penstock.records.parts import Parts

#: Answers that are read together.
_ROWS: Final = 4096
_ROWS_BYTES: Final = 1024 * 1024
#: Rows of a written row group: readers want large ones, and memory holds one.
_GROUP_ROWS: Final = 128 * 1024
_GROUP_BYTES: Final = 32 * 1024 * 1024
#: Most columns of answers: all are held while the types are learnt.
_COLUMNS_MAX: Final = 1000


def selected_columns(path: JsonPath) -> tuple[str, ...] | None:
    """The columns of a joined row that are written, in order; None = all.

    Raises `CallerError` (`processing-unsupported`).
    """
    if path.is_all:
        return None
    [step, *more] = path.steps
    names = (step,) if isinstance(step, str) else step
    if more or not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
        raise CallerError(
            "processing-unsupported",
            f"OutputFilter {path.text!r} selects no columns",
            hint="Where Parquet is written and joined, use $ or $['id','SageMakerOutput'].",
            param="OutputFilter",
        )
    return tuple(str(name) for name in names)


def table_pieces(
    one: InputObject, parts: Parts, processing: DataProcessing, settings: ArtifactSettings
) -> Iterator[bytes]:
    """The bytes of a Parquet file. Raises `PenstockError`."""
    if not one.size:
        return
    added = _answer_types(parts)
    with ExitStack() as stack:
        if processing.join != INPUT:
            yield from _written(_schema(added, None, None), _answers_only(parts, added))
            return
        source = stack.enter_context(open_object(one, settings))
        file = stack.enter_context(parquet.opened(source, one.key))
        wanted = selected_columns(parse(processing.output_filter, "OutputFilter"))
        added = {name: kind for name, kind in added.items() if wanted is None or name in wanted}
        schema = _schema(added, parquet.schema_of(file), wanted)
        yield from _written(schema, _joined(file, one, parts, added, schema))


def _written(schema: Any, batches: Iterator[Any]) -> Iterator[bytes]:
    sink = _Sink()
    with arrow_parquet().ParquetWriter(arrow().PythonFile(sink, mode="w"), schema) as writer:
        for group in _groups(batches):
            writer.write_table(arrow().Table.from_batches(group, schema))
            yield sink.taken()
    yield sink.taken()


def _groups(batches: Iterator[Any]) -> Iterator[list[Any]]:
    """Groups batches; each group becomes one row group."""
    waiting: list[Any] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield waiting
            waiting, rows, size = [], 0, 0
    if waiting:
        yield waiting


def _answer_types(parts: Parts) -> dict[str, Any]:
    """Columns of all answers and their types; None = text, whatever the values."""
    types: dict[str, Any] = {}
    for rows in _row_groups(parts):
        for name in dict.fromkeys(name for row in rows for name in row):
            kind = _type_of([row.get(name) for row in rows])
            types[name] = _common(types[name], kind) if name in types else kind
            if len(types) > _COLUMNS_MAX:
                raise CallerError(
                    "answer-columns-too-many",
                    f"the model's answers have more than {_COLUMNS_MAX} different keys",
                    hint="Answer objects with the same keys, or write JSON Lines.",
                )
    return types


def _row_groups(parts: Parts) -> Iterator[list[dict[str, Any]]]:
    for span in parts.spans:
        lines = parts.lines(span)
        while rows := _rows(lines, _ROWS):
            yield rows


def _rows(lines: Iterator[bytes], count: int) -> list[dict[str, Any]]:
    """The next `count` answers, or fewer if they have `_ROWS_BYTES`; none at the end."""
    rows: list[dict[str, Any]] = []
    size = 0
    for line in islice(lines, count):
        rows.append(json_value(line))
        size += len(line)
        if size >= _ROWS_BYTES:
            break
    return rows


def _type_of(values: list[Any]) -> Any:
    try:
        return arrow().array(values).type
    except (arrow().ArrowException, TypeError, ValueError, OverflowError):
        return None


def _common(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return None
    pa = arrow()
    schemas = [pa.schema([("it", kind)]) for kind in (one, other)]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return None


def _schema(added: dict[str, Any], given: Any, wanted: tuple[str, ...] | None) -> Any:
    pa = arrow()
    fields = {} if given is None else {field.name: field for field in given}
    fields |= {name: pa.field(name, kind or pa.string()) for name, kind in added.items()}
    names = fields if wanted is None else wanted
    for name in names:
        if name not in fields and name != OUTPUT_KEY:  # an answer that is no object has no columns
            raise CallerError(
                "column-missing",
                f"OutputFilter names the column {name!r}, which there is not",
                hint="Name columns of the object, or SageMakerOutput.",
            )
    return pa.schema([fields[name] for name in names if name in fields])


def _answer_columns(rows: list[dict[str, Any]], added: dict[str, Any]) -> dict[str, Any]:
    pa = arrow()
    columns = {}
    for name, kind in added.items():
        values = [row.get(name) for row in rows]
        if kind is None:
            values = [None if value is None else cell(value) for value in values]
        columns[name] = pa.array(values, kind or pa.string())
    return columns


def _answers_only(parts: Parts, added: dict[str, Any]) -> Iterator[Any]:
    for rows in _row_groups(parts):
        columns = list(_answer_columns(rows, added).values())
        yield arrow().RecordBatch.from_arrays(columns, names=list(added))


def _joined(
    file: Any, one: InputObject, parts: Parts, added: dict[str, Any], schema: Any
) -> Iterator[Any]:
    for span in parts.spans:
        lines = parts.lines(span)
        kept = _Kept(parts, span)
        for group in parquet.groups_in(file, span, one.size):
            for batch in parquet.batches(file, group, None, one.key):
                left = kept.of(batch.num_rows)
                while left:
                    rows = _rows(lines, len(left))
                    if not rows:
                        raise _miscounted(span)
                    indices, left = left[: len(rows)], left[len(rows) :]
                    yield _joined_rows(batch.take(arrow().array(indices)), rows, added, schema)
        if next(lines, None) is not None:
            raise _miscounted(span)


def _joined_rows(taken: Any, rows: list[dict[str, Any]], added: dict[str, Any], schema: Any) -> Any:
    answers = _answer_columns(rows, added)
    columns = [
        answers[name] if name in answers else taken.column(name).cast(schema.field(name).type)
        for name in schema.names
    ]
    return arrow().RecordBatch.from_arrays(columns, schema=schema)


class _Kept:
    """Marks the rows of a span that were not refused, batch by batch."""

    def __init__(self, parts: Parts, span: Span) -> None:
        self._refused = (int(told["index"]) for told in parts.errors(span))
        self._next = next(self._refused, None)
        self._at = 0

    def of(self, count: int) -> list[int]:
        kept = []
        for index in range(count):
            if self._next == self._at + index:
                self._next = next(self._refused, None)
            else:
                kept.append(index)
        self._at += count
        return kept


def _miscounted(span: Span) -> CallerError:
    return CallerError(
        "answers-miscounted",
        f"span {span.number} of the object has not one answer for each row",
        hint="Parquet needs an answer for each row: set BatchStrategy to SingleRecord.",
    )


class _Sink:
    """A file for pyarrow's writer; its bytes are taken out between writes."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        return len(self._pieces[-1])

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def taken(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)
