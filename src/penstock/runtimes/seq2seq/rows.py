"""The caches of all rows of a decode batch, in memory that the compiled decoder reads in place.

Each of the decoder's cache tensors is a view of the first rows of one array, so a step copies no
cache: rows that join, leave, move or grow are written here between steps. The lengths (past tokens,
source tokens) are padded to buckets, because kernels are made per shape. They grow with the longest
row and shrink when the remaining rows are far shorter. Padding is masked by position and by
`source_bias`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

#: Score of a masked source position; `compile.seq2seq_graph` masks the past by the same number.
MASKED = -1.0e9
_LENGTHS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


def padded(length: int) -> int:
    """A length rounded up to its bucket."""
    at = bisect_left(_LENGTHS, length)
    return _LENGTHS[at] if at < len(_LENGTHS) else -(-length // 4096) * 4096


def fill(ids: np.ndarray, mask: np.ndarray, sources: Sequence[Sequence[int]]) -> None:
    """An encoder's inputs [batch, length] for token id lists; a row without one has one token."""
    ids[:] = 0
    mask[:] = 0.0
    mask[len(sources) :, 0] = 1.0
    for at, source in enumerate(sources):
        ids[at, : len(source)] = source
        mask[at, : len(source)] = 1.0


class RowCaches:
    """Rows 0 .. n-1 are in use; the caller keeps them dense."""

    def __init__(self, *, layers: int, heads: int, size: int, rows_max: int) -> None:
        self.rows_max = rows_max
        self.version = 0  #: changes whenever the arrays are replaced
        self.ids = np.zeros((rows_max, 1), dtype=np.int32)
        self.positions = np.zeros((rows_max, 1), dtype=np.int32)
        self.past = np.zeros((2 * layers, rows_max, heads, padded(1), size), dtype=np.float32)
        self.cross = np.zeros((2 * layers, rows_max, heads, padded(1), size), dtype=np.float32)
        self.source_bias = np.full((rows_max, 1, 1, padded(1)), MASKED, dtype=np.float32)

    @property
    def past_length(self) -> int:
        return self.past.shape[3]

    @property
    def source_length(self) -> int:
        return self.cross.shape[3]

    def fit(self, rows: int, *, past: int, source: int) -> None:
        """Makes room for these lengths; the first `rows` rows keep their content."""
        wanted = _length(padded(max(past, 1)), self.past_length)
        if wanted != self.past_length:
            self.past = _resized(self.past, rows, wanted)
            self.version += 1
        wanted = _length(padded(max(source, 1)), self.source_length)
        if wanted != self.source_length:
            self.cross = _resized(self.cross, rows, wanted)
            kept = min(wanted, self.source_bias.shape[3])
            bias = np.full((self.rows_max, 1, 1, wanted), MASKED, dtype=np.float32)
            bias[:rows, ..., :kept] = self.source_bias[:rows, ..., :kept]
            self.source_bias = bias
            self.version += 1

    def put(self, rows: Sequence[int], cross_kv: np.ndarray, tokens: int) -> None:
        """Writes a new request: [2 * layers, heads, source, size]; all but `tokens` are padding."""
        length = min(cross_kv.shape[2], self.source_length)
        for row in rows:
            self.cross[:, row, :, :length] = cross_kv[:, :, :length]
            self.source_bias[row, ..., :tokens] = 0.0
            self.source_bias[row, ..., tokens:] = MASKED
            self.positions[row] = 0

    def move(self, source: int, target: int) -> None:
        used = int(self.positions[source, 0])
        self.past[:, target, :, :used] = self.past[:, source, :, :used]
        self.cross[:, target] = self.cross[:, source]
        self.source_bias[target] = self.source_bias[source]
        self.positions[target] = self.positions[source]

    def reorder(self, rows: Sequence[int], order: np.ndarray) -> None:
        """Row `rows[i]` continues the content of row `rows[order[i]]`; their source is the same."""
        used = int(self.positions[rows[0], 0])
        places = np.asarray(rows)
        self.past[:, places, :, :used] = self.past[:, places[order], :, :used]

    def append(self, rows: int, new_kv: np.ndarray) -> None:
        """Appends [2 * layers, at least `rows`, heads, 1, size] after a step; positions advance."""
        if rows == 1:
            # After a step of a lone row the processor's caches hold only weights: each numpy
            # operation that is avoided here saves a few microseconds.
            position = self.positions.item(0)
            self.past[:, 0, :, position] = new_kv[:, 0, :, 0]
            self.positions[0, 0] = position + 1
        else:
            places = np.arange(rows)
            new = new_kv[:, :rows, :, 0].transpose(1, 0, 2, 3)
            self.past[:, places, :, self.positions[:rows, 0]] = new
            self.positions[:rows] += 1

    def clear(self, rows: Sequence[int]) -> None:
        """Clears numbers that are not finite: even masked, they would affect the mates' results."""
        for row in rows:
            self.past[:, row] = 0.0
            self.cross[:, row] = 0.0


def _length(wanted: int, have: int) -> int:
    """The new length. It shrinks only to a quarter or less, so that lengths that go up and down do
    not cost a copy each time."""
    return wanted if wanted > have or wanted * 4 <= have else have


def _resized(array: np.ndarray, rows: int, length: int) -> np.ndarray:
    shape = (*array.shape[:3], length, array.shape[4])
    resized = np.zeros(shape, dtype=np.float32)
    kept = min(length, array.shape[3])
    resized[:, :rows, :, :kept] = array[:, :rows, :, :kept]
    return resized
