"""A child process that ends with its parent, even where it hangs in native code or is stopped."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """The kernel kills this process when the thread that started it ends.

    The parent's id shows whether it ended just before; in a container process 1 may be the parent.
    """
    parent = os.getppid()
    _signal_at_parents_death(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def wake_at_parents_death() -> None:
    """Resumes this process if it is stopped when its parent dies, so that it can end in order."""
    _signal_at_parents_death(signal.SIGCONT)


def _signal_at_parents_death(number: signal.Signals) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
