"""Lanes that run compiled graphs without the interpreter, beside the lanes' threads of Python's.

A thread of Python's waits for the interpreter after a run, answers, prepares the next batch, and
only then begins its run. On a busy loop that took as long as a small batch. Here the loop prepares
a batch while the one before runs, and the lane begins it at once.

A lane computes for one of its two threads at a time: `computes` is held while a native run is open.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from penstock.runtimes.base import NativeRun
from penstock.runtimes.native import native_lane

if TYPE_CHECKING:
    from penstock.runtimes.native.lane import NativeLane

Ended = Callable[[int], None]
#: What `Ended` gets of a run that never began; functions return their library's own codes.
NOT_RUN: Final = -(2**31)


class NativeLanes:
    """Call everything on the loop. Threads begin with the first run."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        computes: Sequence[threading.Lock],
        cores: Sequence[frozenset[int]],
    ) -> None:
        """`computes` and `cores`: for each lane; no cores where lanes are not pinned."""
        self._loop = loop
        self._computes = computes
        self._cores = cores
        self._lane_class: type[NativeLane] | None = native_lane()
        self._lanes: dict[int, NativeLane] = {}
        self._wake = -1  #: an eventfd, for all lanes
        #: Open runs of each lane: the run, which must stay where it is, and who hears of its end
        self._open: dict[int, dict[int, tuple[NativeRun, Ended]]] = {}
        self._last_id = 0
        self._closed: Callable[[], None] | None = None  #: to be called when the last run has ended

    @property
    def can_be(self) -> bool:
        """False: the code was not built here, or the lanes are closed."""
        return self._lane_class is not None

    def submit(self, lane: int, run: NativeRun, ended: Ended) -> bool:
        """`ended` gets what the function returned, later. False: the lane's other thread computes,
        or this one can't begin; nothing was done."""
        runs = self._open.setdefault(lane, {})
        native = self._lanes.get(lane) or self._begun(lane)
        if native is None or not (runs or self._computes[lane].acquire(blocking=False)):
            return False
        self._last_id += 1
        runs[self._last_id] = (run, ended)
        native.submit(self._last_id, run.function, run.argument)
        return True

    def close(self, closed: Callable[[], None]) -> None:
        """Takes no more runs. When no run is open any more, its threads end and `closed` is called:
        until then the memory that runs use is kept, and their ends are heard of."""
        self._lane_class = None
        self._closed = closed
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        closed = self._closed
        if closed is None or any(self._open.values()):
            return
        self._closed = None
        for lane in self._lanes.values():
            lane.close()  # at once: it is idle
        self._lanes = {}
        if self._wake >= 0:
            self._loop.remove_reader(self._wake)
            os.close(self._wake)
            self._wake = -1
        closed()

    def _begun(self, lane: int) -> NativeLane | None:
        if self._lane_class is None:
            return None
        try:
            if self._wake < 0:
                self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
                self._loop.add_reader(self._wake, self._woken)
            made = self._lane_class(self._wake)
            if self._cores:
                os.sched_setaffinity(made.native_id, self._cores[lane])
        except OSError:  # no more threads or files: the lanes of Python's do it
            return None
        self._lanes[lane] = made
        return made

    def _woken(self) -> None:
        try:
            os.eventfd_read(self._wake)
        except BlockingIOError:
            return
        self._ended()

    def _ended(self) -> None:
        for lane, native in list(self._lanes.items()):
            for ident, status in native.results():
                runs = self._open[lane]
                _, ended = runs.pop(ident)
                if not runs:
                    self._computes[lane].release()
                try:
                    ended(status)
                except Exception as error:  # the ends of others are heard of all the same
                    told = {"message": "a batch's end raised", "exception": error}
                    self._loop.call_exception_handler(told)
        self._close_if_idle()
