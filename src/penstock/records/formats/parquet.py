"""Rows of Parquet files as records: each is a JSON object on one line.

A row group belongs to the span in which it begins. Rows are read in batches of bounded size as
JSON, so memory depends neither on the size of a row group or of the file, nor on values that a
small file repeats many times.

The sizes of rows as JSON are computed as lower bounds, without writing any. A file of a few
kilobytes may repeat a long text in each row. Such columns are read as they are stored, a dictionary
and an index per row, and the sizes are summed up from those. So the caller knows how many rows fit
into memory as records.

pyarrow belongs to an extra and is imported on first use.
"""

from __future__ import annotations

import base64
import importlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np
import orjson

from penstock.core.jobs.spec import Span
from penstock.distribution import install_command
from penstock.errors import CallerError, PenstockError
from penstock.records.formats.lines import RecordBlock
from penstock.records.objects.sources import ObjectBytes
from penstock.records.refusals import too_large, unreadable


def arrow() -> Any:
    """The package, with `compute`. Raises `CallerError` (`parquet-missing`)."""
    _module("pyarrow.compute")
    return _module("pyarrow")


def arrow_parquet() -> Any:
    """Its module for reading and writing Parquet. Raises `CallerError` (`parquet-missing`)."""
    return _module("pyarrow.parquet")


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise CallerError(
            "parquet-missing",
            f"Parquet needs pyarrow, which this server lacks: {error}",
            hint=f"Install it on the server: {install_command('parquet')}",
        ) from error


Sizes = np.ndarray[Any, np.dtype[np.int64]]

#: Least bytes of a value: a digit and a comma, two quotes and a comma, a pair of brackets.
_NUMBER: Final = 2
_TEXT: Final = 3
_BRACKETS: Final = 2
#: Encodings of text that pyarrow can't read as a dictionary.
_NO_DICTIONARY: Final = frozenset({"DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"})
#: The one of these in which a text may be longer than its stored bytes: it shares the beginning of
#: the text before. No text is longer than all stored bytes of its column together.
_PREFIXED: Final = "DELTA_BYTE_ARRAY"
#: Bound of a batch of such texts, or of numbers, in the worst case.
_WORST_BYTES: Final = 64 * 1024 * 1024


def row_sizes(batch: Any) -> Sizes:
    """The size of each row of a `pyarrow.RecordBatch`, in bytes."""
    columns = [_sizes(column) for column in batch.columns]
    return sum(columns, np.full(batch.num_rows, _BRACKETS, np.int64))


def text_columns(metadata: Any) -> list[str]:
    """Paths of the columns to read as dictionaries."""
    refused: set[str] = set()
    paths: dict[str, None] = {}
    for group in range(metadata.num_row_groups):
        facts = metadata.row_group(group)
        for column in map(facts.column, range(facts.num_columns)):
            if column.physical_type == "BYTE_ARRAY":
                paths[column.path_in_schema] = None
                if _NO_DICTIONARY & set(column.encodings):
                    refused.add(column.path_in_schema)
    return [path for path in paths if path not in refused]


def rows_at_once(metadata: Any, group: int) -> int:
    """The number of rows of a row group that may be read together, whatever they contain."""
    facts = metadata.row_group(group)
    worst = 0
    for at in range(facts.num_columns):
        column = facts.column(at)
        width = max(16, metadata.schema.column(at).length)
        if _PREFIXED in column.encodings:
            width = column.total_uncompressed_size
        worst += column.num_values * width
    return max(1, int(_WORST_BYTES * facts.num_rows // max(1, worst)))


def _sizes(array: Any) -> Sizes:
    types = arrow().types
    kind = array.type
    if types.is_dictionary(kind):
        found = _sizes(array.dictionary)
        if not len(found):
            return np.full(len(array), _NUMBER, np.int64)
        taken: Sizes = found[array.indices.fill_null(0).to_numpy(zero_copy_only=False)]
        return np.where(array.is_valid().to_numpy(zero_copy_only=False), taken, _NUMBER)
    if types.is_struct(kind):
        members = [_sizes(array.field(at)) for at in range(kind.num_fields)]
        return sum(members, np.full(len(array), _BRACKETS, np.int64))
    if types.is_map(kind):
        return _of_lists(array, _sizes(array.keys) + _sizes(array.items))
    if types.is_list(kind) or types.is_large_list(kind):
        return _of_lists(array, _sizes(array.values))
    if types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind):
        return _lengths(array)
    if types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return _lengths(array)
    return np.full(len(array), _NUMBER, np.int64)


def _lengths(array: Any) -> Sizes:
    lengths = arrow().compute.binary_length(array).fill_null(0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64) + _TEXT


def _of_lists(array: Any, children: Sizes) -> Sizes:
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(children)))
    offsets = array.offsets.to_numpy(zero_copy_only=False)
    return np.asarray(before[offsets[1:]] - before[offsets[:-1]] + _BRACKETS, np.int64)


_BATCH_BYTES: Final = 1024 * 1024
_BATCH_ROWS_MAX: Final = 4096
_READ_BYTES: Final = 1024 * 1024  #: read from a column at a time


def row_blocks(
    source: ObjectBytes,
    span: Span,
    columns: tuple[str, ...],
    *,
    whole: bool,
    record_bytes_max: int,
    refused: dict[int, PenstockError] | None,
    what: str,
) -> Iterator[RecordBlock]:
    """The rows of the span's row groups.

    Args:
        columns: columns that must exist.
        whole: whether to read the other columns too.
        refused: gets the numbers of rows larger than `record_bytes_max`, counted in the span; an
            empty record takes the place of each. None: such a row is an error.

    Raises:
        CallerError: `record-unreadable`, `record-too-large`, `column-missing`, `parquet-missing`.
    """
    if not source.size:
        return
    with opened(source, what) as file:
        _check_columns(file, columns, what)
        first = 0
        for group in groups_in(file, span, source.size):
            start = _offset(file, group)
            error = too_large(what, start, record_bytes_max)
            for batch in batches(file, group, None if whole else list(columns), what):
                records = _lines(batch, record_bytes_max)
                for number, record in enumerate(records, first):
                    if not record:
                        if refused is None:
                            raise error
                        refused[number] = error
                yield RecordBlock(
                    records=records, first=first, start=start, offsets=(start,) * len(records)
                )
                first += len(records)


def _lines(batch: Any, bytes_max: int) -> list[bytes]:
    """The rows of a batch, with b"" for a row larger than `bytes_max`. So large a row is alone in
    its batch, and is not even written."""
    if batch.num_rows == 1 and row_sizes(batch)[0] > bytes_max:
        return [b""]
    lines = [_line(row) for row in batch.to_pylist()]
    return [line if len(line) <= bytes_max else b"" for line in lines]


@contextmanager
def opened(source: ObjectBytes, what: str) -> Iterator[Any]:
    """A `pyarrow.parquet.ParquetFile` that reads texts as dictionaries. Raises `CallerError`."""
    with parquet_errors(what):
        metadata = arrow_parquet().read_metadata(_file(source))
        file = arrow_parquet().ParquetFile(
            _file(source),
            metadata=metadata,
            read_dictionary=text_columns(metadata),
            buffer_size=_READ_BYTES,
            pre_buffer=False,
        )
    with file:
        yield file


def schema_of(file: Any) -> Any:
    """The columns of an opened file with their own types."""
    return file.metadata.schema.to_arrow_schema()


def _file(source: ObjectBytes) -> Any:
    return arrow().PythonFile(_Seekable(source), mode="r")


@contextmanager
def parquet_errors(what: str) -> Iterator[None]:
    """Turns pyarrow's errors about a file into one of ours."""
    try:
        yield
    except PenstockError:
        raise
    except (arrow().ArrowException, OSError, ValueError) as error:
        words = (str(error).splitlines() or [""])[0][:200]
        raise unreadable(what, 0, "Parquet", words) from error


def groups_in(file: Any, span: Span, size: int) -> list[int]:
    """Row groups that begin in the span. A damaged position counts as one inside the file, so that
    each group is in one span."""
    return [
        group
        for group in range(file.metadata.num_row_groups)
        if span.start <= min(max(0, _offset(file, group)), size - 1) < span.stop
    ]


def batches(file: Any, group: int, columns: list[str] | None, what: str) -> Iterator[Any]:
    """A row group in pieces of about 1 MiB of JSON, or of one larger row."""
    facts = file.metadata.row_group(group)
    row_bytes = max(1, facts.total_byte_size // max(1, facts.num_rows))
    rows = min(_BATCH_ROWS_MAX, max(1, _BATCH_BYTES // row_bytes))
    with parquet_errors(what):
        read = file.iter_batches(
            batch_size=min(rows, rows_at_once(file.metadata, group)),
            row_groups=[group],
            columns=columns,
            use_threads=False,
        )
        for batch in read:
            yield from _pieces(batch)


def _pieces(batch: Any) -> Iterator[Any]:
    total = np.cumsum(row_sizes(batch))
    start = before = 0
    while start < batch.num_rows:
        stop = int(np.searchsorted(total, before + _BATCH_BYTES, side="right"))
        stop = max(stop, start + 1)
        yield batch.slice(start, stop - start)
        start, before = stop, total[stop - 1]


def _offset(file: Any, group: int) -> int:
    facts = file.metadata.row_group(group)
    if not facts.num_columns:
        return 0
    column = facts.column(0)
    return int(column.dictionary_page_offset or column.data_page_offset or 0)


def _check_columns(file: Any, columns: tuple[str, ...], what: str) -> None:
    names = schema_of(file).names
    for name in columns:
        if name not in names:
            raise CallerError(
                "column-missing",
                f"{what}: there is no column {name!r}; there are {', '.join(names)[:200]}",
                hint="Correct PENSTOCK_TRANSFORM_COLUMNS.",
            )


def _line(row: dict[str, Any]) -> bytes:
    return orjson.dumps(row, default=_plain, option=orjson.OPT_NON_STR_KEYS)


def _plain(value: Any) -> Any:
    """A value of a type that JSON lacks, in plain form."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value)


class _Seekable(io.RawIOBase):
    """An object as a file for pyarrow."""

    def __init__(self, source: ObjectBytes) -> None:
        super().__init__()
        self._source = source
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._source.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        stop = self._source.size if size is None or size < 0 else self._at + size
        data = b"".join(self._source.chunks(self._at, stop))
        self._at += len(data)
        return data
