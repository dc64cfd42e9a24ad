"""Holds an instance to the memory of its type: one that takes more is ended, with the reason.

Instances share a machine: where nobody looks, the operating system ends a neighbour, or the server.
Counted is what the instance and everything below it have for themselves. One look may meet a
passing peak, so it takes two in a row.

A compile on deploy does not count. It is the platform's work and not the model's, needs several
times what the compiled model will take, and ends: an instance that is large enough to serve a model
must not be too small to receive it. It has the machine's memory as its limit, and is ended before
anything else where that runs out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from penstock.instance.memory.use import MemoryUse

LOOK_EVERY_S = 0.5
_LOOKS_MAX = 2
_OOM_SCORE_ADJ = 500  #: of 1000: before the server and other people's programs


class MemoryLimit:
    """`look` is called every `LOOK_EVERY_S`; `on_over(story)` is called once."""

    def __init__(
        self, bytes_max: int, on_over: Callable[[str], None], use: MemoryUse | None = None
    ) -> None:
        self._bytes_max = bytes_max
        self._on_over = on_over
        self._use = use or MemoryUse()
        self._looks = 0

    def look(self) -> None:
        taken = self._use.look()
        self._looks = self._looks + 1 if taken > self._bytes_max > 0 else 0
        if self._looks == _LOOKS_MAX:
            self._on_over(
                f"the model takes {_gib(taken)} of memory, its instance has"
                f" {_gib(self._bytes_max)}. Choose a larger instance type."
            )


def be_ended_first() -> None:
    """Should the machine's memory run out all the same, instances go before their server."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE_ADJ))


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.2f} GiB"
