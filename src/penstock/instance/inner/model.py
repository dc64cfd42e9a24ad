"""One model as other models call it: tensors into its copy's queue, tensors out.

It has a copy's guarantee (`instance.copy`): every call gets its outcome once, unless its caller has
cancelled it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import numpy as np

from penstock.artifacts.description.description import TensorSpec
from penstock.clock import Clock
from penstock.core.batching.batcher import BatchSpec
from penstock.errors import CallerError, ModelError, PenstockError
from penstock.instance import replies
from penstock.instance.codecs.base import Tensors
from penstock.instance.copy import Copy
from penstock.instance.engines.decoupled import one_answer_asked
from penstock.instance.request import ReplySink, Request
from penstock.instance.short_timers import ShortTimers
from penstock.runtimes.base import CallContext, Returned, StreamedCall
from penstock.runtimes.infer_metadata import InferAnswer, InferMetadata, parameters_of
from penstock.wire import frames

Outcome = dict[str, np.ndarray] | PenstockError | Returned
Done = Callable[[Outcome], None]


class LoadedModel(Protocol):
    """The parts of a loaded model (`instance.loading.loaded`) that are used here."""

    spec: BatchSpec
    described: dict[str, Any]

    @property
    def taken(self) -> Callable[..., Any] | None: ...
    def copy(self, number: int, **driving: Any) -> Copy: ...
    def pids(self) -> list[int]: ...
    def kill(self) -> None: ...
    async def explain(self) -> dict[str, Any]: ...
    async def close(self) -> None: ...


class CallableModel:
    """What calls need of a loaded model."""

    def __init__(self, name: str, loaded: LoadedModel) -> None:
        """Raises ModelError for a model that does not map tensors to tensors."""
        if loaded.taken is None:
            task = loaded.described["task"]
            raise ModelError(
                "model-not-callable",
                f"the model {name!r} has the task {task!r}: another model can't call it",
                hint="Steps and Python code call models of tensors, and Triton's Python models.",
            )
        self.name = name
        self._take = loaded.taken
        self.inputs = _specs(loaded.described["inputs"])
        self.outputs = _specs(loaded.described["outputs"])
        self._names = tuple(each.name for each in self.outputs)
        self._versions = tuple(map(str, loaded.described.get("versions") or ("1",)))
        self._decoupled = bool(loaded.described.get("decoupled"))

    def read(self, call: InnerCall) -> Any:
        """What its work's `queue` gets for the call. Raises PenstockError."""
        for name in call.wanted:
            if name not in self._names:
                raise ModelError(
                    "unknown-output",
                    f"the model {self.name!r} has no output {name!r}; it has "
                    f"{', '.join(self._names)}",
                    original_status=400,
                )
        if self._decoupled and call.streamed is None:
            raise one_answer_asked(self.name)
        version = () if call.version == -1 else (str(call.version),)
        if version and version[0] not in self._versions:
            raise CallerError(
                "model-not-ready",
                f"Version {call.version} of the model {self.name!r} is not ready; served is "
                f"{', '.join(self._versions)}",
                status=404,
            )
        call.outputs = call.wanted or self._names
        metadata = dataclasses.replace(call.metadata, outputs=tuple(call.outputs))
        which = version if len(self._versions) > 1 else ()
        return self._take(call.tensors, call.keep, metadata, *which)


class InnerModel(CallableModel):
    """A model that only others of its artifact call, with a copy of its own. `on_state` gets the
    events of that: `copy-lost`, `copy-ready`, `copy-failed`."""

    def __init__(
        self,
        name: str,
        loaded: LoadedModel,
        *,
        clock: Clock,
        on_state: Callable[[str, PenstockError | None], None],
    ) -> None:
        super().__init__(name, loaded)
        self.loaded = loaded
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._timers = ShortTimers(self._loop, clock)
        self._turning = False
        # Answers to calls are never encoded, so no helper thread is needed.
        self.copy = loaded.copy(
            0, clock=clock, call_at=self._timers.call_at, elsewhere=None, on_state=on_state
        )

    def call(self, call: InnerCall, asked: CallContext) -> None:
        """An error is reported later, never during this call."""
        now = self._clock.monotonic()
        try:
            outcome = self.read(call)
        except PenstockError as error:
            call.later(error)
            return
        request = call.asked_of(asked, now=now, cancel=self.copy.cancel)
        self.copy.accept_read(request, outcome, now)
        if not self._turning:
            # Calls that begin in one turn of the loop form one batch, if they fit.
            self._turning = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turning = False
        self.copy.driver.turn(self._clock.monotonic())

    async def close(self) -> None:
        self.copy.close()
        await self.loaded.close()
        self._timers.close()


class InnerCall(ReplySink):
    """One running call: the sink of its request's frames. Either `done` or `on_cancel` is called,
    once."""

    __slots__ = (
        "_cancel", "_done", "_ended", "_loop", "_made", "_name", "_on_cancel", "_over", "_request",
        "metadata", "outputs", "streamed", "tensors", "version", "wanted",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        tensors: Tensors,
        asked: CallContext,
        done: Done,
        on_cancel: Callable[[], None],
        *,
        version: int = -1,
        wanted: Sequence[str] = (),
        streamed: StreamedCall | None = None,
    ) -> None:
        """`version`: -1 = the one that is served by default. `wanted`: outputs; (): all."""
        self.tensors = tensors
        self.metadata = asked.metadata or InferMetadata()
        self.version = version
        self.wanted = tuple(wanted)
        self.streamed = streamed
        self.outputs: Sequence[str] = ()  #: those that it gets, once the model is known
        self._name = name
        self._done = done
        self._on_cancel = on_cancel
        self._loop = asyncio.get_running_loop()
        self._request: Request | None = None
        self._cancel: Callable[[Request], None] = lambda request: None
        self._made = InferAnswer({}, {})
        self._ended = False  #: its last response was passed on
        self._over = False

    def asked_of(
        self, asked: CallContext, *, now: float, cancel: Callable[[Request], None]
    ) -> Request:
        """Its request. `cancel`: takes that back from whoever has it."""
        request = Request(
            self, 0, b"", b"", now, asked.deadline, 0, asked.alone, asked.path, asked.calls
        )
        request.traced = asked.spans
        self._request, self._cancel = request, cancel
        return request

    def keep(self, outputs: Tensors) -> tuple[bytes, bytes]:
        """Keeps the outputs, where a codec would write a body. Raises ModelError for a missing
        output, unless it is one of several responses."""
        for name in self.outputs:
            if name not in outputs and self.streamed is None:
                raise ModelError(
                    "output-missing", f"the model {self._name!r} gave no output {name!r}"
                )
        made = {name: outputs[name] for name in self.outputs if name in outputs}
        self._made = InferAnswer(made, parameters_of(outputs))
        return b"", b""

    def cancel(self) -> None:
        if not self._over:
            self._over = True
            self._on_cancel()
            request = self._request
            if request is not None:
                self._request = None
                self._cancel(request)

    # Methods of ReplySink

    @property
    def full(self) -> bool:  # type: ignore[override]
        return self.streamed is not None and self.streamed.full

    def when_taken(self, go_on: Callable[[], None]) -> None:
        if self.streamed is not None:
            self.streamed.when_taken(go_on)

    def forget(self, ident: int) -> None:
        return

    def send(self, frame: bytes) -> None:
        kind = frames.HEAD.unpack_from(frame)[1]
        if kind == frames.CHUNK:
            (read,) = frames.FrameDecoder().feed(frame)
            self._hear(last=bool(read.payload))  # a mark and nothing else
        elif kind in (frames.REPLY, frames.END):
            if kind == frames.END:
                self._made = InferAnswer({}, {})
            if self.streamed is not None and not self._ended:
                self._hear(last=True)
            self._end(self._made)
        else:
            (read,) = frames.FrameDecoder().feed(frame)
            self.later(cast(Outcome, replies.outcome_of(read)))

    def _hear(self, *, last: bool) -> None:
        made, self._made = self._made, InferAnswer({}, {})
        self._ended = last
        if self.streamed is not None and not self._over:
            self.streamed.hear(made, last)

    def later(self, outcome: Outcome) -> None:
        """Reports the outcome in a later turn of the loop: errors occur while a copy works, and the
        receiver may call it again."""
        self._loop.call_soon(self._end, outcome)

    def _end(self, outcome: Outcome) -> None:
        if not self._over:
            self._over = True
            # The two name each other, and would keep their tensors for the collector of cycles.
            self._request = None
            self._done(outcome)


def _specs(described: list[dict[str, Any]]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(name=each["name"], dtype=each["datatype"], shape=tuple(each["shape"]))
        for each in described
    )
