"""The instance's end of an engine process: start, commands, events, and restart when it died.

Reports to a listener; the copy decides what becomes of requests. The process is started again by
the rule of `workers.supervised`. One that sends nothing for a long time while it has work hangs,
and is killed.

Adapters are loaded into the process if its engine can do that at any time. Otherwise another
process is started with them and takes all new requests, and the old one ends once it has answered
the others: nothing is lost, and an adapter that can't be loaded harms no request.

What an engine process starts with, its settings and its environment, is made here too.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import orjson

from penstock.artifacts.description.description import EngineOptions
from penstock.cleanup import shielded
from penstock.errors import ModelError, PenstockError, from_dict
from penstock.runtimes import registry
from penstock.runtimes.base import LaneListener, LoadContext
from penstock.runtimes.confinement.walls import around_program, make_scratch, remove_scratch
from penstock.runtimes.environment import for_models
from penstock.runtimes.generation import wire
from penstock.runtimes.generation.adapter_files import CONFIG, WEIGHTS, AdapterFiles
from penstock.runtimes.generation.base import (
    ANY_TIME,
    NO_ADAPTERS,
    Sampling,
    adapters_unsupported,
)
from penstock.runtimes.record import Interface
from penstock.runtimes.statistics import EngineStatistics
from penstock.runtimes.workers.memory import own_bytes, tree_pids
from penstock.runtimes.workers.process import WorkerProcess, run_s_max
from penstock.runtimes.workers.supervised import Supervised

#: Default size of the cache: a part of the instance's memory, and at most this.
CACHE_BYTES_MAX = 4 << 30
_CACHE_SHARE = 4  #: divisor: a fourth of the memory


def init_message(context: LoadContext) -> dict[str, Any]:
    description = context.description
    options = description.engine or EngineOptions()
    return {
        "engine": description.runtime,
        "loader": registry.record(description.runtime).loaders[Interface.ENGINE],
        "model_dir": str(context.model_dir),
        "python": options.python,
        "settings": dataclasses.asdict(options)
        | {
            "cache_bytes": cache_bytes(context),
            "cache_asked": bool(options.cache_bytes),
            "memory_bytes_max": context.memory_bytes_max,
            "precision": description.precision,
            "threads": description.threads_per_lane or max(1, int(context.cores)),
            "accelerators": context.accelerators,
        },
    }


def cache_bytes(context: LoadContext) -> int:
    """Bytes for keys and values: the model's setting, else a part of the instance's memory."""
    options = context.description.engine or EngineOptions()
    if options.cache_bytes:
        return options.cache_bytes
    whole = context.memory_bytes_max or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(CACHE_BYTES_MAX, whole // _CACHE_SHARE)


def engine_environment(context: LoadContext, scratch: Path) -> dict[str, str]:
    """The server's variables that models may see, then the model's own.

    HOME stays as it is: engines keep compiled code there.
    """
    threads = context.description.threads_per_lane or max(1, int(context.cores))
    return {
        **for_models(),
        "TMPDIR": str(scratch),
        "OMP_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",  # files that are not in the artifact must not be downloaded
        **context.variables,
        "PYTHONPATH": "",  # the engine's interpreter may be another than ours
    }


MODULE: Final = "penstock.runtimes.generation.engine_process"

Events = Callable[[list[dict[str, Any]]], None]


class EngineProcess(WorkerProcess):
    """One process, and its requests."""

    def __init__(self, context: LoadContext, hear: Any, gone: Any) -> None:
        super().__init__(context, partial(hear, self), partial(gone, self))
        self.idents: set[int] = set()  #: ids of requests without an answer
        self.heard = 0.0  #: when its last message came, monotonic s
        self.adapting: dict[str, asyncio.Future[None]] = {}  #: running loads, by the adapter's key


class GenerationRuntime(Supervised[EngineProcess]):
    """One copy's engine. Use after `begin`; `attach` sets who gets the events."""

    lanes = 1

    def __init__(self, context: LoadContext, listener: LaneListener) -> None:
        super().__init__(context, listener)
        self.about: dict[str, Any] = {}  #: what the engine reports about itself
        self.statistics = EngineStatistics(0, 0, 0.0, 0)
        self._init = init_message(context)
        self._scratch = make_scratch()
        self._environment = engine_environment(context, self._scratch)
        self._silence_s_max = 2 * run_s_max(self._environment)
        self._on_events: Events = lambda events: None
        self._on_lost: Callable[[set[int]], None] = lambda idents: None
        self._adapters: dict[str, str] = {}  #: key -> folder; a new process starts with these
        self._wanted: dict[str, str] = {}  #: the same, with those that are being loaded
        self._adapting = asyncio.Lock()
        self._leaving: set[EngineProcess] = set()  #: replaced processes that still have requests
        self._closing: list[asyncio.Task[None]] = []

    async def begin(self) -> Self:
        """Starts the engine. Raises ModelError if it cannot load the model."""
        await super().begin()
        self._loop.call_later(self._silence_s_max / 4, self._listen_for_life)
        return self

    async def spawn(self) -> EngineProcess:
        return await self._spawn(self._adapters)

    async def _spawn(self, adapters: dict[str, str]) -> EngineProcess:
        process = EngineProcess(self._context, self._hear, self._ended)
        walls = around_program(self._context, self._scratch)
        settings = self._init["settings"] | {"adapters": adapters}
        init = self._init | {"settings": settings}
        python = self._init["python"]
        self.about = await process.start(MODULE, init, self._environment, walls, python=python)
        process.heard = self._clock.monotonic()
        return process

    def attach(self, on_events: Events, on_lost: Callable[[set[int]], None]) -> None:
        """`on_lost` gets the ids of requests that were lost with a replaced process."""
        self._on_events = on_events
        self._on_lost = on_lost

    # Commands

    def add(self, ident: int, prompt: Any, sampling: Sampling, adapter: str = "") -> None:
        process = self.process
        if process is None:
            return
        if not process.idents:
            process.heard = self._clock.monotonic()  # it was silent because it was idle
        process.idents.add(ident)
        process.write(wire.add_message(ident, prompt, sampling, adapter=adapter))

    def cancel(self, idents: list[int]) -> None:
        for process in [self.process, *self._leaving]:
            if process is not None and not process.idents.isdisjoint(idents):
                process.idents.difference_update(idents)
                process.write(wire.message(wire.CANCEL, idents))
                self._look_whether_done(process)

    # Adapters

    @property
    def model_dir(self) -> Path:
        return self._context.model_dir

    @property
    def adapter_bytes(self) -> int:
        """Memory that loading an adapter needs for a moment, beside its weights: a second engine's,
        or none."""
        if self.about.get("adapters") == ANY_TIME:
            return 0
        return sum(own_bytes(each) for pid in self.pids for each in tree_pids(pid))

    @property
    def takes_adapters(self) -> bool:
        return bool(self.about.get("adapters", NO_ADAPTERS) != NO_ADAPTERS)

    def without_adapters(self) -> tuple[str, str]:
        """(engine, why it takes no adapters)."""
        record = registry.record(self._context.description.runtime)
        return record.name, record.engine.without_adapters

    async def add_adapter(self, key: str, files: AdapterFiles) -> None:
        """Loads a new adapter; requests may name it once this returns.

        Raises CallerError (`adapter-mismatch`, ...) and ModelError; then nothing has changed.
        """
        if not self.takes_adapters:
            raise adapters_unsupported(*self.without_adapters())
        folder = await asyncio.to_thread(self._copied, key, files)
        self._wanted[key] = str(folder)
        try:
            async with self._adapting:
                await self._adapt(key, str(folder))
        except BaseException:
            self._wanted.pop(key, None)
            await shielded(asyncio.to_thread(shutil.rmtree, folder, True))
            raise

    async def _adapt(self, key: str, folder: str) -> None:
        if key in self._adapters:
            return  # another call's process came with it
        if self.about["adapters"] == ANY_TIME:
            await self._told(key, folder)
            self._adapters[key] = folder
            return
        # All waiting adapters come with one process; if it does not start, each is tried alone.
        several = dict(self._wanted)
        alone = self._adapters | {key: folder}
        for adapters in (several, alone):
            try:
                await self._replace(adapters)
                return
            except PenstockError:
                if adapters == alone:
                    raise

    async def _replace(self, adapters: dict[str, str]) -> None:
        process = await self._spawn(adapters)
        if self.closed:
            await process.close()
            raise ModelError("stream-broken", "the model is being unloaded")
        self._adapters = dict(adapters)
        former, self.process = self.process, process
        if former is None:  # the old one died meanwhile: this one is its replacement
            if self._restart is not None:
                self._restart.cancel()
            self.ready()
            return
        self._leaving.add(former)
        self._look_whether_done(former)

    async def remove_adapter(self, key: str) -> None:
        """Call this once its requests are over. What a graph holds of it stays until the next
        process."""
        async with self._adapting:  # a process that is being started reads its folder
            self._wanted.pop(key, None)
            folder = self._adapters.pop(key, None)
            if folder is None:
                return
            if self.about.get("adapters") == ANY_TIME and self.process is not None:
                await self._told(key, "")
            await asyncio.to_thread(shutil.rmtree, folder, True)

    async def _told(self, key: str, folder: str) -> None:
        process = self.process
        if process is None:
            raise ModelError("worker-died", "the engine's process is being started again")
        answer = process.adapting[key] = self._loop.create_future()
        process.write(wire.message(wire.ADAPTER, {"key": key, "folder": folder}))
        try:
            async with asyncio.timeout(self._context.startup_timeout_s):
                await answer
        except TimeoutError:
            raise ModelError("load-timeout", "the engine has not loaded the adapter") from None
        finally:
            process.adapting.pop(key, None)

    def _copied(self, key: str, files: AdapterFiles) -> Path:
        """The copy of the adapter's files that the engine's process can read."""
        folder = self._scratch / "adapters" / key
        folder.mkdir(parents=True, exist_ok=True)
        for name in (CONFIG, WEIGHTS):
            shutil.copyfile(files.root / name, folder / name)
        return folder

    # Start and end of processes

    def _hear(self, process: EngineProcess, kind: int, count: int, payload: bytes) -> None:
        if kind == wire.ADAPTED:
            told = orjson.loads(payload)
            answer = process.adapting.get(told["key"])
            if answer is not None and not answer.done():
                error = told.get("error")
                answer.set_exception(from_dict(error)) if error else answer.set_result(None)
        if kind != wire.EVENTS:
            return
        told = orjson.loads(payload)
        process.heard = self._clock.monotonic()
        if process is self.process:
            self.statistics = EngineStatistics(*told["s"])
        events = told["e"]
        if events:
            process.idents.difference_update(
                event["i"] for event in events if "f" in event or "e" in event
            )
            self._on_events(events)
            self._look_whether_done(process)

    def _look_whether_done(self, process: EngineProcess) -> None:
        """A replaced process ends with its last answer."""
        if process in self._leaving and not process.idents:
            self._leaving.discard(process)
            self._closing.append(self._loop.create_task(process.close()))
            self._closing = [task for task in self._closing if not task.done()]

    def _listen_for_life(self) -> None:
        if self.closed:
            return
        now = self._clock.monotonic()
        for process in [self.process, *self._leaving]:
            if process is None or not process.idents:
                continue
            if now >= process.heard + self._silence_s_max:
                silent_s = now - process.heard
                self._context.log(f"the engine said nothing for {silent_s:.0f} s and is ended")
                process.kill()
        self._loop.call_later(self._silence_s_max / 4, self._listen_for_life)

    def _ended(self, process: EngineProcess, error: PenstockError) -> None:
        for answer in process.adapting.values():
            if not answer.done():
                answer.set_exception(error)
        if process is self.process:
            self.gone(error)
        elif process in self._leaving:
            self._leaving.discard(process)
            self._on_lost(process.idents)

    def gone(self, error: PenstockError) -> None:
        self.statistics = EngineStatistics(0, 0, 0.0, 0)
        super().gone(error)

    @property
    def pids(self) -> list[int]:
        return super().pids + [each.pid for each in self._leaving if each.pid]

    def kill(self) -> None:
        super().kill()
        for process in self._leaving:
            process.kill()

    async def close(self) -> None:
        await super().close()
        leaving, self._leaving = self._leaving, set()
        await asyncio.gather(*(process.close() for process in leaving), *self._closing)
        remove_scratch(self._scratch)
