"""Enforces the memory limit of the instance's type: an instance above it is ended, with the reason.

Instances share a machine: without this check, the operating system would end a neighbour, or the
server. The private memory of the instance and all processes below it counts. One measurement may
hit a short peak, so two in a row are needed.

A compile on deploy does not count. It is work of the platform and not of the model, needs several
times what the compiled model takes, and ends: an instance that is large enough to serve a model
must not be too small to receive it. Its limit is the machine's memory, and it is ended before
anything else where that runs out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from penstock.instance.memory.use import MemoryUse

LOOK_EVERY_S = 0.5
_LOOKS_MAX = 2
_OOM_SCORE_ADJ = 500  #: out of 1000: killed before the server and other people's programs


class MemoryLimit:
    """Call `look` every `LOOK_EVERY_S`; it calls `on_over(story)` once."""

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
    """If the machine runs out of memory in spite of this, the kernel kills instances before their
    server."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE_ADJ))


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.2f} GiB"
