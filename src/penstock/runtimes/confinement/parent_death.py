"""A child process that ends with its parent, even where it hangs in native code or is stopped."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """The kernel ends this process when the thread that started it ends.

    A parent that ended just before shows in its number; in a container process 1 may be one.
    """
    parent = os.getppid()
    _signal_at_parents_death(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def wake_at_parents_death() -> None:
    """Even where this process is stopped: it goes on then, and can end in order by itself."""
    _signal_at_parents_death(signal.SIGCONT)


def _signal_at_parents_death(number: signal.Signals) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
