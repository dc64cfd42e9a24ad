"""How long the rows of a Parquet batch are as JSON, at the least, without writing one of them.

A file of a few kilobytes may say the same long text in each of its rows. Such columns are read as
they are stored, a dictionary and a number for each row, and what a row comes to is summed up from
there: so whoever turns rows into records knows how many of them he can hold.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from penstock.records.formats.arrow import arrow

Sizes = np.ndarray[Any, np.dtype[np.int64]]

#: A digit and a comma, two quotes and a comma, a pair of brackets.
_NUMBER: Final = 2
_TEXT: Final = 3
_BRACKETS: Final = 2
#: Encodings of texts that pyarrow can't read as a dictionary.
_NO_DICTIONARY: Final = frozenset({"DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"})
#: The one of these in which a text may be longer than what the file says of it: it has the
#: beginning of the one before. None is longer than all that is said in its column together.
_PREFIXED: Final = "DELTA_BYTE_ARRAY"
#: What a batch of such texts, or of numbers, may come to at the worst.
_WORST_BYTES: Final = 64 * 1024 * 1024


def row_sizes(batch: Any) -> Sizes:
    """Of each row of a `pyarrow.RecordBatch`, in bytes."""
    columns = [_sizes(column) for column in batch.columns]
    return sum(columns, np.full(batch.num_rows, _BRACKETS, np.int64))


def text_columns(metadata: Any) -> list[str]:
    """Paths of the columns that are to be read as dictionaries."""
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
    """How many rows of a row group may be read together, whatever they hold."""
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
