"""Which processes have a model, for tests that kill them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from penstock.runtimes.workers.memory import tree_pids


def pids_in(folder: str, *, below: int) -> list[int]:
    """Of a process and all that it started, those that run in a folder of this name."""
    found = []
    for pid in tree_pids(below):
        with suppress(OSError):  # it has ended
            if Path(os.readlink(f"/proc/{pid}/cwd")).name == folder:
                found.append(pid)
    return found
