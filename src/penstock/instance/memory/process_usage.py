"""Memory and processor time of processes, from /proc. Processes that are gone count nothing."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def rss_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


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
        with suppress(OSError):
            for task in Path(f"/proc/{each}/task").iterdir():
                with suppress(OSError):
                    found += [int(child) for child in (task / "children").read_text().split()]
    return found


def cpu_s(pid: int) -> float:
    """User and system time of all its threads."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    except (OSError, IndexError, ValueError):
        return 0.0


def proportional_bytes(pid: int) -> int:
    """Resident memory with each page divided by those who share it: the sum over processes is what
    they take together, pages of files included. Where the kernel does not tell, all of it."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return next(
            int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:")
        )
    except (OSError, ValueError, IndexError, StopIteration):
        return rss_bytes(pid)
