"""One model of an artifact, as other models call it: tensors into its copy's queue, tensors out.

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
from penstock.errors import ModelError, PenstockError
from penstock.instance import replies
from penstock.instance.codecs.base import Tensors
from penstock.instance.copy import Copy
from penstock.instance.request import ReplySink, Request
from penstock.runtimes.base import CallContext, Returned
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


class InnerModel:
    """`on_state` gets the events of its copy: `copy-lost`, `copy-ready`, `copy-failed`."""

    def __init__(
        self,
        name: str,
        loaded: LoadedModel,
        *,
        clock: Clock,
        on_state: Callable[[str, PenstockError | None], None],
    ) -> None:
        """Raises ModelError for a model that does not map tensors to tensors."""
        if loaded.taken is None:
            task = loaded.described["task"]
            raise ModelError(
                "model-not-callable",
                f"the model {name!r} has the task {task!r}: another model can't call it",
                hint="Steps and Python code call models of tensors, and Triton's Python models.",
            )
        self.name = name
        self.loaded = loaded
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._take = loaded.taken
        self.inputs = _specs(loaded.described["inputs"])
        self.outputs = _specs(loaded.described["outputs"])
        self._outputs = [each.name for each in self.outputs]
        self._turning = False
        # Answers to calls are never encoded, so no helper thread is needed.
        self.copy = loaded.copy(
            0, clock=clock, call_at=self._call_at, elsewhere=None, on_state=on_state
        )

    def call(
        self,
        tensors: Tensors,
        outputs: Sequence[str],
        asked: CallContext,
        done: Done,
        on_cancel: Callable[[], None],
        *,
        version: int = -1,
    ) -> InnerCall:
        """`version`: -1 = the one that is served by default. `outputs`: the wanted ones; empty:
        all. An error is reported later, never during this call. Either `done` or `on_cancel` is
        called, once."""
        call = InnerCall(self, outputs or self._outputs, done, on_cancel)
        try:
            self._check_outputs(outputs)
            asked_outputs = tuple(outputs or self._outputs)
            metadata = dataclasses.replace(asked.metadata or InferMetadata(), outputs=asked_outputs)
            if version == -1 or len(self.loaded.described["versions"]) == 1:
                outcome = self._take(tensors, call.keep, metadata)
            else:
                outcome = self._take(tensors, call.keep, metadata, str(version))
        except PenstockError as error:
            call.later(error)
            return call
        now = self._clock.monotonic()
        request = Request(
            call, 0, b"", b"", now, asked.deadline, 0, asked.alone, asked.path, asked.calls
        )
        request.traced = asked.spans
        call.request = request
        self.copy.accept_read(request, outcome, now)
        if not self._turning:
            # Calls that begin in one turn of the loop form one batch, if they fit.
            self._turning = True
            self._loop.call_soon(self._turn)
        return call

    def _check_outputs(self, outputs: Sequence[str]) -> None:
        for name in outputs:
            if name not in self._outputs:
                raise ModelError(
                    "unknown-output",
                    f"the model {self.name!r} has no output {name!r}; it has "
                    f"{', '.join(self._outputs)}",
                    original_status=400,
                )

    def _turn(self) -> None:
        self._turning = False
        self.copy.driver.turn(self._clock.monotonic())

    def _call_at(self, at: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(max(0.0, at - self._clock.monotonic()), callback)

    async def close(self) -> None:
        self.copy.close()
        await self.loaded.close()


class InnerCall(ReplySink):
    """One running call: the sink of its request's frames."""

    __slots__ = ("_done", "_made", "_model", "_on_cancel", "_outputs", "_over", "request")

    def __init__(
        self,
        model: InnerModel,
        outputs: Sequence[str],
        done: Done,
        on_cancel: Callable[[], None],
    ) -> None:
        self.request: Request | None = None
        self._model = model
        self._outputs = outputs
        self._done = done
        self._on_cancel = on_cancel
        self._made = InferAnswer({}, {})
        self._over = False

    def keep(self, outputs: Tensors) -> tuple[bytes, bytes]:
        """Keeps the outputs, where a codec would write a body. Raises ModelError for a missing
        output."""
        for name in self._outputs:
            if name not in outputs:
                raise ModelError(
                    "output-missing", f"the model {self._model.name!r} gave no output {name!r}"
                )
        made = {name: outputs[name] for name in self._outputs}
        self._made = InferAnswer(made, parameters_of(outputs))
        return b"", b""

    def cancel(self) -> None:
        if not self._over:
            self._over = True
            self._on_cancel()
            if self.request is not None:
                self._model.copy.cancel(self.request)

    # Methods of ReplySink

    def forget(self, ident: int) -> None:
        return

    def send(self, frame: bytes) -> None:
        if frames.HEAD.unpack_from(frame)[1] == frames.REPLY:
            self._end(self._made)
            return
        (read,) = frames.FrameDecoder().feed(frame)
        self.later(cast(Outcome, replies.outcome_of(read)))

    def later(self, outcome: Outcome) -> None:
        """Reports the outcome in a later turn of the loop: errors occur while a copy works, and the
        receiver may call it again."""
        self._model._loop.call_soon(self._end, outcome)

    def _end(self, outcome: Outcome) -> None:
        if not self._over:
            self._over = True
            self._done(outcome)


def _specs(described: list[dict[str, Any]]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(name=each["name"], dtype=each["datatype"], shape=tuple(each["shape"]))
        for each in described
    )
