"""Looks at processes of ours repeatedly, and reports one that should be ended because it stands
still.

`core.machine.stopped` decides, by the state in /proc. Where that can't be read, none is ever
reported. Imports no library: a server watches its instances with it before it has any thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.core.machine.stopped import LOOK_EVERY_S, LOOKS_MAX, StoppedLooks

#: Process ids: fixed, or found at each look.
Pids = Sequence[int] | Callable[[], Sequence[int]]


def is_stopped(pid: int) -> bool:
    """Whether a signal (SIGSTOP, SIGTSTP) has stopped a process; False if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2][:2] == b" T"


class StoppedWatch:
    """Watches one process, or several that serve together. `close` it once they have ended."""

    def __init__(self, pids: Pids, end: Callable[[], None], *, looks_max: int = LOOKS_MAX) -> None:
        """`end` is called once, when one of `pids` has stood still for `looks_max` looks."""
        self._pids = pids
        self._end = end
        self._looks = StoppedLooks(looks_max)
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        pids = self._pids() if callable(self._pids) else self._pids
        if self._looks.look(stopped=any(map(is_stopped, pids))):
            self._end()
        else:
            self._timer = self._loop.call_later(LOOK_EVERY_S, self._look)

    def close(self) -> None:
        self._timer.cancel()
