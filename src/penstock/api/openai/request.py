"""What a path and a body of OpenAI's API ask for; of the body only the model's name is read here.

`/v1/chat/completions` and its like name the endpoint in the body's `model`; SageMaker's form,
`/endpoints/{name}[/inference-components/{component}]/openai/v1/...`, names it in the path, and then
the body is not looked at.
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

#: The end of a path -> what the model is told of it.
OPERATIONS = {
    b"chat/completions": "chat",
    b"completions": "completions",
    b"embeddings": "embeddings",
    b"responses": "responses",
}
MODEL_CHARS_MAX = 256  #: of an endpoint; a target model's are behind them
#: Bodies up to here are read at once, in a few milliseconds at most.
READ_AT_ONCE_BYTES = 128 << 10
_MODELS = b"models"
_COMPONENTS = b"inference-components/"
_V1 = b"openai/v1/"


class OpenAiPath(NamedTuple):
    """What a path asks for."""

    operation: str  #: chat | completions | embeddings | responses | models
    endpoint: str | None  #: where the path names it
    model: str | None = None  #: of `models/{model}`
    component: str | None = None  #: where the path names it


def asked_of(path: bytes) -> OpenAiPath:
    """Raises CallerError (404) for a path that is not served."""
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
    """The model that a body names. Raises CallerError for one that names none."""
    try:
        asked: Any = plain_json.loads(body)
    except ValueError as cause:
        raise _malformed(cause) from cause
    return checked_model(asked.get("model") if isinstance(asked, dict) else None)


async def model_of_large(body: bytes) -> ModelName:
    """As `model_of`, for a body that takes long to read: others are served meanwhile."""
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
    """The name of a model, as a body gives it. Raises CallerError for what is none."""
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
    """Endpoint and component, where the path names them, and what follows `/v1/`."""
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
