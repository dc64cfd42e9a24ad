"""Rows of large data sets, directly through a model of this process: no queue, no requests.

An engine that can do this reads a window of records at once, runs any of its rows together, and
writes the answers to all of them. The caller decides which rows run together. Rows of one batch
fail together; the caller finds out which of them caused it.

Tensors are here: the rows of a window in tables, batches cut from them. (Texts are in `text_rows`.)
Where a line is a row (JSON Lines, CSV), a window is parsed at once, and a row's answer is a line. A
window with a line that can't be read so, and every other content type, is parsed record by record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

import numpy as np

from penstock.core.jobs.windows import RowsSpec
from penstock.errors import ModelError, PenstockError
from penstock.instance.codecs import answers
from penstock.instance.codecs.base import (
    CSV,
    JSON,
    JSON_LINES,
    CodecModel,
    Decoded,
    Encode,
    Tensors,
    may_have_rows,
    media_type,
)
from penstock.instance.codecs.select import decode_tensors
from penstock.instance.engines.tensor import TensorEngine
from penstock.wire.frames import RequestMeta


class WindowRows(Protocol):
    """The decoded records of one window."""

    @property
    def unread(self) -> Mapping[int, PenstockError]:
        """Errors of records that can't be read, by index in the window; these have no rows."""

    @property
    def lengths(self) -> Sequence[int]:
        """The length of each row, in tokens; 1 where rows have no length."""

    @property
    def kinds(self) -> Sequence[int] | None:
        """A number for each row: rows with different numbers can't share a run. None: all can."""

    def record_of(self, row: int) -> int:
        """The index in the window of the record to which a row belongs."""

    def run(self, lane: int, rows: Sequence[int]) -> None:
        """Runs rows together and keeps the results, on the lane's thread.

        Raises ModelError, or an exception of the library, when the model fails on these rows.
        """

    def answers(self, failed: Collection[int]) -> list[bytes | PenstockError]:
        """The answer to each record, when all rows have run. Entries for unreadable records and
        those in `failed` have no meaning."""


class RowsEngine(Protocol):
    rows_spec: RowsSpec

    def read(self, asked: RequestMeta, records: Sequence[bytes]) -> WindowRows:
        """May run on any thread. Raises ModelError if no record could ever be answered."""


#: Rows per batch at most. Rows of tensor models have any size, so the model's own bound matters
#: more.
ROWS_MAX: Final = 256


class TensorRowsEngine:
    """A `RowsEngine`. `rows_max`: of the model's description; 0 = no batch dimension."""

    def __init__(self, engine: TensorEngine, rows_max: int) -> None:
        many = ROWS_MAX if rows_max > 1 else 1
        self.rows_spec = RowsSpec(rows_max=engine.rows_fixed or many)
        self.engine = engine

    def read(self, asked: RequestMeta, records: Sequence[bytes]) -> TensorWindow:
        if media_type(asked.accept) in JSON_LINES:
            asked = asked._replace(accept=JSON)
        one_line = _line_encoder(self.engine.model, asked)
        if one_line is not None and len(records) > 1:
            window = _read_at_once(self.engine, asked, records, one_line)
            if window is not None:
                return window
        window = TensorWindow(self.engine)
        for at, record in enumerate(records):
            try:
                decoded = decode_tensors(self.engine.model, asked, record)
            except PenstockError as error:
                window.unread[at] = error
                window.add(None)
            else:
                if one_line is not None and decoded.rows == 1:
                    decoded.encode = one_line(decoded)
                window.add(decoded)
        window.settle()
        return window


#: A decoded line -> the encoder of its one row.
_OneLine = Callable[[Decoded], Encode]


def _line_encoder(model: CodecModel, asked: RequestMeta) -> _OneLine | None:
    """None where records are no lines, or a line can't be a row."""
    kind = media_type(asked.content_type)
    if not may_have_rows(model) or kind not in (CSV, *JSON_LINES):
        return None
    offered = answers.AFTER_CSV if kind == CSV else answers.AFTER_JSON
    encode = answers.lines(model, asked.accept, offered)
    return lambda decoded: encode or decoded.encode


def _read_at_once(
    engine: TensorEngine, asked: RequestMeta, records: Sequence[bytes], one_line: _OneLine
) -> TensorWindow | None:
    """None where that fails, or where a line is no row: then each is looked at by itself."""
    try:
        decoded = decode_tensors(engine.model, asked, b"\n".join(records))
    except PenstockError:
        return None
    if decoded.rows != len(records):
        return None
    decoded.encode = one_line(decoded)
    window = TensorWindow(engine)
    window.add_rows(decoded)
    return window


class TensorWindow:
    """The `WindowRows` of tensors."""

    def __init__(self, engine: TensorEngine) -> None:
        self.unread: dict[int, PenstockError] = {}
        self._engine = engine
        self._encoders: list[Encode | None] = []  #: one for each record
        self._starts = [0]  #: first row of each record, and the end of the last
        self._parts: list[Tensors] = []  #: tensors of each record with rows, until `settle`
        self._tables: list[Tensors] = []
        self._table_of: list[int] = []  #: row -> its table
        self._place_of: list[int] = []  #: row -> its index in its table
        #: Row -> outputs of its run, and its index in them
        self._results: dict[int, tuple[Tensors, int]] = {}

    @property
    def lengths(self) -> Sequence[int]:
        return [1] * len(self._table_of)

    @property
    def kinds(self) -> Sequence[int] | None:
        return self._table_of if len(self._tables) > 1 else None

    def add(self, decoded: Decoded | None) -> None:
        """Adds one record; None: it can't be read."""
        rows = 0
        if decoded is not None:
            rows = decoded.rows if self._engine.model.batched else 1
            self._parts.append(decoded.tensors)
        self._encoders.append(decoded.encode if decoded is not None else None)
        self._starts.append(self._starts[-1] + rows)

    def add_rows(self, decoded: Decoded) -> None:
        """Adds records of one row each that were read at once."""
        self._encoders = [decoded.encode] * decoded.rows
        self._starts = list(range(decoded.rows + 1))
        self._tables = [decoded.tensors]
        self._table_of = [0] * decoded.rows
        self._place_of = list(range(decoded.rows))

    def settle(self) -> None:
        """All records are added: rows of one shape become a table."""
        if not self._engine.model.batched:
            self._tables = self._parts
            self._table_of = list(range(len(self._parts)))
            self._place_of = [0] * len(self._parts)
            return
        members: dict[tuple[object, ...], int] = {}
        parts: list[list[Tensors]] = []
        filled: list[int] = []
        for tensors in self._parts:
            key = tuple((name, array.shape[1:]) for name, array in sorted(tensors.items()))
            table = members.setdefault(key, len(parts))
            if table == len(parts):
                parts.append([])
                filled.append(0)
            rows = len(next(iter(tensors.values())))
            parts[table].append(tensors)
            self._table_of += [table] * rows
            self._place_of += range(filled[table], filled[table] + rows)
            filled[table] += rows
        self._parts = []
        self._tables = [
            {name: np.concatenate([each[name] for each in table]) for name in table[0]}
            for table in parts
        ]

    def record_of(self, row: int) -> int:
        return bisect_right(self._starts, row) - 1

    def run(self, lane: int, rows: Sequence[int]) -> None:
        inputs = self._tables[self._table_of[rows[0]]]
        if self._engine.model.batched:
            places = [self._place_of[row] for row in rows]
            inputs = {name: array[places] for name, array in inputs.items()}
        outputs = self._engine.run_rows(lane, inputs, len(rows))
        for at, row in enumerate(rows):
            self._results[row] = (outputs, at)

    def answers(self, failed: Collection[int]) -> list[bytes | PenstockError]:
        written: list[bytes | PenstockError] = []
        for at, encode in enumerate(self._encoders):
            if encode is None or at in failed:
                written.append(b"")
            else:
                written.append(self._answer(encode, self._starts[at], self._starts[at + 1]))
        return written

    def _answer(self, encode: Encode, start: int, stop: int) -> bytes | PenstockError:
        try:
            return encode(self._outputs(start, stop))[0]
        except PenstockError as error:
            return error

    def _outputs(self, start: int, stop: int) -> Tensors:
        if not self._engine.model.batched:
            return self._results[start][0]
        pieces = [self._results[row] for row in range(start, stop)]
        if len(pieces) == 1:
            outputs, at = pieces[0]
            return {name: array[at : at + 1] for name, array in outputs.items()}
        try:
            return {
                name: np.concatenate([outputs[name][at : at + 1] for outputs, at in pieces])
                for name in pieces[0][0]
            }
        except ValueError:
            raise ModelError(
                "wrong-answer-shape",
                "the rows of this record have answers of several shapes, which no tensor holds",
                hint="Send such rows as records of their own.",
            ) from None
