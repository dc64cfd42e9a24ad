"""The python runtime: the model's own code in worker processes, one per lane.

A PayloadRuntime. Workers that die are started again by the rule of `workers.supervised`; the
instance is informed through `listener` and sends no requests to a lane without a worker.

A `Lane` has its worker, the batch that it computes, and decides whose fault an end is. A batch that
takes longer than SAGEMAKER_MODEL_SERVER_TIMEOUT (60 s, as in AWS) is a hang: the worker is killed,
the request that it was busy with is answered `model-timeout`, and its mates are given back. If a
worker dies, the request that it was busy with is the suspect; all are, if it computed the whole
batch at once. Shared memory (`Busy`) holds the index of the item that it is busy with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.cleanup import shielded
from penstock.core.blame.poison_requests import WORKER_DIED, reason_of_death
from penstock.errors import ModelError, PenstockError
from penstock.runtimes import registry
from penstock.runtimes.base import (
    NOT_BEGUN,
    CallContext,
    LaneListener,
    LoadContext,
    Payload,
    PayloadReply,
    PayloadRuntime,
    Returned,
)
from penstock.runtimes.confinement.walls import (
    Walls,
    around_code,
    make_scratch,
    remove_scratch,
    with_container_paths,
)
from penstock.runtimes.python import container_paths, toolkit_variables
from penstock.runtimes.python.back_channel import BackChannel
from penstock.runtimes.python.batches import (
    ALL_ITEMS,
    METRICS,
    REPLIES,
    RESPONSE,
    Busy,
    pack_batch,
    shared_memory,
    unpack_replies,
)
from penstock.runtimes.python.caller import CALL
from penstock.runtimes.python.code_metrics import CodeMetrics
from penstock.runtimes.python.triton_wire import Response, unpack_response
from penstock.runtimes.workers.process import WorkerProcess, run_s_max, worker_environment
from penstock.runtimes.workers.supervised import Supervised

Answers = list[PayloadReply | Returned]
Done = Callable[[Answers], None]

MODULE = "penstock.runtimes.python.worker"  #: the module that the interpreter runs


class Lane(Supervised[WorkerProcess]):
    """Use: `begin`, then `invoke` batch after batch, one at a time."""

    def __init__(
        self,
        number: int,
        context: LoadContext,
        listener: LaneListener,
        init: Mapping[str, Any],
        environment: dict[str, str],
        walls: Walls | None,
    ) -> None:
        super().__init__(context, listener, serves=(number,))
        self._init = init
        self._environment = environment
        self._walls = walls
        self._run_s_max = run_s_max(toolkit_variables.with_time_limit(environment))
        self._busy: Busy | None = None
        self._answered: Callable[[list[PayloadReply] | None], None] | None = None
        self.about: dict[str, Any] = {}  #: what the worker told of its model
        self._calls: BackChannel | None = None  #: set where the model may call others
        #: For responses of a decoupled model; and for the end of the process that sends them
        self.on_response: Callable[[Response], None] = lambda response: None
        self.on_gone: Callable[[int], None] = lambda lane: None
        self.number = number
        self._rearm: Callable[[], None] = lambda: None
        self.metrics: CodeMetrics | None = None
        if context.models is not None:
            name = context.caller_name
            self._calls = BackChannel(context.models, name, number, self._tell, self._clock)

    async def spawn(self) -> WorkerProcess:
        worker = WorkerProcess(self._context, self._hear, self.gone)
        with shared_memory() as (descriptor, self._busy):
            self.about = await worker.start(
                MODULE,
                self._init,
                self._environment,
                self._walls,
                python=self._context.interpreter,
                descriptors=[descriptor],
            )
        return worker

    def invoke(self, batch: Sequence[Payload], done: Done) -> None:
        """`done` gets a reply or `Returned` for each payload."""
        assert self._answered is None, "a worker computes one batch at a time"
        worker, count = self.process, len(batch)
        not_begun: Answers = [NOT_BEGUN] * count
        late: list[int] = []
        if self._busy is not None:
            self._busy.begin()  # from now on it refers to this batch
        if worker is None or not worker.write(pack_batch(batch)):
            self._loop.call_soon(done, not_begun)
            return
        if self._calls is not None:
            self._calls.begin(batch, ends_at=self._clock.monotonic() + self._run_s_max)

        def hangs() -> None:
            late.append(self._item())
            worker.kill()

        timer = self._loop.call_later(self._run_s_max, hangs)

        def answered(replies: list[PayloadReply] | None) -> None:
            timer.cancel()
            if self._calls is not None:
                self._calls.end()
            if replies is not None:
                self.served()
                if len(replies) == count:
                    done(list(replies))
                    return
                worker.kill()  # answers that do not match this batch
                done(after_death(ALL_ITEMS, count))
            elif late:
                done(after_hang(late[0], count, hung(self._run_s_max)))
            elif self.closed:
                done(not_begun)
            else:
                done(after_death(self._item(), count))

        def rearm() -> None:
            nonlocal timer
            timer.cancel()
            timer = self._loop.call_later(self._run_s_max, hangs)

        self._answered, self._rearm = answered, rearm

    def _item(self) -> int:
        """Index in the batch of the item that the worker computes; `ALL_ITEMS`: all at once."""
        return self._busy.read()[2] if self._busy is not None else 0

    def _hear(self, kind: int, count: int, payload: bytes) -> None:
        if kind == REPLIES and self._answered is not None:
            replies = unpack_replies(payload, count)
            answered, self._answered = self._answered, None
            answered(replies)
        elif kind == RESPONSE:
            if self._answered is not None:
                self._rearm()  # it makes progress
            self.on_response(unpack_response(payload))
        elif kind == METRICS and self.metrics is not None:
            self.metrics.hear(self.number, payload)
        elif kind == CALL and self._calls is not None:
            self._calls.hear(payload, self._item())

    def _tell(self, said: bytes) -> bool:
        return self.process is not None and self.process.write(said)

    def mark(self, slot: int, marks: int) -> None:
        """Sets the marks of a request in the memory that the worker reads."""
        if self._busy is not None:
            self._busy.mark(slot, marks)

    def opened(self, context: CallContext, *, over: bool = False) -> None:
        """The answer to a request goes on after its batch; `over`: it has ended."""
        if self._calls is not None:
            (self._calls.over if over else self._calls.opened)(context)

    def unwanted(self) -> None:
        """The batch was cancelled: the function can't be stopped, but its nested calls can."""
        if self._calls is not None and self._answered is not None:
            self._calls.unwanted()

    def gone(self, error: PenstockError) -> None:
        super().gone(error)  # called first: nothing more may be sent to this lane
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(None)
        if self.metrics is not None:
            self.metrics.ended(self.number)
        self.on_gone(self.number)


def hung(run_s: float) -> ModelError:
    """The error for the request on which its worker hung."""
    return ModelError(
        "model-timeout",
        f"the model did not answer within {run_s:g} s; its process was ended",
        hint="Raise SAGEMAKER_MODEL_SERVER_TIMEOUT if the model needs longer.",
    )


def after_hang(guilty: int, count: int, error: ModelError) -> Answers:
    """The answers of a batch whose worker was killed because it hung on the item `guilty`."""
    if count == 1:
        guilty = 0
    answers = after_death(guilty, count)
    if guilty < count:
        answers[guilty] = PayloadReply(error=error)
    return answers


def after_death(suspect: int, count: int) -> Answers:
    """The answers of a batch whose worker died while it computed the item `suspect`.

    Earlier items had been computed, so they may have left what killed it; later ones had not begun.
    """
    if count == 1:
        return [Returned(WORKER_DIED)]
    in_company = Returned(reason_of_death(count - 1))
    if suspect >= count:
        return [in_company] * count
    behind = count - suspect - 1
    return [*[in_company] * suspect, Returned(WORKER_DIED), *[NOT_BEGUN] * behind]


async def load(context: LoadContext, listener: LaneListener) -> PayloadRuntime:
    """Uses workers shared with other models, where the host has some and the model may share.
    Raises ModelError."""
    if not context.description.triton_python:
        for line in toolkit_variables.notes(context.variables):
            context.log(line)
    shared = context.shared_workers
    shares = registry.record(context.description.runtime).shared == "workers"
    if shared is not None and shares and shared.may_share(context):
        return await shared.load(context, listener)
    return await PythonRuntime.start(context, listener)


class PythonRuntime:
    """Made by `start`. See `base.PayloadRuntime` for `invoke`, `cancel` and `close`."""

    def __init__(self, context: LoadContext, listener: LaneListener) -> None:
        self.lanes = max(1, context.description.lanes)
        self._scratch = make_scratch()
        init = init_message(context)
        environment = worker_environment(context, self._scratch)
        walls = around_code(context, self._scratch)
        if not context.description.triton_python:
            walls = with_container_paths(walls, context)
        self._lanes = [
            Lane(number, context, listener, {**init, "lane": number}, environment, walls)
            for number in range(self.lanes)
        ]
        self._metrics = CodeMetrics()
        for lane in self._lanes:
            lane.metrics = self._metrics

    @classmethod
    async def start(cls, context: LoadContext, listener: LaneListener) -> PythonRuntime:
        """Starts all workers. Raises ModelError if one cannot load the model."""
        runtime = cls(context, listener)
        try:
            for lane in runtime._lanes:
                await lane.begin()
        except BaseException:
            await shielded(runtime.close())
            raise
        return runtime

    @property
    def about(self) -> dict[str, Any]:
        """What a worker told of its model: tensors, where a predictor loaded it."""
        return self._lanes[0].about

    @property
    def code_metrics(self) -> list[dict[str, Any]]:
        """The series that the model's code has made."""
        return self._metrics.to_list()

    @property
    def pids(self) -> list[int]:
        return [pid for lane in self._lanes for pid in lane.pids]

    def invoke(self, lane: int, batch: Sequence[Payload], done: Done) -> None:
        self._lanes[lane].invoke(batch, done)

    def cancel(self, lane: int) -> None:
        """A Python function cannot be stopped without losing the model: it finishes. Its nested
        calls are cancelled."""
        self._lanes[lane].unwanted()

    def mark(self, lane: int, slot: int, marks: int) -> None:
        self._lanes[lane].mark(slot, marks)

    def opened(self, lane: int, context: CallContext, *, over: bool = False) -> None:
        """For a decoupled model: the answer to a request has begun; `over`: it has ended."""
        self._lanes[lane].opened(context, over=over)

    def listen(
        self, on_response: Callable[[Response], None], on_gone: Callable[[int], None]
    ) -> None:
        """For a decoupled model: its responses, and each end of a lane's process."""
        for lane in self._lanes:
            lane.on_response, lane.on_gone = on_response, on_gone

    async def close(self) -> None:
        await asyncio.gather(*(lane.close() for lane in self._lanes))
        remove_scratch(self._scratch)

    def kill(self) -> None:
        """Kills the workers without waiting: the instance itself is ending."""
        for lane in self._lanes:
            lane.kill()


def init_message(context: LoadContext) -> dict[str, Any]:
    """What the worker must know of the model."""
    description = context.description
    requirements = Path(description.file).parent / "requirements.txt"
    # Without an environment of its own the model must find them in the server's.
    needs = not context.interpreter and (context.model_dir / requirements).is_file()
    return {
        "model_dir": str(context.model_dir),
        "file": description.file,
        "name": description.name or context.endpoint_name,
        "version": description.version,
        "triton_python": description.triton_python,
        "handler": description.handler,
        "task": description.task,
        "trusted": description.trusted,
        "container_paths": container_paths.named_in(context),
        "gpu": context.accelerators > 0,
        "calls": context.models is not None,
        "explicit": context.models is not None and context.models.explicit,
        "decoupled": description.decoupled,
        "rows_max": description.batching.rows_max,
        "inputs": [[each.name, each.dtype, list(each.shape)] for each in description.inputs],
        "outputs": [[each.name, each.dtype, list(each.shape)] for each in description.outputs],
        "parameters": dict(description.parameters),
        "config": description.triton.config if description.triton is not None else {},
        "requirements": str(requirements) if needs else "",
    }
