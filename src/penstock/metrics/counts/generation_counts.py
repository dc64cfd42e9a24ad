"""Counts of streamed and of generated answers, the same in deltas, windows and totals."""

from __future__ import annotations

from typing import Final

from penstock.metrics.series.sketch import Sketch


class GenerationCounts:
    """Part of deltas, windows and totals.

    Attributes:
        first_chunk_us: from a request to the first part of its streamed answer.
        first_token_us, token_us: of generated answers; the second is the mean time per token of one
            answer, after its first token.
        tokens_in, tokens_out: of each generated answer.
        broken: streamed answers that ended with an error after their first part.
    """

    GENERATION_SKETCHES: Final = (
        "first_chunk_us", "first_token_us", "token_us", "tokens_in", "tokens_out",
    )  # fmt: skip

    __slots__ = (
        "broken", "first_chunk_us", "first_token_us", "token_us", "tokens_in", "tokens_out",
    )  # fmt: skip

    def __init__(self) -> None:
        self.first_chunk_us = Sketch()
        self.first_token_us = Sketch()
        self.token_us = Sketch()
        self.tokens_in = Sketch()
        self.tokens_out = Sketch()
        self.broken = 0

    def add_generation(self, other: GenerationCounts) -> None:
        """Adds what `other` counted."""
        for name in self.GENERATION_SKETCHES:
            getattr(self, name).merge(getattr(other, name))
        self.broken += other.broken
