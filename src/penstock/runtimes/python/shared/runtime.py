"""One Python model in shared workers, as its copy sees it. A PayloadRuntime.

Each of its lanes is in another worker. If a worker dies during a batch, its requests are judged as
with a worker of one model (`python.runtime.Lane`). A request that had not begun, because the worker
computed for other models, is given back without suspicion.
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
    """The methods of the pool that a model uses."""

    def served(self, model: int) -> None: ...
    def pids_of(self, model: int) -> list[int]: ...
    async def unload(self, model: int) -> None:
        """Returns once its memory is free. Idempotent."""


class SharedRuntime:
    """Made by `WorkerPool.load`. `seats`: the worker of each lane, None while there is none."""

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
        #: Lane -> growth of its worker by loading the model: (the model itself, libraries that it
        #: was the first to import there), bytes.
        self.growth: dict[int, tuple[int, int]] = {}
        self.closed = False
        self._host = host
        self._run_s_max = run_s
        self._loop = asyncio.get_running_loop()

    @property
    def growth_bytes(self) -> int:
        """Private memory of its workers that belongs to this model, measured when it was loaded."""
        return sum(model for model, _ in self.growth.values())

    @property
    def libraries_bytes(self) -> int:
        """Memory of libraries that it was the first to import; they stay for other models."""
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
                if not replies:  # answers that do not match this batch, or can't be read
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
        """Returns once its memory is free. The other models of its workers go on."""
        self.closed = True
        await self._host.unload(self.number)
