"""One Python model in shared workers: whether it may share one, where it is loaded, its requests.

Its copy sees a PayloadRuntime. Each of its lanes is in another worker. If a worker dies during a
batch, its requests are judged as with a worker of one model (`python.runtime.Lane`). A request that
had not begun, because the worker computed for other models, is given back without suspicion.

The pool loads it into workers and unloads it, and says which of them ended. Its listener gets
events of later loads, not of the first.

`may_share` and `kind_of` say which Python models may share a process; `of_process` and `of_model`
say which environment variables they share there.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import orjson

from penstock.errors import PenstockError
from penstock.runtimes.base import NOT_BEGUN, LaneListener, LoadContext, Payload, PayloadReply
from penstock.runtimes.confinement.walls import no_room
from penstock.runtimes.python import container_paths
from penstock.runtimes.python.batches import (
    ALL_ITEMS,
    LOAD,
    LOADED,
    REPLIES,
    UNLOAD,
    pack_batch,
    unpack_replies,
)
from penstock.runtimes.python.code_metrics import CodeMetrics
from penstock.runtimes.python.runtime import Answers, Done, after_death, after_hang, hung
from penstock.runtimes.python.shared.worker import JobEnd, SharedWorker, WorkerJob
from penstock.runtimes.python.toolkit_logging import LOG_LEVEL
from penstock.runtimes.workers.failures import error_of
from penstock.runtimes.workers.process import OutputLines, load_timeout, worker_environment
from penstock.runtimes.workers.wire import message

#: Timeout of a model's own cleanup; then it counts as a hang and its worker is ended.
UNLOAD_S_MAX: Final = 30.0
#: Time from a worker's end to its last line, if a child of it keeps the pipe open.
_LAST_WORDS_S: Final = 1.0


class PoolHost(Protocol):
    """The methods of the pool that a model uses."""

    def served(self, model: int) -> None: ...
    def pids_of(self, model: int) -> list[int]: ...
    async def unload(self, model: int) -> None:
        """Returns once its memory is free. Idempotent."""


class SharedRuntime:
    """Made by `WorkerPool.load`. `init`: what a worker must know to load it; `scratch`: a folder
    for pipes of its output."""

    def __init__(
        self,
        host: PoolHost,
        number: int,
        context: LoadContext,
        listener: LaneListener,
        init: dict[str, Any],
        *,
        run_s: float,
        scratch: Path,
    ) -> None:
        self.number = number
        self.context = context
        self.name = context.target_model or str(init["name"])
        self.lanes = 0  #: set by the pool: there may be fewer cores than the model has lanes
        #: Lane -> growth of its worker by loading the model: (the model itself, libraries that it
        #: was the first to import there), bytes.
        self.growth: dict[int, tuple[int, int]] = {}
        self.about: dict[str, Any] = {}  #: what a worker told of the model
        self.closed = False
        #: The last end or failed load for which it was responsible
        self.error: PenstockError | None = None
        self.missing: set[int] = set()  #: lanes without a worker, during the first load
        self._loop = asyncio.get_running_loop()
        self.loaded: asyncio.Future[None] = self._loop.create_future()  #: the first load, all lanes
        self._host = host
        self._listener = listener
        self._init = init
        self._run_s_max = run_s
        self._scratch = scratch
        self._seats: dict[int, SharedWorker] = {}  #: lane -> its worker, where it has one
        self._lane_of: dict[int, int] = {}  #: worker number -> lane
        self._outputs: dict[int, OutputLines] = {}  #: output of each worker
        self._told_lost: set[int] = set()  #: lanes that were reported lost
        self._metrics = CodeMetrics()

    @property
    def growth_bytes(self) -> int:
        """Private memory of its workers that belongs to this model, measured when it was loaded."""
        return sum(model for model, _ in self.growth.values())

    @property
    def libraries_bytes(self) -> int:
        """Memory of libraries that it was the first to import; they stay for other models."""
        return sum(libraries for _, libraries in self.growth.values())

    @property
    def code_metrics(self) -> list[dict[str, Any]]:
        """The series that the model's code has made."""
        return self._metrics.to_list()

    def hear_metrics(self, number: int, payload: bytes) -> None:
        """From worker `number`. Raises an Exception for bytes that are no series."""
        if number in self._lane_of:
            self._metrics.hear(self._lane_of[number], payload)

    @property
    def pids(self) -> list[int]:
        return self._host.pids_of(self.number)

    def invoke(self, lane: int, batch: Sequence[Payload], done: Done) -> None:
        worker, count = self._seats.get(lane), len(batch)
        if worker is None or self.closed:
            not_begun: Answers = [NOT_BEGUN] * count
            self._loop.call_soon(done, not_begun)
            return

        def answered(kind: int, told: int, payload: bytes) -> None:
            replies: list[PayloadReply] = []
            try:
                if kind == REPLIES and told == count:
                    replies = unpack_replies(payload, count)
            finally:
                if not replies:  # answers that do not match this batch, or can't be read
                    worker.kill()
                    done(after_death(ALL_ITEMS, count))
            if replies:
                self._host.served(self.number)
                done(list(replies))

        def ended(how: JobEnd) -> None:
            done(self._given_back(how, count))

        worker.do(WorkerJob(self.number, pack_batch(batch), self._run_s_max, answered, ended))

    def _given_back(self, how: JobEnd, count: int) -> Answers:
        if self.closed or not how.begun:
            return [NOT_BEGUN] * count
        if not how.hung:
            return after_death(how.item, count)
        return after_hang(how.item, count, hung(self._run_s_max))

    def cancel(self, lane: int) -> None:
        """A Python function cannot be stopped without losing the model: it finishes."""

    async def close(self) -> None:
        """Returns once its memory is free. The other models of its workers go on."""
        self.closed = True
        await self._host.unload(self.number)

    # What the pool does with it

    def load_into(
        self,
        number: int,
        lane: int,
        worker: SharedWorker,
        failed: Callable[[PenstockError], None],
    ) -> None:
        """Loads it into worker `number`. `failed`: it had been loaded before, and its code
        raised."""
        self._lane_of[number] = lane
        path = self._scratch / f"output-{number}-{self.number}"
        try:
            os.mkfifo(path, 0o600)
            read_end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            self._loop.call_soon(self._not_loaded, no_room(self.context.copy_name, error), failed)
            return
        self._outputs[number] = OutputLines(read_end, self.context.log)

        def answered(kind: int, count: int, payload: bytes) -> None:
            path.unlink(missing_ok=True)
            if kind == LOADED:
                self._is_loaded(lane, worker, json.loads(payload))
                return
            self._quiet(number)
            self._not_loaded(error_of(payload), failed)

        def ended(how: JobEnd) -> None:
            path.unlink(missing_ok=True)
            if how.hung:
                self.give_up(load_timeout(self.context))

        asked = message(LOAD, orjson.dumps(self._init | {"output": str(path)}))
        timeout_s = self.context.startup_timeout_s
        worker.do(WorkerJob(self.number, asked, timeout_s, answered, ended))

    def _not_loaded(self, error: PenstockError, failed: Callable[[PenstockError], None]) -> None:
        if not self.give_up(error):
            failed(error)

    def _is_loaded(self, lane: int, worker: SharedWorker, facts: dict[str, Any]) -> None:
        self.about = facts["about"]
        self.growth[lane] = int(facts["growth_bytes"]), int(facts["libraries_bytes"])
        self._seats[lane] = worker
        if not self.loaded.done():
            self.missing.discard(lane)
            if not self.missing:
                self.loaded.set_result(None)
        if lane in self._told_lost:
            self._told_lost.remove(lane)
            self._listener.lane_ready(lane)

    def lost(self, number: int, error: PenstockError | None = None) -> None:
        """Call this when it is not in worker `number` any more; `error`: the worker ended with
        it."""
        self._quiet(number)
        lane = self._lane_of.pop(number, None)
        if lane is None:
            return
        self._metrics.ended(lane)
        served = self._seats.pop(lane, None) is not None
        if error is None:
            return
        self.error = error
        if served and not self.closed:
            self._told_lost.add(lane)
            self._listener.lane_lost(lane, error)

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
        for lane in range(self.lanes):
            self._seats.pop(lane, None)
            if not self.closed:
                self._listener.lane_failed(lane, error)

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
    def unload_from(model: int, worker: SharedWorker) -> asyncio.Future[None]:
        """Unloads it from a worker that keeps other models; done once its memory is free."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def over(*_: object) -> None:
            if not done.done():
                done.set_result(None)

        worker.do(WorkerJob(model, message(UNLOAD, b""), UNLOAD_S_MAX, over, over))
        return done


#: "false": the model gets a process of its own.
SHARED_WORKER = "PENSTOCK_SHARED_WORKER"

#: Variables about a model, which the worker sets before its code runs. Any other variable may
#: affect the whole process: a library reads it once, when the first model imports it.
_OF_MODELS = ("SAGEMAKER_", "SM_")

#: Replaces a worker's scratch folder in keys: it differs, and does not matter.
_SCRATCH = Path("/scratch")


def may_share(context: LoadContext) -> bool:
    """Whether a Python model may share a process: it does not ask for its own, and calls no other
    models. (It waits for their answers, and some might have to run in that very process.) /opt/ml
    and the level of logging are one for all of a process."""
    own = context.variables.get(SHARED_WORKER, "").strip().lower() == "false"
    if context.models is not None or own or LOG_LEVEL in context.variables:
        return False
    if context.description.decoupled:  # its responses come between the jobs of other models
        return False
    return not container_paths.named_in(context)


def kind_of(context: LoadContext) -> str:
    """A key; models with the same key may share a process.

    It contains the interpreter; the walls around it; accelerators; the content of requirements.txt,
    as models with other requirements should not import the same libraries; and every variable of
    the environment but SageMaker's own (SAGEMAKER_*, SM_*), the number of threads among them. A
    difference in any of these makes another key.
    """
    description = context.description
    requirements = context.model_dir / Path(description.file).parent / "requirements.txt"
    try:
        wanted = requirements.read_bytes()
    except OSError:
        wanted = b""
    facts = (
        context.interpreter or sys.executable,
        context.isolated and not description.unconfined,
        context.network_isolated,
        sorted(map(str, context.private_dirs)),
        context.accelerators,
        b"\n".join(sorted(line.strip() for line in wanted.splitlines() if line.strip())),
        sorted(of_process(worker_environment(context, _SCRATCH)).items()),
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def of_process(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that all models of a process share."""
    return {key: value for key, value in environment.items() if not key.startswith(_OF_MODELS)}


def of_model(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that are set while one model's code runs."""
    return {key: value for key, value in environment.items() if key.startswith(_OF_MODELS)}
