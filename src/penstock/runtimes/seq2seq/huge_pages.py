"""Moves memory that is there already into huge pages.

A decode step reads all weights once, front to back. In pages of 4 KiB the hardware's prefetch stops
at every page's end and the address of each is looked up anew; in pages of 2 MiB that is over. The
library that holds the weights asks for no such pages, so this does it for the process: any large
anonymous mapping that is mostly filled, for the weights cannot be told apart from other data. The
memory in use grows by the unfilled rest of those mappings.

Linux 6.1 does it at once (MADV_COLLAPSE); older kernels do it in their own time, and where there
are no huge pages nothing happens. Must not know what is stored there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator

_PAGE_BYTES = 2 << 20
_MAPPING_BYTES_MIN = 2 * _PAGE_BYTES
_FILLED_MIN = 0.8  #: of a mapping; stacks and reserves of allocators stay as they are
_HUGEPAGE, _COLLAPSE = 14, 25  # MADV_* of <linux/mman.h>


def use_huge_pages() -> int:
    """Bytes that were asked for; 0 where the system has no such mappings or pages."""
    try:
        with open("/proc/self/smaps", encoding="ascii", errors="replace") as lines:
            ranges = list(_worthwhile(lines))
        madvise = ctypes.CDLL(None, use_errno=True).madvise
    except (OSError, AttributeError):  # not Linux
        return 0
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    asked = 0
    for start, stop in ranges:
        if madvise(start, stop - start, _HUGEPAGE) == 0:
            madvise(start, stop - start, _COLLAPSE)  # refused by old kernels: then it comes later
            asked += stop - start
    return asked


def _worthwhile(lines: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Whole huge pages of the mappings in `/proc/self/smaps` that are large, private and filled."""
    start = stop = filled = 0
    for line in lines:
        words = line.split()
        if not words[0].endswith(":"):
            low, _, high = words[0].partition("-")
            start, stop, filled = int(low, 16), int(high, 16), 0
            if not words[1].startswith("rw-p") or words[4] != "0" or "[stack]" in words:
                stop = start
        elif words[0] == "Rss:":
            filled = int(words[1]) << 10
        elif words[0] == "AnonHugePages:":
            large = stop - start >= _MAPPING_BYTES_MIN
            done = int(words[1]) << 10
            if large and filled >= _FILLED_MIN * (stop - start) and done + _PAGE_BYTES < filled:
                first = -(-start // _PAGE_BYTES) * _PAGE_BYTES
                yield first, stop // _PAGE_BYTES * _PAGE_BYTES
