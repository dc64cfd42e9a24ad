"""Text models: strings in; labels with scores, or vectors, out.

Bodies: `{"inputs": "text" | ["text", ...], "parameters": {...}}`, `{"instances": [...]}`, a bare
JSON list of strings, text/plain (one text), text/csv (one text a line), or a BYTES tensor `text`
over the Open Inference Protocol. Answers follow the Hugging Face toolkit:

* classification without `top_k`: a flat list, the best `{"label", "score"}` of each text;
* with `parameters.top_k` (a number, or null for all): the best k of a text as a list, best first,
  and a list of such lists when `inputs` was a list;
* embeddings: a list of vectors, one per text.

Over the Open Inference Protocol the outputs are `label` BYTES and `score` FP32 (shape [n], or
[n, k] with the request parameter `top_k`), or `embedding` FP32 [n, d].
"""

from __future__ import annotations

import csv
import io
from typing import Any, Final

import numpy as np

from penstock.artifacts.description import TensorSpec
from penstock.instance.codecs import oip_grpc, oip_json
from penstock.instance.codecs.base import (
    CSV,
    JSON,
    OIP_GRPC,
    TRITON_BINARY,
    CodecModel,
    Decoded,
    Encode,
    Tensors,
    bad,
    media_type,
    negotiate,
)
from penstock.instance.codecs.select import is_oip_request, json_header_bytes
from penstock.instance.codecs.values import dump_json, parse_json
from penstock.runtimes.tensor_bytes import objects
from penstock.wire.frames import ReplyMeta, RequestMeta, encode_reply_meta

TEXT_TYPES: Final = (JSON, "text/plain", CSV, f"{TRITON_BINARY} (input `text`, BYTES)")
TEXTS_MAX: Final = 4096  #: texts in one request
INPUTS: Final = (TensorSpec(name="text", dtype="BYTES", shape=(-1,)),)
LABEL_OUTPUTS: Final = (
    TensorSpec(name="label", dtype="BYTES", shape=(-1,)),
    TensorSpec(name="score", dtype="FP32", shape=(-1,)),
)
EMBEDDING_OUTPUTS: Final = (TensorSpec(name="embedding", dtype="FP32", shape=(-1, -1)),)

_JSON_META: Final = encode_reply_meta(ReplyMeta(content_type=JSON))


class TextDecoded(Decoded):
    """Texts of one request; its `encode` takes `score` [n, labels] or `embedding` [n, d]."""

    __slots__ = ("texts",)

    def __init__(self, texts: list[str], encode: Encode) -> None:
        super().__init__({}, len(texts), encode)
        self.texts = texts


def decode_texts(
    model: CodecModel, labels: tuple[str, ...], meta: RequestMeta, body: bytes
) -> TextDecoded:
    """`labels` empty: an embedding model. Raises ModelError with the status the model answers."""
    kind = media_type(meta.content_type)
    if kind == OIP_GRPC:
        return _from_grpc(model, labels, body)
    if is_oip_request(meta, kind):
        head = json_header_bytes(meta)
        parsed = parse_json(body[:head] if head else body)
        rest = memoryview(body)[head:] if head else memoryview(b"")
        return _from_oip(model, labels, parsed, rest, sagemaker=meta.door != "oip")
    if kind in (JSON, ""):
        parsed = parse_json(body)
        if oip_json.is_oip(parsed):
            return _from_oip(model, labels, parsed, memoryview(b""), sagemaker=True)
        negotiate(meta.accept, (JSON,))
        return _from_json(labels, parsed)
    negotiate(meta.accept, (JSON,))
    if kind in ("text/plain", "application/x-text"):
        return _answering([_utf8(body)], labels, several=False, top_k=0)
    if kind == CSV:
        rows = [row for row in csv.reader(io.StringIO(_utf8(body))) if row]
        if any(len(row) != 1 for row in rows):
            raise bad("each line of the CSV is one text; quote texts that hold commas")
        return _answering([row[0] for row in rows], labels, several=True, top_k=0)
    raise bad(
        f"content type {kind[:100]!r} is not one that this model reads: {', '.join(TEXT_TYPES)}",
        code="unsupported-content-type",
        status=415,
    )


def _utf8(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise bad(f"the text is not UTF-8: byte {error.start} cannot be read") from None


def _from_json(labels: tuple[str, ...], parsed: Any) -> TextDecoded:
    parameters: Any = {}
    inputs = parsed
    if isinstance(parsed, dict):
        inputs = parsed.get("inputs", parsed.get("instances"))
        parameters = parsed.get("parameters") or {}
        if not isinstance(parameters, dict):
            raise bad("parameters is not an object")
    if isinstance(inputs, str):
        texts = [inputs]
    elif isinstance(inputs, list) and all(isinstance(text, str) for text in inputs):
        texts = inputs
    else:
        raise bad(
            '"inputs" must be a text or a list of texts', hint='{"inputs": "where is my order"}'
        )
    top_k = _top_k(parameters.get("top_k", 0))
    return _answering(texts, labels, several=isinstance(inputs, list), top_k=top_k)


def _top_k(value: Any) -> int | None:
    """0: not asked for; None: all."""
    if value is None or (type(value) is int and value >= 0):
        return value
    raise bad(f"top_k is a number of labels or null, {str(value)[:40]} came")


def _answering(
    texts: list[str], labels: tuple[str, ...], *, several: bool, top_k: int | None
) -> TextDecoded:
    _check_count(len(texts))

    def encode(outputs: Tensors) -> tuple[bytes, bytes]:
        if "embedding" in outputs:
            return dump_json(np.ascontiguousarray(outputs["embedding"])), _JSON_META
        ranked = _ranked(outputs["score"], labels, top_k)
        if top_k == 0:
            return dump_json([best[0] for best in ranked]), _JSON_META
        return dump_json(ranked if several else ranked[0]), _JSON_META

    return TextDecoded(texts, encode)


def _check_count(count: int) -> None:
    if not count:
        raise bad("the request has no texts; send at least one")
    if count > TEXTS_MAX:
        raise bad(f"{count} texts came, {TEXTS_MAX} at most in one request", status=413)


def _ranked(
    scores: np.ndarray, labels: tuple[str, ...], top_k: int | None
) -> list[list[dict[str, Any]]]:
    count = scores.shape[1] if top_k is None else max(1, min(top_k, scores.shape[1]))
    if count == 1:
        best = scores.argmax(axis=1)
        return [
            [{"label": labels[at], "score": float(row[at])}]
            for row, at in zip(scores, best.tolist(), strict=True)
        ]
    order = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    return [
        [{"label": labels[at], "score": float(row[at])} for at in best]
        for row, best in zip(scores, order.tolist(), strict=True)
    ]


def _from_oip(
    model: CodecModel, labels: tuple[str, ...], parsed: Any, binary: memoryview, *, sagemaker: bool
) -> TextDecoded:
    parameters = parsed.get("parameters") if isinstance(parsed, dict) else None
    top_k = _top_k(parameters.get("top_k", 0)) if isinstance(parameters, dict) else 0
    if isinstance(parsed, dict) and isinstance(parsed.get("inputs"), list):
        for entry in parsed["inputs"]:
            if isinstance(entry, dict) and _is_column(entry.get("shape")):
                entry["shape"] = entry["shape"][:1]
    decoded = oip_json.decode_parsed(model, parsed, binary, sagemaker=sagemaker)
    return _over_tensors(decoded, labels, top_k)


def _from_grpc(model: CodecModel, labels: tuple[str, ...], body: bytes) -> TextDecoded:
    request = oip_grpc.parse(body)
    top_k: int | None = 0
    if "top_k" in request.parameters:
        top_k = _top_k(request.parameters["top_k"].int64_param)
    for entry in request.inputs:
        if _is_column(entry.shape):
            del entry.shape[1:]
    return _over_tensors(oip_grpc.decode_parsed(model, request), labels, top_k)


def _is_column(shape: Any) -> bool:
    """[n, 1] is taken for [n]: Triton clients send strings of batched models that way."""
    return hasattr(shape, "__len__") and len(shape) == 2 and shape[1] == 1


def _over_tensors(decoded: Decoded, labels: tuple[str, ...], top_k: int | None) -> TextDecoded:
    texts = [_utf8(item) for item in decoded.tensors["text"].tolist()]
    _check_count(len(texts))
    inner = decoded.encode

    def encode(outputs: Tensors) -> tuple[bytes, bytes]:
        if "embedding" in outputs:
            return inner(outputs)
        scores = outputs["score"]
        count = scores.shape[1] if top_k is None else max(1, min(top_k, scores.shape[1]))
        order = np.argsort(-scores, axis=1, kind="stable")[:, :count]
        best = np.take_along_axis(scores, order, axis=1)
        names = objects([labels[at].encode() for at in order.reshape(-1).tolist()])
        shape: tuple[int, ...] = (len(scores),) if top_k == 0 else order.shape
        return inner({"label": names.reshape(shape), "score": best.reshape(shape)})

    return TextDecoded(texts, encode)
