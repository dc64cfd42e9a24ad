"""Common code for bodies of all text models: content types, and the forms of a text.

This module finds a body's form; the `Forms` of a kind of model say how to read each form. It must
not know tasks or answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from penstock.instance.codecs import oip_grpc, oip_json
from penstock.instance.codecs.base import (
    CSV,
    JSON,
    OIP_GRPC,
    TRITON_BINARY,
    HasName,
    as_asked,
    bad,
    media_type,
    negotiate,
)
from penstock.instance.codecs.select import is_oip_request, json_header_bytes
from penstock.instance.codecs.values import parse_json
from penstock.wire.frames import ReplyMeta, RequestMeta, encode_reply_meta

JSON_META: Final = encode_reply_meta(ReplyMeta(content_type=JSON))
_PLAIN: Final = ("text/plain", "application/x-text")
_NOTHING: Final = memoryview(b"")

Model = TypeVar("Model", bound=HasName)
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class Forms(Generic[Model, Found]):
    """How a kind of model reads each form. All functions raise ModelError with the model's
    status."""

    json: Callable[[Model, Any], Found]  #: parsed JSON that is not of the Open Inference Protocol
    plain: Callable[[Model, str], Found]  #: one text
    #: (parsed JSON, the binary part after it, whether it came through SageMaker's door).
    oip: Callable[[Model, Any, memoryview, bool], Found]
    grpc: Callable[[Model, Any], Found]  #: a ModelInferRequest
    csv: Callable[[Model, str], Found] | None = None  #: None: CSV is not read

    @property
    def types(self) -> tuple[str, ...]:
        """The content types, as a text for people."""
        csv = (CSV,) if self.csv is not None else ()
        return (JSON, "text/plain", *csv, f"{TRITON_BINARY} (input `text`, BYTES)")


def read(forms: Forms[Model, Found], model: Model, meta: RequestMeta, body: bytes) -> Found:
    """Raises ModelError with the status that the model answers."""
    model = as_asked(model, meta)
    kind = media_type(meta.content_type)
    if kind == OIP_GRPC:
        request = oip_grpc.parse(body)
        for entry in request.inputs:
            if _is_column(entry.shape):
                del entry.shape[1:]
        return forms.grpc(model, request)
    if is_oip_request(meta, kind):
        head = json_header_bytes(meta)
        parsed = parse_json(body[:head] if head else body)
        rest = memoryview(body)[head:] if head else _NOTHING
        return forms.oip(model, _without_columns(parsed), rest, meta.door != "oip")
    if kind in (JSON, ""):
        parsed = parse_json(body)
        if oip_json.is_oip(parsed):
            return forms.oip(model, _without_columns(parsed), _NOTHING, True)
        negotiate(meta.accept, (JSON,))
        return forms.json(model, parsed)
    negotiate(meta.accept, (JSON,))
    if kind in _PLAIN:
        return forms.plain(model, utf8(body))
    if kind == CSV and forms.csv is not None:
        return forms.csv(model, utf8(body))
    raise bad(
        f"content type {kind[:100]!r} is not one that this model reads: {', '.join(forms.types)}",
        code="unsupported-content-type",
        status=415,
    )


def inputs_and_parameters(parsed: Any, *, hint: str = "") -> tuple[Any, dict[str, Any]]:
    """Reads `{"inputs": ..., "parameters": {...}}`, `{"instances": ...}`, or inputs alone."""
    if not isinstance(parsed, dict):
        return parsed, {}
    parameters = parsed.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise bad("parameters is not an object", hint=hint)
    return parsed.get("inputs", parsed.get("instances")), parameters


def utf8(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise bad(f"the text is not UTF-8: byte {error.start} cannot be read") from None


def check_count(count: int, count_max: int, *, hint: str = "") -> None:
    """Checks the number of texts in one request."""
    if not count:
        raise bad("the request has no texts; send at least one", hint=hint)
    if count > count_max:
        raise bad(f"{count} texts came, {count_max} at most in one request", status=413)


def _without_columns(parsed: Any) -> Any:
    """Changes shapes [n, 1] of the request to [n] in place."""
    if isinstance(parsed, dict) and isinstance(parsed.get("inputs"), list):
        for entry in parsed["inputs"]:
            if isinstance(entry, dict) and _is_column(entry.get("shape")):
                entry["shape"] = entry["shape"][:1]
    return parsed


def _is_column(shape: Any) -> bool:
    """[n, 1] counts as [n]: Triton clients send strings of batched models that way."""
    return hasattr(shape, "__len__") and len(shape) == 2 and shape[1] == 1
