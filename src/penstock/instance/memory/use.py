"""The memory of an instance (its process, its workers, and all that they started), and its limit.

File pages do not count: the kernel drops them when memory is short. Several callers ask (the type's
limit, the control plane, the record of a load); there is one account, and each call measures anew.

An instance above the limit of its type is ended, with the reason. Instances share a machine:
without this check, the operating system would end a neighbour, or the server. One measurement may
hit a short peak, so two in a row are needed.

A compile on deploy does not count, nor does what builds an environment. It is work of the platform
and not of the model, needs several times what the compiled model takes, and ends: an instance that
is large enough to serve a model must not be too small to receive it. Its limit is the machine's
memory, and it is ended before anything else where that runs out.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection
from pathlib import Path

from penstock.compile.serving import compiling_pids
from penstock.runtimes.environments.installer import installing_pids
from penstock.runtimes.workers.control_group import used_by
from penstock.runtimes.workers.memory import adopted, own_bytes, tree_pids

LOOK_EVERY_S = 0.5
#: Every so many looks find out which processes there are: that costs ten times what their sizes do
#: where a process has dozens of threads, and its loop, or a neighbour's, waits for it.
_FIND_EVERY = 4
_LOOKS_MAX = 2
_OOM_SCORE_ADJ = 500  #: out of 1000: killed before the server and other people's programs


def platform_pids() -> tuple[int, ...]:
    """Processes of this one that do the platform's work, and not the model's."""
    return (*compiling_pids(), *installing_pids())


class MemoryUse:
    """`look` measures; the fields have the last result. Processes in `exempt`, and all below them,
    exist but are not the model's."""

    def __init__(self, *, exempt: Callable[[], Collection[int]] = platform_pids) -> None:
        self.own_bytes = 0  #: total, exempt processes included
        self.model_bytes = 0  #: without exempt processes
        self.model_bytes_max = 0  #: the highest value since the last `begin`
        self._exempt = exempt
        self._found: list[int] | None = None  #: None: also what the last look found does not tell

    def begin(self) -> None:
        """Resets the peak."""
        self.model_bytes_max = 0
        self.look()

    def look(self) -> int:
        """Measures, and returns `model_bytes`."""
        # Exempt ids are read first: a process that is exempt at that time has no child that counts.
        exempt = {pid for each in self._exempt() for pid in tree_pids(each)}
        groups = {root: used_by(root) for root in list(adopted)}
        whole = {root: group.memory_bytes for root, group in groups.items() if group is not None}
        # A first process without memory has ended, and the kernel is about to end all others of its
        # container, thousands maybe. They share pages, so their sum would say too much.
        alive = (root for root in groups if root not in whole and own_bytes(root))
        roots = (os.getpid(), *alive)
        pids = [pid for root in roots for pid in tree_pids(root)]
        self._found = None if groups or exempt else pids
        return self._add_up(whole | {pid: own_bytes(pid) for pid in pids}, exempt)

    def look_again(self) -> int:
        """As `look`, of the processes that it found; others may have begun since."""
        if self._found is None or adopted or self._exempt():
            return self.look()
        return self._add_up({pid: own_bytes(pid) for pid in self._found}, ())

    def _add_up(self, sizes: dict[int, int], exempt: Collection[int]) -> int:
        self.own_bytes = sum(sizes.values())
        self.model_bytes = sum(size for pid, size in sizes.items() if pid not in exempt)
        self.model_bytes_max = max(self.model_bytes_max, self.model_bytes)
        return self.model_bytes


class MemoryLimit:
    """Call `look` every `LOOK_EVERY_S`; it calls `on_over(story)` once."""

    def __init__(
        self, bytes_max: int, on_over: Callable[[str], None], use: MemoryUse | None = None
    ) -> None:
        self._bytes_max = bytes_max
        self._on_over = on_over
        self._use = use or MemoryUse()
        self._looks = 0
        self._looks_over = 0  #: in a row

    def look(self) -> None:
        finds = self._looks % _FIND_EVERY == 0
        self._looks += 1
        taken = self._use.look() if finds else self._use.look_again()
        if taken > self._bytes_max > 0 and not finds:
            taken = self._use.look()  # an id may be another process's by now
        self._looks_over = self._looks_over + 1 if taken > self._bytes_max > 0 else 0
        if self._looks_over == _LOOKS_MAX:
            self._on_over(
                f"the model takes {_gib(taken)} of memory, its instance has"
                f" {_gib(self._bytes_max)}. Choose a larger instance type."
            )


def be_ended_first() -> None:
    """If the machine runs out of memory in spite of this, the kernel kills instances before their
    server."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE_ADJ))


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.2f} GiB"
