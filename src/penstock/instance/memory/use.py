"""The memory of an instance: its process, its workers, and all that they started.

File pages do not count: the kernel drops them when memory is short. Several callers ask (the type's
limit, the control plane, the record of a load); there is one account, and each call measures anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection

from penstock.compile.serving import compiling_pids
from penstock.instance.memory.process_usage import own_bytes, tree_pids


class MemoryUse:
    """`look` measures; the fields have the last result. Processes in `exempt`, and all below them,
    exist but are not the model's."""

    def __init__(self, *, exempt: Callable[[], Collection[int]] = compiling_pids) -> None:
        self.own_bytes = 0  #: total, exempt processes included
        self.model_bytes = 0  #: without exempt processes
        self.model_bytes_max = 0  #: the highest value since the last `begin`
        self._exempt = exempt

    def begin(self) -> None:
        """Resets the peak."""
        self.model_bytes_max = 0
        self.look()

    def look(self) -> int:
        """Measures, and returns `model_bytes`."""
        # Exempt ids are read first: a process that is exempt at that time has no child that counts.
        exempt = {pid for each in self._exempt() for pid in tree_pids(each)}
        sizes = {pid: own_bytes(pid) for pid in tree_pids(os.getpid())}
        self.own_bytes = sum(sizes.values())
        self.model_bytes = sum(size for pid, size in sizes.items() if pid not in exempt)
        self.model_bytes_max = max(self.model_bytes_max, self.model_bytes)
        return self.model_bytes
