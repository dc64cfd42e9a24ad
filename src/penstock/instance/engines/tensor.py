"""Items of tensors through a TensorRuntime: join rows, run, check, split again. Or through a worker
process: unread bodies, and tensors for Triton's Python models.

An answer never depends on its mates. Items whose rows have other shapes run in a group of their
own; nobody's rows are padded. When a batch of several items fails, each item runs alone, so only
the guilty one gets the error.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from penstock.errors import ModelError
from penstock.instance.codecs.base import CodecModel, Decoded, Encode, Tensors, check_arrays
from penstock.instance.codecs.select import decode_tensors
from penstock.instance.engines.lane_threads import LaneThreads
from penstock.instance.engines.reshape import Reshapes
from penstock.instance.request import Item, Request
from penstock.runtimes.base import Payload, PayloadReply, Returned, TensorRuntime
from penstock.runtimes.tensor_bytes import pack, unpack
from penstock.wire.frames import decode_request_meta

#: One result per item, in order: tensors, or the item's error.
Results = list[Any]


def join_rows(results: list[Tensors]) -> Tensors:
    """Joins the results of consecutive parts."""
    return {name: np.concatenate([each[name] for each in results]) for name in results[0]}


class TensorBodies:
    """The handling of bodies that all tensor engines share, wherever their model runs."""

    def __init__(self, model: CodecModel) -> None:
        self.model = model

    def decode(self, meta: bytes, body: bytes) -> tuple[Decoded, Any, int]:
        """(decoded, data of the whole request, length). Raises ModelError."""
        decoded = decode_tensors(self.model, decode_request_meta(meta), body)
        return decoded, decoded.tensors, 0

    def taken(self, tensors: Tensors, encode: Encode) -> tuple[Decoded, Any, int]:
        """Like `decode`, for arrays from a model of the same artifact."""
        rows = check_arrays(self.model, tensors)
        return Decoded(tensors, rows, encode), tensors, 0

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
        self.rows_fixed = _rows_fixed(runtime, model.batched)

    def run(
        self, lane: int, items: list[Item], bucket: int, done: Callable[[Results], None]
    ) -> None:
        self._threads.submit(lane, partial(self._run_all, lane, items), done)

    def _run_all(self, lane: int, items: list[Item]) -> Results:
        if len(items) == 1:
            return [self._try(lane, items[0].data, items[0].rows)]
        groups: dict[tuple[Any, ...], list[int]] = {}
        for at, item in enumerate(items):
            key = tuple(array.shape[1:] for array in item.data.values())
            groups.setdefault((tuple(item.data), key), []).append(at)
        results: Results = [None] * len(items)
        for members in groups.values():
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
            joined = {
                name: np.concatenate([item.data[name] for item in items]) for name in items[0].data
            }
            outputs = self._try(lane, joined, sum(item.rows for item in items))
            if not isinstance(outputs, Exception):
                return _cut_apart(outputs, items)
        return [self._try(lane, item.data, item.rows) for item in items]

    def _try(self, lane: int, inputs: Tensors, rows: int) -> Any:
        """The outputs, or the error."""
        try:
            outputs = self._runtime.run(lane, self._filled(inputs, rows))
        except Exception as error:  # the library's error or ours: the copy distinguishes them
            return error
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
    """Passes bodies to a worker process unread; the copy queues them as they are."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        #: True: all lanes use one process, which may die of the request on another lane.
        self.shares_worker: bool = getattr(runtime, "shares_worker", False)

    def run(
        self, lane: int, items: list[Request], bucket: int, done: Callable[[Any], None]
    ) -> None:
        self._runtime.invoke(lane, [Payload(item.meta, item.body) for item in items], done)


class PackedTensorEngine(TensorBodies):
    """Passes tensors to a worker process: for Triton's Python models."""

    def __init__(self, runtime: Any, model: CodecModel, reshapes: Reshapes | None = None) -> None:
        super().__init__(model)
        self._runtime = runtime
        self._reshapes = reshapes

    def run(self, lane: int, items: list[Item], bucket: int, done: Callable[[Any], None]) -> None:
        batch: list[Payload] = []
        for item in items:
            request: Any = item.whole or item
            tensors = self._reshapes.inward(item.data) if self._reshapes else item.data
            batch.append(Payload(b"", pack(tensors), asked=request))

        def answered(replies: list[PayloadReply | Returned]) -> None:
            pairs = zip(replies, items, strict=True)
            done([self._result(reply, item.rows) for reply, item in pairs])

        self._runtime.invoke(lane, batch, answered)

    def unwanted(self, lane: int) -> None:
        self._runtime.cancel(lane)

    def _result(self, reply: PayloadReply | Returned, rows: int) -> Any:
        if isinstance(reply, Returned):
            return reply
        if reply.error is not None:
            return reply.error
        try:
            outputs = unpack(reply.body)
        except Exception as error:  # the model's own process packed the reply
            return ModelError("model-answer-unreadable", f"its tensors can't be read: {error}")
        if self.model.batched:
            for name, array in outputs.items():
                if array.ndim == 0 or array.shape[0] != rows:
                    return wrong_rows(name, array, rows)
        if not self._reshapes:
            return outputs
        try:
            return self._reshapes.outward(outputs)
        except ModelError as error:
            return error
