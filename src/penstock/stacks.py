"""SIGUSR2 ends none of our processes: each writes the stacks of its threads.

Imports nothing that takes time: every worker begins with it, maybe in another interpreter.
"""

from __future__ import annotations

import contextlib
import faulthandler
import signal


def write_when_asked() -> None:
    """From now on SIGUSR2 writes to standard error where each thread is, and the process goes on.
    It works while the interpreter is held up, too: that is when somebody asks."""
    with contextlib.suppress(OSError, RuntimeError, ValueError):  # there is no standard error
        faulthandler.register(signal.SIGUSR2, all_threads=True)
