"""Where the tokens of texts lie in the rows of a packed graph (`packing.py`), and which shapes such
graphs have.

A row has `ROW_TOKENS` tokens, or fewer where all texts fit into one row. So a longer text is not
packed, and attention within a row costs little beside all else.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson

from penstock.core.batching.hot_shapes import Shape

MASK: Final = "attention_mask"
POSITIONS: Final = "positions"
TEXTS: Final = "texts"
FIRST: Final = "first"
ROW_TOKENS: Final = 64
#: Tokens of a single row, and numbers of whole rows, that get graphs.
_WIDTHS: Final = (8, 16, 24, 32, 48, 64)
_ROWS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
#: Each at most twice as large as the one before
_STANDING_IN: Final = frozenset({2, 4, 8, 16, 32})


@dataclass(frozen=True, slots=True)
class Layout:
    """What goes in and comes out, each in the graph's order. `of_rows`: whether an output has one
    row for each text, else it has one for each token. Outputs are those of the model."""

    inputs: tuple[str, ...]
    dtypes: tuple[str, ...]  #: of the inputs, in OpenVINO's words
    of_rows: tuple[bool, ...]

    def shape(self, rows: int, width: int, texts_max: int) -> Shape:
        """Of all inputs of a graph with `rows` rows of `width` tokens."""
        texts = (min(texts_max, rows * width),)
        return tuple(texts if name == FIRST else (rows, width) for name in self.inputs)

    def shapes(self, texts_max: int) -> list[Shape]:
        """Those that batches of up to `texts_max` short texts have, the small ones first."""
        single = [self.shape(1, width, texts_max) for width in _WIDTHS]
        return single + [self.shape(rows, ROW_TOKENS, texts_max) for rows in _rows(texts_max)]

    def needed_shapes(self, texts_max: int) -> list[Shape]:
        """Those among them that can stand in for all."""
        single = [self.shape(1, width, texts_max) for width in (ROW_TOKENS, 32, 16)]
        rows = [rows for rows in _rows(texts_max) if rows in _STANDING_IN]
        return [self.shape(each, ROW_TOKENS, texts_max) for each in reversed(rows)] + single


def _rows(texts_max: int) -> list[int]:
    """Numbers of rows that hold `texts_max` texts of 8 tokens, as most queries have fewer."""
    return [rows for rows in _ROWS[1:] if rows <= max(2, texts_max * 8 // ROW_TOKENS)]


def layout_bytes(layout: Layout | None, refused: str) -> bytes:
    """What is kept of a model: its layout, or why it has none."""
    return orjson.dumps({"layout": layout, "refused": refused})


def layout_of(content: bytes) -> Layout | None:
    """None: it was refused. Raises ValueError: this is no layout."""
    try:
        told = orjson.loads(content)["layout"]
        return None if told is None else Layout(**{key: tuple(told[key]) for key in told})
    except (KeyError, TypeError) as error:
        raise ValueError(str(error)) from None


class PlacedTexts:
    """The places of a batch's texts, in `rows` rows of `width` tokens."""

    __slots__ = ("_lengths", "_starts", "rows", "width")

    def __init__(self, lengths: Sequence[int], starts: np.ndarray, rows: int, width: int) -> None:
        self._lengths = lengths
        self._starts = starts  #: of each text, counted over all rows
        self.rows = rows
        self.width = width

    def inputs(
        self, layout: Layout, tokens: Mapping[str, Sequence[Sequence[int]]], texts_max: int
    ) -> list[np.ndarray]:
        """The graph's inputs. `tokens`: ids, and types, of each text, by the input's name."""
        size = self.rows * self.width
        lengths = np.fromiter(self._lengths, dtype=np.int64, count=len(self._lengths))
        ends = np.cumsum(lengths)
        within = np.arange(int(ends[-1])) - np.repeat(ends - lengths, lengths)
        places = np.repeat(self._starts, lengths) + within
        made: list[np.ndarray] = []
        values: Any
        for name in layout.inputs:
            if name == FIRST:
                array = np.zeros(min(texts_max, size), dtype=np.int64)
                array[: len(lengths)] = self._starts
                made.append(array)
                continue
            if name == POSITIONS:
                values, fill = within, 0
            elif name == TEXTS:
                values, fill = np.repeat(np.arange(len(lengths)), lengths), -1
            else:
                values, fill = [number for row in tokens[name] for number in row], 0
            array = np.full(size, fill, dtype=np.int64)
            array[places] = values
            made.append(array.reshape(self.rows, self.width))
        return made

    def outputs(self, layout: Layout, outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """One row per text. Those of tokens become [texts, longest, ...], as padded ones are; what
        lies behind a shorter text's end is another's or nobody's."""
        count = len(self._lengths)
        apart = {}
        for (name, array), of_rows in zip(outputs.items(), layout.of_rows, strict=True):
            if of_rows:
                apart[name] = array[:count]
                continue
            size = self.rows * self.width
            flat = array.reshape(size, *array.shape[2:])
            columns = self._starts[:, None] + np.arange(max(self._lengths))
            apart[name] = flat[np.minimum(columns, size - 1)]
        return apart

    def enlarge(self) -> bool:
        """To the next size that has a graph. False: there is none."""
        if self.width < ROW_TOKENS:
            self.width = _WIDTHS[bisect_left(_WIDTHS, self.width) + 1]
            return True
        step = bisect_left(_ROWS, self.rows) + 1
        if step < len(_ROWS):
            self.rows = _ROWS[step]
        return step < len(_ROWS)

    def mask(self) -> np.ndarray:
        """[texts, longest]: 1 for the tokens of each text."""
        lengths = np.fromiter(self._lengths, dtype=np.int64, count=len(self._lengths))
        return (np.arange(max(self._lengths)) < lengths[:, None]).astype(np.int64)


def place(lengths: Sequence[int]) -> PlacedTexts | None:
    """The texts of a batch in as few tokens as one row or whole rows have; None: one is empty, or
    longer than a row."""
    total = sum(lengths)
    if min(lengths) < 1 or max(lengths) > ROW_TOKENS:
        return None
    if total <= ROW_TOKENS:
        width = _WIDTHS[bisect_left(_WIDTHS, total)]
        starts = np.cumsum([0, *lengths[:-1]])
        return PlacedTexts(lengths, starts, 1, width)
    starts = np.zeros(len(lengths), dtype=np.int64)
    free: list[int] = []
    for at in sorted(
        range(len(lengths)), key=lambda at: -lengths[at]
    ):  # longest first: fewest rows
        length = lengths[at]
        row = next((row for row, left in enumerate(free) if left >= length), len(free))
        if row == len(free):
            free.append(ROW_TOKENS)
        starts[at] = row * ROW_TOKENS + ROW_TOKENS - free[row]
        free[row] -= length
    step = bisect_left(_ROWS, len(free))
    return PlacedTexts(lengths, starts, _ROWS[step], ROW_TOKENS) if step < len(_ROWS) else None
