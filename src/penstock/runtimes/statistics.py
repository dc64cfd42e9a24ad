"""How busy a runtime is that answers step by step. Knows no engine; standard library alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineStatistics:
    running: int  #: sequences in the last step
    waiting: int  #: sequences that wait for room
    cache_use: float  #: share of the cache's blocks that is used, 0 to 1
    cache_bytes: int
