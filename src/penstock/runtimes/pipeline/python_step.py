"""Python steps seen from the instance's event loop: one worker process, many calls at once.

If the worker dies, its calls fail and fall back; it is started again by the rule of
`workers.supervised`. A function can't be stopped from outside. One that still runs `HANG_S` after
its call was cancelled hangs, and its process is ended, so that no thread is lost for good.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from penstock.clock import Clock
from penstock.errors import ModelError, NotNowError, PenstockError, from_dict
from penstock.runtimes.base import LaneListener, LoadContext
from penstock.runtimes.confinement.walls import around_code, make_scratch, remove_scratch
from penstock.runtimes.pipeline import worker
from penstock.runtimes.pipeline.calls import Hear, Way
from penstock.runtimes.pipeline.model_step import without_arrays
from penstock.runtimes.workers.process import WorkerProcess, worker_environment
from penstock.runtimes.workers.supervised import Supervised
from penstock.runtimes.workers.wire import message

MODULE: Final = "penstock.runtimes.pipeline.worker"
HANG_S: Final = 10.0


class PythonSteps(Supervised[WorkerProcess]):
    """All Python steps of one copy. `functions`: step -> function."""

    def __init__(
        self,
        context: LoadContext,
        listener: LaneListener,
        *,
        file: str,
        functions: Mapping[str, str],
        threads: int,
        clock: Clock,
    ) -> None:
        super().__init__(context, listener, clock=clock)
        self._init = {
            "model_dir": str(context.model_dir),
            "file": file,
            "functions": dict(functions),
            "threads": threads,
        }
        self._scratch = make_scratch()
        self._numbers = itertools.count(1)
        self._calls: dict[int, _PythonCall] = {}

    async def spawn(self) -> WorkerProcess:
        process = WorkerProcess(self._context, self._told, self.gone)
        environment = worker_environment(self._context, self._scratch)
        walls = around_code(self._context, self._scratch)
        python = self._context.interpreter
        await process.start(MODULE, self._init, environment, walls, python=python)
        return process

    # Calls

    def call(self, way: PythonWay, inputs: Any, hear: Hear) -> _PythonCall:
        number = next(self._numbers)
        call = _PythonCall(self, number, hear, way.keeps)
        if self.process is None:
            call.ended = True
            words = f"{way.name}: the process of the Python steps restarts"
            self._loop.call_soon(hear.failed, NotNowError("worker-down", words))
            return call
        self._calls[number] = call
        self.tell(worker.CALL, {"i": number, "f": way.function, "a": inputs, "s": way.follows})
        return call

    def tell(self, kind: int, value: dict[str, Any]) -> None:
        if self.process is not None:
            self.process.write(message(kind, orjson.dumps(value, default=without_arrays)))

    def stop(self, call: _PythonCall) -> None:
        self.tell(worker.STOP, {"i": call.number})
        self._loop.call_later(HANG_S, self._hung, call)

    def _hung(self, call: _PythonCall) -> None:
        if call.number in self._calls and self.process is not None and not self.closed:
            self._context.log(f"a step still ran {HANG_S:g} s after it was broken off")
            self.process.kill()

    def _told(self, kind: int, count: int, payload: bytes) -> None:
        if kind not in (worker.PIECE, worker.DONE, worker.BROKEN):
            return
        told = orjson.loads(payload)
        call = self._calls.get(told["i"])
        if call is None:
            return
        if kind == worker.PIECE:
            call.piece(told["v"])
            return
        del self._calls[call.number]
        if kind == worker.DONE:
            self.served()
            call.done(told["v"], generator=told["g"])
        else:
            call.failed(from_dict(told["e"]))

    # Start and end of the process

    def gone(self, error: PenstockError) -> None:
        calls, self._calls = self._calls, {}
        super().gone(error)
        for call in calls.values():
            call.failed(error)

    def lost(self, error: PenstockError) -> None:
        """The copy goes on: its steps fall back until they have a process again."""

    def ready(self) -> None:
        return

    async def close(self) -> None:
        await super().close()
        remove_scratch(self._scratch)


@dataclass(frozen=True, slots=True)
class PythonWay(Way):
    """One step's function."""

    steps: PythonSteps
    name: str
    function: str
    follows: bool
    keeps: bool  #: keep a generator's pieces as its result; False: nobody uses it

    def begin(self, inputs: Any, hear: Hear, *, left_s: float | None) -> _PythonCall:
        if not isinstance(inputs, dict):
            raise ModelError(
                "step-failed", f"{self.name}: a Python step's inputs are a mapping of arguments"
            )
        return self.steps.call(self, inputs, hear)


class _PythonCall:
    __slots__ = ("_hear", "_keeps", "_pieces", "_steps", "ended", "number")

    def __init__(self, steps: PythonSteps, number: int, hear: Hear, keeps: bool) -> None:
        self.number = number
        self.ended = False  #: True once the call ended or was stopped: no more events follow
        self._steps = steps
        self._hear = hear
        self._keeps = keeps
        self._pieces: list[Any] = []

    def feed(self, piece: Any) -> None:
        self._steps.tell(worker.FEED, {"i": self.number, "v": piece})

    def feed_end(self) -> None:
        self._steps.tell(worker.FEED_END, {"i": self.number})

    def stop(self) -> None:
        if not self.ended:
            self.ended = True
            self._steps.stop(self)

    def hold(self, held: bool) -> None:
        self._steps.tell(worker.HOLD, {"i": self.number, "h": held})

    def piece(self, value: Any) -> None:
        if not self.ended:
            if self._keeps:
                self._pieces.append(value)
            self._hear.piece(value)

    def done(self, result: Any, *, generator: bool) -> None:
        if self.ended:
            return
        if generator:
            result = self._pieces
        elif result is not None:  # None means no piece
            self._hear.piece(result)
        self.ended = True
        self._hear.done(result)

    def failed(self, error: PenstockError) -> None:
        if not self.ended:
            self.ended = True
            self._hear.failed(error)
