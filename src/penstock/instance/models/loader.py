"""Brings, loads and ends target models: the blocking and waiting parts.

Loads of models whose sizes are known run beside one another, and models are ended beside them. One
of unknown size is loaded with nothing beside it (`core.residency` says which): only so can be told
what it takes. What several took together is divided among them once it is quiet
(`core.load_group`). Downloads run beside everything.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from penstock.artifacts.model_prefix import ModelPrefix
from penstock.cleanup import shielded
from penstock.clock import Clock
from penstock.core.models.idle_warm_up import LaneShape
from penstock.core.models.memory_need import MemorySeen
from penstock.core.residency import Footprint
from penstock.instance.loading.call import LoadCall
from penstock.instance.loading.load import Prepared, prepared
from penstock.instance.loading.loaded import Loaded, Warms
from penstock.instance.models import memory
from penstock.instance.models.load_group import LoadGroupDriver
from penstock.instance.models.memory import Height
from penstock.instance.models.needs import Expected, Needs
from penstock.instance.models.shared import SharedProcesses
from penstock.instance.models.turns import Turns
from penstock.instance.settings import InstanceSettings
from penstock.instance.warm_up.load import load
from penstock.runtimes.base import LaneListener
from penstock.runtimes.loader import import_library
from penstock.runtimes.processor import instruction_set_here


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """A model that is here, and what it will take."""

    model: Prepared
    stamp: str
    expected: Expected


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """What one load took."""

    loaded: Loaded
    model: Footprint  #: measured, or expected where others were loaded or ended beside it
    used: Footprint  #: by the whole host afterwards
    seconds: float


class Loader:
    def __init__(
        self,
        call: LoadCall,
        settings: InstanceSettings,
        prefix: ModelPrefix,
        clock: Clock,
        shared: SharedProcesses,
    ) -> None:
        """`call` is the host's own."""
        self._shared = shared
        self._call = call
        self._settings = settings
        self._prefix = prefix
        self._clock = clock
        self._needs = Needs(settings.cache_dir)
        self._turns = Turns()
        self._groups = LoadGroupDriver(clock)
        self._settled = False  #: its first model is on its way

    async def prepare(self, name: str) -> Brought:
        """Raises what fetching and reading an artifact raises."""
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
        model = dataclasses.replace(
            model, context=dataclasses.replace(model.context, target_model=name)
        )
        expected = await asyncio.to_thread(self._needs.of, model)
        return Brought(model=model, stamp=stamps[0], expected=expected)

    async def content(self, name: str) -> tuple[str, str]:
        """(digest, stamp) of what lies there now; fetches it. Raises as `prepare` does."""
        brought = await self.prepare(name)
        return brought.model.digest, brought.stamp

    async def load(
        self, name: str, brought: Brought, listener: LaneListener, *, alone: bool
    ) -> Took:
        """`alone`: with nothing beside it. Raises what loading raises; nothing of the model is left
        then."""
        async with self._turns.alone() if alone else self._turns.beside():
            await self._settle(brought.model)
            await self._groups.begins()
            loaded = None
            try:
                started = self._clock.monotonic()
                async with Height() as height:
                    await self._shared.started(brought.model.context)
                    loaded = await load(self._shared.told(brought.model), listener)
                seconds = self._clock.monotonic() - started
                await memory.rest({name: loaded.runtime})
                given_back_bytes = await height.given_back_bytes()
            except BaseException:
                await shielded(self._closed(loaded, self._groups.group.failed))
                raise
            kept = brought.expected.kept
            self._groups.group.loaded(name, kept.host_bytes)
            try:
                over = await self._groups.over(name)
                kept = over.taken.get(name, kept)
                if over.was_one:
                    kept = await self._learned(brought.model, kept, given_back_bytes)
                    self._groups.charged(name, kept)
            except BaseException:
                await shielded(self._leave(name, loaded, kept))
                raise
        return Took(loaded=loaded, model=kept, used=over.used, seconds=seconds)

    async def end(self, name: str, loaded: Loaded, charged: Footprint) -> Footprint:
        """`charged` to the model. Returns what the host takes afterwards."""
        async with self._turns.beside():
            return await shielded(self._leave(name, loaded, charged))

    async def _leave(self, name: str, loaded: Loaded, charged: Footprint) -> Footprint:
        group = self._groups.group
        await self._groups.begins()
        self._groups.gone(name)
        return await self._closed(loaded, lambda: group.ended(name, charged.host_bytes))

    async def _closed(self, loaded: Loaded | None, noted: Callable[[], None]) -> Footprint:
        """What the host takes once nothing of the model is left; `noted` tells its group."""
        try:
            if loaded is not None:
                await loaded.close()
        finally:
            used = await shielded(self._given_back(noted))
        return used

    async def _given_back(self, noted: Callable[[], None]) -> Footprint:
        await memory.give_back()
        noted()
        return (await self._groups.over()).used

    async def _settle(self, model: Prepared) -> None:
        """Before the first model."""
        if not self._settled:
            self._settled = True
            await asyncio.to_thread(import_library, model.context.description.runtime)
            memory.settle()

    async def _learned(self, model: Prepared, kept: Footprint, given_back_bytes: int) -> Footprint:
        """It was loaded with nothing beside it. Returns what it is charged with."""
        seen = MemorySeen(
            load_bytes_max=kept.host_bytes + given_back_bytes,
            own_bytes_max=kept.host_bytes,
            ran=False,
        )
        return await asyncio.to_thread(self._needs.learn, model, seen)

    @property
    def is_busy(self) -> bool:
        """A model is being loaded, ended or warmed up."""
        return self._turns.are_taken

    async def run_shape(self, warms: Warms, shape: LaneShape) -> Any:
        """With nothing loaded beside it. Returns an exception if the model raised one."""
        async with self._turns.alone():
            over: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

            def done(outcome: Any) -> None:
                if not over.done():
                    over.set_result(outcome)

            warms.run_shape(shape, done)
            return await over

    async def measured(self) -> Footprint:
        return await asyncio.to_thread(memory.footprint)

    async def by_model(
        self, loaded: Mapping[str, Prepared], pids: Mapping[str, list[int]]
    ) -> dict[str, Footprint]:
        """What models take now, of those that have processes for themselves; and what is known
        since this was asked last of those that were loaded beside one another.

        Args:
            loaded: by name.
            pids: by name, of their processes.
        """
        own = {
            name: pids[name]
            for name, model in loaded.items()
            if pids[name] and not self._shared.shares(model.context)
        }
        told_apart = self._groups.told_apart()
        alone = await asyncio.to_thread(memory.footprints, own) | dict(await self._shared.alone())
        return {name: one for name, one in told_apart.items() if name in loaded} | alone
