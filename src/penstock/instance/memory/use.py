"""What an instance takes: its process, its workers, and all that they started.

Pages of files do not count: they go when memory is short. Several ask (the limit of the type, the
control plane, the record of a load); there is one account, and each look at it is a fresh one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection

from penstock.compile.serving import compiling_pids
from penstock.instance.memory.process_usage import own_bytes, tree_pids


class MemoryUse:
    """`look` measures; the fields are those of the last look. What `exempt` names, and everything
    below it, is there but not the model's."""

    def __init__(self, *, exempt: Callable[[], Collection[int]] = compiling_pids) -> None:
        self.own_bytes = 0  #: all of it
        self.model_bytes = 0  #: without what is exempt
        self.model_bytes_max = 0  #: the most that was seen since the last `begin`
        self._exempt = exempt

    def begin(self) -> None:
        """From now on the most is looked for anew."""
        self.model_bytes_max = 0
        self.look()

    def look(self) -> int:
        """Measures, and returns `model_bytes`."""
        # First: a process that is exempt before its children are looked for has none that count.
        exempt = {pid for each in self._exempt() for pid in tree_pids(each)}
        sizes = {pid: own_bytes(pid) for pid in tree_pids(os.getpid())}
        self.own_bytes = sum(sizes.values())
        self.model_bytes = sum(size for pid, size in sizes.items() if pid not in exempt)
        self.model_bytes_max = max(self.model_bytes_max, self.model_bytes)
        return self.model_bytes
