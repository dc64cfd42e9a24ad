"""How answers differ from Triton's, and why: the rows of docs/reference/triton-differences.md."""

from __future__ import annotations

from bench.triton.rows import Difference

DIFFERENCES: tuple[Difference, ...] = ()
