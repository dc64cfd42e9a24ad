"""Chooses the codec of a body: by content type, and for JSON by the body's form."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from penstock.instance.codecs import generate, npy, oip_grpc, oip_json, plain_rows
from penstock.instance.codecs.base import (
    CSV,
    JSON,
    JSON_LINES,
    NPY,
    NPZ,
    OIP_GRPC,
    TRITON_BINARY,
    CodecModel,
    Decoded,
    as_asked,
    bad,
    media_type,
    read_parameters,
)
from penstock.instance.codecs.values import parse_json
from penstock.wire.frames import RequestMeta

#: Content types that a tensor model reads; the 415 error for any other type lists them.
TENSOR_TYPES: Final = (
    JSON,
    "application/jsonlines",
    CSV,
    NPY,
    NPZ,
    "application/octet-stream (Open Inference Protocol)",
    TRITON_BINARY,
)

#: Doors whose parameters name the operation, and headers that the model sees.
_OIP_DOORS: Final = ("oip", "oip-grpc")

_HEADER_SIZE: Final = "json-header-size"
_HEADER_SIZE_DIGITS_MAX: Final = 9


def json_header_bytes(meta: RequestMeta) -> int | None:
    """From the Open Inference Protocol's own header, or from the content type's parameter."""
    if meta.json_header_bytes is not None:
        return meta.json_header_bytes
    for parameter in (meta.content_type or "").split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == _HEADER_SIZE:
            digits = value.strip().removeprefix('"').removesuffix('"')
            if digits.isdecimal() and len(digits) <= _HEADER_SIZE_DIGITS_MAX:
                return int(digits)
    return None


def is_oip_request(meta: RequestMeta, kind: str) -> bool:
    return meta.door == "oip" or kind in ("application/octet-stream", TRITON_BINARY)


def operation_of(meta: RequestMeta) -> str:
    """The operation that a front door names beside the body; empty: there is none."""
    if meta.parameters is None or meta.door not in _OIP_DOORS:
        return ""
    return str(read_parameters(meta).get("operation", ""))


def decode_tensors(model: CodecModel, meta: RequestMeta, body: bytes) -> Decoded:
    """Rows of a tensor model's request. Raises ModelError with the status that the model
    answers."""
    decoded = _decoded(as_asked(model, meta), meta, body)
    metadata = decoded.metadata
    if metadata is not None and meta.parameters is not None and meta.door in _OIP_DOORS:
        headers = read_parameters(meta).get("headers")
        if headers:
            decoded.metadata = replace(metadata, parameters={**metadata.parameters, **headers})
    return decoded


def _decoded(model: CodecModel, meta: RequestMeta, body: bytes) -> Decoded:
    kind = media_type(meta.content_type)
    if kind == OIP_GRPC:
        return oip_grpc.decode(model, body)
    operation = operation_of(meta)
    if operation in (generate.GENERATE, generate.GENERATE_STREAM):
        return generate.decode(model, body, stream=operation == generate.GENERATE_STREAM)
    if is_oip_request(meta, kind):
        sagemaker = meta.door != "oip"
        return oip_json.decode(model, body, json_header_bytes(meta), sagemaker=sagemaker)
    if kind in (JSON, ""):
        parsed = parse_json(body)
        if oip_json.is_oip(parsed):
            return oip_json.decode_parsed(model, parsed, memoryview(b""), sagemaker=True)
        return plain_rows.decode_parsed(model, parsed, meta.accept)
    if kind in JSON_LINES:
        return plain_rows.decode_lines(model, body, meta.accept)
    if kind == CSV:
        return plain_rows.decode_csv(model, body, meta.accept)
    if kind == NPY:
        return npy.decode(model, body, meta.accept)
    if kind == NPZ:
        return npy.decode_npz(model, body, meta.accept)
    raise bad(
        f"content type {kind[:100]!r} is not one that this model reads: {', '.join(TENSOR_TYPES)}",
        code="unsupported-content-type",
        status=415,
    )
