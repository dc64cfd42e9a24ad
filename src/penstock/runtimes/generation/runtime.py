"""The instance's end of an engine process: start, commands, events, and again when it died.

Reports to a listener; what becomes of requests is the copy's business. The process is started again
by the rule of `supervision`; one that says nothing for a long time while it has work hangs, and is
killed.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import orjson

from penstock.artifacts.description import EngineOptions
from penstock.clock import Clock
from penstock.errors import PenstockError
from penstock.runtimes.base import LaneListener, LoadContext
from penstock.runtimes.confinement.walls import around_program, make_scratch, remove_scratch
from penstock.runtimes.environment import for_models
from penstock.runtimes.generation import wire
from penstock.runtimes.generation.base import Sampling
from penstock.runtimes.statistics import EngineStatistics
from penstock.runtimes.workers.environment import run_s_max
from penstock.runtimes.workers.process import WorkerProcess
from penstock.runtimes.workers.supervised import Supervised

MODULE: Final = "penstock.runtimes.generation.engine_process"
#: The cache where nothing is said: a part of the instance's memory, and at most this.
CACHE_BYTES_MAX = 4 << 30
_CACHE_SHARE = 4  #: a fourth of the memory

Events = Callable[[list[dict[str, Any]]], None]


class GenerationRuntime(Supervised[WorkerProcess]):
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
        self._has_work: Callable[[], bool] = lambda: False
        self._heard = 0.0  #: monotonic s of the last sign of life

    @classmethod
    async def start(cls, context: LoadContext, listener: LaneListener) -> GenerationRuntime:
        """Starts the engine. Raises ModelError if it cannot load the model."""
        runtime = cls(context, listener)
        await runtime.begin()
        runtime._loop.call_later(runtime._silence_s_max / 4, runtime._listen_for_life)
        return runtime

    async def spawn(self) -> WorkerProcess:
        process = WorkerProcess(self._context, self._hear, self.gone)
        walls = around_program(self._context, self._scratch)
        python = self._init["python"]
        self.about = await process.start(
            MODULE, self._init, self._environment, walls, python=python
        )
        self._heard = self._clock.monotonic()
        return process

    def attach(self, on_events: Events, has_work: Callable[[], bool]) -> None:
        self._on_events = on_events
        self._has_work = has_work

    # commands

    def add(self, ident: int, prompt: Any, sampling: Sampling) -> None:
        self._write(wire.add_message(ident, prompt, sampling))

    def cancel(self, idents: list[int]) -> None:
        self._write(wire.message(wire.CANCEL, idents))

    def _write(self, data: bytes) -> None:
        if not self._has_work():
            self._heard = self._clock.monotonic()  # it was silent because it had nothing to do
        if self.process is not None:
            self.process.write(data)

    # life and death

    def _hear(self, kind: int, count: int, payload: bytes) -> None:
        if kind != wire.EVENTS:
            return
        told = orjson.loads(payload)
        self.statistics = EngineStatistics(*told["s"])
        self._heard = self._clock.monotonic()
        if told["e"]:
            self._on_events(told["e"])

    def _listen_for_life(self) -> None:
        if self.closed:
            return
        silent_s = self._clock.monotonic() - self._heard
        if self.process is not None and self._has_work() and silent_s >= self._silence_s_max:
            self._context.log(f"the engine said nothing for {silent_s:.0f} s and is ended")
            self.process.kill()
        self._loop.call_later(self._silence_s_max / 4, self._listen_for_life)

    def gone(self, error: PenstockError) -> None:
        self.statistics = EngineStatistics(0, 0, 0.0, 0)
        super().gone(error)

    async def close(self) -> None:
        await super().close()
        remove_scratch(self._scratch)


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
        "PYTHONPATH": "",  # the engine's interpreter may be another than ours
    }
