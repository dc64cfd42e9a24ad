"""What a copy asks of its model, whatever kind it is; and the engine for payload runtimes.

An engine knows bodies and runtimes; it must not know frames, connections or queues.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from penstock.errors import ModelError
from penstock.instance.codecs.base import CodecModel, Decoded
from penstock.instance.codecs.select import decode_tensors
from penstock.instance.engines.tensor import wrong_rows
from penstock.instance.request import Item, Request
from penstock.runtimes.base import Payload, PayloadReply, Returned
from penstock.runtimes.tensor_bytes import pack, unpack
from penstock.wire.frames import decode_request_meta


class Engine(Protocol):
    """Of tensors and texts. `data` is the engine's own; the copy passes it through."""

    def decode(self, meta: bytes, body: bytes) -> tuple[Decoded, Any, int]:
        """(decoded, data of all rows, length in tokens or 0). Raises ModelError."""

    def cut(self, data: Any, start: int, stop: int) -> Any:
        """The rows from `start` to before `stop`."""

    def join(self, results: list[Any]) -> Any:
        """Results of consecutive parts as one."""

    def run(self, lane: int, items: list[Item], bucket: int, done: Callable[[Any], None]) -> None:
        """`done` on the loop, once: a list with a result, an exception or `Returned` per item, None
        if the worker died that had them all, or an exception for all. A result is what
        `Decoded.encode` takes, or a PayloadReply."""


class PayloadEngine:
    """Bodies through a worker process, unread: the copy queues them as they are."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        #: lanes lead to one process: it may die of the request on another lane
        self.shares_worker: bool = getattr(runtime, "shares_worker", False)

    def run(
        self, lane: int, items: list[Request], bucket: int, done: Callable[[Any], None]
    ) -> None:
        self._runtime.invoke(lane, [Payload(item.meta, item.body) for item in items], done)


class PackedTensorEngine:
    """Tensors through a worker process: Triton's Python models."""

    def __init__(self, runtime: Any, model: CodecModel) -> None:
        self._runtime = runtime
        self._model = model

    def decode(self, meta: bytes, body: bytes) -> tuple[Decoded, Any, int]:
        decoded = decode_tensors(self._model, decode_request_meta(meta), body)
        return decoded, decoded.tensors, 0

    def cut(self, data: Any, start: int, stop: int) -> Any:
        return {name: array[start:stop] for name, array in data.items()}

    def join(self, results: list[Any]) -> Any:
        return {name: np.concatenate([each[name] for each in results]) for name in results[0]}

    def run(self, lane: int, items: list[Item], bucket: int, done: Callable[[Any], None]) -> None:
        batch = [Payload(b"", pack(item.data)) for item in items]

        def answered(replies: list[PayloadReply | Returned]) -> None:
            pairs = zip(replies, items, strict=True)
            done([self._result(reply, item.rows) for reply, item in pairs])

        self._runtime.invoke(lane, batch, answered)

    def _result(self, reply: PayloadReply | Returned, rows: int) -> Any:
        if isinstance(reply, Returned):
            return reply
        if reply.error is not None:
            return reply.error
        try:
            outputs = unpack(reply.body)
        except Exception as error:  # packed in the model's own process
            return ModelError("model-answer-unreadable", f"its tensors can't be read: {error}")
        if self._model.batched:
            for name, array in outputs.items():
                if array.ndim == 0 or array.shape[0] != rows:
                    return wrong_rows(name, array, rows)
        return outputs
