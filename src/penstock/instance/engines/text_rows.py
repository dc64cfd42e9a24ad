"""Texts of large data sets: a window is tokenized at once; a run is as wide as its longest row.

One product is compared with several others, and tokenizing a text takes 50 us, while a small model
runs in 300 us. So each text is tokenized once, rows are composed of texts, and recent texts are
remembered, within a bound. The library tokenizes as a whole: rows that would be cut, and all rows
if a tokenizer treats texts differently in company.

Where the graph takes any shape, only the shorter rows of a batch are padded: rows are sorted by
length, and a shape that has run once costs nothing more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from threading import Lock
from typing import Any, Final, NamedTuple

import numpy as np

from penstock.core.jobs.windows import RowsSpec
from penstock.errors import PenstockError
from penstock.instance.codecs.base import Tensors
from penstock.instance.codecs.text import TextDecoded
from penstock.instance.codecs.text_records import Shown, answers, reader
from penstock.instance.engines.text import TextEngine
from penstock.instance.engines.text_tokens import (
    TokenFrame,
    Tokenizes,
    explains,
    frame_of,
)
from penstock.wire.frames import RequestMeta

#: Bounds for each of the two generations of remembered texts: 50 MB at most in all.
_TEXTS_MAX: Final = 65_536
_CHARACTERS_MAX: Final = 8_000_000
_TEXT_CHARACTERS_MAX: Final = 1024  #: longer texts seldom come again
#: How many rows of the first window are tokenized both ways, to check the frame.
_CHECKED: Final = 16

#: One text, or two to compare.
Text = str | tuple[str, str]


class Rows(NamedTuple):
    """Tokens of all rows, one row after the other, and a spare token that belongs to no row."""

    ids: np.ndarray
    types: np.ndarray
    ends: np.ndarray  #: [rows + 1]: where each row begins, and the end of the last


class KnownTexts:
    """Tokens of recent texts, in two generations: a text that comes again moves to the younger."""

    def __init__(self) -> None:
        self._young: dict[str, np.ndarray] = {}
        self._old: dict[str, np.ndarray] = {}
        self._characters = 0  #: characters in the younger generation

    def get(self, text: str) -> np.ndarray | None:
        found = self._young.get(text)
        if found is None:
            found = self._old.get(text)
            if found is not None:
                self.put(text, found)
        return found

    def put(self, text: str, ids: np.ndarray) -> None:
        if len(text) > _TEXT_CHARACTERS_MAX:
            return
        if len(self._young) >= _TEXTS_MAX or self._characters > _CHARACTERS_MAX:
            self._young, self._old, self._characters = {}, self._young, 0
        self._young[text] = ids
        self._characters += len(text)


class Tokenizing:
    """The tokenization of one model. May run on any thread."""

    def __init__(self, tokenizer: Tokenizes, tokens_max: int) -> None:
        """`tokens_max`: the library cuts longer rows."""
        self._tokenizer = tokenizer
        self._tokens_max = tokens_max
        self._known = KnownTexts()
        self._frames: dict[
            int, TokenFrame | None
        ] = {}  #: number of texts -> frame; None: there is none
        self._lock = Lock()

    def rows(self, texts: Sequence[Text]) -> Rows:
        with self._lock:
            frames = [self._frame(texts, count) for count in (1, 2)]
            return self._rows(texts, frames)

    # Frames

    def _frame(self, texts: Sequence[Text], count: int) -> TokenFrame | None:
        if count not in self._frames:
            sample = [text for text in texts if _count(text) == count][:_CHECKED]
            if not sample:
                return None
            self._frames[count] = self._checked_frame(sample, count)
        return self._frames[count]

    def _checked_frame(self, sample: Sequence[Text], count: int) -> TokenFrame | None:
        frame = frame_of(self._tokenizer, count, self._tokens_max)
        if frame is None:
            return None
        rows = [self._tokenizer.plain(_parts(text)) for text in sample]
        whole = [(each.ids, each.type_ids) for each in self._tokenizer.encode_batch(sample)]
        uncut = [
            at
            for at, row in enumerate(rows)
            if sum(map(len, row)) + frame.tokens <= self._tokens_max
        ]
        holds = explains(frame, [rows[at] for at in uncut], [whole[at] for at in uncut])
        return frame if holds else None

    # Rows

    def _rows(self, texts: Sequence[Text], frames: Sequence[TokenFrame | None]) -> Rows:
        slots: dict[str, int] = {}  #: the distinct texts
        pair = [-1, -1]
        of_rows: list[list[int]] = []
        for text in texts:
            if isinstance(text, str):
                of_rows.append([slots.setdefault(text, len(slots)), -1] if frames[0] else pair)
            elif frames[1]:
                first = slots.setdefault(text[0], len(slots))
                of_rows.append([first, slots.setdefault(text[1], len(slots))])
            else:
                of_rows.append(pair)
        pool = _Pool()
        base = pool.add(self._plain(list(slots)))
        used = np.array(of_rows, dtype=np.int64).reshape(len(texts), 2)
        pieces = np.full((len(texts), 5), _Pool.NOTHING, dtype=np.int64)
        shifts = np.zeros((len(texts), 5), dtype=np.int64)
        for count, frame in enumerate(frames, 1):
            if frame is None:
                continue
            mine = (used[:, 0] >= 0) & ((used[:, 1] >= 0) == (count == 2))
            at = pool.add_typed(frame.ids, frame.types)
            for part in range(count + 1):
                pieces[mine, 2 * part] = at + part
            for part in range(count):
                pieces[mine, 2 * part + 1] = base + used[mine, part]
                shifts[mine, 2 * part + 1] = frame.text_types[part]
        whole = used[:, 0] < 0
        whole |= pool.lengths()[pieces].sum(axis=1) > self._tokens_max
        rest = np.flatnonzero(whole)
        if len(rest):
            encodings = self._tokenizer.encode_batch([texts[at] for at in rest.tolist()])
            pieces[rest] = _Pool.NOTHING
            shifts[rest] = 0
            ids = [each.ids for each in encodings]
            at = pool.add_typed(ids, [each.type_ids for each in encodings])
            pieces[rest, 0] = np.arange(at, at + len(rest))
        return pool.rows(pieces, shifts)

    def _plain(self, texts: list[str]) -> list[np.ndarray]:
        known = self._known
        found = [known.get(text) for text in texts]
        missing = [at for at, ids in enumerate(found) if ids is None]
        if missing:
            plain = self._tokenizer.plain([texts[at] for at in missing])
            for at, tokens in zip(missing, plain, strict=True):
                ids = found[at] = np.array(tokens, dtype=np.int32)
                known.put(texts[at], ids)
        return [ids for ids in found if ids is not None]


class _Pool:
    """The pieces of rows: texts, parts of frames, and whole rows."""

    NOTHING: Final = 0  #: the piece without tokens

    def __init__(self) -> None:
        self._ids: list[np.ndarray] = [np.zeros(0, dtype=np.int32)]
        self._types: dict[int, Sequence[int]] = {}  #: types of those pieces that have them

    def add(self, pieces: Sequence[np.ndarray]) -> int:
        """Returns the number of the first added piece."""
        first = len(self._ids)
        self._ids += pieces
        return first

    def add_typed(self, ids: Sequence[Sequence[int]], types: Sequence[Sequence[int]]) -> int:
        first = self.add([np.array(each, dtype=np.int32) for each in ids])
        self._types.update(enumerate(types, first))
        return first

    def lengths(self) -> np.ndarray:
        return np.fromiter(map(len, self._ids), dtype=np.int64, count=len(self._ids))

    def rows(self, pieces: np.ndarray, shifts: np.ndarray) -> Rows:
        """`pieces` [rows, 5]: numbers of pieces; `shifts`: the value that each adds to its tokens'
        types."""
        lengths = self.lengths()
        starts = np.zeros(len(lengths), dtype=np.int64)
        np.cumsum(lengths[:-1], out=starts[1:])
        ids = np.concatenate(self._ids)
        types = np.zeros(len(ids), dtype=np.int32)
        for piece, own in self._types.items():
            types[starts[piece] : starts[piece] + len(own)] = own
        of_piece = lengths[pieces].reshape(-1)
        ends = np.cumsum(of_piece)
        total = int(ends[-1]) if len(ends) else 0
        # Each token's place in the pool: the start of its piece, and its offset in the piece.
        places = np.repeat(starts[pieces].reshape(-1) - (ends - of_piece), of_piece)
        places += np.arange(total)
        row_ends = np.zeros(len(pieces) + 1, dtype=np.int64)
        row_ends[1:] = ends.reshape(pieces.shape)[:, -1] if len(pieces) else 0
        row_types = types[places] + np.repeat(shifts.reshape(-1), of_piece)
        return Rows(np.append(ids[places], 0), np.append(row_types, 0), row_ends)


def _count(text: Text) -> int:
    return 1 if isinstance(text, str) else 2


def _parts(text: Text) -> tuple[str, ...]:
    return (text,) if isinstance(text, str) else text


#: Tokens per batch at most, padding included. For an encoder with 8 million weights on one thread,
#: 512 to 1,024 tokens took the least time per row; a larger batch also keeps its core longer.
TOKENS_MAX: Final = 1024
ROWS_MAX: Final = 128


class TextRowsEngine:
    """A `RowsEngine`."""

    def __init__(self, engine: TextEngine) -> None:
        # A model without a batch dimension gets one row at a time.
        many = ROWS_MAX if engine.rows_max > 1 else 1
        self.rows_spec = RowsSpec(
            rows_max=engine.rows_fixed or many, tokens_max=0 if engine.rows_fixed else TOKENS_MAX
        )
        self.engine = engine
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
        return TextWindow(self.engine, shown, starts, unread, self._tokenizing.rows(texts))


class TextWindow:
    """The `WindowRows` of texts: their tokens in one array, one row after the other."""

    kinds = None

    def __init__(
        self,
        engine: TextEngine,
        shown: list[Shown | TextDecoded | None],
        starts: list[int],
        unread: Mapping[int, PenstockError],
        rows: Rows,
    ) -> None:
        self.unread = unread
        self._engine = engine
        self._shown = shown
        self._starts = starts
        self._rows = rows
        self.lengths: list[int] = np.diff(rows.ends).tolist()
        self._outputs: Tensors = {}  #: for each head, one row per text

    def record_of(self, row: int) -> int:
        return bisect_right(self._starts, row) - 1

    def run(self, lane: int, rows: Sequence[int]) -> None:
        engine = self._engine
        picked = np.fromiter(rows, dtype=np.int64, count=len(rows))
        if len(rows) < engine.rows_fixed:  # missing rows of a fixed batch size repeat the first
            spare = np.full(engine.rows_fixed - len(rows), picked[0])
            picked = np.concatenate((picked, spare))
        ids, types, ends = self._rows
        begin = ends[picked]
        lengths = ends[picked + 1] - begin
        width = engine.width_fixed or max(1, int(lengths.max()))
        columns = np.arange(width)
        used = columns < lengths[:, None]
        places = np.minimum(begin[:, None] + columns, len(ids) - 1)
        outputs = engine.run_padded(
            lane,
            np.where(used, ids[places], engine.pad_id),
            used.astype(np.int64),
            np.where(used, types[places], 0) if engine.has_types else None,
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
        finished = self._engine.finished
        results = {name: finished(name, rows) for name, rows in self._outputs.items()}
        return answers(shown, self._starts, results)
