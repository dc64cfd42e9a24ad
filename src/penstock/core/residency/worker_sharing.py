"""Which models share a worker process, and what happens to each when the process ends.

A worker process has the cost of its interpreter and its libraries before it holds a model. Models
of one kind (the same interpreter, environment and walls) therefore share workers. They can also
break the worker for each other, so each end of a worker is traced to one model, as far as possible:

* **The suspect** is the model that was computing, loading or unloading when its worker died or
  hung. It is started again *apart*, in a worker of its own, and stays apart until it is removed.
  After `deaths_max` deaths in a row, without an answer in between, it has failed. A suspect that
  had not been loaded yet is removed; it is apart if it is added again.
* **The innocents**, all other models there, are loaded again together, in a new worker, at once.
* **No model was computing**: a thread that a model left behind ended the worker, or the kernel did.
  The first time all are loaded again together; every second time they are *split* into two workers,
  until the model that does it is alone and is the suspect.
* **The worker outgrew its memory**: growth inside one process can't be attributed, so its models
  are split, and split again, until the model with the leak is alone; then that model has failed.
  Others go on. Where there were only too many models in one worker, they fit after the first split,
  and none fails.

A worker takes new models while it holds fewer than `models_max`, belongs to no single model, and is
not part of a search by splitting: a new model would be searched as well. When the search has found
its model the rest of its workers take new models again.

The driver carries out actions in order, and reports back. Models and workers are numbers; this
machine numbers the workers, the driver the models.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.core.blame.bisection import cut
from penstock.core.blame.death_limits import LOOP_DEATHS_MAX, CrashLoop


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingSpec:
    models_max: int = 32  #: models in one worker
    #: Workers of one kind that lanes may use: the number of cores. There are more where all are
    #: full.
    workers_max: int = 1
    deaths_max: int = LOOP_DEATHS_MAX  #: deaths in a row of one model


@dataclass(frozen=True, slots=True)
class StartWorker:
    worker: int
    kind: str
    reason: str
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LoadModel:
    """Load a model into a worker that was started before; it may not be ready yet."""

    worker: int
    model: int
    lane: int
    reason: str


@dataclass(frozen=True, slots=True)
class UnloadModel:
    worker: int
    model: int
    reason: str


@dataclass(frozen=True, slots=True)
class EndWorker:
    """End a worker without models."""

    worker: int
    reason: str


@dataclass(frozen=True, slots=True)
class FailModel:
    """The model is not loaded again, and the machine has forgotten it."""

    model: int
    reason: str


Action = StartWorker | LoadModel | UnloadModel | EndWorker | FailModel


@dataclass(slots=True)
class _Model:
    kind: str
    lanes: int
    crash_loop: CrashLoop


@dataclass(slots=True)
class _Worker:
    kind: str
    apart: bool  #: it belongs to one model alone
    search: int  #: the worker whose split made it; 0 = none
    died_idle: bool  #: its predecessor ended while no model computed
    models: dict[int, int] = field(default_factory=dict)  #: model -> its lane, in load order


class WorkerSharing:
    """The workers of one host. Numbers of workers are never used again."""

    def __init__(self, spec: SharingSpec) -> None:
        self._spec = spec
        self._models: dict[int, _Model] = {}
        self._workers: dict[int, _Worker] = {}
        self._workers_made = 0

    # inputs

    def add(self, model: int, kind: str, *, lanes: int, apart: bool = False) -> list[Action]:
        """Loads a model. It gets one lane in each of several workers, `lanes` at most.

        `apart`: it was the suspect when an earlier load ended its worker.
        """
        assert model not in self._models
        crash_loop = CrashLoop(deaths_max=self._spec.deaths_max)
        made = _Model(kind, min(max(lanes, 1), max(self._spec.workers_max, 1)), crash_loop)
        self._models[model] = made
        actions: list[Action] = []
        for lane in range(made.lanes):
            worker = None if apart else self._with_room(model, kind)
            if worker is None:
                reason = "ended-its-worker" if apart else "lanes-wanted"
                worker = self._start(kind, reason, actions, apart=apart)
            self._seat(worker, model, lane, "requested", actions)
        return actions

    def lanes_of(self, model: int) -> int:
        """Number of lanes that the model got."""
        return self._models[model].lanes

    def remove(self, model: int, *, reason: str = "unloaded") -> list[Action]:
        """Removes a model. An unknown one counts as removed already."""
        self._models.pop(model, None)
        actions: list[Action] = []
        for number, worker in list(self._workers.items()):
            if worker.models.pop(model, None) is None:
                continue
            if worker.models:
                actions.append(UnloadModel(number, model, reason))
            else:
                del self._workers[number]
                actions.append(EndWorker(number, "empty"))
        return actions

    def served(self, model: int) -> None:
        """It answered a batch: its earlier deaths no longer count."""
        known = self._models.get(model)
        if known is not None:
            known.crash_loop.served()

    def died(self, number: int, *, suspect: int | None) -> list[Action]:
        """A worker ended by itself, or was ended because it hung. `suspect`: see the module; if
        that model was removed in the meantime, all others are innocent."""
        worker = self._workers.pop(number, None)
        if worker is None:
            return []
        alone = len(worker.models) == 1
        if suspect is None and alone:
            (suspect,) = worker.models
            self._found(worker)
        actions: list[Action] = []
        if suspect is not None:
            lane = worker.models.pop(suspect, None)
            self._again(worker, worker.models.items(), "mate-ended-worker", actions)
            if lane is not None:
                self._blame(suspect, lane, "ended-its-worker", actions)
        elif worker.died_idle:
            self._split(number, worker, "worker-died-idle", actions)
        else:
            worker.died_idle = True
            self._again(worker, worker.models.items(), "worker-died-idle", actions)
        return actions

    def not_loaded(self, number: int, model: int) -> list[Action]:
        """A model that had been loaded before can't be loaded again: its code raised."""
        worker = self._workers.get(number)
        lane = worker.models.pop(model, None) if worker is not None else None
        if worker is None or lane is None:
            return []
        actions: list[Action] = []
        if not worker.models:
            del self._workers[number]
            actions.append(EndWorker(number, "empty"))
        self._blame(model, lane, "not-loaded", actions)
        return actions

    def outgrew(self, number: int) -> list[Action]:
        """A worker was ended because it took more memory than a worker may."""
        worker = self._workers.pop(number, None)
        if worker is None:
            return []
        actions: list[Action] = []
        if len(worker.models) > 1:
            self._split(number, worker, "worker-outgrown", actions)
            return actions
        (model,) = worker.models
        self._fail(model, "model-outgrew-worker", actions)
        self._found(worker)
        return actions

    # views

    def models_of(self, number: int) -> tuple[int, ...]:
        worker = self._workers.get(number)
        return tuple(worker.models) if worker is not None else ()

    def snapshot(self) -> dict[str, Any]:
        return {
            "workers": {
                number: {
                    "kind": each.kind,
                    "models": list(each.models),
                    "apart": each.apart,
                    "searched": each.search > 0,
                }
                for number, each in self._workers.items()
            },
            "deaths": {
                number: each.crash_loop.deaths
                for number, each in self._models.items()
                if each.crash_loop.deaths
            },
        }

    def check_invariants(self) -> None:
        """Each lane of each model is in one worker, of its kind and within its bounds."""
        seats: dict[int, list[int]] = {number: [] for number in self._models}
        for worker in self._workers.values():
            assert worker.models, "a worker without a model is ended"
            assert len(worker.models) <= (1 if worker.apart else self._spec.models_max)
            for model, lane in worker.models.items():
                assert self._models[model].kind == worker.kind
                seats[model].append(lane)
        for model, lanes in seats.items():
            assert sorted(lanes) == list(range(self._models[model].lanes))

    # implementation

    def _with_room(self, model: int, kind: str) -> int | None:
        """The least crowded worker for one more model; None: a new one is needed."""
        shared = {
            number: each
            for number, each in self._workers.items()
            if each.kind == kind and not each.apart and not each.search
        }
        room = [
            (len(each.models), number)
            for number, each in shared.items()
            if len(each.models) < self._spec.models_max and model not in each.models
        ]
        if not room or len(shared) < self._spec.workers_max:
            return None
        return min(room)[1]

    def _start(
        self,
        kind: str,
        reason: str,
        actions: list[Action],
        *,
        wait_s: float = 0.0,
        apart: bool = False,
        search: int = 0,
        died_idle: bool = False,
    ) -> int:
        self._workers_made += 1
        number = self._workers_made
        self._workers[number] = _Worker(kind, apart, search, died_idle)
        actions.append(StartWorker(number, kind, reason, wait_s))
        return number

    def _seat(self, worker: int, model: int, lane: int, reason: str, actions: list[Action]) -> None:
        self._workers[worker].models[model] = lane
        actions.append(LoadModel(worker, model, lane, reason))

    def _again(
        self,
        before: _Worker,
        models: Iterable[tuple[int, int]],
        reason: str,
        actions: list[Action],
    ) -> None:
        """Loads the models of an ended worker again, together."""
        seats = list(models)
        if not seats:
            return
        number = self._start(
            before.kind,
            reason,
            actions,
            apart=before.apart,
            search=before.search,
            died_idle=before.died_idle,
        )
        for model, lane in seats:
            self._seat(number, model, lane, reason, actions)

    def _split(self, number: int, worker: _Worker, reason: str, actions: list[Action]) -> None:
        """Splits the models of a worker between two new ones."""
        worker.search = worker.search or number
        worker.died_idle = False
        for half in cut(list(worker.models.items()), 2):
            self._again(worker, half, reason, actions)

    def _found(self, alone: _Worker) -> None:
        """If this ends a search, the other workers that took part take new models again."""
        for other in self._workers.values():
            if alone.search and other.search == alone.search:
                other.search = 0

    def _blame(self, model: int, lane: int, reason: str, actions: list[Action]) -> None:
        """Counts a death for this model: it is tried again apart, or has failed."""
        known = self._models[model]
        wait_s = known.crash_loop.died()
        if wait_s is None:
            self._fail(model, "died-too-often", actions)
            return
        number = self._start(known.kind, reason, actions, wait_s=wait_s, apart=True)
        self._seat(number, model, lane, reason, actions)

    def _fail(self, model: int, reason: str, actions: list[Action]) -> None:
        actions += self.remove(model, reason=reason)
        actions.append(FailModel(model, reason))
