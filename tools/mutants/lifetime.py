"""Nothing outlives `make mutants`: neither a process that a test started nor a folder that it made.

A mutant may start whatever its tests start, in groups of their own, and then be killed. So the
session asks the system (Linux) to be given what is left without a parent, keeps one folder for all
that is temporary, and at its end, also when it is interrupted, ends the one and removes the other.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


@contextlib.contextmanager
def nothing_left_behind() -> Iterator[None]:
    """For the whole of a process without threads. SIGTERM and SIGINT end what is within."""
    stop_on_signals()
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        library.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as at:
        before, tempfile.tempdir = tempfile.tempdir, at
        try:
            yield
        finally:
            tempfile.tempdir = before
            _end_children()


def stop_on_signals() -> None:
    """The first SIGTERM or SIGINT raises SystemExit; later ones do not disturb the tidying up."""

    def stop(number: int, frame: object) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, stop)


def _end_children() -> None:
    """Theirs come to this process as they end, so it goes on until there are none."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    with contextlib.suppress(ChildProcessError, FileNotFoundError):
        while True:
            for child in listed.read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(child), signal.SIGKILL)
            os.waitpid(-1, 0)
