"""The instance's end of an engine process: start, commands, events, and again when it died.

Reports to a listener; what becomes of requests is the copy's business. The process is started again
by the rule of `supervision`; one that says nothing for a long time while it has work hangs, and is
killed.

Adapters are loaded into the process where its engine can do that at any time. Else another process
is started with them and takes what comes from then on, and the old one ends when it has answered
what it had: nothing is lost, and an adapter that can't be loaded harms nobody.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson

from penstock.cleanup import shielded
from penstock.clock import Clock
from penstock.errors import ModelError, PenstockError, from_dict
from penstock.runtimes import registry
from penstock.runtimes.base import LaneListener, LoadContext
from penstock.runtimes.confinement.walls import around_program, make_scratch, remove_scratch
from penstock.runtimes.generation import wire
from penstock.runtimes.generation.adapter_files import CONFIG, WEIGHTS, AdapterFiles
from penstock.runtimes.generation.base import (
    ANY_TIME,
    NO_ADAPTERS,
    Sampling,
    adapters_unsupported,
)
from penstock.runtimes.generation.engine_init import engine_environment, init_message
from penstock.runtimes.statistics import EngineStatistics
from penstock.runtimes.workers.environment import run_s_max
from penstock.runtimes.workers.memory import own_bytes, tree_pids
from penstock.runtimes.workers.process import WorkerProcess
from penstock.runtimes.workers.supervised import Supervised

MODULE: Final = "penstock.runtimes.generation.engine_process"

Events = Callable[[list[dict[str, Any]]], None]


class EngineProcess(WorkerProcess):
    """One process, and what it has been asked for."""

    def __init__(self, context: LoadContext, hear: Any, gone: Any) -> None:
        super().__init__(context, partial(hear, self), partial(gone, self))
        self.idents: set[int] = set()  #: requests that it has not answered
        self.heard = 0.0  #: monotonic s of the last sign of life
        self.adapting: dict[str, asyncio.Future[None]] = {}  #: by the adapter's key


class GenerationRuntime(Supervised[EngineProcess]):
    """One copy's engine. Made by `start`; `attach` says who is told of events."""

    lanes = 1

    def __init__(
        self, context: LoadContext, listener: LaneListener, *, clock: Clock | None = None
    ) -> None:
        super().__init__(context, listener, clock=clock)
        self.about: dict[str, Any] = {}  #: what the engine says of itself
        self.statistics = EngineStatistics(0, 0, 0.0, 0)
        self._init = init_message(context)
        self._scratch = make_scratch()
        self._environment = engine_environment(context, self._scratch)
        self._silence_s_max = 2 * run_s_max(self._environment)
        self._on_events: Events = lambda events: None
        self._on_lost: Callable[[set[int]], None] = lambda idents: None
        self._adapters: dict[str, str] = {}  #: folders by keys; what a new process starts with
        self._wanted: dict[str, str] = {}  #: the same, with those that are on their way
        self._adapting = asyncio.Lock()
        self._leaving: set[EngineProcess] = set()  #: that another has taken over from
        self._closing: list[asyncio.Task[None]] = []

    @classmethod
    async def start(cls, context: LoadContext, listener: LaneListener) -> GenerationRuntime:
        """Starts the engine. Raises ModelError if it cannot load the model."""
        runtime = cls(context, listener)
        await runtime.begin()
        runtime._loop.call_later(runtime._silence_s_max / 4, runtime._listen_for_life)
        return runtime

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
        """`on_lost`: hears of requests that went with a process which another has replaced."""
        self._on_events = on_events
        self._on_lost = on_lost

    # commands

    def add(self, ident: int, prompt: Any, sampling: Sampling, adapter: str = "") -> None:
        process = self.process
        if process is None:
            return
        if not process.idents:
            process.heard = self._clock.monotonic()  # it was silent because it had nothing to do
        process.idents.add(ident)
        process.write(wire.add_message(ident, prompt, sampling, adapter=adapter))

    def cancel(self, idents: list[int]) -> None:
        for process in [self.process, *self._leaving]:
            if process is not None and not process.idents.isdisjoint(idents):
                process.idents.difference_update(idents)
                process.write(wire.message(wire.CANCEL, idents))
                self._look_whether_done(process)

    # adapters

    @property
    def model_dir(self) -> Path:
        return self._context.model_dir

    @property
    def adapter_bytes(self) -> int:
        """What loading one takes for a moment, beside its own weights: a second engine, or none."""
        if self.about.get("adapters") == ANY_TIME:
            return 0
        return sum(own_bytes(each) for pid in self.pids for each in tree_pids(pid))

    @property
    def takes_adapters(self) -> bool:
        return bool(self.about.get("adapters", NO_ADAPTERS) != NO_ADAPTERS)

    def without_adapters(self) -> tuple[str, str]:
        """(engine, why it takes none)."""
        record = registry.record(self._context.description.runtime)
        return record.name, record.engine.without_adapters

    async def add_adapter(self, key: str, files: AdapterFiles) -> None:
        """Loads one that was not there; requests may name it once this returns.

        Raises CallerError (`adapter-mismatch`, ...) and ModelError; nothing has changed then.
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
            return  # it came with another's process
        if self.about["adapters"] == ANY_TIME:
            await self._told(key, folder)
            self._adapters[key] = folder
            return
        # All that wait come with one process; where it does not start, each shows what it is worth.
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
        if former is None:  # it died meanwhile, and this one is what was to come
            if self._restart is not None:
                self._restart.cancel()
            self.ready()
            return
        self._leaving.add(former)
        self._look_whether_done(former)

    async def remove_adapter(self, key: str) -> None:
        """Its requests are over. What a graph has of it goes with the next process."""
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
        """Where the engine's process sees it."""
        folder = self._scratch / "adapters" / key
        folder.mkdir(parents=True, exist_ok=True)
        for name in (CONFIG, WEIGHTS):
            shutil.copyfile(files.root / name, folder / name)
        return folder

    # life and death

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
        """One that another has taken over from ends with its last answer."""
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
