"""Cores that the lanes of a pinned model have for themselves.

Serves loading where model.yaml says `pinned: true`. Instances are processes that know nothing of
each other, so a core is claimed by an abstract socket named after it: one process of the machine
can have the name, and the kernel takes it back when the process ends, however it ends. Cores are
claimed from the last one down, for most machines handle interrupts on the first.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable

_NAME = "\0penstock-core-"


class CoreClaims:
    """The claims of one copy. `close` gives them back."""

    def __init__(self, name: str = _NAME) -> None:
        self._name = name
        self._held: dict[int, socket.socket] = {}

    def claim(self, lanes: int, threads: int) -> tuple[frozenset[int], ...]:
        """A set of `threads` cores for each of the lanes, or nothing if so many are not free.

        One core always stays unclaimed: loops, loads and whoever else runs here need a place.
        """
        wanted = lanes * threads
        for core in sorted(os.sched_getaffinity(0), reverse=True)[:-1]:
            if len(self._held) == wanted:
                break
            name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                name.bind(f"{self._name}{core}")
            except OSError:  # somebody has it
                name.close()
            else:
                self._held[core] = name
        if len(self._held) < wanted:
            self.close()
            return ()
        cores = list(self._held)
        return tuple(frozenset(cores[at : at + threads]) for at in range(0, wanted, threads))

    def close(self) -> None:
        """Idempotent."""
        for name in self._held.values():
            name.close()
        self._held = {}


class Pinning:
    """The cores of one copy, from before its model is loaded until it is closed.

    Made and settled on the event loop's thread. A library's own threads can't be told apart by
    lane: those that appear while the model starts stay on all the cores of the copy.
    """

    def __init__(self, lanes: int, threads: int, log: Callable[[str], None]) -> None:
        self._claims = CoreClaims()
        self.cores = self._claims.claim(lanes, threads)  #: of each lane; empty if none were free
        self._all = frozenset[int]().union(*self.cores)
        self._before = native_threads()
        if not self.cores:
            log(f"pinned: {lanes * threads} cores are not free here; the lanes share what there is")

    def settle(self) -> None:
        """The model has started: its threads stay on its cores, the event loop leaves them."""
        if self.cores:
            stay_on(self._all, native_threads() - self._before)
            stay_on(os.sched_getaffinity(0) - self._all)

    def close(self) -> None:
        """Idempotent."""
        if self.cores:
            stay_on(os.sched_getaffinity(0) | self._all)
        self._claims.close()
        self.cores = ()


def native_threads() -> frozenset[int]:
    """Threads of this process that Python did not start: those of libraries."""
    ours = {thread.native_id for thread in threading.enumerate()}
    return frozenset(int(task) for task in os.listdir("/proc/self/task")) - ours


def stay_on(cores: Iterable[int], threads: Iterable[int] = (0,)) -> None:
    """Binds threads to cores; 0 is the calling thread. One that has ended meanwhile is no error."""
    for thread in threads:
        try:
            os.sched_setaffinity(thread, cores)
        except ProcessLookupError:
            continue
