"""Threads for work that must not hold up the event loop: one per lane, and one for large bodies."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

from penstock import scheduling
from penstock.instance.engines.cores import stay_on

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
