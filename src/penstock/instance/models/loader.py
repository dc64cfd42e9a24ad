"""Brings, loads and ends target models: the blocking and waiting parts, one model at a time.

One load runs at a time, and nothing is ended beside it: only so can be told apart what each model
takes. Downloads run beside loads.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.artifacts.model_prefix import ModelPrefix
from penstock.clock import Clock
from penstock.core.idle_warm_up import Shape
from penstock.core.memory_kin import KinMemory
from penstock.core.memory_need import MemoryNeed, MemorySeen, beside_others
from penstock.core.residency import Footprint
from penstock.core.room import MEASURED
from penstock.instance.loading.call import LoadCall
from penstock.instance.loading.load import Prepared, prepared
from penstock.instance.loading.loaded import Loaded, Warms
from penstock.instance.memory import records
from penstock.instance.memory.facts import facts_of
from penstock.instance.models import memory
from penstock.instance.models.shared import SharedProcesses
from penstock.instance.settings import InstanceSettings
from penstock.instance.warm_up.load import load
from penstock.runtimes.base import LaneListener
from penstock.runtimes.loader import import_library

#: While a model is loaded: the height of it may last no longer.
_LOOK_LOADING_S = 0.1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """What one load took."""

    loaded: Loaded
    model: Footprint
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
        self._runtimes: set[str] = set()  #: whose libraries this process has
        self._clock = clock
        self._kin = KinMemory()
        self._turn = asyncio.Lock()
        self._settled = False  #: its first model is on its way
        self._highest_bytes = 0

    async def prepare(self, name: str) -> tuple[Prepared, str, Footprint, bool]:
        """(what was brought, its stamp, what it will take, whether that was measured before).

        Raises what fetching and reading an artifact raises.
        """
        source = self._prefix.resolve(name)
        call = dataclasses.replace(self._call, source=source, multi_model=None, target_model=name)
        stamps: list[str] = []

        def fetch(cache: Any, compiled: Any, cancelled: Any) -> Any:
            fetched = self._prefix.fetch(
                name, cache, compile_uncompiled=compiled, cancelled=cancelled
            )
            stamps.append(fetched.stamp)
            return fetched.detected

        model = await prepared(call, self._settings, fetch)
        model = dataclasses.replace(
            model, context=dataclasses.replace(model.context, target_model=name)
        )
        need = await asyncio.to_thread(self._need, model)
        footprint = Footprint(host_bytes=need.memory_bytes)
        return model, stamps[0], footprint, need.basis == MEASURED

    async def content(self, name: str) -> tuple[str, str]:
        """(digest, stamp) of what lies there now; fetches it. Raises as `prepare` does."""
        model, stamp, _, _ = await self.prepare(name)
        return model.digest, stamp

    async def load(self, model: Prepared, listener: LaneListener) -> Took:
        """Raises what loading raises; nothing of the model is left then."""
        async with self._turn:
            if not self._settled:
                self._settled = True
                await asyncio.to_thread(import_library, model.context.description.runtime)
                memory.settle()
            started = self._clock.monotonic()
            before = (await self.measured()).host_bytes
            height = asyncio.create_task(self._height())
            try:
                await self._shared.started(model.context)
                loaded = await load(self._shared.told(model), listener)
            except BaseException:
                await memory.give_back()
                raise
            finally:
                height.cancel()
            seconds = self._clock.monotonic() - started
            await memory.rest([loaded.runtime])
            given_back_bytes = self._highest_bytes - await asyncio.to_thread(memory.resident_bytes)
            used = await self.measured()
        kept_bytes = max(0, used.host_bytes - before)
        seen = MemorySeen(
            load_bytes_max=kept_bytes + max(0, given_back_bytes),
            own_bytes_max=kept_bytes,
            ran=False,
        )
        await asyncio.to_thread(self._learn, model, seen)
        return Took(
            loaded=loaded, model=Footprint(host_bytes=kept_bytes), used=used, seconds=seconds
        )

    async def end(self, loaded: Loaded) -> Footprint:
        """Returns what the host takes afterwards."""
        async with self._turn:
            await loaded.close()
            del loaded
            await memory.give_back()
            return await self.measured()

    @property
    def is_busy(self) -> bool:
        """A model is being loaded, ended or warmed up."""
        return self._turn.locked()

    async def run_shape(self, warms: Warms, shape: Shape) -> Any:
        """Alone, as loads are. Returns an exception if the model raised one."""
        async with self._turn:
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
        """What models take now, of those that have processes for themselves.

        Args:
            loaded: by name.
            pids: by name, of their processes.
        """
        own = {
            name: pids[name]
            for name, model in loaded.items()
            if pids[name] and not self._shared.shares(model.context)
        }
        return await asyncio.to_thread(memory.footprints, own) | dict(await self._shared.alone())

    async def _height(self) -> None:
        """Looks for the most that is resident while a model is loaded. What processes share is not
        told apart: that takes 10 ms of a core per GB, which the load then lacks."""
        self._highest_bytes = 0
        while True:
            await asyncio.sleep(_LOOK_LOADING_S)
            resident_bytes = await asyncio.to_thread(memory.resident_bytes)
            self._highest_bytes = max(self._highest_bytes, resident_bytes)

    def _need(self, model: Prepared) -> MemoryNeed:
        """By its own record, else by the rule as models of its kind have corrected it."""
        kind = model.context.description.runtime
        seen = records.read(self._record(model))
        need = beside_others(facts_of(model.context), seen, first=kind not in self._runtimes)
        if need.basis == MEASURED:
            return need
        corrected_bytes = self._kin.corrected(kind, need.memory_bytes)
        return dataclasses.replace(need, memory_bytes=max(corrected_bytes, need.least_bytes))

    def _learn(self, model: Prepared, seen: MemorySeen) -> None:
        kind = model.context.description.runtime
        facts = facts_of(model.context)
        rule = beside_others(facts, None, first=kind not in self._runtimes)
        self._kin.learn(kind, estimated_bytes=rule.memory_bytes, peak_bytes=seen.load_bytes_max)
        self._runtimes.add(kind)
        records.write(self._record(model), seen)

    def _record(self, model: Prepared) -> Path:
        cache_dir = self._settings.cache_dir
        return records.record_path(cache_dir, model.digest, model.context, folder="memory-beside")
