"""Requests of sequences, which share the state of a model.

`core.batching.sequences` says which request has which slot and which run together. Here the rows of
a batch get what the model wants to know of it (`ControlInput`), and the state that the server keeps
for the model goes from the answer of one request into the next request of its sequence
(`StateTensor`). The tensors then go through the engine of any model.

A request that begins a sequence may be computed by another copy if this one's worker dies. Any
other can't: its caller learns that the sequence is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from penstock.artifacts.description.sequences import (
    CORRID,
    END,
    READY,
    START,
    ControlInput,
    SequenceBatching,
    StateTensor,
)
from penstock.core.batching.batcher import BatchSpec, RunBatch
from penstock.core.batching.sequences import (
    LOST,
    NOT_STARTED,
    FreeSequenceSlot,
    RunSequences,
    SequenceBatcher,
    SequenceSpec,
    SequenceStep,
)
from penstock.errors import ModelError, PenstockError
from penstock.instance.batcher_driver import SequenceDriver
from penstock.instance.codecs.base import CodecModel, Decoded, Tensors, bad
from penstock.instance.engines.batches import Batches, BatchRun
from penstock.instance.request import Item, Request
from penstock.runtimes.base import Returned
from penstock.runtimes.infer_metadata import SEQUENCE_END, SEQUENCE_START, InferMetadata
from penstock.runtimes.tensor_bytes import NUMPY, decode_raw, objects

#: (lane, slot): where a sequence has its state.
Place = tuple[int, int]

_AGAIN: Final = "Begin it again: send its first request with sequence_start."


class StatefulBatches(Batches):
    keeps_requests = True

    def __init__(
        self, engine: Any, sequences: SequenceBatching, model: CodecModel, folder: Path
    ) -> None:
        """`folder`: root of the artifact. Raises ModelError for a wrong file of an initial
        state."""
        super().__init__(engine)
        self._sequences = sequences
        self._model = model
        self._hidden = {one.output for one in sequences.states}
        self._hidden -= {spec.name for spec in model.outputs}
        self._initial = {
            one.input: _initial(one, folder, batched=model.batched) for one in sequences.states
        }
        self._states: dict[Place, Tensors] = {}
        self.ended: Counter[str] = Counter()  #: sequences that ended, by reason

    def driver(self, spec: BatchSpec, **driving: Any) -> SequenceDriver[Any]:
        self._states = {}
        self._driver: SequenceDriver[Any] = SequenceDriver(
            SequenceBatcher(sequence_spec(self._sequences, spec)), freed=self._freed, **driving
        )
        return self._driver

    def queue(self, request: Request, outcome: tuple[Any, Any, int], now: float) -> None:
        decoded, data, _ = outcome
        try:
            metadata = self._checked(decoded)
        except ModelError as error:
            self._copy.fail(request, error)
            return
        request.decoded, request.data = decoded, data
        request.number = self._driver.add_step(
            request,
            sequence=metadata.correlation_id,
            start=bool(metadata.flags & SEQUENCE_START),
            end=bool(metadata.flags & SEQUENCE_END),
            deadline=request.deadline,
            alone=request.alone,
            now=now,
        )

    def _checked(self, decoded: Decoded) -> InferMetadata:
        """What the request says of its sequence. Raises ModelError where it can't have one."""
        metadata, name = decoded.metadata, self._model.name
        if metadata is None or not metadata.correlation_id:
            raise bad(
                f"a request to model '{name}' must specify a non-zero or non-empty correlation ID: "
                "it keeps the state of sequences",
                code="sequence-id-missing",
                hint="Set sequence_id among the parameters of an Open Inference Protocol request.",
            )
        if self._model.batched and decoded.rows > 1:
            raise bad(
                f"a request to model '{name}' must have batch size 1, as a sequence has one row; "
                f"it has {decoded.rows}",
                code="bad-shape",
            )
        for control in self._sequences.controls:
            if control.kind == CORRID:
                _corrid(control, metadata.correlation_id)
        return metadata

    def refusal(self, request: Request, reason: str) -> PenstockError:
        if reason not in (NOT_STARTED, LOST):
            return super().refusal(request, reason)
        return sequence_error(reason, self._id_of(request), self._model.name)

    def _id_of(self, request: Request) -> int | str:
        decoded = request.decoded
        return decoded.metadata.correlation_id if decoded and decoded.metadata else ""

    # Batches

    def run(self, action: RunBatch, items: list[Any]) -> None:
        assert isinstance(action, RunSequences)
        self._copy.batches += 1
        run = BatchRun(action, items, self._copy.clock.monotonic())
        self._runs[action.lane] = run
        rows = list(self._rows(action, items))
        self.engine.run(action.lane, rows, 0, partial(self._ran, run, action))

    def _rows(self, action: RunSequences, items: list[Request]) -> Iterator[Item]:
        """The items of a batch with their controls and states, and padding between them."""
        taken = iter(items)
        first = items[0]
        given: Tensors = first.data
        for step in action.steps:
            if step is None:
                yield self._padding(first, given)
                continue
            item = next(taken)
            place = (action.lane, step.slot)
            if step.start:
                self._states.pop(place, None)
            state = self._states.get(place, self._initial)
            item.data = {**item.data, **self._controls(step), **state}
            yield item

    def _padding(self, like: Request, given: Tensors) -> Item:
        """A row that the model ignores: zeros in the shapes of another row."""
        padding = Request(like.sink, 0, like.meta, b"", like.received, like.deadline, 0)
        padding.decoded = Decoded({}, 1, _unanswered, InferMetadata())
        zeros = {name: _zeros(array.shape, array.dtype) for name, array in given.items()}
        padding.data = {**zeros, **self._controls(None), **self._initial}
        return padding

    def _controls(self, step: SequenceStep | None) -> Tensors:
        """None: the row is padding."""
        shape = (1, 1) if self._model.batched else (1,)
        tensors: Tensors = {}
        for control in self._sequences.controls:
            if control.kind == CORRID:
                sequence: Any = step.sequence if step is not None else 0
                tensors[control.name] = _corrid(control, sequence).reshape(shape)
                continue
            false, true = control.false_true
            value = true if step is not None and _flag(control.kind, step) else false
            tensors[control.name] = np.full(shape, value, NUMPY[control.dtype])
        return tensors

    def _ran(self, run: BatchRun, action: RunSequences, results: Any) -> None:
        if isinstance(results, list):
            pairs = zip(action.steps, results, strict=True)
            results = [
                self._taken(action.lane, step, result) for step, result in pairs if step is not None
            ]
        elif results is None:
            results = [Returned("worker-lost")] * len(run.items)
        if isinstance(results, list):
            results = [
                self._lost(item) if type(result) is Returned and not _begins(item) else result
                for item, result in zip(run.items, results, strict=True)
            ]
        self._done(run, results)

    def _taken(self, lane: int, step: SequenceStep, result: Any) -> Any:
        """The answer without the state, which is kept for the sequence's next request."""
        if not self._sequences.states or not isinstance(result, Mapping):
            return result
        kept: Tensors = {}
        for state in self._sequences.states:
            array = result.get(state.output)
            if array is None:
                return ModelError(
                    "output-missing", f"the model did not answer its state {state.output!r}"
                )
            kept[state.input] = array.copy()  # else the whole batch stays in memory
        self._states[lane, step.slot] = kept
        return {name: array for name, array in result.items() if name not in self._hidden}

    def _lost(self, request: Request) -> ModelError:
        return sequence_error(LOST, self._id_of(request), self._model.name)

    def _freed(self, action: FreeSequenceSlot) -> None:
        self._states.pop((action.lane, action.slot), None)
        self.ended[action.reason] += 1

    # Workers

    def lane_lost(self, lane: int) -> None:
        self._driver.lane_lost(lane)

    def lane_ready(self, lane: int) -> None:
        self._driver.lane_ready(lane)

    def status(self) -> dict[str, Any]:
        return {
            "sequences": {
                "open": self._driver.open_count,
                "backlog": self._driver.backlog_count,
                **{reason: self.ended[reason] for reason in ("ended", "idle", "lost")},
            }
        }


def sequence_spec(sequences: SequenceBatching, spec: BatchSpec) -> SequenceSpec:
    return SequenceSpec(
        lanes=spec.lanes,
        slots=sequences.slots,
        direct=sequences.direct,
        idle_s_max=sequences.idle_s_max,
        rows_max=spec.rows_max,
        rows_preferred=sequences.rows_preferred,
        wait_s_max=sequences.wait_s_max,
        utilization_min=sequences.utilization_min,
        queue_rows_max=spec.queue_rows_max,
    )


def sequence_error(reason: str, sequence: int | str, model: str) -> ModelError:
    """For a request that is not part of a sequence that goes on."""
    words = (
        f"a request for sequence {sequence} to model '{model}' must specify the START flag, because"
        " no such sequence has begun here, or it has ended or was idle for too long"
    )
    if reason == LOST:
        words = (
            f"sequence {sequence} of model '{model}' is lost, and its state with it: the process "
            "that held it ended, or one of its requests was given up before it ran"
        )
    return bad(words, code=reason, hint=_AGAIN)


def _flag(kind: str, step: SequenceStep) -> bool:
    return {START: step.start, END: step.end, READY: True}[kind]


def _begins(request: Request) -> bool:
    decoded = request.decoded
    return bool(decoded and decoded.metadata and decoded.metadata.flags & SEQUENCE_START)


def _corrid(control: ControlInput, sequence: int | str) -> np.ndarray:
    """The correlation id as a tensor of one element. Raises ModelError where it has another
    type."""
    if control.dtype == "BYTES":
        return objects([str(sequence or "").encode()])
    if isinstance(sequence, str):
        raise bad(
            f"the correlation ID {sequence[:80]!r} is a string, the model's input {control.name!r} "
            f"takes {control.dtype}",
            code="sequence-id-invalid",
        )
    dtype = NUMPY[control.dtype]
    # of narrower types the model sees the low bits, as it does in Triton
    low = sequence & ((1 << 8 * dtype.itemsize) - 1)
    return np.array([low], np.dtype(f"u{dtype.itemsize}")).view(dtype)


def _initial(state: StateTensor, folder: Path, *, batched: bool) -> np.ndarray:
    shape = (1, *state.initial_shape) if batched else state.initial_shape
    if not state.initial_file:
        return _zeros(shape, NUMPY[state.dtype])
    try:
        return decode_raw((folder / state.initial_file).read_bytes(), state.dtype, shape)
    except (OSError, ValueError) as error:
        raise ModelError(
            "triton-config-invalid",
            f"the initial state of {state.input!r}, {state.initial_file}: {error}",
            hint="The file holds the raw values in row-major order, little endian.",
        ) from None


def _zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    if dtype.kind != "O":
        return np.zeros(shape, dtype)
    return objects([b""] * int(np.prod(shape))).reshape(shape)


def _unanswered(outputs: Tensors) -> tuple[bytes, bytes]:
    raise AssertionError("nobody waits for the answer of padding")
