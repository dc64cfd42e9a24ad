"""The shared workers of one host of target models: starts them and loads models into them.

`core.residency.worker_sharing` decides what happens when a worker ends; this class carries it out.
The memory of each worker is measured every `LOOK_EVERY_S`. One that is over its limit twice in a
row is ended, before the instance would be. Models whose worker ended get events through their own
listeners: `lane_lost`, then `lane_ready` or `lane_failed`.

Models get an error of their own when their worker has ended, and when they are given up.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, Final

from penstock.cleanup import shielded
from penstock.core.residency.worker_sharing import (
    Action,
    EndWorker,
    FailModel,
    LoadModel,
    SharingSpec,
    StartWorker,
    UnloadModel,
    WorkerSharing,
)
from penstock.errors import InternalError, ModelError, NotNowError, PenstockError
from penstock.runtimes.base import LaneListener, LoadContext
from penstock.runtimes.confinement.walls import (
    Views,
    around_code,
    fresh_root,
    make_scratch,
    no_room,
    remove_scratch,
)
from penstock.runtimes.python.runtime import init_message
from penstock.runtimes.python.shared.runtime import (
    SharedRuntime,
    kind_of,
    may_share,
    of_model,
    of_process,
)
from penstock.runtimes.python.shared.worker import SharedWorker
from penstock.runtimes.python.toolkit_variables import with_time_limit
from penstock.runtimes.workers.memory import own_bytes, tree_pids
from penstock.runtimes.workers.process import run_s_max, worker_environment


def end_of_worker(
    error: PenstockError, guilty: SharedRuntime | None, outgrown: bool
) -> PenstockError:
    """The error for every model of a worker that ended."""
    words = error.message
    if outgrown:
        words = f"{words}, because its models together took more memory than a worker may"
    elif guilty is not None:
        did = "computing" if guilty.loaded.done() else "loading"
        words = f"{words} while {guilty.name} was {did}"
    return ModelError(error.code, words, hint=error.hint)


def failure_of(reason: str, member: SharedRuntime, bytes_max: int) -> PenstockError:
    if reason == "model-outgrew-worker":
        return ModelError(
            reason,
            f"{member.name} alone took more than the {bytes_max / 2**20:.0f} MiB of memory that a"
            " worker of Python models may",
            hint="It leaks, or needs a larger worker. The other models were not touched.",
        )
    if member.error is not None:
        return ModelError(
            "model-quarantined",
            f"{member.name} is not started again: {member.error.message}",
            hint="Its own output is in the instance's log. The other models were not touched.",
        )
    return InternalError(reason, f"{member.name} was given up")


LOOK_EVERY_S: Final = 0.5
_LOOKS_MAX: Final = 2


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerMemory:
    """Memory of one process; all of its models together."""

    pid: int
    models: tuple[str, ...]
    own_bytes: int  #: private memory with its children; without file pages
    start_bytes: int  #: the part of it from before its first model


@dataclasses.dataclass(slots=True)
class _Placed:
    """A worker of the pool."""

    worker: SharedWorker
    start: asyncio.Task[None] | None = None
    start_bytes: int = 0
    looks: int = 0  #: measurements in a row that found it too large
    outgrown: bool = False  #: True: it was ended because it was too large


class WorkerPool:
    """A `base.SharedWorkers`. Lives on a running event loop; `close` or `kill` ends it.

    Args:
        folder: where models' files are shown to workers behind walls; best on the disk of the
            artifact cache, so that they are links. Made if needed; several pools may use it.
        spec: how many models and workers.
        worker_bytes_max: private memory of one worker with all its models; 0 = not limited.
        log: gets output lines of workers that belong to no model.
    """

    def __init__(
        self,
        *,
        folder: Path,
        spec: SharingSpec,
        worker_bytes_max: int = 0,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._sharing = WorkerSharing(spec)
        self._worker_bytes_max = worker_bytes_max
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._views = Views(fresh_root(folder))
        self._showing = asyncio.Lock()
        self._scratch = make_scratch()
        self._numbers = itertools.count(1)
        self._members: dict[int, SharedRuntime] = {}
        self._workers: dict[int, _Placed] = {}
        #: Key of models that may share -> the context of one of them
        self._kinds: dict[str, LoadContext] = {}
        self._suspects: set[str] = set()  #: models whose load ended their worker
        self._ends: set[asyncio.Task[None]] = set()
        self._watch: asyncio.Task[None] | None = None
        self._closed = False

    # Models

    def may_share(self, context: LoadContext) -> bool:
        return may_share(context)

    async def load(self, context: LoadContext, listener: LaneListener) -> SharedRuntime:
        """Raises ModelError: the model's own failure, its death, `load-timeout`; and NotNowError
        (`workers-closed`, `no-room-for-files`)."""
        kind = kind_of(context)
        seconds = run_s_max(with_time_limit(worker_environment(context, self._scratch)))
        context = await self._shown(context)
        if self._closed:
            raise NotNowError("workers-closed", "the host of the model is ending")
        number = next(self._numbers)
        environment = worker_environment(context, self._scratch)
        init = init_message(context) | {"environment": of_model(environment)}
        member = self._members[number] = SharedRuntime(
            self, number, context, listener, init, run_s=seconds, scratch=self._scratch
        )
        self._kinds.setdefault(kind, context)
        if self._watch is None:
            self._watch = self._loop.create_task(self._look_always())
        actions = self._sharing.add(
            number, kind, lanes=context.description.lanes, apart=member.name in self._suspects
        )
        member.lanes = self._sharing.lanes_of(number)
        member.missing.update(range(member.lanes))
        self._carry_out(actions)
        try:
            await member.loaded
        except BaseException as error:
            member.closed = True
            unloaded = self._do(self.unload(number))
            # A cancelled caller does not wait for the end of the load
            if isinstance(error, Exception):
                await shielded(unloaded)
            raise
        self._suspects.discard(member.name)
        return member

    async def _shown(self, context: LoadContext) -> LoadContext:
        walls = around_code(context, self._scratch)
        if self._closed or walls is None or not walls.files:
            return context
        async with self._showing:
            try:
                place = await asyncio.to_thread(self._views.show, context.model_dir)
            except OSError as error:
                raise no_room(context.copy_name, error) from None
        return dataclasses.replace(context, model_dir=place)

    async def unload(self, model: int) -> None:
        """Implements `runtime.PoolHost`."""
        member = self._members.pop(model, None)
        if member is None or self._closed:
            return
        await asyncio.gather(*self._carry_out(self._sharing.remove(model)))
        member.forget()
        if member.context.model_dir.is_relative_to(self._views.root):
            async with self._showing:
                await asyncio.to_thread(self._views.hide, member.context.model_dir)

    def served(self, model: int) -> None:
        self._sharing.served(model)

    def pids_of(self, model: int) -> list[int]:
        return [
            placed.worker.pid
            for number, placed in self._workers.items()
            if placed.worker.pid and model in self._sharing.models_of(number)
        ]

    # Reports

    @property
    def pids(self) -> list[int]:
        return [each.worker.pid for each in self._workers.values() if each.worker.pid]

    async def memory(self) -> list[WorkerMemory]:
        """Measures all workers now."""
        looked = [
            (placed.worker.pid, self._names(number), placed.start_bytes)
            for number, placed in self._workers.items()
            if placed.worker.pid
        ]
        sizes = await asyncio.to_thread(lambda: [_bytes_of(pid) for pid, _, _ in looked])
        return [
            WorkerMemory(pid, names, size, start)
            for (pid, names, start), size in zip(looked, sizes, strict=True)
        ]

    def explain(self) -> dict[str, Any]:
        """Which models share a worker, and the reasons; JSON-ready."""
        told = self._sharing.snapshot()
        for number, row in told["workers"].items():
            placed = self._workers.get(number)
            row["pid"] = placed.worker.pid if placed is not None else None
            row["models"] = list(self._names(number))
        return {
            what: {str(number): row for number, row in rows.items()} for what, rows in told.items()
        }

    def _names(self, worker: int) -> tuple[str, ...]:
        models = self._sharing.models_of(worker)
        return tuple(self._members[each].name for each in models if each in self._members)

    # Actions

    def _carry_out(self, actions: Iterable[Action]) -> list[Awaitable[None]]:
        """Returns what to await where something must be gone first."""
        ends: list[Awaitable[None]] = []
        for action in actions:
            if isinstance(action, StartWorker):
                self._start(action)
            elif isinstance(action, LoadModel):
                self._load(action)
            elif isinstance(action, UnloadModel):
                placed, member = self._workers.get(action.worker), self._members.get(action.model)
                if member is not None:
                    member.lost(action.worker)
                if placed is not None:
                    ends.append(SharedRuntime.unload_from(action.model, placed.worker))
            elif isinstance(action, EndWorker):
                ends.append(self._end(action.worker))
            elif isinstance(action, FailModel) and action.model in self._members:
                member = self._members[action.model]
                member.fail(failure_of(action.reason, member, self._worker_bytes_max))
        return ends

    def _measured(self, worker: int, model: int, payload: bytes) -> None:
        member = self._members.get(model)
        if member is not None:
            member.hear_metrics(worker, payload)

    def _start(self, action: StartWorker) -> None:
        number = action.worker
        context = self._kinds[action.kind].of_host(model_dir=self._views.root, log=self._log)
        worker = SharedWorker(
            context,
            lambda error: self._gone(number, error),
            lambda model, payload: self._measured(number, model, payload),
        )
        placed = self._workers[number] = _Placed(worker)
        self._log(f"worker {number} of Python models starts: {action.reason}")

        async def start() -> None:
            await asyncio.sleep(action.wait_s)
            environment = of_process(worker_environment(context, self._scratch))
            walls = around_code(context, self._scratch)
            try:
                placed.start_bytes = await worker.start(environment, walls)
            except PenstockError as error:
                self._not_started(number, error)
            except OSError as error:  # no file descriptors left, for example
                self._not_started(number, InternalError("worker-not-started", str(error)))

        placed.start = self._loop.create_task(start())

    def _load(self, action: LoadModel) -> None:
        member, placed = self._members.get(action.model), self._workers.get(action.worker)
        if member is None or placed is None:
            return
        if action.reason != "requested":
            member.context.log(f"{member.name} is loaded again: {action.reason}")

        def failed(error: PenstockError) -> None:
            member.context.log(f"not loaded again: {error.message}")
            member.error = error
            self._carry_out(self._sharing.not_loaded(action.worker, action.model))

        member.load_into(action.worker, action.lane, placed.worker, failed)

    def _end(self, number: int) -> Awaitable[None]:
        placed = self._workers.pop(number, None)
        return self._do(self._ended(placed))

    def _do(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)
        return task

    @staticmethod
    async def _ended(placed: _Placed | None) -> None:
        if placed is None:
            return
        if placed.start is not None:
            placed.start.cancel()
            await asyncio.wait([placed.start])
        await placed.worker.close()
        placed.worker.end_jobs()

    # The end of a worker

    def _gone(self, number: int, error: PenstockError) -> None:
        placed = self._workers.pop(number, None)
        if placed is None:
            return  # its end was requested
        suspect = None if placed.outgrown else placed.worker.suspect()
        guilty = self._members.get(suspect) if suspect is not None else None
        awaited = guilty is not None and not guilty.loaded.done()
        told = end_of_worker(error, guilty, placed.outgrown)
        for model in self._sharing.models_of(number):
            if model in self._members:
                self._members[model].lost(number, told)
        placed.worker.end_jobs()
        if self._closed:
            return
        actions: list[Action] = []
        if suspect is not None and guilty is not None and awaited:
            self._suspects.add(guilty.name)
            guilty.give_up(told)
            actions += self._sharing.remove(suspect)  # its caller gets the error
        if placed.outgrown:
            actions += self._sharing.outgrew(number)
        else:
            actions += self._sharing.died(number, suspect=suspect)
        self._carry_out(actions)

    def _not_started(self, number: int, error: PenstockError) -> None:
        """Callers of first loads get the error; other models are tried again."""
        placed = self._workers.pop(number, None)
        if placed is None:
            return
        self._log(f"worker {number} did not start: {error.message}")
        actions: list[Action] = []
        for model in self._sharing.models_of(number):
            member = self._members.get(model)
            if member is not None:
                member.lost(number, error)
                if member.give_up(error):
                    actions += self._sharing.remove(model)
        placed.worker.end_jobs()
        self._carry_out([*actions, *self._sharing.died(number, suspect=None)])

    async def _look_always(self) -> None:
        while self._worker_bytes_max:
            await asyncio.sleep(LOOK_EVERY_S)
            for number, memory in [
                (number, _bytes_of(placed.worker.pid))
                for number, placed in self._workers.items()
                if placed.worker.pid
            ]:
                placed = self._workers[number]
                placed.looks = placed.looks + 1 if memory > self._worker_bytes_max else 0
                if placed.looks == _LOOKS_MAX:
                    placed.outgrown = True
                    placed.worker.kill()

    async def close(self) -> None:
        """Ends all workers, after their models' own cleanup. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
        members = list(self._members.values())
        for member in members:
            member.closed = True
            member.give_up(NotNowError("workers-closed", "the host of the model is ending"))
        for number in list(self._workers):
            self._end(number)
        await asyncio.gather(*self._ends, return_exceptions=True)
        for member in members:
            member.close_outputs()
        self._views.close()
        remove_scratch(self._scratch)

    def kill(self) -> None:
        """Kills the workers without waiting: the instance itself is ending."""
        self._closed = True
        for placed in self._workers.values():
            if placed.start is not None:
                placed.start.cancel()
            placed.worker.kill()


def _bytes_of(pid: int | None) -> int:
    return sum(own_bytes(each) for each in tree_pids(pid)) if pid else 0
