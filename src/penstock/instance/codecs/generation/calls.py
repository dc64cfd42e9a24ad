"""What every dialect becomes, and what an answer gathers while it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import orjson

from penstock.errors import CallerError
from penstock.runtimes.generation.base import Sampling

SSE: Final = "text/event-stream"
JSON: Final = "application/json"

#: An event of an engine process, as `runtimes.generation.wire` describes it.
Event = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The model as a dialect names it, and what makes an answer's name."""

    name: str
    version: str
    new_id: Callable[[], str]  #: unique on this server
    now_s: Callable[[], int]  #: seconds since 1970


class Answer:
    """All that has come of one answer."""

    __slots__ = (
        "finish", "pieces", "prompt_text", "seed", "special", "texts", "token_ids",
        "tokens_cached", "tokens_in",
    )  # fmt: skip

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.token_ids: list[int] = []
        self.pieces: list[Any] = []  #: [text, log-probability, likeliest] of each token
        self.special: set[int] = set()  #: places of special tokens
        self.tokens_in = 0
        self.tokens_cached = 0
        self.seed = 0
        self.prompt_text = ""
        self.finish = ""

    def add(self, event: Event) -> None:
        text = event.get("x")
        if text:
            self.texts.append(text)
        for at in event.get("z", ()):
            self.special.add(len(self.token_ids) + at)
        self.token_ids += event.get("t", ())
        self.pieces += event.get("l", ())
        if "p" in event:
            self.tokens_in = event["p"]
            self.tokens_cached = event.get("c", 0)
            self.seed = event["s"]
            self.prompt_text = event.get("h", "")
        self.finish = event.get("f", "")

    @property
    def text(self) -> str:
        return self.prompt_text + "".join(self.texts)

    @property
    def tokens_out(self) -> int:
        return len(self.token_ids)


class Writer(Protocol):
    """Writes one request's answer."""

    stream: bool
    content_type: str  #: of the stream, or of the whole answer

    def chunk(self, event: Event, answer: Answer) -> bytes:
        """The bytes of one event, which `answer` has already; b"" where it says nothing yet. The
        last one ("f" is set) ends the stream as the dialect does."""

    def whole(self, answer: Answer) -> bytes:
        """The answer in one piece."""


@dataclass(slots=True)
class GenerationCall:
    """One request, whichever dialect it came in."""

    prompt: Any  #: text, token ids, or {"messages": [...]}
    sampling: Sampling
    writer: Writer


def parse_object(body: bytes) -> dict[str, Any]:
    """Raises CallerError (`bad-json`)."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise CallerError(
            "bad-json", f"the body is not JSON in UTF-8: {error}", hint="Send a JSON object."
        ) from None
    if not isinstance(value, dict):
        raise CallerError(
            "bad-json", f"the body is JSON of a {type(value).__name__}, not an object"
        )
    return value


def wrong(name: str, allowed: str) -> CallerError:
    return CallerError("invalid-parameter", f"{name} must be {allowed}")


def unsupported(name: str, reason: str) -> CallerError:
    return CallerError("parameter-unsupported", f"{name} is not supported: {reason}")


def flag(given: dict[str, Any], name: str, *, default: bool = False) -> bool:
    value = given.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise wrong(name, "true or false")
    return value


def mapping(given: dict[str, Any], name: str) -> dict[str, Any]:
    value = given.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise wrong(name, "an object")
    return value


def schema_text(name: str, value: Any) -> str:
    """A JSON schema given as an object or as its text. Raises CallerError."""
    if isinstance(value, str):
        value = parse_object(value.encode("utf-8", "replace"))
    if not isinstance(value, dict):
        raise wrong(name, "a JSON schema")
    return orjson.dumps(value).decode()


def sse(value: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + orjson.dumps(value) + b"\n\n"
