"""The python runtime: the model's own code in worker processes, one per lane.

A PayloadRuntime. Workers that die are started again by the rule of `supervision.py`; the instance
hears of it through `listener` and keeps requests away from a lane without a worker. A batch that
takes longer than SAGEMAKER_MODEL_SERVER_TIMEOUT (60 s, as in AWS) is a hang: the worker is killed,
the request it was busy with is answered `model-timeout`, and its mates are given back. Of a worker
that died the request it was busy with is the suspect; where it computed a whole batch at once, all.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from penstock.clock import Clock, SystemClock
from penstock.core.retry import WORKER_DIED, blamed
from penstock.errors import ModelError, PenstockError
from penstock.runtimes.base import NOT_BEGUN, LoadContext, Payload, PayloadReply, Returned
from penstock.runtimes.confinement.walls import around_code, make_scratch, remove_scratch
from penstock.runtimes.environment import at_home_in, for_models
from penstock.runtimes.workers.process import WorkerProcess
from penstock.runtimes.workers.restarts import Restarts
from penstock.runtimes.workers.wire import ALL_ITEMS

Answers = list[PayloadReply | Returned]
Done = Callable[[Answers], None]

RUN_S_MAX = 60.0


class LaneListener(Protocol):
    """What the instance wants to know of a payload runtime's lanes."""

    def lane_lost(self, lane: int, error: PenstockError) -> None: ...
    def lane_ready(self, lane: int) -> None: ...
    def lane_failed(self, lane: int, error: PenstockError) -> None:
        """It will not be started again."""


class PythonRuntime:
    """Made by `start`. See `base.PayloadRuntime` for `invoke`, `cancel` and `close`.

    `done` gets a reply or `Returned` for each payload.
    """

    def __init__(
        self, context: LoadContext, listener: LaneListener, *, clock: Clock | None = None
    ) -> None:
        self.lanes = max(1, context.description.lanes)
        self.description = context.description
        self._context = context
        self._listener = listener
        self._clock = clock or SystemClock()
        self._loop = asyncio.get_running_loop()
        self._init = init_message(context)
        self._scratch = make_scratch()
        self._walls = around_code(context, self._scratch)
        self._environment = worker_environment(context, self._scratch)
        self._run_s_max = run_s_max(self._environment)
        self._workers: list[WorkerProcess | None] = [None] * self.lanes
        self._restarts = [self._restarts_of(lane) for lane in range(self.lanes)]
        self._closed = False

    @classmethod
    async def start(cls, context: LoadContext, listener: LaneListener) -> PythonRuntime:
        """Starts all workers. Raises ModelError if one cannot load the model."""
        runtime = cls(context, listener)
        try:
            for lane in range(runtime.lanes):
                runtime._workers[lane] = await runtime._started(lane)
        except BaseException:
            await runtime.close()
            raise
        return runtime

    @property
    def pids(self) -> list[int]:
        return [worker.pid for worker in self._workers if worker and worker.pid]

    async def _started(self, lane: int) -> WorkerProcess:
        worker = WorkerProcess(
            f"{self._context.endpoint_name}/{self._context.variant_name}",
            self._context.log,
            lambda error: self._gone(lane, error),
            walls=self._walls,
        )
        await worker.start(self._init, self._environment, self._context.startup_timeout_s)
        return worker

    def invoke(self, lane: int, batch: Sequence[Payload], done: Done) -> None:
        worker = self._workers[lane]
        count = len(batch)
        not_begun: Answers = [NOT_BEGUN] * count
        if worker is None:
            self._loop.call_soon(done, not_begun)
            return
        late: list[int] = []

        def answered(replies: list[PayloadReply] | None) -> None:
            timer.cancel()
            if replies is not None:
                self._restarts[lane].served()
                if len(replies) == count:
                    done(list(replies))
                    return
                worker.kill()  # its answers are not those of this batch
                done(_after_death(ALL_ITEMS, count))
            elif late:
                done(self._after_hang(late[0], count))
            elif self._closed:
                done(not_begun)
            else:
                done(_after_death(worker.item_in_progress, count))

        if not worker.send(batch, answered):
            self._loop.call_soon(done, not_begun)
            return
        timer = self._loop.call_later(self._run_s_max, self._hang, worker, late)

    def _hang(self, worker: WorkerProcess, late: list[int]) -> None:
        late.append(worker.item_in_progress)
        worker.kill()

    def _after_hang(self, guilty: int, count: int) -> Answers:
        if count == 1:
            guilty = 0
        answers = _after_death(guilty, count)
        if guilty < count:
            error = ModelError(
                "model-timeout",
                f"the model did not answer within {self._run_s_max:g} s; its process was ended",
                hint="Raise SAGEMAKER_MODEL_SERVER_TIMEOUT if the model needs longer.",
            )
            answers[guilty] = PayloadReply(error=error)
        return answers

    def cancel(self, lane: int) -> None:
        """A Python function cannot be stopped without losing the model: it finishes."""

    def _gone(self, lane: int, error: PenstockError) -> None:
        self._workers[lane] = None
        if self._closed:
            return
        self._listener.lane_lost(lane, error)
        self._restarts[lane].died(error)

    def _restarts_of(self, lane: int) -> Restarts:
        return Restarts(
            functools.partial(self._start_again, lane),
            functools.partial(self._listener.lane_failed, lane),
            clock=self._clock,
            log=self._context.log,
        )

    async def _start_again(self, lane: int) -> None:
        worker = await self._started(lane)
        if self._closed:
            await worker.close()
            return
        self._workers[lane] = worker
        self._listener.lane_ready(lane)

    async def close(self) -> None:
        self._closed = True
        await asyncio.gather(*(restarts.close() for restarts in self._restarts))
        await asyncio.gather(*(worker.close() for worker in self._workers if worker))
        self._workers = [None] * self.lanes
        remove_scratch(self._scratch)

    def kill(self) -> None:
        """At once, without waiting: the instance itself is ending."""
        self._closed = True
        for worker in self._workers:
            if worker is not None:
                worker.kill()


def _after_death(suspect: int, count: int) -> Answers:
    """What becomes of a batch whose worker died while it computed the item `suspect`.

    Those before it had been computed, so they may have left what killed it; those behind it had not
    begun.
    """
    if count == 1:
        return [Returned(WORKER_DIED)]
    in_company = Returned(blamed(count - 1))
    if suspect >= count:
        return [in_company] * count
    behind = count - suspect - 1
    return [*[in_company] * suspect, Returned(WORKER_DIED), *[NOT_BEGUN] * behind]


def init_message(context: LoadContext) -> dict[str, Any]:
    """What the worker needs to know of the model."""
    description = context.description
    requirements = Path(description.file).parent / "requirements.txt"
    has_requirements = (context.model_dir / requirements).is_file()
    return {
        "model_dir": str(context.model_dir),
        "file": description.file,
        "name": description.name or context.endpoint_name,
        "version": description.version,
        "triton_python": description.triton_python,
        "rows_max": description.batching.rows_max,
        "inputs": [[each.name, each.dtype, list(each.shape)] for each in description.inputs],
        "outputs": [[each.name, each.dtype, list(each.shape)] for each in description.outputs],
        "parameters": dict(description.parameters),
        "requirements": str(requirements) if has_requirements else "",
    }


def worker_environment(context: LoadContext, scratch: Path) -> dict[str, str]:
    """What models may see of the server's, SageMaker's variables, then what the model was given."""
    threads = str(
        context.description.threads_per_lane
        or max(1, int(context.cores / max(1, context.description.lanes)))
    )
    file = Path(context.description.file)
    return {
        **for_models(),
        **at_home_in(str(scratch)),
        "OMP_NUM_THREADS": threads,
        "TOKENIZERS_PARALLELISM": "false",
        "SM_MODEL_DIR": str(context.model_dir),
        "SAGEMAKER_BASE_DIR": str(context.model_dir),
        "SAGEMAKER_MODEL_SERVER_WORKERS": str(context.description.lanes),
        **context.description.environment,
        **context.environment,
        # Where it is here: the model was given a container's folder, or an address on S3.
        "SAGEMAKER_PROGRAM": file.name,
        "SAGEMAKER_SUBMIT_DIRECTORY": str((context.model_dir / file).parent),
    }


def run_s_max(environment: dict[str, str]) -> float:
    given = environment.get("SAGEMAKER_MODEL_SERVER_TIMEOUT", "")
    if not given:
        return RUN_S_MAX
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise ModelError(
            "invalid-environment",
            f"SAGEMAKER_MODEL_SERVER_TIMEOUT is {given!r}, a number of seconds is needed",
        )
    return seconds
