"""Python steps seen from the instance's event loop: one worker process, many calls at once.

A worker that dies takes its calls with it, which fall back; it is started again by the rule of
`supervision.py`. A function cannot be stopped from outside: one that is still running `HANG_S`
after it was broken off hangs, and its process is ended, so that no thread is lost for good.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from penstock.clock import Clock, SystemClock
from penstock.errors import ModelError, NotNowError, PenstockError, from_dict
from penstock.runtimes.base import LoadContext
from penstock.runtimes.confinement.walls import around_code, make_scratch, remove_scratch
from penstock.runtimes.pipeline import worker as wire
from penstock.runtimes.pipeline.calls import Hear
from penstock.runtimes.python.runtime import LaneListener, worker_environment
from penstock.runtimes.workers import wire as worker_wire
from penstock.runtimes.workers.process import WorkerProcess
from penstock.runtimes.workers.restarts import Restarts

HANG_S: Final = 10.0

Told = Callable[[int, dict[str, Any]], None]


class StepsProcess(WorkerProcess):
    """A worker that takes commands at any time and speaks at any time."""

    module = "penstock.runtimes.pipeline.worker"
    on_told: Told

    def write(self, kind: int, value: dict[str, Any]) -> None:
        if self._transport is not None and self._serving:
            self._transport.write(worker_wire.message(kind, orjson.dumps(value)))

    def _message(self, kind: int, count: int, payload: bytes) -> None:
        if kind in (wire.PIECE, wire.DONE, wire.BROKEN):
            self.on_told(kind, orjson.loads(payload))
        else:
            self._begun(kind, payload)


class PythonSteps:
    """All Python steps of one copy. `functions`: step -> function."""

    def __init__(
        self,
        context: LoadContext,
        listener: LaneListener,
        *,
        file: str,
        functions: Mapping[str, str],
        threads: int,
        clock: Clock | None = None,
        hang_s: float = HANG_S,
    ) -> None:
        self._context = context
        self._listener = listener
        self._hang_s = hang_s
        self._loop = asyncio.get_running_loop()
        self._init = {
            "model_dir": str(context.model_dir),
            "file": file,
            "functions": dict(functions),
            "threads": threads,
        }
        self._scratch = make_scratch()
        self._process: StepsProcess | None = None
        self._restarts = Restarts(
            self.start,
            lambda error: listener.lane_failed(0, error),
            clock=clock or SystemClock(),
            log=context.log,
        )
        self._numbers = itertools.count(1)
        self._calls: dict[int, _PythonCall] = {}
        self._closed = False

    @property
    def pids(self) -> list[int]:
        return [self._process.pid] if self._process and self._process.pid else []

    async def start(self) -> None:
        """Raises ModelError if the code cannot be loaded."""
        process = StepsProcess(
            f"{self._context.endpoint_name}/{self._context.variant_name}",
            self._context.log,
            self._gone,
            walls=around_code(self._context, self._scratch),
        )
        process.on_told = self._told
        environment = worker_environment(self._context, self._scratch)
        await process.start(self._init, environment, self._context.startup_timeout_s)
        self._process = process

    def way(self, name: str, function: str, *, follows: bool) -> PythonWay:
        return PythonWay(self, name, function, follows)

    # calls

    def call(self, name: str, function: str, follows: bool, inputs: Any, hear: Hear) -> _PythonCall:
        number = next(self._numbers)
        call = _PythonCall(self, number, hear)
        if self._process is None:
            call.ended = True
            down = NotNowError("worker-down", f"{name}: the process of the Python steps restarts")
            self._loop.call_soon(hear.failed, down)
            return call
        self._calls[number] = call
        self._write(wire.CALL, {"i": number, "f": function, "a": inputs, "s": follows})
        return call

    def _write(self, kind: int, value: dict[str, Any]) -> None:
        if self._process is not None:
            self._process.write(kind, value)

    def stop(self, call: _PythonCall) -> None:
        self._write(wire.STOP, {"i": call.number})
        self._loop.call_later(self._hang_s, self._hung, call)

    def _hung(self, call: _PythonCall) -> None:
        if call.number in self._calls and self._process is not None and not self._closed:
            self._context.log(f"a step still ran {self._hang_s:g} s after it was broken off")
            self._process.kill()

    def _told(self, kind: int, told: dict[str, Any]) -> None:
        call = self._calls.get(told["i"])
        if call is None:
            return
        if kind == wire.PIECE:
            call.piece(told["v"])
            return
        del self._calls[call.number]
        if kind == wire.DONE:
            self._restarts.served()
            call.done(told["v"], generator=told["g"])
        else:
            call.failed(from_dict(told["e"]))

    # life and death

    def _gone(self, error: PenstockError) -> None:
        self._process = None
        calls, self._calls = self._calls, {}
        if not self._closed:
            self._restarts.died(error)
        for call in calls.values():
            call.failed(error)

    async def close(self) -> None:
        self._closed = True
        await self._restarts.close()
        if self._process is not None:
            await self._process.close()
            self._process = None
        remove_scratch(self._scratch)


class PythonWay:
    """One step's function."""

    def __init__(self, steps: PythonSteps, name: str, function: str, follows: bool) -> None:
        self._steps = steps
        self._name = name
        self._function = function
        self._follows = follows

    def begin(self, inputs: Any, hear: Hear, *, left_s: float | None) -> _PythonCall:
        if not isinstance(inputs, dict):
            raise ModelError(
                "step-failed", f"{self._name}: a Python step's inputs are a mapping of arguments"
            )
        return self._steps.call(self._name, self._function, self._follows, inputs, hear)

    async def close(self) -> None:
        return


class _PythonCall:
    __slots__ = ("_hear", "_pieces", "_steps", "ended", "number")

    def __init__(self, steps: PythonSteps, number: int, hear: Hear) -> None:
        self.number = number
        self.ended = False  #: or stopped: nothing more is said of it
        self._steps = steps
        self._hear = hear
        self._pieces: list[Any] = []

    def feed(self, piece: Any) -> None:
        self._steps._write(wire.FEED, {"i": self.number, "v": piece})

    def feed_end(self) -> None:
        self._steps._write(wire.FEED_END, {"i": self.number})

    def stop(self) -> None:
        if not self.ended:
            self.ended = True
            self._steps.stop(self)

    def piece(self, value: Any) -> None:
        if not self.ended:
            self._pieces.append(value)
            self._hear.piece(value)

    def done(self, result: Any, *, generator: bool) -> None:
        if self.ended:
            return
        if generator:
            result = self._pieces
        elif result is not None:  # None says nothing: no piece
            self._hear.piece(result)
        self.ended = True
        self._hear.done(result)

    def failed(self, error: PenstockError) -> None:
        if not self.ended:
            self.ended = True
            self._hear.failed(error)
