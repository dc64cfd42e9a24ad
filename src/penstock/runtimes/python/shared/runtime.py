"""One Python model in workers that it shares, for the copy that serves it. A PayloadRuntime.

Each of its lanes is in another worker. Of a batch whose worker died, the requests are judged as in
a worker of one model (`lane`); one that had not begun, because others computed, is given back
without blame.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from penstock.runtimes.base import NOT_BEGUN, LaneListener, LoadContext, Payload, PayloadReply
from penstock.runtimes.python.batches import ALL_ITEMS, REPLIES, pack_batch, unpack_replies
from penstock.runtimes.python.runtime import Answers, Done, after_death, after_hang, hung
from penstock.runtimes.python.shared.worker import JobEnd, SharedWorker, WorkerJob


class PoolHost(Protocol):
    """What a model asks of the pool that it is in."""

    def served(self, model: int) -> None: ...
    def pids_of(self, model: int) -> list[int]: ...
    async def unload(self, model: int) -> None:
        """Returns once its memory is free. Idempotent."""


class SharedRuntime:
    """Made by `WorkerPool.load`. `seats` has the worker of each lane, None while there is none."""

    def __init__(
        self,
        host: PoolHost,
        number: int,
        context: LoadContext,
        listener: LaneListener,
        run_s: float,
    ) -> None:
        self.number = number
        self.context = context
        self.listener = listener
        self.description = context.description
        self.lanes = 0  #: set by the pool: there may be fewer cores than the model has lanes
        self.seats: dict[int, SharedWorker | None] = {}
        #: By lane, what its worker grew by loading it: the model, and libraries that it was the
        #: first there to import.
        self.growth: dict[int, tuple[int, int]] = {}
        self.closed = False
        self._host = host
        self._run_s_max = run_s
        self._loop = asyncio.get_running_loop()

    @property
    def growth_bytes(self) -> int:
        """Measured when it was loaded: own memory of its workers that is this model's."""
        return sum(model for model, _ in self.growth.values())

    @property
    def libraries_bytes(self) -> int:
        """Of libraries that it was the first to import; they stay for others."""
        return sum(libraries for _, libraries in self.growth.values())

    @property
    def pids(self) -> list[int]:
        return self._host.pids_of(self.number)

    def invoke(self, lane: int, batch: Sequence[Payload], done: Done) -> None:
        worker, count = self.seats.get(lane), len(batch)
        if worker is None or self.closed:
            not_begun: Answers = [NOT_BEGUN] * count
            self._loop.call_soon(done, not_begun)
            return

        def answered(kind: int, told: int, payload: bytes) -> None:
            replies: list[PayloadReply] = []
            try:
                if kind == REPLIES and told == count:
                    replies = unpack_replies(payload, count)
            finally:
                if not replies:  # its answers are not those of this batch, or can't be read
                    worker.kill()
                    done(after_death(ALL_ITEMS, count))
            if replies:
                self._host.served(self.number)
                done(list(replies))

        def ended(how: JobEnd) -> None:
            done(self._given_back(how, count))

        worker.do(WorkerJob(self.number, pack_batch(batch), self._run_s_max, answered, ended))

    def _given_back(self, how: JobEnd, count: int) -> Answers:
        if self.closed or not how.begun:
            return [NOT_BEGUN] * count
        if not how.hung:
            return after_death(how.item, count)
        return after_hang(how.item, count, hung(self._run_s_max))

    def cancel(self, lane: int) -> None:
        """A Python function cannot be stopped without losing the model: it finishes."""

    async def close(self) -> None:
        """Returns once its memory is free, without ending its mates."""
        self.closed = True
        await self._host.unload(self.number)
