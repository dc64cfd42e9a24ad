"""One foreign server for all models of a host of target models, by the container contract.

The server is started once, and again when it ends, by the rule of `core/blame/death_limits.py`.
Then its models are loaded again, and the listener of each copy is informed. Other code decides
which models it has: the server only reports when it has no memory for one more
(`model-memory-full`, its status 507).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.cleanup import shielded
from penstock.clock import Clock
from penstock.errors import ModelError, NotNowError, PenstockError
from penstock.runtimes.base import (
    NOT_BEGUN,
    LaneListener,
    LoadContext,
    Payload,
    PayloadReply,
    Returned,
)
from penstock.runtimes.confinement.walls import Views, fresh_root, no_room
from penstock.runtimes.foreign.models_api import MEMORY_FULL, UNKNOWN, ForeignModels, memory_full
from penstock.runtimes.foreign.runtime import Done, ForeignProgram, Posting
from penstock.runtimes.workers.process import run_s_max
from penstock.wire.http_client import HttpAnswer

#: Timeout for cleaning up a failed load: the server may still be loading and not answer.
_BROKEN_OFF_S: Final = 2.0

#: (target model) -> True: another model was unloaded, so the server has room again.
MakeRoom = Callable[[str], Awaitable[bool]]


async def _no_room(target_model: str) -> bool:
    return False


class ForeignHost(ForeignProgram):
    """A `base.SharedServer`. Use after `begin`; `close` or `kill` ends it.

    Args:
        context: the container's: command, environment, walls, log. Its `model_dir` is not used.
        folder: where models' files are shown to the server; best on the disk of the artifact cache,
            so that they are links. Made if needed.
        make_room: called when the server answers 507 to a request; True: the request is sent again.
    """

    def __init__(
        self,
        context: LoadContext,
        *,
        folder: Path,
        make_room: MakeRoom = _no_room,
        clock: Clock | None = None,
    ) -> None:
        self.views = Views(fresh_root(folder))
        context = context.of_host(model_dir=self.views.root)
        super().__init__(context, self, clock=clock, variables={"SAGEMAKER_MULTI_MODEL": "true"})
        self.make_room = make_room
        self.models: dict[str, ForeignModelRuntime] = {}  #: by their names in the server
        self.given_up = False  #: True: it is not started again; another host may be
        self._is_up, self._is_down = asyncio.Event(), asyncio.Event()
        self._is_up.set()
        self._showing = asyncio.Lock()
        self._reloading: asyncio.Task[None] | None = None

    @property
    def api(self) -> ForeignModels:
        """The server's API. Raises NotNowError (`worker-lost`) while there is no server."""
        if self.at is None:
            raise NotNowError("worker-lost", "the server of the models is started again")
        return ForeignModels(self.at)

    async def load(self, context: LoadContext, listener: LaneListener) -> ForeignModelRuntime:
        """Waits for a server first. Raises as `ForeignModels.load`, for example NotNowError
        `model-memory-full`; and ModelError (`worker-died`): the server ended meanwhile, or for
        good."""
        try:
            return await self._load(context, listener)
        except NotNowError as error:
            if error.code != "worker-lost":
                raise
            words = f"{context.copy_name}: {error.message}"
            raise ModelError("worker-died", words, hint=error.hint) from None

    async def _load(self, context: LoadContext, listener: LaneListener) -> ForeignModelRuntime:
        name = _opaque(context)
        async with self._showing:
            try:
                place = await asyncio.to_thread(self.views.show, context.model_dir, name)
            except OSError as error:
                raise no_room(context.copy_name, error) from None
        runtime = ForeignModelRuntime(self, name, place, context, listener)
        try:
            await self._is_up.wait()
            await self.load_into_server(runtime)
        except BaseException as error:
            await shielded(self._broken_off(name, place, error))
            raise
        self.models[name] = runtime
        return runtime

    async def load_into_server(self, model: ForeignModelRuntime) -> None:
        """Raises as `ForeignModels.load`."""
        seconds = model.context.startup_timeout_s
        api = self.api
        place = self.process.place_of(model.place) if self.process is not None else model.place
        await api.load(model.name, str(place), timeout_s=seconds)

    async def _broken_off(self, name: str, place: Path, error: BaseException) -> None:
        if not isinstance(error, NotNowError):  # a full server has not loaded any part of it
            with suppress(PenstockError):  # it may be loaded in part, or still loading
                await self.api.unload(name, timeout_s=_BROKEN_OFF_S)
        await self._hide(place)
        if isinstance(error, NotNowError) and error.code == "worker-lost":
            # Its connections end before its process: after this wait, callers see that it is gone.
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_down.wait(), _BROKEN_OFF_S)

    async def unload(self, runtime: ForeignModelRuntime) -> None:
        """Returns once the server has unloaded the model. Idempotent."""
        if self.models.pop(runtime.name, None) is None:
            return
        with suppress(PenstockError):  # a server that ended has no model
            await self.api.unload(runtime.name)
        await self._hide(runtime.place)

    async def _hide(self, place: Path) -> None:
        async with self._showing:
            await asyncio.to_thread(self.views.hide, place)

    # Its own listener: events of the server are passed on to its models

    def lane_lost(self, lane: int, error: PenstockError) -> None:
        self._is_up.clear()
        self._is_down.set()
        if self._reloading is not None:
            self._reloading.cancel()
        for each in list(self.models.values()):
            each.lost(error)

    def lane_ready(self, lane: int) -> None:
        self._is_down.clear()
        self._is_up.set()
        self._reloading = asyncio.get_running_loop().create_task(self._load_again())

    def lane_failed(self, lane: int, error: PenstockError) -> None:
        self.given_up = True
        self._is_up.set()  # waiting calls find out that it is not up
        for each in list(self.models.values()):
            each.failed(error)

    async def _load_again(self) -> None:
        for each in list(self.models.values()):
            try:
                await self.load_into_server(each)
            except NotNowError as error:
                if error.code == "worker-lost":
                    return  # the next server loads them
                each.failed(error)
            except PenstockError as error:
                each.failed(error)
            else:
                each.back()

    async def close(self) -> None:
        self.closed = True
        if self._reloading is not None:
            self._reloading.cancel()
            await asyncio.gather(self._reloading, return_exceptions=True)
        await asyncio.gather(*(each.end_posts() for each in self.models.values()))
        self.models.clear()
        await super().close()
        self.views.close()


class ForeignModelRuntime(Posting):
    """One model of the server: a PayloadRuntime, made by `ForeignHost.load`. A lane is a
    connection."""

    #: All lanes lead to one process, shared with other models: another's request may kill it.
    shares_worker = True

    def __init__(
        self,
        host: ForeignHost,
        name: str,
        place: Path,
        context: LoadContext,
        listener: LaneListener,
    ) -> None:
        self.name = name  #: its name in the server
        self.place = place
        self.context = context
        self.lanes = max(1, context.description.lanes)
        self._host = host
        self._listener = listener
        self._there = True
        self._closed = False
        super().__init__(
            self.lanes,
            host,
            run_s_max=run_s_max(context.variables),
            path=f"/models/{name}/invoke",
            headers={"x-amzn-sagemaker-target-model": context.target_model},
        )

    @property
    def pids(self) -> list[int]:
        """Processes of the server, which all its models share."""
        return self._host.pids

    def invoke(self, lane: int, batch: Sequence[Payload], done: Done) -> None:
        if self._there and not self._closed:
            super().invoke(lane, batch, done)
        else:
            not_begun: list[PayloadReply | Returned] = [NOT_BEGUN] * len(batch)
            asyncio.get_running_loop().call_soon(done, not_begun)

    async def close(self) -> None:
        """Returns once the server has unloaded the model; the server goes on."""
        self._closed = True
        await self.end_posts()
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

    def again(self, answer: HttpAnswer) -> Awaitable[bool] | None:
        if answer.status == MEMORY_FULL:
            return self._host.make_room(self.context.target_model)
        if answer.status == UNKNOWN:
            return self._if_it_was_gone()
        return None

    async def _if_it_was_gone(self) -> bool:
        """Whether the server had unloaded the model by itself and it is loaded again now. A loaded
        model may also answer 404 itself."""
        try:
            if await self._host.api.has(self.name):
                return False
            await self._host.load_into_server(self)
        except PenstockError:
            return False
        return True

    def reply(self, answer: HttpAnswer | None) -> PayloadReply:
        if answer is not None and answer.status == MEMORY_FULL:
            return PayloadReply(error=memory_full(self.context.target_model))
        return super().reply(answer)


def _opaque(context: LoadContext) -> str:
    """A model's name in the server. A replaced model has another name: both may be loaded at
    once."""
    key = f"{context.target_model}\0{context.model_dir}"
    return hashlib.sha256(key.encode()).hexdigest()
