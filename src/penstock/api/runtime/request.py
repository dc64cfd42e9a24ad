"""What the headers of InvokeEndpoint say: the model's `RequestMeta`, and the gateway's own fields.

Members sit in headers (rest-json). Those of AWS's that mean nothing here are ignored; those that
change who answers, a model or a component, are the router's to know.
"""

from __future__ import annotations

import re
import uuid
from typing import Any, NamedTuple

from penstock.errors import CallerError
from penstock.gateway.dispatch.invocation import Affinity
from penstock.wire.frames import RequestMeta, encode_request_meta

CUSTOM_ATTRIBUTES = b"x-amzn-sagemaker-custom-attributes"
TARGET_VARIANT = b"x-amzn-sagemaker-target-variant"
TARGET_MODEL = b"x-amzn-sagemaker-target-model"
INFERENCE_COMPONENT = b"x-amzn-sagemaker-inference-component"
TARGET_CONTAINER = b"x-amzn-sagemaker-target-container-hostname"
INFERENCE_ID = b"x-amzn-sagemaker-inference-id"
SESSION_ID = b"x-amzn-sagemaker-session-id"
PREFIX_ID = b"x-amzn-sagemaker-prefix-aware-id"
STREAM_ACCEPT = b"x-amzn-sagemaker-accept"
DEADLINE_MS = b"x-penstock-deadline-ms"
ROOM = b"x-penstock-room"  #: asks for, and then tells, how many more the endpoint takes now

#: Header names that the door wants to find in `Call.rare`.
INTEREST = (
    CUSTOM_ATTRIBUTES,
    TARGET_VARIANT,
    TARGET_MODEL,
    INFERENCE_COMPONENT,
    TARGET_CONTAINER,
    INFERENCE_ID,
    SESSION_ID,
    PREFIX_ID,
    STREAM_ACCEPT,
    DEADLINE_MS,
    ROOM,
)

NEW_SESSION = "NEW_SESSION"

CUSTOM_ATTRIBUTES_CHARS_MAX = 1024
INFERENCE_ID_CHARS_MAX = 64
SESSION_ID_CHARS_MAX = 256
HEADER_CHARS_MAX = 1024  #: of Content-Type and Accept, as in AWS's model
#: What the model is told of a request whose answer travels in pieces.
_STREAMS = '{"stream":true}'
_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
_TARGET_MODEL_NAME = re.compile(r"[!-~][ -~]*")
_SESSION_ID = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9])*")
_DEADLINE_DIGITS_MAX = 9
_CACHE_MAX = 1024


class InvocationSpec(NamedTuple):
    """What a request with rare headers asks for."""

    meta: bytes
    variant: str | None
    deadline_s: float | None
    affinity: Affinity | None = None


#: What `plain_meta` keeps of requests without a target model; the door looks here first.
PLAIN_METAS: dict[tuple[bytes | None, bytes | None], bytes] = {}
_target_metas: dict[tuple[bytes | None, bytes | None, str], bytes] = {}


def plain_meta(
    content_type: bytes | None, accept: bytes | None, target_model: str | None = None
) -> bytes:
    """Wire form of the meta of a request without other rare headers; kept, because few differ."""
    metas: dict[Any, bytes] = PLAIN_METAS if target_model is None else _target_metas
    key: Any = (content_type, accept)
    if target_model is not None:
        key = (content_type, accept, target_model)
    meta = metas.get(key)
    if meta is None:
        meta = encode_request_meta(
            RequestMeta(
                _text("contentType", content_type),
                _text("accept", accept),
                target_model=target_model,
            )
        )
        if len(metas) >= _CACHE_MAX:
            metas.clear()
        metas[key] = meta
    return meta


def read(
    content_type: bytes | None,
    accept: bytes | None,
    rare: dict[bytes, bytes],
    *,
    streams: bool = False,
) -> InvocationSpec:
    """Reads the rare headers. Raises CallerError for a value that AWS would refuse.

    Args:
        accept: what the answer may be; for a stream, what its pieces may be.
        streams: the answer travels as an event stream.
    """
    if rare.get(TARGET_CONTAINER):
        raise CallerError(
            "target-container-not-allowed",
            "TargetContainerHostname is not supported: no endpoint has several containers.",
            hint="Leave TargetContainerHostname out.",
        )
    custom_attributes = _text(
        "customAttributes", rare.get(CUSTOM_ATTRIBUTES), CUSTOM_ATTRIBUTES_CHARS_MAX
    )
    inference_id = _text("inferenceId", rare.get(INFERENCE_ID), INFERENCE_ID_CHARS_MAX)
    affinity = _affinity(rare, streams=streams)
    session_id = affinity.session if affinity is not None else None
    model = affinity.model if affinity is not None else None
    if custom_attributes is inference_id is session_id is None and not streams:
        meta = plain_meta(content_type, accept, model)
    else:
        meta = encode_request_meta(
            RequestMeta(
                _text("contentType", content_type),
                _text("accept", accept),
                custom_attributes,
                inference_id,
                target_model=model,
                session_id=session_id,
                parameters=_STREAMS if streams else None,
            )
        )
    return InvocationSpec(
        meta, _variant(rare.get(TARGET_VARIANT)), deadline_s(rare.get(DEADLINE_MS)), affinity
    )


def _affinity(rare: dict[bytes, bytes], *, streams: bool) -> Affinity | None:
    """What binds the request to some copies; None for the usual one."""
    session = _text("sessionId", rare.get(SESSION_ID), SESSION_ID_CHARS_MAX)
    prefix = rare.get(PREFIX_ID)
    model = target_model(rare)
    component = inference_component(rare)
    if session is None and prefix is None:
        return None if model is component is None else Affinity(model=model, component=component)
    _text("prefixAwareId", prefix)
    if session == NEW_SESSION:
        if streams:
            raise CallerError(
                "session-not-allowed",
                "A session can't begin with InvokeEndpointWithResponseStream.",
                hint="Open it with InvokeEndpoint, then stream with the SessionId that it returns.",
            )
        opened = str(uuid.uuid4())
        return Affinity(opened, prefix, opens=True, model=model, component=component)
    if session is not None and not _SESSION_ID.fullmatch(session):
        raise CallerError(
            "session-id-invalid",
            f"1 validation error detected: Value '{session[:64]}' at 'sessionId' failed to satisfy "
            f"constraint: Member must satisfy regular expression pattern: {_SESSION_ID.pattern}",
        )
    return Affinity(session, prefix, model=model, component=component)


def deadline_s(value: bytes | None) -> float | None:
    """The seconds that `x-penstock-deadline-ms` leaves a request; None if it says nothing."""
    if value is None:
        return None
    text = value.strip()
    if not text.isdigit() or len(text) > _DEADLINE_DIGITS_MAX or not int(text):
        raise CallerError(
            "deadline-invalid",
            f"x-penstock-deadline-ms is {value[:32].decode('latin-1')!r}; allowed: whole "
            "milliseconds from 1 on.",
        )
    return int(text) / 1000


def inference_component(rare: dict[bytes, bytes]) -> str | None:
    """InferenceComponentName, as AWS's model has it; which there are is the router's to know."""
    return _name("inferenceComponentName", rare.get(INFERENCE_COMPONENT), "component-name-invalid")


def _variant(value: bytes | None) -> str | None:
    return _name("targetVariant", value, "variant-name-invalid")


def _name(member: str, value: bytes | None, code: str) -> str | None:
    name = _text(member, value)
    if name is not None and not _NAME.fullmatch(name):
        raise CallerError(
            code,
            f"1 validation error detected: Value '{name[:64]}' at '{member}' failed to "
            "satisfy constraint: Member must satisfy regular expression pattern: "
            f"{_NAME.pattern}",
        )
    return name


def target_model(rare: dict[bytes, bytes]) -> str | None:
    """TargetModel, as AWS's model has it; what it may name is the host's to check."""
    name = _text("targetModel", rare.get(TARGET_MODEL))
    if name is not None and not _TARGET_MODEL_NAME.fullmatch(name):
        raise CallerError(
            "target-model-invalid",
            f"1 validation error detected: Value '{name[:64]}' at 'targetModel' failed to satisfy "
            r"constraint: Member must satisfy regular expression pattern: \A\S[\p{Print}]*\z",
        )
    return name


def _text(member: str, value: bytes | None, chars_max: int = HEADER_CHARS_MAX) -> str | None:
    if value is None:
        return None
    if len(value) > chars_max:
        raise CallerError(
            "header-too-long",
            f"1 validation error detected: Value at '{member}' failed to satisfy constraint: "
            f"Member must have length less than or equal to {chars_max}",
        )
    return value.decode("latin-1")
