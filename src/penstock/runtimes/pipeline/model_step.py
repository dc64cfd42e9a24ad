"""A step that runs a model of the same artifact: arrays in, arrays out, in the instance's process.

The model's own batcher joins calls of several requests. A declared step may give lists instead of
arrays: they are converted to the model's types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from penstock.artifacts.description.description import TensorSpec
from penstock.clock import Clock
from penstock.errors import CallerError, NotNowError, PenstockError
from penstock.runtimes.base import Asking, CallContext, ModelCalls, Pending, Returned
from penstock.runtimes.pipeline.calls import Hear, StepCall, Way, Whole
from penstock.runtimes.repeated_call import Answer, RepeatedCall
from penstock.runtimes.tensor_bytes import NUMPY, objects


class ModelWay(Way):
    """One step. `outputs`: those of the model that are used; () = all. The model belongs to the
    artifact and ends with it.

    `again`: repeat a call that the model gave back, because earlier steps may have taken long or
    have streamed. Otherwise the request is given back, as another copy may be quicker.
    """

    def __init__(
        self,
        step: str,
        models: ModelCalls,
        model: str,
        clock: Clock,
        *,
        version: int = -1,
        outputs: tuple[str, ...] = (),
        again: bool = True,
    ) -> None:
        self._step = step
        self._models = models
        self._model = model
        self._clock = clock
        self._version = version
        self._outputs = outputs
        self._again = again

    def begin(self, inputs: Any, hear: Hear, *, left_s: float | None) -> StepCall:
        return self.begin_for(Asking(), 0, inputs, hear, left_s=left_s)

    def begin_for(
        self, asked: CallContext, run: int, inputs: Any, hear: Hear, *, left_s: float | None
    ) -> StepCall:
        """Begins a call for a request; the number is that of its pipeline run."""
        tensors = arrays(self._models.inputs(self._model), inputs, self._step)
        deadline = None if left_s is None else self._clock.monotonic() + left_s
        asking = Asking(
            deadline=deadline,
            alone=asked.alone,
            path=asked.path,
            calls=asked.calls,
            spans=asked.spans,
            metadata=asked.metadata,
        )

        def ask(asking: Asking, heard: Callable[[Answer | Returned], None]) -> Pending:
            return self._models.call(
                self._model, tensors, asking, run, heard,
                version=self._version, outputs=self._outputs,
            )  # fmt: skip

        call = _ModelCall(hear)
        if self._again:
            tries = RepeatedCall(self._model, ask, asking, call.heard)
            call.pending = tries
            tries.begin()
        else:
            call.pending = ask(asking, call.heard)
        return call


class _ModelCall(Whole):
    __slots__ = ("_hear", "pending")

    def __init__(self, hear: Hear) -> None:
        self.pending: Pending | None = None
        self._hear: Hear | None = hear  #: None: it is over

    def heard(self, outcome: Answer | Returned) -> None:
        hear = self._ended()
        if hear is None:
            return
        if isinstance(outcome, Returned):
            hear.failed(
                NotNowError(outcome.reason, f"its model gave the request back: {outcome.reason}")
            )
        elif isinstance(outcome, PenstockError):
            hear.failed(outcome)
        else:
            hear.piece(outcome)
            hear.done(outcome)

    def stop(self) -> None:
        pending = self.pending
        if self._ended() is not None and pending is not None:
            pending.cancel()

    def _ended(self) -> Hear | None:
        """Who hears of it, once. What this call waits for names it as well: what is over lets go,
        or tensors would stay until the collector of cycles comes."""
        hear, self._hear, self.pending = self._hear, None, None
        return hear


def arrays(specs: tuple[TensorSpec, ...], inputs: Any, step: str) -> dict[str, np.ndarray]:
    """Converts inputs to the model's types. Raises CallerError (`input-invalid`) where that is
    impossible."""
    if not isinstance(inputs, Mapping):
        raise CallerError("input-invalid", f"{step}: a model's inputs are a mapping of tensors")
    known = {spec.name: spec for spec in specs}
    return {
        name: value if isinstance(value, np.ndarray) else _array(value, known.get(name), step, name)
        for name, value in inputs.items()
    }


def _array(value: Any, spec: TensorSpec | None, step: str, name: str) -> np.ndarray:
    if spec is None:
        raise CallerError("input-invalid", f"{step}: the model has no input {name!r}")
    try:
        if spec.dtype == "BYTES":
            return _strings(value)
        array = np.asarray(value)
        wanted = NUMPY[spec.dtype]
        if array.dtype.kind == "f" and wanted.kind in "iu":
            raise ValueError(f"numbers with fractions, {spec.dtype} is wanted")
        if array.dtype.kind not in "biuf":
            raise ValueError("not an array of numbers")
        made = array.astype(wanted)
        if wanted.kind in "iu" and not np.array_equal(made, array):
            raise ValueError(f"numbers that {spec.dtype} can't hold")
        return made
    except (ValueError, TypeError, OverflowError) as error:
        raise CallerError("input-invalid", f"{step}: input {name!r}: {error}"[:500]) from None


def _strings(value: Any) -> np.ndarray:
    """Nested lists of text as an array of bytes."""
    array = np.asarray(value, dtype=np.object_)
    flat = [each.encode() if isinstance(each, str) else each for each in array.reshape(-1).tolist()]
    if not all(isinstance(each, bytes) for each in flat):
        raise ValueError("not an array of texts")
    return objects(flat).reshape(array.shape)


def without_arrays(value: Any) -> Any:
    """Replaces arrays by lists: events are JSON."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind != "O":
            return value.tolist()
        return objects([_text(each) for each in value.reshape(-1)]).reshape(value.shape).tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, dict):
        return {key: without_arrays(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_arrays(each) for each in value]
    return value


def _text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
