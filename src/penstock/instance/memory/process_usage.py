"""Memory and processor time of processes, from /proc; 0 for processes that have ended."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.fleet.machine import cpu_s
from penstock.runtimes.workers.memory import own_bytes, tree_pids

__all__ = ["cpu_s", "own_bytes", "rss_bytes", "tree_pids"]

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def rss_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


def proportional_bytes(pid: int) -> int:
    """Resident memory with each page divided by the number of its users, file pages included: the
    sum over processes is their total. Where the kernel does not report it, all resident memory."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return next(
            int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:")
        )
    except (OSError, ValueError, IndexError, StopIteration):
        return rss_bytes(pid)
