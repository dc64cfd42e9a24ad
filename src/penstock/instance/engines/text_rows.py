"""Texts of large data sets: a window is tokenized at once; a run is as wide as its longest row.

Where the graph takes any shape, only the shorter rows of a batch are padded: rows are sorted by
length, and a shape that has run once costs nothing more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np

from penstock.core.jobs.windows import RowsSpec
from penstock.errors import PenstockError
from penstock.instance.codecs.base import Tensors
from penstock.instance.codecs.text import TextDecoded, TextModel
from penstock.instance.codecs.text_records import Shown, answers, reader
from penstock.instance.engines.text_tokenizing import Rows, Tokenizing
from penstock.instance.engines.text_tokens import TextTokenizer
from penstock.wire.frames import RequestMeta

#: Tokens per batch at most, padding included. For an encoder with 8 million weights on one thread,
#: 512 to 1,024 tokens took the least time per row; a larger batch also keeps its core longer.
TOKENS_MAX: Final = 1024
ROWS_MAX: Final = 128


class TextRuns(Protocol):
    """The methods of a text engine that are used here."""

    model: TextModel
    has_types: bool
    tokenizer: TextTokenizer

    def run_padded(
        self, lane: int, ids: np.ndarray, mask: np.ndarray, types: np.ndarray | None
    ) -> Tensors:
        """For every head one row per text. All arrays are [texts, tokens]."""

    def finished(self, name: str, rows: np.ndarray) -> np.ndarray:
        """The results of a head, from such rows."""


class TextRowsEngine:
    """A `RowsEngine`."""

    def __init__(
        self,
        engine: TextRuns,
        *,
        rows_max: int,
        rows_fixed: int,
        width_fixed: int,
        pad_id: int,
    ) -> None:
        """
        Args:
            rows_max: of the model's description; 1 or 0 = the model gets one row at a time.
            rows_fixed: the graph's fixed number of rows; 0 = it takes any.
            width_fixed: the graph's fixed number of tokens; 0 = it takes any.
        """
        many = ROWS_MAX if rows_max > 1 else 1
        self.rows_spec = RowsSpec(
            rows_max=rows_fixed or many, tokens_max=0 if rows_fixed else TOKENS_MAX
        )
        self.engine = engine
        self.rows_fixed = rows_fixed
        self.width_fixed = width_fixed
        self.pad_id = pad_id
        self._tokenizing = Tokenizing(engine.tokenizer, engine.tokenizer.tokens_max)

    def read(self, asked: RequestMeta, records: Sequence[bytes]) -> TextWindow:
        read = reader(self.engine.model, asked)
        shown: list[Shown | TextDecoded | None] = []
        unread: dict[int, PenstockError] = {}
        texts: list[Any] = []
        starts = [0]
        for at, record in enumerate(records):
            try:
                one = read(record)
            except PenstockError as error:
                unread[at] = error
                shown.append(None)
            else:
                shown.append(one.shown)
                texts += one.texts
            starts.append(len(texts))
        return TextWindow(self, shown, starts, unread, self._tokenizing.rows(texts))


class TextWindow:
    """The `WindowRows` of texts: their tokens in one array, one row after the other."""

    kinds = None

    def __init__(
        self,
        owner: TextRowsEngine,
        shown: list[Shown | TextDecoded | None],
        starts: list[int],
        unread: Mapping[int, PenstockError],
        rows: Rows,
    ) -> None:
        self.unread = unread
        self._owner = owner
        self._shown = shown
        self._starts = starts
        self._rows = rows
        self.lengths: list[int] = np.diff(rows.ends).tolist()
        self._outputs: Tensors = {}  #: for each head, one row per text

    def record_of(self, row: int) -> int:
        return bisect_right(self._starts, row) - 1

    def run(self, lane: int, rows: Sequence[int]) -> None:
        owner = self._owner
        picked = np.fromiter(rows, dtype=np.int64, count=len(rows))
        if len(rows) < owner.rows_fixed:  # missing rows of a fixed batch size repeat the first
            spare = np.full(owner.rows_fixed - len(rows), picked[0])
            picked = np.concatenate((picked, spare))
        ids, types, ends = self._rows
        begin = ends[picked]
        lengths = ends[picked + 1] - begin
        width = owner.width_fixed or max(1, int(lengths.max()))
        columns = np.arange(width)
        used = columns < lengths[:, None]
        places = np.minimum(begin[:, None] + columns, len(ids) - 1)
        outputs = owner.engine.run_padded(
            lane,
            np.where(used, ids[places], owner.pad_id),
            used.astype(np.int64),
            np.where(used, types[places], 0) if owner.engine.has_types else None,
        )
        picked = picked[: len(rows)]
        for name, array in outputs.items():
            self._all(name, array)[picked] = array[: len(rows)]

    def _all(self, name: str, like: np.ndarray) -> np.ndarray:
        """The outputs of all rows of the window. Two lanes may ask at once: the first one computes
        it."""
        made = self._outputs.get(name)
        if made is None:
            made = np.zeros((len(self.lengths), *like.shape[1:]), dtype=like.dtype)
            made = self._outputs.setdefault(name, made)
        return made

    def answers(self, failed: Collection[int]) -> list[bytes | PenstockError]:
        shown = self._shown
        if failed:  # possibly no row has run
            shown = [None if at in failed else one for at, one in enumerate(shown)]
        finished = self._owner.engine.finished
        results = {name: finished(name, rows) for name, rows in self._outputs.items()}
        return answers(shown, self._starts, results)
