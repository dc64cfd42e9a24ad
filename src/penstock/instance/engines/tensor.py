"""Items of tensors through a TensorRuntime: join rows, run, check, split again. Or through a worker
process: unread bodies, and tensors for Triton's Python models.

An answer never depends on its mates. Items whose rows have other shapes run in a group of their
own; nobody's rows are padded. When a batch of several items fails, each item runs alone, so only
the guilty one gets the error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import orjson

from penstock.core.batching.hot_shapes import Shape
from penstock.errors import ModelError
from penstock.instance.codecs.base import CodecModel, Decoded, Encode, Tensors, check_arrays
from penstock.instance.codecs.select import decode_tensors
from penstock.instance.engines.lane_threads import LaneThreads, run_native
from penstock.instance.engines.payload_stream import stream_of
from penstock.instance.engines.reshape import Reshapes
from penstock.instance.request import Item, Request
from penstock.runtimes.base import NativeRun, Payload, PayloadReply, Returned, TensorRuntime
from penstock.runtimes.infer_metadata import InferAnswer, InferMetadata, parameters_of
from penstock.runtimes.python.batches import CANCELLED, SLOTS_MAX
from penstock.runtimes.python.triton_wire import pack_metadata, unpack_answer
from penstock.runtimes.tensor_bytes import pack, prepared
from penstock.wire.frames import decode_request_meta

#: One result per item, in order: tensors, or the item's error.
Results = list[Any]


def groups_of_one_shape(items: list[Item]) -> list[list[int]]:
    """Indexes of items that may run together: they have the same tensors, with rows of one
    shape."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for at, item in enumerate(items):
        key = tuple(array.shape[1:] for array in item.data.values())
        groups.setdefault((tuple(item.data), key), []).append(at)
    return list(groups.values())


def join_rows(results: list[Tensors]) -> Tensors:
    """Joins the results of consecutive parts."""
    return {name: np.concatenate([each[name] for each in results]) for name in results[0]}


class TensorBodies:
    """The handling of bodies that all tensor engines share, wherever their model runs."""

    takes_tensors = True  #: its data are tensors by name

    def __init__(self, model: CodecModel) -> None:
        self.model = model

    def decode(self, meta: bytes, body: bytes) -> tuple[Decoded, Any, int]:
        """(decoded, data of the whole request, length). Raises ModelError."""
        decoded = decode_tensors(self.model, decode_request_meta(meta), body)
        return decoded, decoded.tensors, 0

    def taken(
        self, tensors: Tensors, encode: Encode, metadata: InferMetadata | None = None
    ) -> tuple[Decoded, Any, int]:
        """Like `decode`, for arrays from a model of the same artifact."""
        rows = check_arrays(self.model, tensors)
        return Decoded(tensors, rows, encode, metadata), tensors, 0

    def cut(self, data: Any, start: int, stop: int) -> Any:
        return {name: array[start:stop] for name, array in data.items()}

    join = staticmethod(join_rows)


class TensorEngine(TensorBodies):
    """Call `decode` on the loop or a helper thread, `run` on the loop; the model runs on lane
    threads."""

    shares_worker = True  #: a GPU's context, which all lanes lose together

    def __init__(self, runtime: TensorRuntime, model: CodecModel, threads: LaneThreads) -> None:
        super().__init__(model)
        self._runtime = runtime
        self._threads = threads
        self._native: Callable[[Shape], NativeRun | None] | None
        self._native = getattr(runtime, "native_run", None)
        self.rows_fixed = _rows_fixed(runtime, model.batched)

    def run(
        self, lane: int, items: list[Item], bucket: int, done: Callable[[Results], None]
    ) -> None:
        if not self._run_native(lane, items, done):
            self._threads.submit(lane, partial(self._run_all, lane, items), done)

    def _run_native(self, lane: int, items: list[Item], done: Callable[[Results], None]) -> bool:
        """Whether the batch runs without the interpreter; not where no graph has its shape."""
        if self._native is None or self.rows_fixed or not self._threads.takes_native:
            return False
        if len(items) > 1 and len(groups_of_one_shape(items)) > 1:
            return False
        rows = sum(item.rows for item in items) if self.model.batched else 0
        first = items[0].data
        shapes = [first[spec.name].shape for spec in self._runtime.inputs if spec.name in first]
        run = self._native(tuple((rows, *shape[1:]) if rows else shape for shape in shapes))
        if run is None:
            return False

        def inputs() -> list[np.ndarray]:
            return [array for _, array in prepared(self._runtime.inputs, _joined(items))]

        def results(outputs: Tensors) -> Results:
            outcome = self._checked(dict(outputs), rows)
            if isinstance(outcome, Exception):
                raise outcome
            return _cut_apart(outcome, items) if len(items) > 1 else [outcome]

        alone = partial(self._run_all, lane, items)
        return run_native(self._threads, lane, run, inputs, results, alone, done)

    def run_here(
        self, lane: int, items: list[Item], bucket: int, done: Callable[[Results], None]
    ) -> None:
        self._threads.run_here(lane, partial(self._run_all, lane, items), done)

    def _run_all(self, lane: int, items: list[Item]) -> Results:
        if len(items) == 1:
            return [self._try(lane, items[0].data, items[0].rows)]
        results: Results = [None] * len(items)
        for members in groups_of_one_shape(items):
            outcome = self._run_group(lane, [items[at] for at in members])
            for at, result in zip(members, outcome, strict=True):
                results[at] = result
        return results

    def run_rows(self, lane: int, inputs: Tensors, rows: int) -> Tensors:
        """Rows of large data sets (`rows`), on the lane's own thread. Raises the model's
        exceptions."""
        outcome = self._try(lane, inputs, rows)
        if isinstance(outcome, Exception):
            raise outcome
        return dict(outcome)

    def _run_group(self, lane: int, items: list[Item]) -> Results:
        if len(items) > 1:
            outputs = self._try(lane, _joined(items), sum(item.rows for item in items))
            if not isinstance(outputs, Exception):
                return _cut_apart(outputs, items)
        return [self._try(lane, item.data, item.rows) for item in items]

    def _try(self, lane: int, inputs: Tensors, rows: int) -> Any:
        """The outputs, or the error."""
        try:
            outputs = self._runtime.run(lane, self._filled(inputs, rows))
        except Exception as error:  # the library's error or ours: the copy distinguishes them
            return error
        return self._checked(outputs, rows)

    def _checked(self, outputs: Tensors, rows: int) -> Any:
        """The outputs of these rows alone, or the error."""
        if not self.model.batched:
            return outputs
        expected = max(rows, self.rows_fixed)
        for name, array in outputs.items():
            if array.ndim == 0 or array.shape[0] != expected:
                return wrong_rows(name, array, expected)
        if expected != rows:
            return {name: array[:rows] for name, array in outputs.items()}
        return outputs

    def _filled(self, inputs: Tensors, rows: int) -> Tensors:
        """A graph with a fixed batch size gets copies of the first row for the missing ones."""
        missing = self.rows_fixed - rows
        if missing <= 0:
            return inputs
        return {
            name: np.concatenate((array, np.repeat(array[:1], missing, axis=0)))
            for name, array in inputs.items()
        }


def _joined(items: list[Item]) -> Tensors:
    """The tensors of items of one shape."""
    if len(items) == 1:
        return dict(items[0].data)
    return {name: np.concatenate([item.data[name] for item in items]) for name in items[0].data}


def wrong_rows(name: str, array: np.ndarray, expected: int) -> ModelError:
    return ModelError(
        "wrong-answer-count",
        f"output {name!r} has shape {list(array.shape)} for a batch of {expected} rows",
        hint="A model that does not answer row by row needs batching.rows_max 0.",
    )


def _cut_apart(outputs: Tensors, items: list[Item]) -> Results:
    results: Results = []
    at = 0
    for item in items:
        end = at + item.rows
        results.append({name: array[at:end] for name, array in outputs.items()})
        at = end
    return results


def _rows_fixed(runtime: TensorRuntime, batched: bool) -> int:
    """The graph's fixed batch size; 0 where it takes any."""
    if not batched:
        return 0
    sizes = {spec.shape[0] for spec in runtime.inputs if spec.shape}
    return max(sizes) if sizes and min(sizes) > 1 else 0


class PayloadEngine:
    """Passes bodies to a worker process unread; the copy queues them as they are.

    A runtime that can passes an answer on as it is written, to callers who ask for a stream."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        #: True: all lanes use one process, which may die of the request on another lane.
        self.shares_worker: bool = getattr(runtime, "shares_worker", False)
        self._streams: bool = getattr(runtime, "streams", False)
        self._streaming: dict[int, bool] = {}  #: lane -> whether its batch may be streamed

    def run(
        self, lane: int, items: list[Request], bucket: int, done: Callable[[Any], None]
    ) -> None:
        if not self._streams:
            self._runtime.invoke(lane, [Payload(item.meta, item.body) for item in items], done)
            return
        batch = [Payload(item.meta, item.body, stream=stream_of(item)) for item in items]
        self._streaming[lane] = any(each.stream is not None for each in batch)
        self._runtime.invoke(lane, batch, done)

    def unwanted(self, lane: int) -> None:
        """A stream may have no end by itself; any other answer is waited for."""
        if self._streaming.get(lane):
            self._runtime.cancel(lane)


class PackedTensorEngine(TensorBodies):
    """Passes tensors to a worker process: for Triton's Python models."""

    def __init__(self, runtime: Any, model: CodecModel, reshapes: Reshapes | None = None) -> None:
        super().__init__(model)
        self._runtime = runtime
        self._reshapes = reshapes
        #: Sets marks of requests; None: its process is shared with other models
        self._mark: Callable[[int, int, int], None] | None = getattr(runtime, "mark", None)
        self._marked: dict[int, list[Item]] = {}  #: lane -> what it computes; slots count from 1

    def run(self, lane: int, items: list[Item], bucket: int, done: Callable[[Any], None]) -> None:
        """Groups run one after the other: a model sees requests of one shape together."""
        results: Results = [None] * len(items)
        self._next_group(lane, items, iter(groups_of_one_shape(items)), results, done)

    def _next_group(
        self,
        lane: int,
        items: list[Item],
        groups: Iterator[list[int]],
        results: Results,
        done: Callable[[Any], None],
    ) -> None:
        # A method, since a function within `run` that names itself is a cycle of references: the
        # tensors of each batch would stay until the collector of cycles comes.
        members = next(groups, None)
        if members is None:
            done(results)
            return
        self._marked[lane] = [items[at] for at in members]
        batch = [self._payload(lane, place, items[at]) for place, at in enumerate(members, 1)]

        def answered(replies: list[PayloadReply | Returned]) -> None:
            self._marked[lane] = []
            for at, reply in zip(members, replies, strict=True):
                results[at] = self._result(reply, items[at])
            self._next_group(lane, items, groups, results, done)

        self._runtime.invoke(lane, batch, answered)

    def _payload(self, lane: int, place: int, item: Item) -> Payload:
        request: Any = item.whole or item
        slot = place if self._mark is not None and place <= SLOTS_MAX else 0
        if slot and self._mark is not None:
            self._mark(lane, slot, CANCELLED if request.answered else 0)
        meta = pack_metadata(
            request.metadata or InferMetadata(), trace_context(request.meta), slot=slot
        )
        return Payload(meta, self._packed(item), asked=request)

    def _packed(self, item: Item) -> bytes:
        return pack(self._reshapes.inward(item.data) if self._reshapes else item.data)

    def reshaped(self, outputs: Tensors) -> Tensors:
        """Outputs as requests have them. Raises ModelError."""
        if not self._reshapes:
            return outputs
        return InferAnswer(self._reshapes.outward(outputs), parameters_of(outputs))

    def status(self) -> dict[str, Any]:
        series = getattr(self._runtime, "code_metrics", None)
        return {"code_metrics": series} if series else {}

    def item_unwanted(self, request: Request) -> None:
        """The model's code may look whether it was cancelled."""
        if self._mark is None:
            return
        for lane, items in self._marked.items():
            for slot, item in enumerate(items, 1):
                if (item.whole or item) is request and slot <= SLOTS_MAX:
                    self._mark(lane, slot, CANCELLED)

    def unwanted(self, lane: int) -> None:
        self._runtime.cancel(lane)

    def _result(self, reply: PayloadReply | Returned, item: Item) -> Any:
        if isinstance(reply, Returned):
            return reply
        if reply.error is not None:
            return reply.error
        try:
            outputs = unpack_answer(reply.body)
        except Exception as error:  # the model's own process packed the reply
            return ModelError("model-answer-unreadable", f"its tensors can't be read: {error}")
        if item.whole is not None:  # the answers to its parts will be joined
            for name, array in outputs.items():
                if array.ndim == 0 or array.shape[0] != item.rows:
                    return wrong_rows(name, array, item.rows)
        try:
            return self.reshaped(outputs)
        except ModelError as error:
            return error


def trace_context(meta: bytes) -> str:
    """The trace context of a request as JSON; empty if it is not traced."""
    told = decode_request_meta(meta)
    if told.traceparent is None:
        return ""
    context = {"traceparent": told.traceparent}
    if told.tracestate is not None:
        context["tracestate"] = told.tracestate
    return orjson.dumps(context).decode()
