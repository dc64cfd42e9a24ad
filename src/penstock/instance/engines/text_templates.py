"""How a tokenizer puts special tokens around texts, found by asking it.

A text is mostly tokenized for itself, and the rest is a frame: `[CLS] a [SEP] b [SEP]`. Where that
is so, a text that comes in many pairs need be tokenized once. Nothing is known of the tokenizer's
own rules: frames are read off what it answers to a few texts, and one that does not explain all
answers is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

#: Of different lengths in any vocabulary, so that a token of the frame is told from one of a text.
_PROBES: Final = ("a", "b a", "x y 1 b a")
#: So many rows have to agree, of those that are not cut.
_ROWS_MIN: Final = 2


class Tokenizes(Protocol):
    def encode_batch(self, texts: Sequence[Any]) -> Sequence[Any]:
        """Objects with `ids` and `type_ids`."""

    def plain(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokens without special ones."""


class TokenFrame(NamedTuple):
    """Tokens before, between and behind the texts; `text_types` of the texts' own tokens."""

    ids: tuple[tuple[int, ...], ...]  #: one more than texts
    types: tuple[tuple[int, ...], ...]
    text_types: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """Special ones."""
        return sum(map(len, self.ids))

    def filled(self, texts: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
        """Ids and types of a row."""
        ids, types = list(self.ids[0]), list(self.types[0])
        for at, text in enumerate(texts):
            ids += [*text, *self.ids[at + 1]]
            types += [*([self.text_types[at]] * len(text)), *self.types[at + 1]]
        return ids, types


def frame_of(tokenizer: Tokenizes, texts: int, tokens_max: int) -> TokenFrame | None:
    """The frame of rows of so many texts, 1 or 2; None where there is none. Rows of `tokens_max`
    tokens may have been cut."""
    probes: list[tuple[str, ...]] = (
        [(probe,) for probe in _PROBES]
        if texts == 1
        else [(one, other) for one in _PROBES for other in _PROBES]
    )
    asked = [probe[0] if texts == 1 else probe for probe in probes]
    plain = dict(zip(_PROBES, tokenizer.plain(_PROBES), strict=True))
    if not all(map(len, plain.values())):
        return None
    rows, whole = [], []
    for probe, each in zip(probes, tokenizer.encode_batch(asked), strict=True):
        if len(each.ids) < tokens_max:
            rows.append([plain[text] for text in probe])
            whole.append((list(each.ids), list(each.type_ids)))
    if len(rows) < _ROWS_MIN:
        return None
    for lengths in _splits(len(whole[0][0]) - sum(map(len, rows[0])), texts + 1):
        frame = _read_off(whole[0], rows[0], lengths)
        if frame is not None and explains(frame, rows, whole):
            return frame
    return None


def explains(
    frame: TokenFrame,
    rows: Sequence[Sequence[Sequence[int]]],
    whole: Sequence[tuple[list[int], list[int]]],
) -> bool:
    """Whether the frame around the plain texts of each row gives what the tokenizer gave."""
    return all(frame.filled(row) == answer for row, answer in zip(rows, whole, strict=True))


def _splits(total: int, parts: int) -> list[tuple[int, ...]]:
    """All ways to part so many tokens."""
    if total < 0:
        return []
    if parts == 1:
        return [(total,)]
    return [
        (first, *rest) for first in range(total + 1) for rest in _splits(total - first, parts - 1)
    ]


def _read_off(
    whole: tuple[list[int], list[int]], texts: Sequence[Sequence[int]], lengths: tuple[int, ...]
) -> TokenFrame | None:
    """The frame with tokens of these numbers, as this row has them."""
    ids, types = whole
    frame_ids, frame_types, text_types = [], [], []
    at = 0
    for number, length in enumerate(lengths):
        frame_ids.append(tuple(ids[at : at + length]))
        frame_types.append(tuple(types[at : at + length]))
        at += length
        if number < len(texts):
            text = texts[number]
            if ids[at : at + len(text)] != list(text):
                return None
            text_types.append(types[at])
            at += len(text)
    return TokenFrame(tuple(frame_ids), tuple(frame_types), tuple(text_types))
