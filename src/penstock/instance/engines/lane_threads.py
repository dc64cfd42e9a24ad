"""Threads for work that must not hold up the event loop: one per lane, and one for large bodies.

What a runtime tells of its lanes, on its way to a copy that is made after the runtime.

Cores that the lanes of a pinned model have for themselves.

Serves loading where model.yaml says `pinned: true`. Instances are processes that know nothing of
each other, so a core is claimed by an abstract socket named after it: one process of the machine
can have the name, and the kernel takes it back when the process ends, however it ends. Cores are
claimed from the last one down, for most machines handle interrupts on the first.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from queue import SimpleQueue
from typing import Any

from penstock import scheduling
from penstock.errors import PenstockError
from penstock.runtimes.base import LaneListener

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


Work = Callable[[], Any]
#: receives what the work returned, or the exception that it raised
Done = Callable[[Any], None]


class LoopAnswers:
    """Brings results from other threads to the loop, in order of completion; several that finish
    together cost one wake-up."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._results: deque[tuple[Done, Any]] = deque()  #: any thread appends, then it posts
        self._posted = False

    def _post(self) -> None:
        if self._results and not self._posted:
            self._posted = True
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                return  # the loop is closed: the process is ending

    def _deliver(self) -> None:
        # Reset first: a result appended from here on posts again, so none is left behind.
        self._posted = False
        results = self._results
        while results:
            done, result = results.popleft()
            done(result)


class LaneThreads(LoopAnswers):
    """`submit` from the loop; `done` is called on the loop."""

    def __init__(
        self,
        count: int,
        name: str,
        loop: asyncio.AbstractEventLoop,
        cores: Sequence[frozenset[int]] = (),
    ) -> None:
        """`cores`: of each lane, where lanes are pinned."""
        super().__init__(loop)
        self._queues: list[SimpleQueue[tuple[Work, Done] | None]] = []
        self._threads: list[threading.Thread] = []
        for lane in range(count):
            queue: SimpleQueue[tuple[Work, Done] | None] = SimpleQueue()
            thread = threading.Thread(
                target=self._serve,
                args=(queue, cores[lane] if cores else None),
                name=f"{name}-{lane}",
                daemon=True,
            )
            self._queues.append(queue)
            self._threads.append(thread)
            thread.start()

    def submit(self, lane: int, work: Work, done: Done) -> None:
        self._queues[lane].put((work, done))

    def close(self) -> None:
        """Threads end after what they were given. Idempotent."""
        for queue in self._queues:
            queue.put(None)
        self._queues = []

    def _serve(
        self, queue: SimpleQueue[tuple[Work, Done] | None], cores: frozenset[int] | None
    ) -> None:
        scheduling.compute()
        if cores is not None:
            stay_on(cores)
        while (job := queue.get()) is not None:
            work, done = job
            try:
                result = work()
            except Exception as error:  # handed over: the loop decides what it means
                result = error
            self._results.append((done, result))
            del job, work, done, result  # a waiting thread must not keep tensors alive
            self._post()


class LaneEvents:
    """A `LaneListener` that passes on to another; what comes before there is one is kept."""

    def __init__(self) -> None:
        self._to: LaneListener | None = None
        self._early: list[tuple[str, tuple[Any, ...]]] = []

    def attach(self, to: LaneListener) -> None:
        self._to = to
        for name, given in self._early:
            getattr(to, name)(*given)

    def _pass_on(self, name: str, *given: Any) -> None:
        if self._to is None:
            self._early.append((name, given))
        else:
            getattr(self._to, name)(*given)

    def lane_lost(self, lane: int, error: PenstockError) -> None:
        self._pass_on("lane_lost", lane, error)

    def lane_ready(self, lane: int) -> None:
        self._pass_on("lane_ready", lane)

    def lane_failed(self, lane: int, error: PenstockError) -> None:
        self._pass_on("lane_failed", lane, error)
