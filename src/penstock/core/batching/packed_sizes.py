"""Which sizes graphs of texts side by side have, and where the texts of a batch lie in one.

A graph has rows of tokens; texts lie in them one after the other, and none crosses the end of its
row. A place that no text has costs what a token costs, so sizes lie close together: of ten queries
with 74 tokens, two whole rows would leave two places of five empty, and two rows of 40 leave one of
thirteen. A row has `ROW_TOKENS` tokens at most: a longer text is not packed, and attention within a
row costs little beside all else.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

ROW_TOKENS: Final = 64
#: Most queries have fewer
_USUAL_TOKENS: Final = 8


class PackedSize(NamedTuple):
    rows: int
    width: int  #: tokens of a row

    @property
    def tokens(self) -> int:
        return self.rows * self.width


#: Of one row, of a few short rows, of whole rows; each holds more tokens than the one before.
SIZES: Final = (
    *(PackedSize(1, width) for width in (8, 16, 24, 32, 48, 64)),
    *(PackedSize(2, width) for width in (40, 48, 56, 64)),
    *(PackedSize(3, width) for width in (48, 56, 64)),
    *(PackedSize(4, width) for width in (56, 64)),
    *(PackedSize(rows, ROW_TOKENS) for rows in (5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32)),
)
_TOKENS: Final = tuple(size.tokens for size in SIZES)
#: Each at most twice as large as the one before
_STANDING_IN: Final = tuple(
    size for size in SIZES if size.tokens in {16, 32} | {64 * 2**power for power in range(6)}
)


def needed_sizes(texts_max: int) -> list[PackedSize]:
    """Those that can stand in for all that batches of up to `texts_max` short texts have, the large
    ones first."""
    return [size for size in reversed(_STANDING_IN) if size.tokens <= _usual_tokens(texts_max)]


def usual_sizes(texts_max: int) -> list[PackedSize]:
    """All that batches of up to `texts_max` short texts have; the needed ones first."""
    needed = needed_sizes(texts_max)
    return needed + [
        size for size in SIZES if size.tokens <= _usual_tokens(texts_max) and size not in needed
    ]


def _usual_tokens(texts_max: int) -> int:
    return max(2 * ROW_TOKENS, texts_max * _USUAL_TOKENS)


@dataclass(slots=True)
class Placement:
    """Where the texts of a batch lie in a graph of some size."""

    size: PackedSize
    places: list[tuple[int, int]]  #: of each text: its row, and its first token's place in that

    def starts(self) -> list[int]:
        """The place of each text's first token, counted over all rows."""
        width = self.size.width
        return [row * width + place for row, place in self.places]

    def larger(self) -> list[PackedSize]:
        """Further sizes in which the texts can lie as they do, the small ones first; the largest is
        twice this one."""
        rows, width = self.size
        most = 2 * self.size.tokens
        return [
            size
            for size in SIZES[bisect_left(_TOKENS, self.size.tokens) + 1 :]
            if size.rows >= rows and size.width >= width and size.tokens <= most
        ]


def place(lengths: Sequence[int]) -> Placement | None:
    """Where the texts lie in the smallest size that holds them; None: one is empty, or longer than
    a row, or all are more than any size holds. `lengths`: tokens of each text, one text or more."""
    if min(lengths) < 1 or max(lengths) > ROW_TOKENS:
        return None
    order: list[int] | None = None
    for size in SIZES[bisect_left(_TOKENS, sum(lengths)) :]:
        if size.rows == 1:
            places, end = [], 0
            for length in lengths:
                places.append((0, end))
                end += length
            return Placement(size, places)
        if order is None:  # the longest first: fewest rows
            order = sorted(range(len(lengths)), key=lambda at: -lengths[at])
        found = _placed(lengths, order, size)
        if found is not None:
            return Placement(size, found)
    return None


def _placed(
    lengths: Sequence[int], order: Sequence[int], size: PackedSize
) -> list[tuple[int, int]] | None:
    """Each text in the first row with room for it (first fit, decreasing); None: there is none."""
    rows, width = size
    ends = [0] * rows
    places = [(0, 0)] * len(lengths)
    for at in order:
        most = width - lengths[at]
        for row, end in enumerate(ends):
            if end <= most:
                places[at] = (row, end)
                ends[row] = end + lengths[at]
                break
        else:
            return None
    return places
