"""The request that every dialect becomes, and an answer that is collected while it is generated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import orjson

from penstock.errors import CallerError, PenstockError
from penstock.runtimes.generation.base import Sampling
from penstock.wire.frames import RequestMeta, decode_reply_meta

SSE: Final = "text/event-stream"
JSON: Final = "application/json"

#: An event of an engine process, as `runtimes.generation.wire` describes it.
Event = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The model's name for a dialect, and the parts of an answer's id."""

    name: str
    version: str
    new_id: Callable[[], str]  #: makes an id that is unique on this server
    now_s: Callable[[], int]  #: seconds since 1970
    #: Fields of `Sampling` that the model gives where a request gives none
    sampling: Mapping[str, float] = field(default_factory=dict)

    def named(self, name: str) -> Self:
        return self if name == self.name else replace(self, name=name)


class GeneratedChoice:
    """One sequence of an answer, as far as it has come."""

    __slots__ = (
        "calls", "finish", "pieces", "prompt_pieces", "prompt_text", "seed", "special", "texts",
        "token_ids",
    )  # fmt: skip

    def __init__(self) -> None:
        self.calls: list[dict[str, str]] = []  #: calls of functions: id, name, arguments (JSON)
        self.texts: list[str] = []
        self.token_ids: list[int] = []
        self.pieces: list[Any] = []  #: for each token: [text, log-probability, likeliest tokens]
        #: The same for each token of the prompt, with the index of its first character
        self.prompt_pieces: list[Any] = []
        self.special: set[int] = set()  #: indexes of special tokens
        self.seed = 0
        self.finish = ""
        self.prompt_text = ""  #: where the text begins with the prompt

    def add(self, event: Event) -> None:
        text = event.get("x")
        if text:
            self.texts.append(text)
        for index, ident, name, arguments in event.get("u", ()):
            while len(self.calls) <= index:
                self.calls.append({"id": "", "name": "", "arguments": ""})
            call = self.calls[index]
            call["id"] += ident or ""
            call["name"] += name or ""
            call["arguments"] += arguments
        for at in event.get("z", ()):
            self.special.add(len(self.token_ids) + at)
        self.token_ids += event.get("t", ())
        self.pieces += event.get("l", ())
        self.prompt_pieces += event.get("k", ())
        self.seed = event.get("s", self.seed)
        self.prompt_text = event.get("h", self.prompt_text)
        self.finish = finish_of(event) or ""


class GeneratedAnswer:
    """One answer as far as it has come; several sequences if the request asked for them."""

    __slots__ = ("choices", "events", "tokenized", "tokens_cached", "tokens_in")

    def __init__(self) -> None:
        self.choices = [GeneratedChoice()]
        self.events: list[Event] = []  #: events of a pipeline's steps, for an answer in one piece
        self.tokenized: dict[str, Any] = {}  #: the answer to a question about tokens
        self.tokens_in = 0
        #: of these, from the engine's prefix cache; None: the engine does not tell
        self.tokens_cached: int | None = 0

    def add(self, event: Event) -> None:
        while len(self.choices) <= event.get("n", 0):
            self.choices.append(GeneratedChoice())
        self.choices[event.get("n", 0)].add(event)
        if "p" in event:
            self.tokens_in += event["p"]
            if self.tokens_cached is not None:
                self.tokens_cached = self.tokens_cached + event["c"] if "c" in event else None
        self.tokenized = event.get("v", self.tokenized)

    def text_of(self, choice: GeneratedChoice) -> str:
        return choice.prompt_text + "".join(choice.texts)

    @property
    def tokens_out(self) -> int:
        return sum(len(choice.token_ids) for choice in self.choices)

    # These read the first sequence: most dialects have no other.

    @property
    def prompt_text(self) -> str:
        return self.choices[0].prompt_text

    @property
    def text(self) -> str:
        return self.text_of(self.choices[0])

    @property
    def token_ids(self) -> list[int]:
        return self.choices[0].token_ids

    @property
    def pieces(self) -> list[Any]:
        return self.choices[0].pieces

    @property
    def special(self) -> set[int]:
        return self.choices[0].special

    @property
    def seed(self) -> int:
        return self.choices[0].seed

    @property
    def finish(self) -> str:
        return self.choices[0].finish


def finish_of(event: Event) -> str | None:
    """What finished the event's sequence, whether it is the request's last one or not."""
    finish: str | None = event.get("f") or event.get("g")
    return finish


class Writer:
    """Writes one request's answer; each dialect has its own."""

    __slots__ = ("content_type", "json_header_bytes", "stream")

    def __init__(self, *, stream: bool) -> None:
        self.stream = stream
        self.content_type = SSE if stream else JSON  #: of the stream, or of the whole answer
        #: Length of the JSON before binary tensors in the whole answer; None if it is all JSON
        self.json_header_bytes: int | None = None

    def chunk(self, event: Event, answer: GeneratedAnswer) -> bytes:
        """The bytes for one event, which `answer` includes already; b"" where there is nothing to
        write. The last event ("f" is set) ends the stream as in the dialect."""
        raise AssertionError("it has one answer")

    def whole(self, answer: GeneratedAnswer) -> bytes:
        """The answer in one piece."""
        raise NotImplementedError

    def broken(self, error: PenstockError) -> bytes:
        """The last bytes of a stream that fails; b"" where the front door's own error is enough."""
        return b""

    def _tensors(self, encoded: tuple[bytes, bytes]) -> bytes:
        """The body that a codec of tensors wrote; the writer takes over what its meta says."""
        body, meta = encoded
        told = decode_reply_meta(meta)
        self.content_type = told.content_type or JSON
        self.json_header_bytes = told.json_header_bytes
        return body


@dataclass(slots=True)
class GenerationCall:
    """One request, whichever dialect it came in."""

    prompt: Any  #: text, token ids, or {"messages": [...]}
    sampling: Sampling
    writer: Writer
    #: Field of `Sampling` -> the caller's parameter, for what the engine refuses.
    names: dict[str, str] = field(default_factory=dict)


def parse_object(body: bytes) -> dict[str, Any]:
    """The body as a JSON object. Raises CallerError (`bad-json`)."""
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


def parameters_of(meta: RequestMeta) -> dict[str, Any]:
    """The front door's own parameters, such as the operation."""
    value = orjson.loads(meta.parameters) if meta.parameters else None
    return value if isinstance(value, dict) else {}


def wrong(name: str, allowed: str) -> CallerError:
    return CallerError("invalid-parameter", f"{name} must be {allowed}", param=name)


def unsupported(name: str, reason: str, *, param: str | None = None) -> CallerError:
    """`param`: the parameter's name in the error, where `name` has more words."""
    return CallerError(
        "parameter-unsupported",
        f"{name} is not supported: {reason}",
        param=name if param is None else param,
    )


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
