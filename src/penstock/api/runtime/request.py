"""Reads the headers of InvokeEndpoint: the model's `RequestMeta`, and fields for the gateway.

Members are headers (rest-json). Members of AWS's without a meaning here are ignored. The router
checks those that choose who answers, a model or a component.

The module also reads and writes the headers of sessions. The router decides where a session's
requests go.

A request with `SessionId: NEW_SESSION` opens one, and its answer names it in `New-Session-Id`. A
request within a session whose body is `{"requestType": "CLOSE"}` ends it: the gateway owns the
session, so it answers this itself with `Closed-Session-Id`, and the model need not know. DJL's
containers use this form; `{"requestType": "NEW_SESSION"}` opens one without a call to the model.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import orjson

from penstock.core.routing.sequences import is_sequence
from penstock.core.routing.sessions import UNKNOWN
from penstock.errors import CallerError, PenstockError
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.dispatch.invocation import Affinity
from penstock.gateway.http.call import Call, status_line
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
ROOM = b"x-penstock-room"  #: in a request: asks for the free room; in its answer: that number

#: Header names that this door needs in `Call.rare`.
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
HEADER_CHARS_MAX = 1024  #: bound of Content-Type and Accept, as in AWS's model
#: Attributes for the model where the answer travels in pieces.
_STREAMS = '{"stream":true}'
_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
_TARGET_MODEL_NAME = re.compile(r"[!-~][ -~]*")
_SESSION_ID = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9])*")
_DEADLINE_DIGITS_MAX = 9
_CACHE_MAX = 1024


class InvocationSpec(NamedTuple):
    """The content of a request with rare headers."""

    meta: bytes
    variant: str | None
    deadline_s: float | None
    affinity: Affinity | None = None


#: Cache of `plain_meta` by its arguments; the door looks here first.
PLAIN_METAS: dict[tuple[bytes | None, bytes | None, str | None], bytes] = {}


def plain_meta(
    content_type: bytes | None, accept: bytes | None, target_model: str | None = None
) -> bytes:
    """Wire form of the meta of a request without other rare headers; cached, since few differ."""
    key = (content_type, accept, target_model)
    meta = PLAIN_METAS.get(key)
    if meta is None:
        meta = encode_request_meta(
            RequestMeta(
                _text("contentType", content_type),
                _text("accept", accept),
                target_model=target_model,
            )
        )
        if len(PLAIN_METAS) >= _CACHE_MAX:
            PLAIN_METAS.clear()
        PLAIN_METAS[key] = meta
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
        accept: type of the answer; for a stream, type of its pieces.
        streams: the answer travels as an event stream.
    """
    custom_attributes = _text(
        "customAttributes", rare.get(CUSTOM_ATTRIBUTES), CUSTOM_ATTRIBUTES_CHARS_MAX
    )
    inference_id = _text("inferenceId", rare.get(INFERENCE_ID), INFERENCE_ID_CHARS_MAX)
    affinity = _affinity(rare, streams=streams)
    session_id = affinity.session if affinity is not None else None
    model = affinity.model if affinity is not None else None
    container = _name(
        "targetContainerHostname", rare.get(TARGET_CONTAINER), "target-container-invalid"
    )
    if custom_attributes is inference_id is session_id is container is None and not streams:
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
                target_container=container,
            )
        )
    variant = _name("targetVariant", rare.get(TARGET_VARIANT), "variant-name-invalid")
    return InvocationSpec(meta, variant, deadline_s(rare.get(DEADLINE_MS)), affinity)


def _affinity(rare: dict[bytes, bytes], *, streams: bool) -> Affinity | None:
    """The binding of the request to some copies; None for a usual request."""
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
    """Seconds that `x-penstock-deadline-ms` leaves for a request; None if it is not set."""
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
    """InferenceComponentName by AWS's pattern; the router knows which exist."""
    return _name("inferenceComponentName", rare.get(INFERENCE_COMPONENT), "component-name-invalid")


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
    """TargetModel by AWS's pattern; the host checks what it names below its prefix."""
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


#: (endpoint, session): asks other gateways, and returns once the dispatcher knows the session's
#: copy if any does. Raises PenstockError for a lost session, and if no gateway can be reached.
FindSession = Callable[[str, str], Awaitable[None]]
#: Context of a call for whose session other gateways were asked.
_LOOKED_UP = object()

#: Bound of a body that only opens or closes a session.
_BODY_BYTES_MAX = 64
_JSON_HEAD = b"content-type: application/json\r\n"


class SessionHeaders:
    """Reads and writes the session of requests."""

    def __init__(self, dispatcher: Dispatcher, find: FindSession | None = None) -> None:
        """`find`: asks other gateways; None if there are none."""
        self._dispatcher = dispatcher
        self._find = find
        self._looking: set[asyncio.Task[None]] = set()

    def is_elsewhere(self, call: Call) -> bool:
        """Whether the session is unknown here, and other gateways have not been asked yet."""
        affinity = call.affinity
        if self._find is None or affinity is None or affinity.opens or affinity.session is None:
            return False
        known = self._dispatcher.sessions.find(call.endpoint, affinity.session)
        return known == UNKNOWN.reason and call.context is not _LOOKED_UP

    def look_up(self, call: Call, then: Callable[[Call, PenstockError | None], None]) -> None:
        """Asks other gateways for it; `then` continues the request or refuses it."""
        call.context = _LOOKED_UP
        task = asyncio.get_running_loop().create_task(self._look_up(call, then))
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    async def _look_up(
        self, call: Call, then: Callable[[Call, PenstockError | None], None]
    ) -> None:
        assert self._find is not None
        assert call.affinity is not None
        assert call.affinity.session is not None
        refusal = None
        try:
            await self._find(call.endpoint, call.affinity.session)
        except PenstockError as error:
            refusal = error
        if call.connection is not None:
            then(call, refusal)

    def answer(self, call: Call) -> bool:
        """Answers a request that only opens or closes a session; False: it is for the model.

        Raises PenstockError as the dispatcher does, for an unknown session or endpoint.
        """
        affinity = call.affinity
        assert affinity is not None
        if affinity.session is None or len(call.body) > _BODY_BYTES_MAX:
            return False
        asked = _request_type(call.body)
        if affinity.opens and asked == "NEW_SESSION":
            self._dispatcher.sessions.open(
                call.endpoint, affinity.session, call.variant, affinity.component
            )
            call.answer(status_line(200) + _JSON_HEAD + self.head(call), b"{}")
            return True
        if not affinity.opens and asked == "CLOSE":
            self._dispatcher.sessions.close(call.endpoint, affinity.session)
            closed = b"x-amzn-sagemaker-closed-session-id: %b\r\n" % affinity.session.encode()
            call.answer(status_line(200) + _JSON_HEAD + closed, b"{}")
            return True
        return False

    def head(self, call: Call) -> bytes:
        """The header line with a new session and the time at which it expires if unused."""
        affinity = call.affinity
        if affinity is None or not affinity.opens or affinity.session is None:
            return b""
        if is_sequence(affinity.session):
            return b""  # its caller named it
        ends = time.gmtime(self._dispatcher.clock.wall() + self._dispatcher.sessions.idle_s_max)
        return b"x-amzn-sagemaker-new-session-id: %b; Expires=%b\r\n" % (
            affinity.session.encode(),
            time.strftime("%Y-%m-%dT%H:%M:%SZ", ends).encode(),
        )


def _request_type(body: bytes) -> str | None:
    """`requestType` of a body without any other member."""
    if not body.startswith(b"{"):
        return None
    try:
        asked = orjson.loads(body)
    except ValueError:
        return None
    if isinstance(asked, dict) and len(asked) == 1:
        kind = asked.get("requestType")
        return kind if isinstance(kind, str) else None
    return None
