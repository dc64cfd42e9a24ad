"""Threads for work that would block the event loop: one per lane, one for large bodies; and cores.

`LaneEvents` passes a runtime's lane events on to its copy, which is made later.

Where model.yaml says `pinned: true`, lanes have cores of their own. Instances are processes that
know nothing of each other, so a core is claimed by binding an abstract socket named after it. Only
one process of the machine can have the name, and the kernel releases it when the process ends in
any way. Cores are claimed from the last one down, because most machines handle interrupts on the
first.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any

import numpy as np

from penstock import scheduling
from penstock.errors import PenstockError
from penstock.instance.engines.native_lanes import NOT_RUN, Ended, NativeLanes
from penstock.runtimes.base import LaneListener, NativeRun

_NAME = "\0penstock-core-"


class CoreClaims:
    """The cores that one copy has claimed. `close` releases them."""

    def __init__(self, name: str = _NAME) -> None:
        self._name = name
        self._held: dict[int, socket.socket] = {}

    def claim(self, lanes: int, threads: int) -> tuple[frozenset[int], ...]:
        """A set of `threads` cores for each lane, or nothing if not enough are free.

        One core is never claimed: loops, loads and other programs need one.
        """
        wanted = lanes * threads
        for core in sorted(os.sched_getaffinity(0), reverse=True)[:-1]:
            if len(self._held) == wanted:
                break
            name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                name.bind(f"{self._name}{core}")
            except OSError:  # another process has claimed it
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

    Make and settle it on the event loop's thread. A library's own threads can't be assigned to
    lanes: threads that appear while the model starts may use all the cores of the copy.
    """

    def __init__(self, lanes: int, threads: int, log: Callable[[str], None]) -> None:
        self._claims = CoreClaims()
        #: One set for each lane; empty if not enough were free
        self.cores = self._claims.claim(lanes, threads)
        self._all = frozenset[int]().union(*self.cores)
        self._before = native_threads()
        if not self.cores:
            log(f"pinned: {lanes * threads} cores are not free here; the lanes share what there is")

    def settle(self) -> None:
        """Call this when the model has started: its threads keep the copy's cores, the event loop
        leaves them."""
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
    """Binds threads to cores; 0 is the calling thread. It is no error if a thread has ended."""
    for thread in threads:
        try:
            os.sched_setaffinity(thread, cores)
        except ProcessLookupError:
            continue


Work = Callable[[], Any]
#: Gets the work's result, or the exception that it raised.
Done = Callable[[Any], None]


class LoopAnswers:
    """Brings results from other threads to the loop, in order of completion; several that finish
    together need one wake-up."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: Any thread appends here, then wakes the loop
        self._results: deque[tuple[Done, Any]] = deque()
        self._posted = False

    def _post(self) -> None:
        if self._results and not self._posted:
            self._posted = True
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                return  # the loop is closed: the process is ending

    def _deliver(self) -> None:
        # Reset first: a result that is appended from here on wakes the loop again, so none is
        # missed.
        self._posted = False
        results = self._results
        while results:
            done, result = results.popleft()
            done(result)


class LaneThreads(LoopAnswers):
    """Call `submit`, `submit_native` and `run_here` on the loop; `done` is called there, later.

    Work of one lane never runs twice at a time, wherever it runs.
    """

    def __init__(
        self,
        count: int,
        name: str,
        loop: asyncio.AbstractEventLoop,
        cores: Sequence[frozenset[int]] = (),
    ) -> None:
        """`cores`: for each lane, where lanes are pinned."""
        super().__init__(loop)
        self._queues: list[SimpleQueue[tuple[Work, Done] | None]] = []
        self._computes = [threading.Lock() for _ in range(count)]  #: whoever does a lane's work
        self._submitted = [0] * count  #: works of `submit` that are not done yet
        #: Native runs behind them, of each lane. Were they refused, a lane that always has a batch
        #: ahead would not leave Python's thread again.
        self._behind: list[deque[tuple[NativeRun, Ended]]] = [deque() for _ in range(count)]
        self._native = NativeLanes(loop, self._computes, cores)
        self._threads: list[threading.Thread] = []
        for lane in range(count):
            queue: SimpleQueue[tuple[Work, Done] | None] = SimpleQueue()
            thread = threading.Thread(
                target=self._serve,
                args=(queue, self._computes[lane], cores[lane] if cores else None),
                name=f"{name}-{lane}",
                daemon=True,
            )
            self._queues.append(queue)
            self._threads.append(thread)
            thread.start()

    def submit(self, lane: int, work: Work, done: Done) -> None:
        self._submitted[lane] += 1
        self._queues[lane].put((work, partial(self._did, lane, done)))

    def _did(self, lane: int, done: Done, result: Any) -> None:
        self._submitted[lane] -= 1
        if not self._submitted[lane]:
            self._begin_behind(lane)
        done(result)

    @property
    def takes_native(self) -> bool:
        """False: `submit_native` would do nothing."""
        return self._native.can_be

    def submit_native(self, lane: int, run: NativeRun, ended: Ended) -> bool:
        """`ended` gets what the run's function returned, or `NOT_RUN`. It begins when the work of
        `submit` before it is done. False: nothing was done, call `submit`."""
        if self.takes_native and self._submitted[lane]:
            self._behind[lane].append((run, ended))
            return True
        return self.takes_native and self._native.submit(lane, run, ended)

    def _begin_behind(self, lane: int) -> None:
        behind = self._behind[lane]
        while behind:
            run, ended = behind.popleft()
            if not self._native.submit(lane, run, ended):
                ended(NOT_RUN)

    def run_here(self, lane: int, work: Work, done: Done) -> None:
        """For work that is shorter than the way to the lane's thread and back: on the loop, once it
        has dealt with what it was called for. The lane's thread does it where it is busy then."""
        self._loop.call_soon(self._here, lane, work, done)

    def _here(self, lane: int, work: Work, done: Done) -> None:
        computes = self._computes[lane]
        if not computes.acquire(blocking=False):
            self.submit(lane, work, done)
            return
        try:
            result = _outcome(work)
        finally:
            computes.release()
        done(result)

    def close(self) -> None:
        """Threads end after their work so far. Idempotent."""
        for behind in self._behind:
            while behind:
                _, ended = behind.popleft()
                ended(NOT_RUN)
        self._native.close(self._end)  # a run that fails is work for the other threads

    def _end(self) -> None:
        for queue in self._queues:
            queue.put(None)
        self._queues = []

    def _serve(
        self,
        queue: SimpleQueue[tuple[Work, Done] | None],
        computes: threading.Lock,
        cores: frozenset[int] | None,
    ) -> None:
        scheduling.compute()
        if cores is not None:
            stay_on(cores)
        while (job := queue.get()) is not None:
            work, done = job
            with computes:
                result = _outcome(work)
            self._results.append((done, result))
            del job, work, done, result  # a waiting thread must not keep tensors in memory
            self._post()


def run_native(
    threads: LaneThreads,
    lane: int,
    run: NativeRun,
    inputs: Callable[[], Sequence[np.ndarray]],
    results: Callable[[dict[str, np.ndarray]], Any],
    otherwise: Work,
    done: Done,
) -> bool:
    """Runs a batch without the interpreter: `done` gets what `results` makes of its outputs. Where
    the run or `results` fails, the lane's thread does `otherwise`, which says what failed and for
    whom. False: the lane takes no native run now, or `inputs` fails, and nothing was done."""

    def ended(status: int) -> None:
        try:
            outcome = results(run.outputs()) if status == 0 else None
        except Exception:  # the model's answer is not as described
            outcome = None
        finally:
            run.give_back()
        if outcome is None:
            threads.submit(lane, otherwise, done)
        else:
            done(outcome)

    begun = False
    try:
        run.set(inputs())
        begun = threads.submit_native(lane, run, ended)
    except Exception:  # the lane's thread meets it again, and says what it is
        return False
    finally:
        if not begun:
            run.give_back()
    return begun


def _outcome(work: Work) -> Any:
    """The result, or the exception, which `done` handles on the loop."""
    try:
        return work()
    except Exception as error:
        return error


class LaneEvents:
    """A `LaneListener` that passes events on to another one; earlier events are kept until there is
    one."""

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
