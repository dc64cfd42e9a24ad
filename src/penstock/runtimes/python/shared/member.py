"""One model as a pool sees it: where it is loaded, and what its listener knows.

It also loads the model into a worker, and unloads it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import orjson

from penstock.errors import ModelError, PenstockError
from penstock.runtimes.base import LoadContext
from penstock.runtimes.confinement.walls import no_room
from penstock.runtimes.python.shared import messages
from penstock.runtimes.python.shared.runtime import SharedRuntime
from penstock.runtimes.python.shared.worker import JobEnd, SharedWorker, WorkerJob
from penstock.runtimes.workers.failures import error_of
from penstock.runtimes.workers.output_lines import OutputLines
from penstock.runtimes.workers.wire import message

#: Timeout of a model's own cleanup; then it counts as a hang and its worker is ended.
UNLOAD_S_MAX: Final = 30.0
#: Time from a worker's end to its last line, if a child of it keeps the pipe open.
_LAST_WORDS_S: Final = 1.0


class PoolMember:
    """`loaded`: the first load, in all lanes. The listener gets events of later loads."""

    def __init__(self, runtime: SharedRuntime, init: dict[str, Any], scratch: Path) -> None:
        self.runtime = runtime
        self.context = runtime.context
        self.name = self.context.target_model or str(init["name"])
        #: The last end or failed load for which it was responsible
        self.error: PenstockError | None = None
        self.missing: set[int] = set()  #: lanes without a worker, during the first load
        self._loop = asyncio.get_running_loop()
        self.loaded: asyncio.Future[None] = self._loop.create_future()
        self._init = init
        self._scratch = scratch
        self._lane_of: dict[int, int] = {}  #: worker number -> lane
        self._outputs: dict[int, OutputLines] = {}  #: output of each worker
        self._told_lost: set[int] = set()  #: lanes that were reported lost

    def load(
        self,
        number: int,
        lane: int,
        worker: SharedWorker,
        failed: Callable[[PenstockError], None],
    ) -> None:
        """Loads it into worker `number`. `failed`: it had been loaded before, and its code
        raised."""
        self._lane_of[number] = lane
        path = self._scratch / f"output-{number}-{self.runtime.number}"
        try:
            os.mkfifo(path, 0o600)
            read_end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            self._loop.call_soon(self._not_loaded, no_room(self.context.copy_name, error), failed)
            return
        self._outputs[number] = OutputLines(read_end, self.context.log)

        def answered(kind: int, count: int, payload: bytes) -> None:
            path.unlink(missing_ok=True)
            if kind == messages.LOADED:
                self._is_loaded(lane, worker, json.loads(payload))
                return
            self._quiet(number)
            self._not_loaded(error_of(payload), failed)

        def ended(how: JobEnd) -> None:
            path.unlink(missing_ok=True)
            if how.hung:
                self.give_up(_too_slow(self.context))

        asked = message(messages.LOAD, orjson.dumps(self._init | {"output": str(path)}))
        timeout_s = self.context.startup_timeout_s
        worker.do(WorkerJob(self.runtime.number, asked, timeout_s, answered, ended))

    def _not_loaded(self, error: PenstockError, failed: Callable[[PenstockError], None]) -> None:
        if not self.give_up(error):
            failed(error)

    def _is_loaded(self, lane: int, worker: SharedWorker, facts: dict[str, int]) -> None:
        runtime = self.runtime
        runtime.growth[lane] = int(facts["growth_bytes"]), int(facts["libraries_bytes"])
        runtime.seats[lane] = worker
        if not self.loaded.done():
            self.missing.discard(lane)
            if not self.missing:
                self.loaded.set_result(None)
        if lane in self._told_lost:
            self._told_lost.remove(lane)
            runtime.listener.lane_ready(lane)

    def lost(self, number: int, error: PenstockError | None = None) -> None:
        """Call this when it is not in worker `number` any more; `error`: the worker ended with
        it."""
        self._quiet(number)
        lane = self._lane_of.pop(number, None)
        if lane is None:
            return
        served = self.runtime.seats.pop(lane, None) is not None
        if error is None:
            return
        self.error = error
        if served and not self.runtime.closed:
            self._told_lost.add(lane)
            self.runtime.listener.lane_lost(lane, error)

    def give_up(self, error: PenstockError) -> bool:
        """Whether its first load was still running; if so, the caller who waits for it gets the
        error."""
        if self.loaded.done():
            return False
        self.loaded.set_exception(error)
        return True

    def fail(self, error: PenstockError) -> None:
        """Marks it as failed: it is not started again."""
        if self.give_up(error):
            return
        for lane in range(self.runtime.lanes):
            self.runtime.seats[lane] = None
            if not self.runtime.closed:
                self.runtime.listener.lane_failed(lane, error)

    def close_outputs(self) -> None:
        """Call this when all of its workers have ended."""
        for output in self._outputs.values():
            output.close()
        self._outputs.clear()

    def forget(self) -> None:
        """It is not loaded anywhere any more."""
        for number in list(self._outputs):
            self._quiet(number)

    def _quiet(self, number: int) -> None:
        output = self._outputs.pop(number, None)
        if output is not None:
            self._loop.call_later(_LAST_WORDS_S, output.close)

    @staticmethod
    def unload(model: int, worker: SharedWorker) -> asyncio.Future[None]:
        """Unloads it from a worker that keeps other models; done once its memory is free."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def over(*_: object) -> None:
            if not done.done():
                done.set_result(None)

        worker.do(WorkerJob(model, message(messages.UNLOAD, b""), UNLOAD_S_MAX, over, over))
        return done


def _too_slow(context: LoadContext) -> ModelError:
    return ModelError(
        "load-timeout",
        f"{context.copy_name}: the model's code did not load within"
        f" {context.startup_timeout_s:g} s",
        hint="Raise ContainerStartupHealthCheckTimeoutInSeconds, or make model_fn faster.",
    )
