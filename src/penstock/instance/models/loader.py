"""Brings, loads and ends target models: the blocking and waiting parts.

Loads of models whose sizes are known run beside one another, and models are ended beside them. One
of unknown size is loaded with nothing beside it (`core.residency` says which): only so can be told
what it takes. What several took together is divided among them once it is quiet
(`core.load_group`). Downloads run beside everything.

Drives `core.load_group` on a host: measures when its groups begin and end.

Who may load, end or warm up models at this moment: several beside one another, or one alone.

First come, first served: who waits to be alone is passed by nobody.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from penstock.artifacts.model_prefix import ModelPrefix
from penstock.cleanup import shielded
from penstock.clock import Clock
from penstock.core.models.idle_warm_up import LaneShape
from penstock.core.models.load_group import LoadGroup
from penstock.core.models.memory_need import MemorySeen
from penstock.core.residency import Footprint
from penstock.instance.loading.call import LoadCall
from penstock.instance.loading.load import Prepared, prepared
from penstock.instance.loading.loaded import Loaded, Warms
from penstock.instance.models import memory
from penstock.instance.models.memory import Height
from penstock.instance.models.needs import Expected, Needs
from penstock.instance.models.shared import SharedProcesses
from penstock.instance.settings import InstanceSettings
from penstock.instance.warm_up.load import load
from penstock.runtimes.base import LaneListener
from penstock.runtimes.loader import import_library
from penstock.runtimes.processor import instruction_set_here


class Turns:
    def __init__(self) -> None:
        self._beside = 0
        self._alone = False
        self._waiting: deque[tuple[asyncio.Future[None], bool]] = deque()  #: (told, to be alone)

    @property
    def are_taken(self) -> bool:
        return self._alone or self._beside > 0

    @asynccontextmanager
    async def beside(self) -> AsyncIterator[None]:
        """With others."""
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
            if told.done() and not told.cancelled():  # admitted at this very moment
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


#: What was measured when one group ended is good for the next that begins so soon.
_FRESH_S: Final = 0.1


class Over(NamedTuple):
    """What is known when a load or an end is over."""

    used: Footprint  #: by the whole host
    taken: Mapping[str, Footprint]  #: by the models of the group, if it is over
    was_one: bool  #: the model that was asked about was alone in it


class LoadGroupDriver:
    """`begins`, then one of `group`'s `loaded`, `failed` and `ended`, then `over`."""

    def __init__(self, clock: Clock) -> None:
        self.group = LoadGroup()
        self._clock = clock
        self._border = asyncio.Lock()  #: a group is begun or ended
        self._used = Footprint()
        self._measured_at = -_FRESH_S
        self._told_apart: dict[str, Footprint] = {}

    async def begins(self) -> None:
        """A load or an end."""
        async with self._border:
            if not self.group.is_open:
                if self._clock.monotonic() >= self._measured_at + _FRESH_S:
                    await self.measure()
                self.group.opens(self._used.host_bytes)
            self.group.begins()

    async def over(self, model: str = "") -> Over:
        """`model`: that was loaded. Its group may be over for longer, if another's end came first;
        the one that is over now is then no word about it."""
        async with self._border:
            await self.measure()
            if not (self.group.is_quiet and self.group.is_open):
                return Over(self._used, {}, was_one=False)
            taken = {
                model: Footprint(host_bytes=taken_bytes)
                for model, taken_bytes in self.group.closes(self._used.host_bytes).items()
            }
            self._told_apart.update(taken)
            return Over(self._used, taken, self.group.was_one and model in taken)

    async def measure(self) -> Footprint:
        self._used = await asyncio.to_thread(memory.footprint)
        self._measured_at = self._clock.monotonic()
        return self._used

    def told_apart(self) -> dict[str, Footprint]:
        """By model, what groups showed that have ended since this was asked last."""
        told, self._told_apart = self._told_apart, {}
        return told

    def charged(self, model: str, taken: Footprint) -> None:
        """Not all of what its group showed is the model's own."""
        self._told_apart[model] = taken

    def gone(self, model: str) -> None:
        self._told_apart.pop(model, None)


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
