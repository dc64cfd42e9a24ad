"""What processes take of memory, from /proc. Processes that are gone take nothing.

Imports the standard library alone: worker processes look at themselves.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def own_bytes(pid: int) -> int:
    """What it has for itself: without pages of files, which others share."""
    try:
        resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * _PAGE_BYTES


def tree_pids(pid: int) -> list[int]:
    """A process and all that it and its children started, as far as the kernel tells."""
    found = [pid]
    for each in found:  # grows while it is walked
        found += child_pids(each)
    return found


def child_pids(pid: int) -> list[int]:
    """What a process started and did not leave to others, as far as the kernel tells."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def give_back_freed() -> None:
    """What this process has freed, to the operating system: glibc keeps it otherwise."""
    with suppress(AttributeError, OSError):  # another library of C
        ctypes.CDLL(None).malloc_trim(0)
