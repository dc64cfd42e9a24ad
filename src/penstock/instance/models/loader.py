"""Fetches, loads and ends target models: the blocking and waiting parts, and their order.

Loads of models with known sizes run beside one another, and other models are ended meanwhile: each
is charged with its known size, and callers wait for no measurement. A model of unknown size is
loaded alone (`core.residency` says which), because only so can its size be measured. Downloads run
beside everything.

A lock decides who may load, end or warm up models now: several side by side, or one alone. First
come, first served: nobody passes a load that waits to be alone.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from penstock.artifacts.model_prefix import ModelPrefix
from penstock.cleanup import shielded
from penstock.clock import Clock
from penstock.core.models.idle_warm_up import LaneShape
from penstock.core.models.memory_need import MemoryObserved
from penstock.core.residency import Footprint
from penstock.instance.inner.models import may_call
from penstock.instance.loading.load import LoadCall, Prepared, prepared
from penstock.instance.loading.loaded import Loaded, Warms
from penstock.instance.models import memory
from penstock.instance.models.memory import Expected, Height, Meter, Needs
from penstock.instance.models.shared import SharedProcesses
from penstock.instance.models.siblings import Siblings
from penstock.instance.settings import InstanceSettings
from penstock.instance.warm_up import load
from penstock.runtimes.base import LaneListener, ModelCalls
from penstock.runtimes.loader import import_library
from penstock.runtimes.processor import instruction_set_here


class Turns:
    def __init__(self) -> None:
        self._beside = 0
        self._alone = False
        #: (granted, whether it must be alone)
        self._waiting: deque[tuple[asyncio.Future[None], bool]] = deque()

    @property
    def are_taken(self) -> bool:
        return self._alone or self._beside > 0

    @asynccontextmanager
    async def beside(self) -> AsyncIterator[None]:
        """Runs beside others."""
        await self._admitted(alone=False)
        try:
            yield
        finally:
            self._beside -= 1
            self._admit()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        await self._admitted(alone=True)
        try:
            yield
        finally:
            self._alone = False
            self._admit()

    async def _admitted(self, *, alone: bool) -> None:
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((told, alone))
        self._admit()
        try:
            await told
        except asyncio.CancelledError:
            if told.done() and not told.cancelled():  # it was admitted while it was being cancelled
                self._alone, self._beside = False, self._beside - (not alone)
            self._admit()
            raise

    def _admit(self) -> None:
        while self._waiting:
            told, alone = self._waiting[0]
            if not told.done():
                if self._alone or (alone and self._beside):
                    return
                self._alone, self._beside = alone, self._beside + (not alone)
                told.set_result(None)
            self._waiting.popleft()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """A model that is fetched, and its expected memory."""

    model: Prepared
    stamp: str
    expected: Expected
    steps: tuple[str, ...] = ()  #: target models of an ensemble's steps


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """Memory that one load took."""

    loaded: Loaded
    model: Footprint  #: measured where it was loaded alone, else the known size
    used: Footprint  #: memory of the whole host afterwards
    seconds: float


class Loader:
    def __init__(
        self,
        call: LoadCall,
        settings: InstanceSettings,
        prefix: ModelPrefix,
        clock: Clock,
        shared: SharedProcesses,
        siblings: Siblings,
        calls: ModelCalls,
    ) -> None:
        """`call` is the host's own."""
        self._shared = shared
        self._siblings = siblings
        self._calls = calls
        self._call = call
        self._settings = settings
        self._prefix = prefix
        self._clock = clock
        self._needs = Needs(settings.cache_dir)
        self._turns = Turns()
        self._meter = Meter()
        self._settled = False  #: True once its first model is being loaded

    async def prepare(self, name: str) -> Brought:
        """Raises the errors of fetching and reading an artifact."""
        source = self._prefix.resolve(name)
        call = dataclasses.replace(self._call, source=source, multi_model=None, target_model=name)
        stamps: list[str] = []

        def fetch(cache: Any, compiled: Any, cancelled: Any) -> Any:
            fetched = self._prefix.fetch(
                name,
                cache,
                compile_uncompiled=compiled,
                cancelled=cancelled,
                instruction_set=instruction_set_here().name,
            )
            stamps.append(fetched.stamp)
            return fetched.detected

        model = await prepared(call, self._settings, fetch)
        context = dataclasses.replace(model.context, target_model=name)
        description = context.description
        steps: list[str] = []
        if not description.models and may_call(description):
            context = dataclasses.replace(context, models=self._calls, called_as=name)
            steps = await asyncio.to_thread(self._siblings.checked, name, description)
        model = dataclasses.replace(model, context=context)
        expected = await asyncio.to_thread(self._needs.of, model)
        return Brought(model=model, stamp=stamps[0], expected=expected, steps=tuple(steps))

    async def content(self, name: str) -> tuple[str, str]:
        """(digest, stamp) of the model's present content, which is fetched. Raises as `prepare`
        does."""
        brought = await self.prepare(name)
        return brought.model.digest, brought.stamp

    async def load(
        self, name: str, brought: Brought, listener: LaneListener, *, kept: Footprint, alone: bool
    ) -> Took:
        """`kept`: the known memory of the model; `alone`: it is unknown, so the model is measured
        while nothing else loads. Raises the errors of loading; then nothing of the model is
        left."""
        async with self._turns.alone() if alone else self._turns.beside():
            await self._settle(brought.model)
            before = await self._meter.measured() if alone else None
            async with Height() if alone else nullcontext() as height:
                loaded, seconds = await self._loaded(brought.model, listener)
            try:
                if before is None or height is None:
                    used = await self._meter.rested({name: loaded.runtime})
                else:
                    await memory.rest({name: loaded.runtime})
                    given_back_bytes = await height.given_back_bytes()
                    used = await self._meter.measured()
                    kept = await self._learned(brought.model, used - before, given_back_bytes)
            except BaseException:
                await shielded(self._closed(loaded))
                raise
        return Took(loaded=loaded, model=kept, used=used, seconds=seconds)

    async def _loaded(self, model: Prepared, listener: LaneListener) -> tuple[Loaded, float]:
        """The loaded model, and the seconds that it took."""
        started = self._clock.monotonic()
        try:
            await self._shared.started(model.context)
            loaded = await load(self._shared.told(model), listener)
        except BaseException:
            await shielded(self._meter.given_back())
            raise
        return loaded, self._clock.monotonic() - started

    async def _learned(self, model: Prepared, taken: Footprint, given_back_bytes: int) -> Footprint:
        """Records a load that ran alone. Returns the memory that it is charged with."""
        own_bytes = max(0, taken.host_bytes)
        seen = MemoryObserved(
            load_bytes_max=own_bytes + given_back_bytes, own_bytes_max=own_bytes, ran=False
        )
        return await asyncio.to_thread(self._needs.learn, model, seen)

    async def end(self, loaded: Loaded) -> Footprint:
        """Ends a model; returns the host's memory afterwards."""
        async with self._turns.beside():
            return await shielded(self._closed(loaded))

    async def _closed(self, loaded: Loaded) -> Footprint:
        """Ends a model; returns the host's memory once nothing of the model is left."""
        try:
            await loaded.close()
        finally:
            used = await shielded(self._meter.given_back())
        return used

    async def _settle(self, model: Prepared) -> None:
        """Prepares the process before its first model."""
        if not self._settled:
            self._settled = True
            await asyncio.to_thread(import_library, model.context.description.runtime)
            memory.settle()

    @property
    def is_busy(self) -> bool:
        """Whether a model is being loaded, ended or warmed up."""
        return self._turns.are_taken

    async def run_shape(self, warms: Warms, shape: LaneShape) -> Any:
        """Runs a shape while nothing is being loaded. Returns an exception if the model raised
        one."""
        async with self._turns.alone():
            over: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

            def done(outcome: Any) -> None:
                if not over.done():
                    over.set_result(outcome)

            warms.run_shape(shape, done)
            return await over

    async def measured(self) -> Footprint:
        return await self._meter.measured()

    async def by_model(
        self, loaded: Mapping[str, Prepared], pids: Mapping[str, list[int]]
    ) -> dict[str, Footprint]:
        """Present memory of models that have processes of their own.

        Args:
            loaded: name -> model.
            pids: name -> its processes.
        """
        own = {
            name: pids[name]
            for name, model in loaded.items()
            if pids[name] and not self._shared.shares(model.context)
        }
        return await asyncio.to_thread(memory.footprints, own) | dict(await self._shared.alone())
