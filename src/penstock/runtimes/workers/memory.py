"""Memory of processes, from /proc; 0 for processes that have ended.

Imports the standard library alone: worker processes measure themselves.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

#: First processes of containers: an engine's children, though this process's models run in them.
adopted: set[int] = set()


def own_bytes(pid: int) -> int:
    """Its private memory: without file pages, which others share."""
    try:
        resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * _PAGE_BYTES


def tree_pids(pid: int) -> list[int]:
    """A process with all its descendants, as far as the kernel reports them."""
    found = [pid]
    for each in found:  # grows while it is walked
        found += child_pids(each)
    return found


def child_pids(pid: int) -> list[int]:
    """The children of a process that it did not leave to others, as far as the kernel reports
    them."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def give_back_freed() -> None:
    """Returns memory that this process has freed to the operating system; glibc keeps it
    otherwise."""
    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
