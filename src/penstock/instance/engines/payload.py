"""Requests through a worker process: unread bodies, and tensors for Triton's Python models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import ModelError
from penstock.instance.codecs.base import CodecModel
from penstock.instance.engines.tensor import TensorBodies, wrong_rows
from penstock.instance.request import Item, Request
from penstock.runtimes.base import Payload, PayloadReply, Returned
from penstock.runtimes.tensor_bytes import pack, unpack


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

    def __init__(self, runtime: Any, model: CodecModel) -> None:
        super().__init__(model)
        self._runtime = runtime

    def run(self, lane: int, items: list[Item], bucket: int, done: Callable[[Any], None]) -> None:
        batch: list[Payload] = []
        for item in items:
            request: Any = item.whole or item
            batch.append(Payload(b"", pack(item.data), asked=request))

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
        return outputs
