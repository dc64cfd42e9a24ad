"""One model of a foreign server that hosts several: a PayloadRuntime for its copy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.runtimes.base import (
    NOT_BEGUN,
    LaneListener,
    LoadContext,
    Payload,
    PayloadReply,
    Returned,
)
from penstock.runtimes.foreign.models_api import MEMORY_FULL, UNKNOWN, memory_full
from penstock.runtimes.foreign.posting import Done, Posting
from penstock.runtimes.workers.environment import run_s_max
from penstock.wire.http_client import HttpAnswer

if TYPE_CHECKING:
    from penstock.runtimes.foreign.multi_model import ForeignHost


class ForeignModelRuntime:
    """Made by `ForeignHost.load`. A lane is a connection of its own."""

    #: Lanes and mates lead to one process: it may die of another's request.
    shares_worker = True

    def __init__(
        self,
        host: ForeignHost,
        name: str,
        place: Path,
        context: LoadContext,
        listener: LaneListener,
    ) -> None:
        self.name = name  #: in the server
        self.place = place
        self.context = context
        self.lanes = max(1, context.description.lanes)
        self.posting = _ModelPosting(host, self)
        self._host = host
        self._listener = listener
        self._there = True
        self._closed = False

    @property
    def pids(self) -> list[int]:
        """Of the server, which all its models have in common."""
        return self._host.pids

    def invoke(self, lane: int, batch: Sequence[Payload], done: Done) -> None:
        if self._there and not self._closed:
            self.posting.invoke(lane, batch, done)
        else:
            not_begun: list[PayloadReply | Returned] = [NOT_BEGUN] * len(batch)
            asyncio.get_running_loop().call_soon(done, not_begun)

    def cancel(self, lane: int) -> None:
        self.posting.cancel(lane)

    async def close(self) -> None:
        """Returns once the server has unloaded it; the server goes on."""
        self._closed = True
        await self.posting.close()
        await self._host.unload(self)

    def lost(self, error: PenstockError) -> None:
        self._there = False
        self._each_lane(lambda lane: self._listener.lane_lost(lane, error))

    def back(self) -> None:
        self._there = True
        self._each_lane(self._listener.lane_ready)

    def failed(self, error: PenstockError) -> None:
        self._each_lane(lambda lane: self._listener.lane_failed(lane, error))

    def _each_lane(self, tell: Callable[[int], None]) -> None:
        if not self._closed:
            for lane in range(self.lanes):
                tell(lane)


class _ModelPosting(Posting):
    """To one model of the server."""

    def __init__(self, host: ForeignHost, model: ForeignModelRuntime) -> None:
        context = model.context
        environment = {**context.description.environment, **context.environment}
        super().__init__(
            model.lanes,
            host,
            host.under_way,
            run_s_max=run_s_max(environment),
            path=f"/models/{model.name}/invoke",
            headers={"x-amzn-sagemaker-target-model": context.target_model},
        )
        self._host = host
        self._model = model

    def again(self, answer: HttpAnswer) -> Coroutine[Any, Any, bool] | None:
        if answer.status == MEMORY_FULL:
            return self._with_room()
        if answer.status == UNKNOWN:
            return self._if_it_was_gone()
        return None

    async def _with_room(self) -> bool:
        return await self._host.make_room(self._model.context.target_model)

    async def _if_it_was_gone(self) -> bool:
        """A server may unload by itself; a model that is there may answer 404 of its own."""
        model = self._model
        try:
            api = self._host.api
            if await api.get(model.name) is not None:
                return False
            seconds = model.context.startup_timeout_s
            await api.load(model.name, str(model.place), timeout_s=seconds)
        except PenstockError:
            return False
        return True

    def reply(self, answer: HttpAnswer | None) -> PayloadReply:
        if answer is not None and answer.status == MEMORY_FULL:
            return PayloadReply(error=memory_full(self._model.context.target_model))
        return super().reply(answer)
