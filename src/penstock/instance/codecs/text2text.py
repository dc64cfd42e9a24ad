"""Models that write texts: texts and generation parameters in, texts out.

Bodies: `{"inputs": "text" | ["text", ...], "parameters": {...}}`, text/plain (one text), or a BYTES
tensor `text` over the Open Inference Protocol. Answers follow the Hugging Face toolkit: a list with
one `{"generated_text": "..."}` per text; over the Open Inference Protocol a BYTES tensor
`generated_text`. Parameters are `runtimes.seq2seq.request`'s; the Open Inference Protocol carries
them as request parameters, where names that are not ours belong to the protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.artifacts.description import TensorSpec
from penstock.instance.codecs import oip_grpc, oip_json
from penstock.instance.codecs.base import (
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
from penstock.runtimes.seq2seq.request import PARAMETERS
from penstock.wire.frames import ReplyMeta, RequestMeta, encode_reply_meta

INPUTS: Final = (TensorSpec(name="text", dtype="BYTES", shape=(-1,)),)
OUTPUTS: Final = (TensorSpec(name="generated_text", dtype="BYTES", shape=(-1,)),)
TEXTS_MAX: Final = 1024  #: texts in one request
_TYPES: Final = (JSON, "text/plain", f"{TRITON_BINARY} (input `text`, BYTES)")
_JSON_META: Final = encode_reply_meta(ReplyMeta(content_type=JSON))
_EXAMPLE: Final = '{"inputs": "wireles hedphones", "parameters": {"max_new_tokens": 20}}'


class Text2TextDecoded(Decoded):
    """Texts of one request; its `encode` takes `generated_text`, an array of UTF-8 bytes."""

    __slots__ = ("parameters", "texts")

    def __init__(self, texts: list[str], parameters: Mapping[str, Any], encode: Encode) -> None:
        super().__init__({}, len(texts), encode)
        self.texts = texts
        self.parameters = parameters


def decode_text2text(model: CodecModel, meta: RequestMeta, body: bytes) -> Text2TextDecoded:
    """Parameters are not checked here. Raises ModelError with the status the model answers."""
    kind = media_type(meta.content_type)
    if kind == OIP_GRPC:
        return _from_grpc(model, body)
    if is_oip_request(meta, kind):
        head = json_header_bytes(meta)
        parsed = parse_json(body[:head] if head else body)
        rest = memoryview(body)[head:] if head else memoryview(b"")
        return _from_oip(model, parsed, rest, sagemaker=meta.door != "oip")
    if kind in (JSON, ""):
        parsed = parse_json(body)
        if oip_json.is_oip(parsed):
            return _from_oip(model, parsed, memoryview(b""), sagemaker=True)
        negotiate(meta.accept, (JSON,))
        return _from_json(parsed)
    negotiate(meta.accept, (JSON,))
    if kind in ("text/plain", "application/x-text"):
        return _checked([_utf8(body)], {}, _as_json)
    raise bad(
        f"content type {kind[:100]!r} is not one that this model reads: {', '.join(_TYPES)}",
        code="unsupported-content-type",
        status=415,
    )


def _from_json(parsed: Any) -> Text2TextDecoded:
    parameters: Any = {}
    inputs = parsed
    if isinstance(parsed, dict):
        inputs = parsed.get("inputs", parsed.get("instances"))
        parameters = parsed.get("parameters") or {}
        if not isinstance(parameters, dict):
            raise bad("parameters is not an object", hint=_EXAMPLE)
    texts = [inputs] if isinstance(inputs, str) else inputs
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise bad('"inputs" must be a text or a list of texts', hint=_EXAMPLE)
    return _checked(texts, parameters, _as_json)


def _as_json(outputs: Tensors) -> tuple[bytes, bytes]:
    texts = [{"generated_text": text.decode()} for text in outputs["generated_text"].tolist()]
    return dump_json(texts), _JSON_META


def _checked(texts: list[str], parameters: Mapping[str, Any], encode: Encode) -> Text2TextDecoded:
    if not texts:
        raise bad("the request has no texts; send at least one", hint=_EXAMPLE)
    if len(texts) > TEXTS_MAX:
        raise bad(f"{len(texts)} texts came, {TEXTS_MAX} at most in one request", status=413)
    return Text2TextDecoded(texts, parameters, encode)


def _from_oip(
    model: CodecModel, parsed: Any, binary: memoryview, *, sagemaker: bool
) -> Text2TextDecoded:
    parameters: dict[str, Any] = {}
    if isinstance(parsed, dict):
        given = parsed.get("parameters")
        if isinstance(given, dict):
            parameters = {name: given[name] for name in PARAMETERS if name in given}
        for entry in parsed["inputs"] if isinstance(parsed.get("inputs"), list) else ():
            if isinstance(entry, dict) and _is_column(entry.get("shape")):
                entry["shape"] = entry["shape"][:1]
    decoded = oip_json.decode_parsed(model, parsed, binary, sagemaker=sagemaker)
    return _over_tensors(decoded, parameters)


def _from_grpc(model: CodecModel, body: bytes) -> Text2TextDecoded:
    request = oip_grpc.parse(body)
    parameters: dict[str, Any] = {}
    for name in PARAMETERS:
        if name in request.parameters:
            value = request.parameters[name]
            chosen = value.WhichOneof("parameter_choice")
            parameters[name] = getattr(value, chosen) if chosen else None
    for entry in request.inputs:
        if _is_column(entry.shape):
            del entry.shape[1:]
    return _over_tensors(oip_grpc.decode_parsed(model, request), parameters)


def _is_column(shape: Any) -> bool:
    """[n, 1] is taken for [n]: Triton clients send strings of batched models that way."""
    return hasattr(shape, "__len__") and len(shape) == 2 and shape[1] == 1


def _over_tensors(decoded: Decoded, parameters: Mapping[str, Any]) -> Text2TextDecoded:
    texts = [_utf8(item) for item in decoded.tensors["text"].tolist()]
    return _checked(texts, parameters, decoded.encode)


def _utf8(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise bad(f"the text is not UTF-8: byte {error.start} cannot be read") from None
