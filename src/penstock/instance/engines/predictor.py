"""Rows of requests through a model in a worker process that reads and joins them itself.

Bodies of the Open Inference Protocol are decoded here and go as packed tensors; the worker reads
all other bodies, whose columns may have names and hold text. The answer comes back as tensors, and
is written here: in one form, whatever runs the model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.errors import ModelError
from penstock.instance.codecs import answers
from penstock.instance.codecs.base import (
    CSV,
    JSON,
    NPY,
    OIP_GRPC,
    CodecModel,
    Decoded,
    Encode,
    Tensors,
    media_type,
)
from penstock.instance.codecs.oip_json import is_oip
from penstock.instance.codecs.select import decode_tensors, is_oip_request
from penstock.instance.codecs.values import parse_json
from penstock.instance.engines.tensor import TensorBodies
from penstock.instance.request import Item
from penstock.runtimes.base import Payload, PayloadReply, Returned
from penstock.runtimes.infer_metadata import InferMetadata
from penstock.runtimes.tensor_bytes import pack, unpack
from penstock.wire.frames import decode_request_meta

#: A body with such a text may be one of the Open Inference Protocol in InvokeEndpoint.
_OIP_MARK: Final = b'"datatype"'
_OFFERED: Final = {CSV: answers.AFTER_CSV, NPY: answers.AFTER_NPY}


class PredictorEngine(TensorBodies):
    """An item's data is (meta, body) for the worker; an empty meta goes with packed tensors."""

    takes_tensors = False  #: its data are bodies, read by the model's process

    def __init__(self, runtime: Any, model: CodecModel) -> None:
        super().__init__(model)
        self._runtime = runtime

    def decode(self, meta: bytes, body: bytes) -> tuple[Decoded, Any, int]:
        request = decode_request_meta(meta)
        kind = media_type(request.content_type)
        oip = kind == OIP_GRPC or is_oip_request(request, kind)
        if not oip and kind in (JSON, "") and _OIP_MARK in body:
            oip = is_oip(parse_json(body))
        if oip:
            decoded = decode_tensors(self.model, request, body)
            return self._packed(decoded.tensors, decoded.encode)
        offered = _OFFERED.get(kind, answers.AFTER_JSON)
        encode = answers.chosen(self.model, request.accept, offered)
        return Decoded({}, 1, encode), (meta, body), 0

    def taken(
        self, tensors: Tensors, encode: Encode, metadata: InferMetadata | None = None
    ) -> tuple[Decoded, Any, int]:
        decoded, _, _ = super().taken(tensors, encode)
        return self._packed(decoded.tensors, encode)

    def _packed(self, tensors: Tensors, encode: Encode) -> tuple[Decoded, Any, int]:
        """A request is one row for the queue: only the worker knows the rows of other bodies."""
        return Decoded({}, 1, encode), (b"", pack(tensors)), 0

    def run(self, lane: int, items: list[Item], bucket: int, done: Callable[[Any], None]) -> None:
        batch = []
        for item in items:
            request: Any = item.whole or item
            meta, body = item.data
            batch.append(Payload(meta, body, asked=request))

        def answered(replies: list[PayloadReply | Returned]) -> None:
            done([_result(reply) for reply in replies])

        self._runtime.invoke(lane, batch, answered)


def _result(reply: PayloadReply | Returned) -> Any:
    if isinstance(reply, Returned):
        return reply
    if reply.error is not None:
        return reply.error
    try:
        return unpack(reply.body)
    except Exception as error:  # the model's own process packed the reply
        return ModelError("model-answer-unreadable", f"its tensors can't be read: {error}")
