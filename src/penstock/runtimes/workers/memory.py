"""Memory of processes, from /proc; 0 for processes that have ended.

Imports the standard library alone: worker processes measure themselves.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_READ_BYTES = 65536

#: First processes of containers: an engine's children, though this process's models run in them.
adopted: set[int] = set()


def own_bytes(pid: int) -> int:
    """Its private memory: without file pages, which others share."""
    try:
        resident, shared = _read(f"/proc/{pid}/statm").split()[1:3]
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
    them. An engine with graphs of many shapes has dozens of threads, and its loop waits for this,
    so they are read without what a `Path` or a file object costs."""
    found: list[int] = []
    tasks = f"/proc/{pid}/task"
    with suppress(OSError):
        for task in os.listdir(tasks):
            with suppress(OSError):
                if children := _read(f"{tasks}/{task}/children"):
                    found += map(int, children.split())
    return found


def _read(path: str) -> bytes:
    """A file of /proc whole. Its reads may be short before its end, of which only an empty one
    tells."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = b""
        while piece := os.read(file, _READ_BYTES):
            found += piece
        return found
    finally:
        os.close(file)


def give_back_freed() -> None:
    """Returns memory that this process has freed to the operating system; glibc keeps it
    otherwise."""
    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
