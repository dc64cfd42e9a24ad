"""What goes into a graph of texts side by side (`openvino/packing.py`), and what comes out of it.

`core.packed_sizes` decides which sizes there are, and where the texts lie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import orjson

from penstock.core.batching.hot_shapes import Shape
from penstock.core.batching.packed_sizes import (
    ROW_TOKENS,
    PackedSize,
    Placement,
    needed_sizes,
    place,
    usual_sizes,
)

MASK: Final = "attention_mask"
POSITIONS: Final = "positions"
TEXTS: Final = "texts"
FIRST: Final = "first"
_POSITIONS: Final = list(range(ROW_TOKENS))


@dataclass(frozen=True, slots=True)
class Layout:
    """What goes in and comes out, each in the graph's order. `of_rows`: whether an output has one
    row for each text, else it has one for each token. Outputs are those of the model."""

    inputs: tuple[str, ...]
    dtypes: tuple[str, ...]  #: of the inputs, in OpenVINO's words
    of_rows: tuple[bool, ...]

    def shape(self, size: PackedSize, texts_max: int) -> Shape:
        """Of all inputs of a graph of this size."""
        texts = (min(texts_max, size.tokens),)
        return tuple(texts if name == FIRST else (size.rows, size.width) for name in self.inputs)

    def needed_shapes(self, texts_max: int) -> list[Shape]:
        """Those that can stand in for all that batches of up to `texts_max` short texts have, the
        large ones first."""
        return [self.shape(size, texts_max) for size in needed_sizes(texts_max)]

    def usual_shapes(self, texts_max: int) -> list[Shape]:
        """All that such batches have; the needed ones first."""
        return [self.shape(size, texts_max) for size in usual_sizes(texts_max)]


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


def refusal_of(content: bytes) -> str:
    """Why a model has no layout; "" where it has one. Raises ValueError as `layout_of` does."""
    try:
        return str(orjson.loads(content)["refused"])
    except (KeyError, TypeError) as error:
        raise ValueError(str(error)) from None


class PlacedTexts:
    """A batch's texts in a graph of `size`, which may be set to one of the larger sizes of their
    placement."""

    __slots__ = ("_lengths", "_placement")

    def __init__(self, lengths: Sequence[int], placement: Placement) -> None:
        self._lengths = lengths
        self._placement = placement

    @property
    def size(self) -> PackedSize:
        return self._placement.size

    @size.setter
    def size(self, size: PackedSize) -> None:
        self._placement.size = size

    def larger(self) -> list[PackedSize]:
        return self._placement.larger()

    def inputs(
        self, layout: Layout, tokens: Mapping[str, Sequence[Sequence[int]]], texts_max: int
    ) -> list[np.ndarray]:
        """The graph's inputs. `tokens`: ids, and types, of each text, by the input's name."""
        places = self.size.tokens
        starts = self._placement.starts()
        made: list[np.ndarray] = []
        for name in layout.inputs:
            if name == FIRST:
                spare = min(texts_max, places) - len(starts)
                made.append(np.array(starts + [0] * spare, dtype=np.int64))
                continue
            # Lists: for some dozens of numbers, arrays take longer.
            values = [-1 if name == TEXTS else 0] * places
            for at, (start, length) in enumerate(zip(starts, self._lengths, strict=True)):
                values[start : start + length] = (
                    _POSITIONS[:length]
                    if name == POSITIONS
                    else [at] * length
                    if name == TEXTS
                    else tokens[name][at]
                )
            made.append(np.array(values, dtype=np.int64).reshape(self.size))
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
            places = self.size.tokens
            flat = array.reshape(places, *array.shape[2:])
            starts = np.array(self._placement.starts())
            columns = starts[:, None] + np.arange(max(self._lengths))
            apart[name] = flat[np.minimum(columns, places - 1)]
        return apart

    def mask(self, layout: Layout) -> np.ndarray:
        """[texts, longest]: 1 for the tokens of each text; [texts, 0] where no output has any."""
        if all(layout.of_rows):
            return np.zeros((len(self._lengths), 0), dtype=np.int64)
        lengths = np.fromiter(self._lengths, dtype=np.int64, count=len(self._lengths))
        return (np.arange(max(self._lengths)) < lengths[:, None]).astype(np.int64)


def placed_texts(lengths: Sequence[int]) -> PlacedTexts | None:
    """The texts of a batch in as few tokens as a size has; None: they fit into none."""
    placement = place(lengths)
    return PlacedTexts(lengths, placement) if placement is not None else None
