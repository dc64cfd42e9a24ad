"""Parses a path of OpenAI's API, and the model's name in a body.

`/v1/chat/completions` and similar paths leave the endpoint to the body's `model`. SageMaker's form
`/endpoints/{name}[/inference-components/{component}]/openai/v1/...` names it in the path, and then
the body is not read. Paths that vLLM, TEI and Cohere have outside of `/v1/` are in `ROOT`; at
SageMaker's form they stand behind `openai/`.

In a large body, values are skipped token by token until `model` is found: strings at the speed of a
search, so that a long prompt costs little; brackets one by one, in steps between which other
requests are served. Only what matters for the name is checked; the instance parses the whole body.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes

import orjson

from penstock.api.model_names import NONE_SERVED, FindsServed, ModelName, parse
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
    b"rerank": "rerank",
    b"score": "score",
    b"tokenize": "tokenize",
    b"detokenize": "detokenize",
    b"tokenizer_info": "tokenizer_info",
    b"health": "health",
    b"version": "version",
}
#: A whole path outside of `/v1/` -> the same path below it.
ROOT = {
    b"/rerank": b"rerank",
    b"/v2/rerank": b"rerank",
    b"/score": b"score",
    b"/tokenize": b"tokenize",
    b"/detokenize": b"detokenize",
    b"/tokenizer_info": b"tokenizer_info",
    b"/health": b"health",
    b"/version": b"version",
}
#: Where requests begin. One of them is below /v2, so these come before that door's.
PREFIXES = (PREFIX, *ROOT)
#: Operations whose body may leave the model out, as at vLLM and TEI, which serve one model.
MODEL_OPTIONAL = frozenset({"rerank", "score", "tokenize", "detokenize"})
MODEL_CHARS_MAX = 256  #: longest name of an endpoint; a target model's name follows it
#: Bodies up to this size are parsed at once, in a few milliseconds.
READ_AT_ONCE_BYTES = 128 << 10
#: By this header a browser asks whether a page may send a request.
REQUEST_METHOD = b"access-control-request-method"
_MODELS = b"models"
_COMPONENTS = b"inference-components/"
_V1 = b"openai/v1/"
_OPENAI = b"openai"


class OpenAiPath(NamedTuple):
    """A parsed path."""

    operation: str  #: a value of `OPERATIONS`, or models
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
        hint="Served are chat/completions, completions, responses, embeddings, rerank, score, "
        "tokenize, detokenize and models below /v1/.",
        status=404,
    )


def is_preflight(method: bytes, rare: Mapping[bytes, bytes]) -> bool:
    """Whether a browser asks if a page may send a request. It sends no credentials with that."""
    return method == b"OPTIONS" and REQUEST_METHOD in rare


def model_of(
    body: bytes, served: FindsServed = NONE_SERVED, sole: ModelName | None = None
) -> ModelName:
    """The model that a body names, `sole` where it names none. Raises CallerError for a body
    without one."""
    try:
        asked: Any = plain_json.loads(body)
    except ValueError as cause:
        raise _malformed(cause) from cause
    named = asked.get("model") if isinstance(asked, dict) else None
    return checked_model(named, served, sole)


async def model_of_large(
    body: bytes, served: FindsServed = NONE_SERVED, sole: ModelName | None = None
) -> ModelName:
    """As `model_of`, for a large body: it yields to other requests meanwhile."""
    scan = ModelScan(body)
    try:
        for _ in scan.steps():
            await asyncio.sleep(0)
    except ValueError as cause:
        raise _malformed(cause) from cause
    return checked_model(scan.value, served, sole)


def _malformed(cause: ValueError) -> CallerError:
    # orjson speaks of surrogates where bytes are no UTF-8 at all.
    words = "it is not text in UTF-8" if "surrogates" in str(cause) else str(cause)
    return CallerError("json-malformed", f"The body is not JSON: {words}")


def check_encoding(encoding: bytes | None) -> None:
    """Raises CallerError (415) for a body that is compressed."""
    if encoding is not None and encoding.strip().lower() not in (b"", b"identity"):
        raise CallerError(
            "unsupported-content-encoding",
            f"Content-Encoding {encoding[:32].decode('latin-1')} is not supported here.",
            hint="Send the body as plain JSON.",
            status=415,
        )


def no_model(name: str) -> CallerError:
    """The one error for a model that does not answer, whatever the reason."""
    return CallerError(
        "endpoint-not-found",
        f"The model '{name[:256]}' does not exist.",
        hint="GET /v1/models names those that do.",
        status=404,
    )


def checked_model(
    model: Any, served: FindsServed = NONE_SERVED, sole: ModelName | None = None
) -> ModelName:
    """A model's name from a body. Raises CallerError for a value that is none."""
    if model is None and sole is not None:
        return sole
    if not isinstance(model, str) or not model:
        raise CallerError(
            "model-missing",
            "You must provide a model parameter.",
            param="model",
            hint="The name of an endpoint is its model; GET /v1/models names them. Target models of"
            " a multi-model endpoint are named ENDPOINT:TARGET_MODEL, inference components"
            " ENDPOINT:COMPONENT.",
        )
    name = parse(model, served)
    if len(name.endpoint) > MODEL_CHARS_MAX:
        raise CallerError(
            "model-name-too-long", f"model has {len(model)} characters, 256 at most.", param="model"
        )
    return name


def _split(path: bytes) -> tuple[str | None, str | None, bytes]:
    """Endpoint and component if the path names them, and the rest after `/v1/`."""
    if path.startswith(PREFIX):
        return None, None, path[len(PREFIX) :]
    if not path.startswith(ENDPOINTS):
        return None, None, ROOT.get(path, b"")
    name, _, rest = path[len(ENDPOINTS) :].partition(b"/")
    component = None
    if rest.startswith(_COMPONENTS):
        part, _, rest = rest[len(_COMPONENTS) :].partition(b"/")
        component = _text(part)
    if rest.startswith(_V1):
        return _text(name), component, rest[len(_V1) :]
    path = rest.removeprefix(_OPENAI)
    return _text(name), component, ROOT.get(path, b"") if path != rest else b""


def _text(part: bytes) -> str:
    return unquote_to_bytes(part).decode("utf-8", "replace")


#: Tokens in one step, which takes about a millisecond.
STEP_TOKENS: Final = 2_000
#: More strings and brackets than any prompt has: a body of nothing but these would cost most.
TOKENS_MAX: Final = 1_000_000
#: Text up to the next string or bracket.
_PLAIN: Final = re.compile(rb'[^"{}\[\]]*')
_COLON: Final = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*")
_OPENING, _QUOTE = b"{[", ord('"')
_KEY: Final = "model"


class ModelScan:
    """`for _ in scan.steps(): ...`, then `value`: the last member of that name, as in JSON."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._tokens = 0
        self.value: Any = None  #: None until found, and for a value that is no string

    def steps(self) -> Iterator[None]:
        """Yields between steps. Raises ValueError if strings or brackets show that this is no
        object."""
        body, end = self._body, len(self._body)
        at, depth = _plain_end(body, 0), 0
        if body[at : at + 1] != b"{":
            raise ValueError("the body is no JSON object")
        named = False  #: whether the key `model` and its colon were just read
        while at < end:
            if self._counted():
                yield
            character = body[at]
            if character == _QUOTE:
                began = at
                while True:  # up to a quote without a backslash before it
                    at = body.find(b'"', at + 1)
                    if at < 0:
                        raise ValueError("a string has no end")
                    if body[at - 1] != _BACKSLASH or not _escaped(body, began, at):
                        break
                    if self._counted():
                        yield
                at += 1
                named = self._string(began, at, named) if depth == 1 else False
                if named:
                    at = _colon_end(body, at)
            else:
                depth += 1 if character in _OPENING else -1
                at += 1
                named = False
            at = _plain_end(body, at) if not named else at
            if named and body[at : at + 1] != b'"':
                named, self.value = False, None
                at = _plain_end(body, at)
            if depth <= 0:
                break
        if depth != 0 or at < end:
            raise ValueError("brackets do not match")

    def _counted(self) -> bool:
        """Whether a step ends here. Raises ValueError for too many tokens."""
        self._tokens += 1
        if self._tokens > TOKENS_MAX:
            raise ValueError(f"it has more than {TOKENS_MAX} strings and brackets")
        return self._tokens % STEP_TOKENS == 0

    def _string(self, began: int, end: int, named: bool) -> bool:
        """Takes a string of the object itself; True if it is the key `model`."""
        if named:
            self.value = _content(self._body[began:end])
            return False
        return _COLON.match(self._body, end) is not None and _content(self._body[began:end]) == _KEY


_BACKSLASH: Final = ord("\\")


def _escaped(body: bytes, began: int, at: int) -> bool:
    """Whether an odd number of backslashes precedes the quote at `at`.

    The search begins after the previous quote, so all calls together are linear in the string.
    """
    before = body.rfind(b'"', began, at)
    run = body[before + 1 : at]
    return (len(run) - len(run.rstrip(b"\\"))) % 2 == 1


def _colon_end(body: bytes, at: int) -> int:
    colon = _COLON.match(body, at)
    return colon.end() if colon is not None else at


def _plain_end(body: bytes, at: int) -> int:
    found = _PLAIN.match(body, at)
    return found.end() if found is not None else at


def _content(string: bytes) -> str:
    return str(orjson.loads(string)) if b"\\" in string else string[1:-1].decode()
