"""Tokens of many rows: each text is tokenized once, and rows are composed of texts.

One product is compared with several others, and tokenizing a text takes 50 us, while a small model
runs in 300 us. So recent texts are remembered, within a bound. The library tokenizes as a whole:
rows that would be cut, and all rows if a tokenizer treats texts differently in company.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Final, NamedTuple

import numpy as np

from penstock.instance.engines.text_tokens import TokenFrame, Tokenizes, explains, frame_of

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
