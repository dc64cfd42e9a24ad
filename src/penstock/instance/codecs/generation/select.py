"""Finds a request's dialect: by its front door, and at SageMaker's door by the keys of its JSON."""

from __future__ import annotations

from penstock.errors import CallerError
from penstock.instance.codecs.base import OIP_GRPC, media_type
from penstock.instance.codecs.generation import (
    openai_chat,
    openai_completions,
    openai_responses,
    openai_tokens,
    tgi,
    triton_generate,
    triton_tensors,
)
from penstock.instance.codecs.generation.calls import (
    JSON,
    GenerationCall,
    Served,
    parameters_of,
    parse_object,
    wrong,
)
from penstock.wire.frames import RequestMeta

_TEXT = "text/plain"


def decode(meta: RequestMeta, body: bytes, served: Served) -> GenerationCall:
    """Raises CallerError (of the dialects) and ModelError (of tensors)."""
    asked = parameters_of(meta)
    operation = asked.get("operation")
    if meta.door == "oip-grpc" or media_type(meta.content_type) == OIP_GRPC:
        return triton_tensors.decode_grpc(body, served, stream=operation == "stream_infer")
    if meta.door == "oip":
        if operation in ("generate", "generate_stream"):
            parsed = parse_object(body)
            return triton_generate.decode(parsed, served, stream=operation == "generate_stream")
        return triton_tensors.decode_json(body, meta, served)
    if meta.door == "openai":
        parsed = parse_object(body)
        if operation == "chat":
            return openai_chat.decode(parsed, served, stream=False)
        if operation == "completions":
            return openai_completions.decode(parsed, served, stream=False)
        if operation == "responses":
            return openai_responses.decode(parsed, served)
        if operation in openai_tokens.OPERATIONS:
            return openai_tokens.decode(operation, parsed)
        raise CallerError(
            "operation-unsupported",
            f"this model generates text and has no operation {operation!r}",
            hint="Embeddings need an endpoint of a feature-extraction model, rerank and score one "
            "of a model that compares two texts.",
        )
    return _by_keys(meta, body, served, stream=asked.get("stream") is True)


def _by_keys(meta: RequestMeta, body: bytes, served: Served, *, stream: bool) -> GenerationCall:
    kind = media_type(meta.content_type)
    if kind == _TEXT:
        return tgi.decode({"inputs": _utf8(body)}, stream=stream)
    if kind not in (JSON, "", "application/x-www-form-urlencoded", "application/octet-stream"):
        raise CallerError(
            "unsupported-content-type",
            f"content type {kind[:100]!r} is not one that this model reads: {JSON}, {_TEXT}",
            status=415,
        )
    parsed = parse_object(body)
    if "messages" in parsed:
        return openai_chat.decode(parsed, served, stream=stream)
    if "prompt" in parsed:
        return openai_completions.decode(parsed, served, stream=stream)
    if "text_input" in parsed:
        return triton_generate.decode(parsed, served, stream=stream)
    if isinstance(parsed.get("inputs"), list):
        return triton_tensors.decode_json(body, meta, served)
    if "inputs" in parsed:
        return tgi.decode(parsed, stream=stream)
    raise wrong("the body", 'an object with "inputs", "messages" or "prompt"')


def _utf8(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise CallerError("bad-json", f"the body is not UTF-8: {error}") from None
