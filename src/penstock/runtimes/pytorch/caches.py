"""Keys and values of all rows of a decode batch, on the programs' device, in memory allocated once.

It has the methods of `runtimes.seq2seq.rows.RowCaches`, and replaces it in the decode loop. Lengths
only say how much of the memory a step reads: growing and shrinking copies nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from penstock.runtimes.pytorch.library import is_gpu
from penstock.runtimes.seq2seq.rows import MASKED, padded


class StaticCaches:
    """Rows 0 .. n-1 are in use; the caller keeps them dense. `here` enters the stream that orders
    all work on the caches."""

    def __init__(
        self,
        torch: Any,
        device: Any,
        dtype: Any,
        here: Callable[[], AbstractContextManager[None]],
        *,
        layers: int,
        heads: int,
        size: int,
        rows_max: int,
        past_max: int,
        source_max: int,
    ) -> None:
        self._torch = torch
        self._here = here
        self.rows_max = rows_max
        self.past_max = past_max
        self.source_max = source_max
        self.past_length = padded(1)
        self.source_length = padded(1)
        apart = is_gpu(device)
        #: Tokens to feed and their positions in one tensor: a single transfer per step.
        self._fed_here = torch.zeros((2, rows_max, 1), dtype=torch.int32, pin_memory=apart)
        self.ids: np.ndarray = self._fed_here[0].numpy()
        self.positions: np.ndarray = self._fed_here[1].numpy()
        self.fed = torch.zeros_like(self._fed_here, device=device) if apart else self._fed_here
        self.past = torch.zeros(
            (2 * layers, rows_max, heads, past_max, size), dtype=dtype, device=device
        )
        self.cross = torch.zeros(
            (2 * layers, rows_max, heads, source_max, size), dtype=dtype, device=device
        )
        self.source_bias = torch.full((rows_max, 1, 1, source_max), float(MASKED), device=device)

    def fit(self, rows: int, *, past: int, source: int) -> None:
        """Sets the (padded) lengths that steps read; memory beyond them stays as it is."""
        self.past_length = min(padded(max(past, 1)), self.past_max)
        self.source_length = min(padded(max(source, 1)), self.source_max)

    def send(self) -> None:
        """Sends tokens and positions to the device, ahead of the next step."""
        if self.fed is not self._fed_here:
            self.fed.copy_(self._fed_here, non_blocking=True)

    def put(self, rows: Sequence[int], cross_kv: Any, tokens: int) -> None:
        """Writes a new request: [2 * layers, heads, source, size]; all but `tokens` are padding.
        Call it on the caches' stream."""
        length = cross_kv.shape[2]
        for row in rows:
            self.cross[:, row, :, :length] = cross_kv
            self.source_bias[row, ..., :tokens] = 0.0
            self.source_bias[row, ..., tokens:] = float(MASKED)
            self.positions[row] = 0

    def move(self, source: int, target: int) -> None:
        used = int(self.positions[source, 0])
        with self._here():
            self.past[:, target, :, :used] = self.past[:, source, :, :used]
            self.cross[:, target] = self.cross[:, source]
            self.source_bias[target] = self.source_bias[source]
        self.positions[target] = self.positions[source]

    def reorder(self, rows: Sequence[int], order: np.ndarray) -> None:
        """Row `rows[i]` continues the content of row `rows[order[i]]`; their source is the same."""
        used = int(self.positions[rows[0], 0])
        with self._here():
            device = self.past.device
            places = self._torch.tensor(list(rows), device=device)
            taken = self._torch.tensor([rows[at] for at in order.tolist()], device=device)
            self.past[:, places, :, :used] = self.past[:, taken, :, :used]

    def clear(self, rows: Sequence[int]) -> None:
        """Clears numbers that are not finite: even masked, they would affect the mates' results."""
        with self._here():
            for row in rows:
                self.past[:, row] = 0.0
                self.cross[:, row] = 0.0

    def close(self) -> None:
        self.past = self.cross = self.source_bias = None
