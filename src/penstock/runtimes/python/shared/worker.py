"""One worker that hosts several models, seen from the instance: its jobs, in order.

A `WorkerJob` is one thing to do: load, unload, or a batch. The worker does one at a time, so a
job's time begins when it becomes the first unanswered one: a model is not timed while others
compute. A job whose time is over hangs, and the process is killed. After its end, the shared memory
says whether it was busy with a job, and with which item of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from penstock.errors import PenstockError
from penstock.runtimes.base import LoadContext
from penstock.runtimes.confinement.walls import Walls
from penstock.runtimes.python.batches import FOR, JOB, METRICS, Busy, shared_memory
from penstock.runtimes.workers.process import WorkerProcess
from penstock.runtimes.workers.wire import message

MODULE = "penstock.runtimes.python.shared.inside"  #: the module that the interpreter runs


class JobEnd(NamedTuple):
    """The end of a job that got no answer."""

    begun: bool
    hung: bool
    item: int  #: the item of its batch that the worker was busy with


class WorkerJob:
    """`answered(kind, count, payload)` or `ended(how)` is called, once. After `timeout_s` it counts
    as a hang."""

    __slots__ = ("answered", "ended", "hung", "message", "model", "number", "timeout_s")

    def __init__(
        self,
        model: int,
        message: bytes,
        timeout_s: float,
        answered: Callable[[int, int, bytes], None],
        ended: Callable[[JobEnd], None],
    ) -> None:
        self.model = model
        self.message = message
        self.timeout_s = timeout_s
        self.answered = answered
        self.ended = ended
        self.hung = False
        self.number = 0


class SharedWorker:
    """Use: `do` at any time, `start` once. `gone(error)` is called once, when a started process has
    ended for any reason; then use `suspect` and `end_jobs`."""

    def __init__(
        self,
        context: LoadContext,
        gone: Callable[[PenstockError], None],
        on_metrics: Callable[[int, bytes], None] = lambda model, payload: None,
    ) -> None:
        """`on_metrics`: gets what a model's code has measured."""
        self._on_metrics = on_metrics
        self._speaks = 0  #: the model that the next message is from, where it answers no job
        self._gone = gone
        self._python = context.interpreter
        self._loop = asyncio.get_running_loop()
        self._process = WorkerProcess(context, self._hear, gone)
        self._serves = False
        self._jobs: deque[WorkerJob] = deque()
        self._numbers = 0
        self._timer: asyncio.TimerHandle | None = None
        self._busy: Busy | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid

    async def start(self, environment: Mapping[str, str], walls: Walls | None) -> int:
        """Returns the private memory of the process without a model, bytes. Raises ModelError; then
        `gone` is not called."""
        with shared_memory() as (descriptor, self._busy):
            told = await self._process.start(
                MODULE,
                {"file": "worker"},
                environment,
                walls,
                python=self._python,
                descriptors=[descriptor],
            )
        self._serves = True
        for job in self._jobs:
            self._send(job)
        self._arm()
        return int(told["own_bytes"])

    def do(self, job: WorkerJob) -> None:
        """Adds a job after all earlier ones."""
        self._numbers += 1
        job.number = self._numbers
        self._jobs.append(job)
        if self._serves:
            self._send(job)
            if len(self._jobs) == 1:
                self._arm()

    def _send(self, job: WorkerJob) -> None:
        self._process.write(message(FOR, JOB.pack(job.model, job.number)) + job.message)

    def _arm(self) -> None:
        """Starts the timer of the first job."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._jobs:
            self._timer = self._loop.call_later(self._jobs[0].timeout_s, self._hangs, self._jobs[0])

    def _hangs(self, job: WorkerJob) -> None:
        job.hung = True
        self.kill()

    def _hear(self, kind: int, count: int, payload: bytes) -> None:
        if kind == FOR:
            self._speaks, _ = JOB.unpack(payload)
            return
        if kind == METRICS:
            self._on_metrics(self._speaks, payload)
            return
        if not self._jobs:
            raise ValueError("an answer to nothing")  # ends the process
        job = self._jobs.popleft()
        self._arm()
        job.answered(kind, count, payload)

    def suspect(self) -> int | None:
        """The model whose job was running."""
        if self._jobs and self._end_of(self._jobs[0]).begun:
            return self._jobs[0].model
        return None

    def end_jobs(self) -> None:
        """Ends all jobs: no more answers come."""
        self._serves = False
        jobs = [(job, self._end_of(job)) for job in self._jobs]
        self._jobs.clear()
        self._arm()
        for job, how in jobs:
            job.ended(how)

    def _end_of(self, job: WorkerJob) -> JobEnd:
        number, _, item = self._busy.read() if self._busy is not None else (0, 0, 0)
        begun = number == job.number
        return JobEnd(begun or job.hung, job.hung, item if begun else 0)

    def kill(self) -> None:
        """`gone` is called as for any death."""
        self._process.kill()

    async def close(self) -> None:
        """Asks it to end, then kills it. Idempotent."""
        await self._process.close()
