"""All models of an artifact behind the one that gets requests: loaded, called, watched, ended.

`core.nested_calls` decides which calls are allowed. If a model's workers are lost for a while, an
ensemble that needs it is lost as well, so that requests go to another copy; a Python model that
calls it waits. A model that will not come back ends the whole copy.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from typing import Any, Final

from penstock.artifacts.description.description import ModelDescription, ModelInside, TensorSpec
from penstock.artifacts.triton.ensemble import ModelTensors
from penstock.artifacts.triton.triton_models import check_ensemble, tensors_of
from penstock.cleanup import shielded
from penstock.clock import Clock, SystemClock
from penstock.core.request.nested_calls import NestedCalls, Ruling
from penstock.errors import CallerError, ModelError, PenstockError
from penstock.instance.engines.lane_threads import LaneEvents
from penstock.instance.inner.model import InnerCall, InnerModel, LoadedModel, Outcome
from penstock.runtimes.base import (
    Asking,
    CallContext,
    EnvironmentPython,
    LaneListener,
    LoadContext,
    Pending,
    StreamedCall,
    Tensors,
)

#: Loads one model, without those that it may call.
Start = Callable[[LoadContext, LaneListener], Awaitable[LoadedModel]]


#: How many models of one artifact load at once.
_LOADS_MAX: Final = 4


class InnerModels:
    """A `runtimes.base.ModelCalls`. `begin` loads the models; `context` and `listener` are those of
    the model that gets requests."""

    explicit = False

    def __init__(
        self,
        context: LoadContext,
        listener: LaneListener,
        start: Start,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._context = context
        self._listener = listener
        self._start = start
        self._clock = clock or SystemClock()
        self._models: dict[str, InnerModel] = {}
        self._inside = {each.name: each for each in context.description.models}
        self._needed = _needed_by(context.description, self._inside)
        self._lost: set[str] = set()  #: needed models that are lost now
        self._calls = NestedCalls({})

    async def begin(self) -> None:
        """Raises PenstockError with the model's name; then the caller must call `close`."""
        plain = [each for each in self._inside.values() if not each.description.ensemble]
        ensembles = [each for each in self._inside.values() if each.description.ensemble]
        await self._begin_all(plain)
        await self._begin_all(ensembles)  # their parts are known once the others have loaded
        self._check(self._context.description)
        self._calls = NestedCalls(
            {name: model.loaded.spec.lanes for name, model in self._models.items()}
        )

    async def _begin_all(self, inside: list[ModelInside]) -> None:
        """Loads several at a time: that is faster, but each has its peak of memory."""
        turns = asyncio.Semaphore(_LOADS_MAX)

        async def begin(each: ModelInside) -> None:
            async with turns:
                await self._begin_one(each)

        tasks = [asyncio.create_task(begin(each)) for each in inside]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await shielded(asyncio.gather(*tasks, return_exceptions=True))

    async def _begin_one(self, each: ModelInside) -> None:
        self._check(each.description)
        python = self._context.inner_pythons.get(each.name, EnvironmentPython())
        context = dataclasses.replace(
            self._context,
            model_dir=(self._context.model_dir / each.folder).resolve(),
            description=each.description,
            models=self if may_call(each.description) else None,
            called_as=each.name,
            interpreter=python.interpreter,
            interpreter_dirs=python.interpreter_dirs,
        )
        lanes = LaneEvents()
        try:
            loaded = await self._start(context, lanes)
        except PenstockError as error:
            error.message = f"model {each.name!r}: {error.message}"
            raise
        try:
            model = InnerModel(
                each.name, loaded, clock=self._clock, on_state=partial(self._on_state, each.name)
            )
        except BaseException:
            await shielded(loaded.close())
            raise
        self._models[each.name] = model
        lanes.attach(model.copy)

    def _check(self, description: ModelDescription) -> None:
        """Checks an ensemble again, with the tensors in its models' files."""
        if description.ensemble:
            known = {name: self._tensors(name) for name in self._inside}
            known.setdefault(self._context.description.name, tensors_of(self._context.description))
            where = f"{description.name}/config.pbtxt"
            check_ensemble(description, known, where=where)

    def _tensors(self, name: str) -> ModelTensors:
        model = self._models.get(name)
        configured = tensors_of(self._inside[name].description)
        if model is None:
            return configured
        return dataclasses.replace(
            configured,
            inputs=model.inputs,
            outputs=model.outputs,
            rows_max=model.loaded.described["rows_max"],
        )

    # Methods of ModelCalls

    async def is_ready(self, name: str, version: str, asked: CallContext) -> bool:
        inside = self._inside.get(name)
        if inside is None or name not in self._models:
            return False
        return not version or version in map(str, tensors_of(inside.description).versions)

    async def load(self, name: str, asked: CallContext) -> None:
        raise _not_explicit("load_model", name, "RepositoryModelLoad of the server loads")

    async def unload(self, name: str, asked: CallContext, *, dependents: bool) -> None:
        raise _not_explicit("unload_model", name, "RepositoryModelUnload of the server unloads")

    def inputs(self, name: str) -> tuple[TensorSpec, ...]:
        model = self._models.get(name)
        return () if model is None else model.inputs

    def call(
        self,
        name: str,
        tensors: Tensors,
        asked: CallContext,
        lane: Hashable,
        done: Callable[[Outcome], None],
        *,
        version: int = -1,
        outputs: Sequence[str] = (),
        streamed: StreamedCall | None = None,
    ) -> Pending:
        ruling = self._ruling(name, asked, lane)
        if isinstance(ruling, PenstockError):
            return asyncio.get_running_loop().call_soon(done, ruling)
        number = ruling.call

        now = self._clock.monotonic
        span = asked.spans.begin(name, now=now()) if asked.spans is not None else None

        over = partial(self._calls.end, number)

        def ended(outcome: Outcome) -> None:
            over()
            if span is not None:
                span.end(now=now(), error=getattr(outcome, "code", ""))
            done(outcome)

        made_for = Asking(
            deadline=asked.deadline, alone=asked.alone, path=asked.path, calls=(number,),
            spans=span, metadata=asked.metadata,
        )  # fmt: skip
        call = InnerCall(
            name, dict(tensors), made_for, ended, over,
            version=version, wanted=outputs, streamed=streamed,
        )  # fmt: skip
        self._models[name].call(call, made_for)
        return call

    def _ruling(self, name: str, asked: CallContext, lane: Hashable) -> PenstockError | Ruling:
        """Why the call is not allowed; else it counts as begun for `core.nested_calls`."""
        if name not in self._models and name not in asked.path:
            return CallerError(
                "model-not-ready",
                f"Model {name!r} is not ready: the artifact has no such model",
                hint=f"It has {', '.join(sorted(self._models)) or 'no other'}.",
                status=404,
            )
        ruling = self._calls.begin(asked.path, lane, name, asked.calls)
        return ruling if ruling.allowed else not_allowed(ruling, asked.path, name)

    # Reports

    def _on_state(self, name: str, event: str, error: PenstockError | None) -> None:
        if event == "copy-failed":
            gone = error or ModelError("worker-died", f"the model {name!r} has no worker")
            self._listener.lane_failed(0, gone)
        if name not in self._needed:
            return
        if event == "copy-lost":
            if not self._lost:
                lost = error or ModelError("worker-died", f"the model {name!r} has no worker")
                self._listener.lane_lost(0, lost)
            self._lost.add(name)
        elif event == "copy-ready" and name in self._lost:
            self._lost.discard(name)
            if not self._lost:
                self._listener.lane_ready(0)

    @property
    def pids(self) -> list[int]:
        return [pid for model in self._models.values() for pid in model.loaded.pids()]

    @property
    def code_metrics(self) -> list[dict[str, Any]]:
        """The series that their code has made, each with the model's name."""
        return [
            {**series, "target_model": name}
            for name, model in self._models.items()
            for series in model.copy.status().get("code_metrics", ())
        ]

    async def explain(self) -> dict[str, Any]:
        """Each model's copy with its batches and queue; and which calls wait for which."""
        told = {
            name: model.copy.explain() | await model.loaded.explain()
            for name, model in self._models.items()
        }
        return {"models": told, "nested_calls": self._calls.snapshot()}

    async def close(self) -> None:
        """Idempotent. Callers have ended before."""
        models, self._models = list(self._models.values()), {}
        for model in reversed(models):
            await model.close()

    def kill(self) -> None:
        for model in self._models.values():
            model.loaded.kill()


def not_allowed(ruling: Ruling, path: Sequence[str], name: str) -> ModelError:
    way = " -> ".join((*path, name))
    if ruling.reason == "calls-itself":
        return ModelError(
            "calls-itself",
            f"a call that would wait for itself: {way}",
            hint="A model can't call one that it is called by.",
        )
    return ModelError(
        "lanes-exhausted",
        f"all lanes of the model {name!r} wait for calls that wait for one another: {way}",
        hint="Give the models more instances (instance_group), or call in one direction only.",
    )


def _not_explicit(function: str, name: str, instead: str) -> ModelError:
    return ModelError(
        "models-not-explicit",
        f"{function}({name!r}): the models of this endpoint are one artifact, and are loaded with "
        f"it; {instead} target models",
        hint="Deploy the repository as a multi-model endpoint.",
        original_status=400,
    )


def may_call(description: ModelDescription) -> bool:
    return bool(description.ensemble) or description.calls_models


def _needed_by(description: ModelDescription, inside: dict[str, ModelInside]) -> frozenset[str]:
    """The models without which no request to the ensemble can be answered."""
    needed: set[str] = set()
    waiting = [step.model for step in description.ensemble]
    while waiting:
        name = waiting.pop()
        if name in inside and name not in needed:
            needed.add(name)
            waiting += [step.model for step in inside[name].description.ensemble]
    return frozenset(needed)
