"""Parses a path of OpenAI's API, and the model's name in a body.

`/v1/chat/completions` and similar paths leave the endpoint to the body's `model`. SageMaker's form
`/endpoints/{name}[/inference-components/{component}]/openai/v1/...` names it in the path, and then
the body is not read.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from penstock.api.model_names import ModelName, parse
from penstock.api.openai.model_name import ModelScan
from penstock.errors import CallerError
from penstock.wire import plain_json

PREFIX = b"/v1/"
ENDPOINTS = b"/endpoints/"

#: End of a path -> name of the operation for the model.
OPERATIONS = {
    b"chat/completions": "chat",
    b"completions": "completions",
    b"embeddings": "embeddings",
    b"responses": "responses",
}
MODEL_CHARS_MAX = 256  #: longest name of an endpoint; a target model's name follows it
#: Bodies up to this size are parsed at once, in a few milliseconds.
READ_AT_ONCE_BYTES = 128 << 10
_MODELS = b"models"
_COMPONENTS = b"inference-components/"
_V1 = b"openai/v1/"


class OpenAiPath(NamedTuple):
    """A parsed path."""

    operation: str  #: chat | completions | embeddings | responses | models
    endpoint: str | None  #: None where the path does not name it
    model: str | None = None  #: the model in `models/{model}`
    component: str | None = None  #: None where the path does not name it


def asked_of(path: bytes) -> OpenAiPath:
    """The parsed path. Raises CallerError (404) for a path that is not served."""
    endpoint, component, rest = _split(path)
    operation = OPERATIONS.get(rest)
    if operation is not None:
        return OpenAiPath(operation, endpoint, component=component)
    head, _, model = rest.partition(b"/")
    if head == _MODELS:
        return OpenAiPath("models", endpoint, _text(model) or None, component)
    if head == b"responses":
        raise CallerError(
            "response-not-found",
            f"Response with id '{_text(model)[:128]}' not found.",
            hint="No responses are kept here: send the conversation as input.",
            status=404,
        )
    raise CallerError(
        "unknown-url",
        f"Unknown request URL: {path[:128].decode('latin-1')}.",
        hint="Served are chat/completions, completions, responses, embeddings and models below "
        "/v1/.",
        status=404,
    )


def model_of(body: bytes) -> ModelName:
    """The model that a body names. Raises CallerError for a body without one."""
    try:
        asked: Any = plain_json.loads(body)
    except ValueError as cause:
        raise _malformed(cause) from cause
    return checked_model(asked.get("model") if isinstance(asked, dict) else None)


async def model_of_large(body: bytes) -> ModelName:
    """As `model_of`, for a large body: it yields to other requests meanwhile."""
    scan = ModelScan(body)
    try:
        for _ in scan.steps():
            await asyncio.sleep(0)
    except ValueError as cause:
        raise _malformed(cause) from cause
    return checked_model(scan.value)


def _malformed(cause: ValueError) -> CallerError:
    return CallerError("json-malformed", f"The body is not JSON: {cause}")


def checked_model(model: Any) -> ModelName:
    """A model's name from a body. Raises CallerError for a value that is none."""
    if not isinstance(model, str) or not model:
        raise CallerError(
            "model-missing",
            "You must provide a model parameter.",
            hint="The name of an endpoint is its model; GET /v1/models names them. Target models of"
            " a multi-model endpoint are named ENDPOINT:TARGET_MODEL, inference components"
            " ENDPOINT:COMPONENT.",
        )
    name = parse(model)
    if len(name.endpoint) > MODEL_CHARS_MAX:
        raise CallerError("model-name-too-long", f"model has {len(model)} characters, 256 at most.")
    return name


def _split(path: bytes) -> tuple[str | None, str | None, bytes]:
    """Endpoint and component if the path names them, and the rest after `/v1/`."""
    if path.startswith(PREFIX):
        return None, None, path[len(PREFIX) :]
    name, _, rest = path[len(ENDPOINTS) :].partition(b"/")
    component = None
    if rest.startswith(_COMPONENTS):
        part, _, rest = rest[len(_COMPONENTS) :].partition(b"/")
        component = _text(part)
    return _text(name), component, rest[len(_V1) :] if rest.startswith(_V1) else b""


def _text(part: bytes) -> str:
    return unquote_to_bytes(part).decode("utf-8", "replace")
