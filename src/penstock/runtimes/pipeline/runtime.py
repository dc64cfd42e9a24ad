"""The pipeline runtime: runs requests through the steps of a pipeline.yaml or a Triton ensemble.

Per request a `core.pipeline.Pipeline` decides. This module carries out its decisions on the
instance's event loop, and passes on typed events as they leave. Steps are calls to other endpoints
and services, to models of the same artifact, or Python functions in a worker process: no code of
the artifact runs in the instance.

The attached listener gets events in the form of an engine process (`instance.engines.sequences`):
{"i": id, "k": kind, "d": data} for one event of the stream, {"i": id, "f": "done"} after the last,
or {"i": id, "e": error} instead where the pipeline failed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.cleanup import shielded
from penstock.clock import Clock, SystemClock
from penstock.core.pipeline.pipeline import Pipeline
from penstock.core.pipeline.spec import (
    Action,
    Done,
    Emit,
    FailPipeline,
    Feed,
    FeedEnd,
    FellBack,
    Start,
    Stop,
)
from penstock.errors import InternalError, ModelError, NotNowError, PenstockError, from_dict
from penstock.runtimes.base import Asking, CallContext, LaneListener, LoadContext
from penstock.runtimes.confinement import isolated
from penstock.runtimes.pipeline.calls import StepCall, StepTimes, ValueWay, Way, models_own
from penstock.runtimes.pipeline.ensemble import as_pipeline
from penstock.runtimes.pipeline.events import Emitter
from penstock.runtimes.pipeline.file import FILE, NOTICE, FileStep, PipelineFile, read_pipeline
from penstock.runtimes.pipeline.grpc_step import GrpcWay
from penstock.runtimes.pipeline.http_step import HttpWay, endpoint_way
from penstock.runtimes.pipeline.model_step import ModelWay, without_arrays
from penstock.runtimes.pipeline.platform import platform_of, seen_by_artifacts
from penstock.runtimes.pipeline.python_step import PythonSteps, PythonWay
from penstock.runtimes.statistics import EngineStatistics
from penstock.wire.span_notes import SpanScope

Events = Callable[[list[dict[str, Any]]], None]

#: Ways in which the instance itself uses the network for the artifact.
_OVER_THE_NETWORK: Final = ("endpoint", "http", "grpc")
#: Reasons of events that do not replace a missing answer.
_OF_ITS_OWN: Final = ("ready", "anchor-passed", "anchor-over", "anchors-crossed")


class PipelineRuntime:
    """One copy's pipeline. Made by `start`; `attach` sets who gets the events."""

    lanes = 1

    def __init__(
        self, file: PipelineFile, steps: PythonSteps | None, ways: Mapping[str, Way], clock: Clock
    ) -> None:
        self.file = file
        self.clock = clock
        self.ways = ways
        self.about: dict[str, Any] = {"engine": "pipeline", "steps": list(file.steps)}
        self.times = StepTimes(file.steps)
        #: True: results with arrays become JSON. False for an ensemble: nobody has to read its
        #: arrays.
        self.plain = False
        self._steps = steps
        self._runs: dict[int, _PipelineRun] = {}
        self._on_events: Events = lambda events: None

    @classmethod
    async def start(
        cls, context: LoadContext, listener: LaneListener, *, clock: Clock | None = None
    ) -> PipelineRuntime:
        """Reads the declaration and starts what its steps need. Raises PenstockError."""
        ensemble = bool(context.description.ensemble)
        file = as_pipeline(context.description) if ensemble else _read(context)
        clock = clock or SystemClock()
        functions = {key: step.target for key, step in file.steps.items() if step.way == "python"}
        steps: PythonSteps | None = None
        if functions:
            steps = PythonSteps(
                context, listener, file=file.code, functions=functions, threads=file.threads,
                clock=clock,
            )  # fmt: skip
        ways: dict[str, Way] = {}
        try:
            for key, step in file.steps.items():
                ways[key] = _way(step, context, steps, clock)
            if steps is not None:
                await steps.begin()
        except BaseException:
            closes = [way.close() for way in ways.values()]
            closes += [steps.close()] if steps is not None else []
            await shielded(asyncio.gather(*closes))
            raise
        runtime = cls(file, steps, ways, clock)
        runtime.plain = not ensemble and any(step.way == "model" for step in file.steps.values())
        return runtime

    @property
    def pids(self) -> list[int]:
        return self._steps.pids if self._steps else []

    @property
    def statistics(self) -> EngineStatistics:
        return EngineStatistics(len(self._runs), 0, 0.0, 0)

    def attach(self, on_events: Events, has_work: Callable[[], bool]) -> None:
        self._on_events = on_events

    def add(
        self, ident: int, request: Any, deadline: float | None, asked: CallContext | None = None
    ) -> None:
        """`deadline`: monotonic s; `asked`: the context for calls to models, with a path that ends
        with this one. Events come on the loop, after this has returned."""
        if self.file.deadline_s is not None:
            own = self.clock.monotonic() + self.file.deadline_s
            deadline = own if deadline is None else min(own, deadline)
        run = self._runs[ident] = _PipelineRun(self, ident, request, deadline, asked or Asking())
        asyncio.get_running_loop().call_soon(run.start)

    def cancel(self, idents: list[int]) -> None:
        for ident in idents:
            run = self._runs.pop(ident, None)
            if run is not None:
                run.cancel()

    def hold(self, ident: int, held: bool) -> None:
        """`held`: the reader of this answer is behind, so its steps pause; False: they go on. Steps
        that begin later pause only after another call."""
        run = self._runs.get(ident)
        if run is not None:
            run.hold(held)

    def served(self) -> None:
        """An answer was completed. Restarted parts count their own."""

    def tell(self, run: _PipelineRun, events: list[dict[str, Any]]) -> None:
        if self._runs.get(run.ident) is not run:
            return
        if "f" in events[-1] or "e" in events[-1]:
            del self._runs[run.ident]
        self._on_events(events)

    def snapshot(self) -> dict[int, dict[str, Any]]:
        return {ident: run.pipeline.snapshot() for ident, run in self._runs.items()}

    async def close(self) -> None:
        self.cancel(list(self._runs))
        for way in self.ways.values():
            await way.close()
        if self._steps is not None:
            await self._steps.close()


def _read(context: LoadContext) -> PipelineFile:
    name = context.description.file or FILE
    path = context.model_dir / name
    if not path.is_file():
        raise ModelError("model-file-missing", f"the artifact has no file {name!r}")
    return read_pipeline(path.read_bytes(), seen_by_artifacts(context), where=name)


def _way(step: FileStep, context: LoadContext, steps: PythonSteps | None, clock: Clock) -> Way:
    name = step.spec.name
    if step.way == "model":
        if context.models is None:
            raise ModelError(
                "model-missing", f"step {name!r} runs {step.target!r}, and no models are loaded"
            )
        return ModelWay(
            name, context.models, step.target, clock, version=step.version, outputs=step.outputs,
            again=not context.description.ensemble,
        )  # fmt: skip
    if step.way == "python" and steps is not None:
        whole = bool(step.spec.follows) and not step.spec.each
        return PythonWay(steps, name, step.target, whole, step.result_wanted)
    if context.network_isolated and step.way in _OVER_THE_NETWORK:
        raise isolated.refused(f"step {name!r} asks others ({step.way})")
    if step.way == "grpc":
        path = context.model_dir / step.descriptors
        return GrpcWay(name, step.target, step.operation, path, keeps=step.result_wanted)
    if step.way == "http":
        return HttpWay(
            name, step.target, clock, method=step.operation, headers=dict(step.headers),
            stream=step.stream,
        )  # fmt: skip
    if step.way == "endpoint":
        platform = platform_of(context, name, step.target)
        return endpoint_way(name, platform, step.target, step.operation, clock, stream=step.stream)
    return ValueWay()


class _Hearing:
    """Passes one call's answer to its request."""

    __slots__ = (
        "call", "emitter", "far_end", "held", "pieces", "run", "scope", "span", "started", "step"
    )  # fmt: skip

    def __init__(self, run: _PipelineRun, call: int, step: FileStep, piece: Any) -> None:
        self.run = run
        self.call = call
        self.step = step
        self.emitter = Emitter(step.emit, pass_events=step.emit_events)
        self.far_end: StepCall | None = None
        self.held = False
        self.started = run.now()
        self.span = run.span_of(step, self.started)
        self.scope = {**run.results, "piece": piece}

    def piece(self, value: Any) -> None:
        run, call = self.run, self.call

        def told() -> list[Action]:
            try:
                events = self.emitter.events({**self.scope, "piece": value})
            except PenstockError as error:
                return run.broke(self, error)
            return run.pipeline.piece(call, value, events, now=run.now())

        run.hear(told)

    def done(self, result: Any) -> None:
        run = self.run

        def told() -> list[Action]:
            if not run.knows(self):
                return []  # stopped meanwhile: its fallback counts
            run.keep(self, result)
            return run.pipeline.done(self.call, now=run.now())

        run.hear(told)

    def failed(self, error: PenstockError) -> None:
        own_words = self.step.way == "python"  # its code chose this status
        self.fell(error if self.step.is_given_the_request or own_words else models_own(error))

    def fell(self, error: PenstockError) -> None:
        self.run.hear(lambda: self.run.fell(self, error))

    @property
    def trace_headers(self) -> tuple[tuple[str, str], ...]:
        """Headers with the trace for the called service; empty where there is none."""
        span = self.span
        if span is None:
            return ()
        state = (("tracestate", span.tracestate),) if span.tracestate else ()
        return (("traceparent", span.traceparent), *state)

    def over(self, now: float, error: str = "") -> None:
        # The call names this object as well: what both hold would stay until the collector of
        # cycles comes.
        self.far_end = None
        if self.span is not None:
            self.span.end(now=now, error=error)


class _PipelineRun:
    """One request in the pipeline. Events of calls are processed one by one, in whatever order they
    come."""

    def __init__(
        self,
        runtime: PipelineRuntime,
        ident: int,
        request: Any,
        deadline: float | None,
        asked: CallContext,
    ) -> None:
        self.ident = ident
        self._asked = asked
        self.results: dict[str, Any] = {"request": request}
        self.pipeline = Pipeline(runtime.file.spec, deadline=deadline)
        self._runtime = runtime
        self._deadline = deadline
        self._loop = asyncio.get_running_loop()
        self._hearings: dict[int, _Hearing] = {}
        self._of_each: dict[str, dict[int, Any]] = {}  #: results by call, for steps with many calls
        self._errors: dict[str, PenstockError] = {}  #: the last error of each step
        self._inbox: deque[Callable[[], list[Action]]] = deque()
        self._busy = False
        self._out: list[dict[str, Any]] = []
        self._events = 0
        self._noticed: set[str] = set()  #: steps whose missing answer was reported to the stream
        self._timer: asyncio.TimerHandle | None = None
        self._due: float | None = None  #: the time for which the timer was set

    def now(self) -> float:
        return self._runtime.clock.monotonic()

    def start(self) -> None:
        self.hear(lambda: self.pipeline.start(now=self.now()))

    def cancel(self) -> None:
        self.hear(self.pipeline.cancel)

    def hold(self, held: bool) -> None:
        for hearing in self._hearings.values():
            if hearing.held != held and hearing.far_end is not None:
                hearing.held = held
                hearing.far_end.hold(held)

    def hear(self, told: Callable[[], list[Action]]) -> None:
        """Events that arrive while actions are carried out wait for their turn."""
        self._inbox.append(told)
        if self._busy:
            return
        self._busy = True
        try:
            while self._inbox:
                for action in self._inbox.popleft()():
                    self._carry_out(action)
        finally:
            self._busy = False
        self._set_timer()
        out, self._out = self._out, []
        if out:
            self._runtime.tell(self, out)

    # Events from steps

    def knows(self, hearing: _Hearing) -> bool:
        return hearing.call in self._hearings

    def keep(self, hearing: _Hearing, result: Any) -> None:
        """Stores results that other steps use. A step with many calls has a list of results."""
        step = hearing.step
        self._hearings.pop(hearing.call, None)
        hearing.over(self.now())
        self._runtime.times.ended(step.spec.name, self.now() - hearing.started)
        if not step.result_wanted:
            return
        name = step.spec.name
        if step.spec.each:
            self._of_each.setdefault(name, {})[hearing.call] = result
        else:
            self.results[name] = result

    def fell(self, hearing: _Hearing, error: PenstockError) -> list[Action]:
        self._hearings.pop(hearing.call, None)
        hearing.over(self.now(), error.code)
        self._runtime.times.failed(hearing.step.spec.name, self.now() - hearing.started)
        self._errors[hearing.step.spec.name] = error
        return self.pipeline.failed(hearing.call, error.code, now=self.now())

    def broke(self, hearing: _Hearing, error: PenstockError) -> list[Action]:
        """A piece can't be turned into an event: the call is useless now."""
        if not self.knows(hearing):
            return []
        if hearing.far_end is not None:
            hearing.far_end.stop()
        return self.fell(hearing, models_own(error))

    # Actions of the pipeline

    def _carry_out(self, action: Action) -> None:
        if isinstance(action, Emit):
            self._emit(action)
        elif isinstance(action, Start):
            self._start(action)
        elif isinstance(action, Feed | FeedEnd):
            hearing = self._hearings.get(action.call)
            if hearing is not None and hearing.far_end is not None:
                if isinstance(action, Feed):
                    hearing.far_end.feed(action.piece)
                else:
                    hearing.far_end.feed_end()
        elif isinstance(action, Stop):
            hearing = self._hearings.pop(action.call, None)
            if hearing is not None:
                far_end = hearing.far_end
                hearing.over(self.now(), "stopped")
                if far_end is not None:
                    far_end.stop()
        elif isinstance(action, FellBack):
            self._fall_back(action)
        elif isinstance(action, Done):
            steps = self.pipeline.outcomes()
            self._say("done", {"events": self._events, "steps": steps})
            self._out.append({"i": self.ident, "f": "done"})
        else:
            self._out.append({"i": self.ident, "e": self._failure(action).to_dict()})

    def _start(self, action: Start) -> None:
        step = self._runtime.file.steps[action.step]
        for name in step.spec.needs:
            if name not in self.results:  # it has many calls, or nobody uses its result
                found = self._of_each.get(name, {})
                self.results[name] = [found[call] for call in sorted(found)]
        hearing = _Hearing(self, action.call, step, action.piece)
        self._hearings[action.call] = hearing
        # A reference that can't be filled in raises an error that says whose fault it is.
        failed: Callable[[PenstockError], None] = hearing.fell
        try:
            if step.when is not None and not step.when.holds(hearing.scope):
                self.hear(lambda: self._skipped(hearing))
                return
            inputs = step.inputs.fill(hearing.scope)
            failed = hearing.failed
            left = self._left_s(step)
            way = self._runtime.ways[action.step]
            if isinstance(way, ModelWay):
                hearing.far_end = way.begin_for(
                    self._asked_in(hearing), self.ident, inputs, hearing, left_s=left
                )
            else:
                hearing.far_end = way.begin(inputs, hearing, left_s=left)
        except PenstockError as error:
            failed(error)
        except Exception as error:  # an error in one step's inputs must not end the others
            failed(ModelError("step-failed", f"{action.step}: {error!r}"[:500]))

    def span_of(self, step: FileStep, now: float) -> SpanScope | None:
        """Where the call is recorded, if the request is traced."""
        spans = self._asked.spans
        return spans.begin(step.spec.name, now=now) if spans is not None else None

    def _asked_in(self, hearing: _Hearing) -> CallContext:
        if hearing.span is None:
            return self._asked
        mine = self._asked
        return Asking(
            alone=mine.alone, path=mine.path, calls=mine.calls, spans=hearing.span,
            metadata=mine.metadata,
        )  # fmt: skip

    def _skipped(self, hearing: _Hearing) -> list[Action]:
        """Other steps get null, or one null in a list where the step has many calls."""
        if not self.knows(hearing):
            return []
        self._hearings.pop(hearing.call, None)
        name = hearing.step.spec.name
        if hearing.step.spec.each:
            self._of_each.setdefault(name, {})[hearing.call] = None
        else:
            self.results[name] = None
        return self.pipeline.skipped(hearing.call, now=self.now())

    def _left_s(self, step: FileStep) -> float | None:
        follows = step.spec.follows and not step.spec.each
        own = None if follows else step.spec.deadline_s
        if self._deadline is None:
            return own
        left = max(0.0, self._deadline - self.now())
        return left if own is None else min(own, left)

    def _fall_back(self, action: FellBack) -> None:
        step = self._runtime.file.steps[action.step]
        if not step.spec.each:
            self.results[action.step] = step.result
        elif action.call:
            self._of_each.setdefault(action.step, {})[action.call] = step.result

    def _emit(self, action: Emit) -> None:
        data = action.event.data
        if action.event.kind == NOTICE and action.reason not in _OF_ITS_OWN:
            if action.step in self._noticed:
                return  # one of many calls has reported it
            self._noticed.add(action.step)
            data = {**data, "reason": action.reason} if isinstance(data, dict) else data
        self._say(action.event.kind, data)
        self._events += 1

    def _say(self, kind: str, data: Any) -> None:
        if self._runtime.plain:
            data = without_arrays(data)
        self._out.append({"i": self.ident, "k": kind, "d": data, "t": ()})

    def _failure(self, action: FailPipeline) -> PenstockError:
        known = self._errors.get(action.step)
        if action.reason == "deadline-passed" or known is None:
            return NotNowError(
                "deadline-passed", f"the step {action.step!r} of the pipeline was late"
            )
        message = f"step {action.step!r}: {known.message}"
        if isinstance(known, InternalError):
            return ModelError("step-failed", message, hint=known.hint)
        # All other fields of the error stay: a model's own status, the caller's parameter.
        return from_dict(known.to_dict() | {"message": message, "original_message": message})

    # Time

    def _set_timer(self) -> None:
        due = self.pipeline.next_deadline()
        if due == self._due:
            return
        self._due = due
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due is not None:
            self._timer = self._loop.call_later(max(0.0, due - self.now()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = self._due = None
        self.hear(lambda: self.pipeline.on_timer(now=self.now()))
