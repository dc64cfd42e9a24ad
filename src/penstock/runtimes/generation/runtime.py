"""The instance's end of an engine process: start, commands, events, and again when it died.

Reports to a listener; what becomes of requests is the copy's business. The process is started again
by the rule of `supervision`; one that says nothing for a long time while it has work hangs, and is
killed.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

from penstock.artifacts.description import EngineOptions
from penstock.clock import Clock, SystemClock
from penstock.errors import PenstockError
from penstock.runtimes.base import LoadContext
from penstock.runtimes.confinement.walls import around_program, make_scratch, remove_scratch
from penstock.runtimes.environment import for_models
from penstock.runtimes.generation import wire
from penstock.runtimes.generation.base import EngineStatistics, Sampling
from penstock.runtimes.python.runtime import LaneListener, run_s_max
from penstock.runtimes.workers.process import WorkerProcess
from penstock.runtimes.workers.restarts import Restarts

#: The cache where nothing is said: a part of the instance's memory, and at most this.
CACHE_BYTES_MAX = 4 << 30
_CACHE_SHARE = 4  #: a fourth of the memory
#: The folder that this package is imported from, for an interpreter that does not have it.
_OURS = str(Path(__file__).resolve().parents[3])

Events = Callable[[list[dict[str, Any]]], None]


class EngineProcess(WorkerProcess):
    """A worker process that takes commands at any time and sends events on its own."""

    module = "penstock.runtimes.generation.engine_process"
    on_events: Events
    on_sign: Callable[[EngineStatistics], None]

    def write(self, data: bytes) -> None:
        if self._transport is not None and self._serving:
            self._transport.write(data)

    @staticmethod
    def python_path(environment: Mapping[str, str]) -> str:
        return _OURS

    def _message(self, kind: int, count: int, payload: bytes) -> None:
        if kind == wire.EVENTS:
            told = orjson.loads(payload)
            self.on_sign(EngineStatistics(*told["s"]))
            if told["e"]:
                self.on_events(told["e"])
        else:
            self._begun(kind, payload)


class GenerationRuntime:
    """One copy's engine. Made by `start`; `attach` says who is told of events."""

    lanes = 1

    def __init__(
        self, context: LoadContext, listener: LaneListener, *, clock: Clock | None = None
    ) -> None:
        self.about: dict[str, Any] = {}  #: what the engine says of itself
        self.statistics = EngineStatistics(0, 0, 0.0, 0)
        self._context = context
        self._listener = listener
        self._clock = clock or SystemClock()
        self._loop = asyncio.get_running_loop()
        self._init = init_message(context)
        self._scratch = make_scratch()
        self._environment = engine_environment(context, self._scratch)
        self._silence_s_max = 2 * run_s_max(self._environment)
        self._process: EngineProcess | None = None
        self._restarts = Restarts(
            self._start_again,
            lambda error: listener.lane_failed(0, error),
            clock=self._clock,
            log=context.log,
        )
        self._closed = False
        self._on_events: Events = lambda events: None
        self._has_work: Callable[[], bool] = lambda: False
        self._heard = 0.0  #: monotonic s of the last sign of life

    @classmethod
    async def start(cls, context: LoadContext, listener: LaneListener) -> GenerationRuntime:
        """Starts the engine. Raises ModelError if it cannot load the model."""
        runtime = cls(context, listener)
        runtime._process = await runtime._started()
        runtime._loop.call_later(runtime._silence_s_max / 4, runtime._listen_for_life)
        return runtime

    @property
    def pids(self) -> list[int]:
        return [self._process.pid] if self._process and self._process.pid else []

    def attach(self, on_events: Events, has_work: Callable[[], bool]) -> None:
        self._on_events = on_events
        self._has_work = has_work

    # commands

    def add(self, ident: int, prompt: Any, sampling: Sampling) -> None:
        self._write(wire.add_message(ident, prompt, sampling))

    def cancel(self, idents: list[int]) -> None:
        self._write(wire.message(wire.CANCEL, idents))

    def served(self) -> None:
        """An answer was completed: deaths before it no longer count."""
        self._restarts.served()

    def _write(self, data: bytes) -> None:
        if not self._has_work():
            self._heard = self._clock.monotonic()  # it was silent because it had nothing to do
        if self._process is not None:
            self._process.write(data)

    # life and death

    async def _started(self) -> EngineProcess:
        process = EngineProcess(
            f"{self._context.endpoint_name}/{self._context.variant_name}",
            self._context.log,
            self._gone,
            walls=around_program(self._context, self._scratch),
        )
        process.on_events = self._events
        process.on_sign = self._sign
        self.about = await process.start(
            self._init, self._environment, self._context.startup_timeout_s
        )
        return process

    def _events(self, events: list[dict[str, Any]]) -> None:
        self._on_events(events)

    def _sign(self, statistics: EngineStatistics) -> None:
        self.statistics = statistics
        self._heard = self._clock.monotonic()

    def _listen_for_life(self) -> None:
        if self._closed:
            return
        silent_s = self._clock.monotonic() - self._heard
        if self._process is not None and self._has_work() and silent_s >= self._silence_s_max:
            self._context.log(f"the engine said nothing for {silent_s:.0f} s and is ended")
            self._process.kill()
        self._loop.call_later(self._silence_s_max / 4, self._listen_for_life)

    def _gone(self, error: PenstockError) -> None:
        self._process = None
        self.statistics = EngineStatistics(0, 0, 0.0, 0)
        if self._closed:
            return
        self._listener.lane_lost(0, error)
        self._restarts.died(error)

    async def _start_again(self) -> None:
        process = await self._started()
        if self._closed:
            await process.close()
            return
        self._process = process
        self._heard = self._clock.monotonic()
        self._listener.lane_ready(0)

    async def close(self) -> None:
        self._closed = True
        await self._restarts.close()
        if self._process is not None:
            await self._process.close()
            self._process = None
        remove_scratch(self._scratch)

    def kill(self) -> None:
        """At once, without waiting: the instance itself is ending."""
        self._closed = True
        if self._process is not None:
            self._process.kill()


def init_message(context: LoadContext) -> dict[str, Any]:
    description = context.description
    options = description.engine or EngineOptions()
    return {
        "engine": description.runtime,
        "model_dir": str(context.model_dir),
        "python": options.python,
        "settings": dataclasses.asdict(options)
        | {
            "cache_bytes": options.cache_bytes or _cache_bytes(context.memory_bytes_max),
            "precision": description.precision,
            "threads": description.threads_per_lane or max(1, int(context.cores)),
            "accelerators": context.accelerators,
        },
    }


def _cache_bytes(memory_bytes_max: int) -> int:
    whole = memory_bytes_max or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(CACHE_BYTES_MAX, whole // _CACHE_SHARE)


def engine_environment(context: LoadContext, scratch: Path) -> dict[str, str]:
    """What models may see of the server's environment, then what the model was given.

    Its home stays: engines keep there what they compiled.
    """
    threads = context.description.threads_per_lane or max(1, int(context.cores))
    return {
        **for_models(),
        "TMPDIR": str(scratch),
        "OMP_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",  # what is not in the artifact is not fetched behind our back
        **context.description.environment,
        **context.environment,
    }
