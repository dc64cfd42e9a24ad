"""Answers in pieces: only whole events, or whole frames, go to the client.

So that one which breaks can end with the protocol's own error, or be gone on with by another
region. OpenAI's completions and chats are: the rest is asked for with the prompt and the text so
far, and as many tokens less as came. What the client sees stays one answer: its id, its role once.

A region whose copy is gone says so in an event of its own, under status 200: that is a break like a
lost connection, and its event is kept back. What the model says of its own failure passes on. An
answer that had said its last word when it broke is over: no region is asked for one more.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import orjson

from penstock.gateway.http.call import Call
from penstock.instance.codecs.generation.openai_completions import TOKENS_NEW
from penstock.orchestrator.asked import Relay
from penstock.wire.http_client import Headers
from penstock.wire.server_sent_events import EventSplitter

#: Of an answer that could be gone on with: a novel.
KEPT_BYTES_MAX: Final = 4 << 20
#: A response says so when it is over.
_LAST_OF_RESPONSE: Final = ("response.completed", "response.incomplete", "response.failed")
_PRELUDE_BYTES: Final = 4
_DONE: Final = b"[DONE]"
_END: Final = b"data: [DONE]\n\n"
#: Codes of a region's last event that say that it broke the answer off, and not the model.
_BROKEN_OFF: Final = ("stream_broken", "internal_error")
#: What makes the rest of an answer depend on more than its text so far.
_NOT_GONE_ON_WITH: Final = (
    "tools", "functions", "response_format", "logprobs", "top_logprobs", "echo", "suffix",
    "best_of", "guided_json",
)  # fmt: skip


def is_events(headers: Headers) -> bool:
    return any(
        name == b"content-type" and value.lower().startswith(b"text/event-stream")
        for name, value in headers
    )


class EventRelay:
    """Server-sent events, whole ones."""

    broken_off = b""

    def __init__(self) -> None:
        self.events = 0  #: that have left
        self._last = b""
        self._splitter = EventSplitter()

    def feed(self, data: bytes) -> bytes:
        events = self._splitter.feed(data)
        self.events += len(events)
        if events:
            self._last = events[-1]
        return b"".join(events)

    def continuation(self) -> bytes | None:
        return None

    def ending(self) -> bytes | None:
        last = _fields(self._last) or {}
        return b"" if last.get("type") in _LAST_OF_RESPONSE or last.get("error") else None

    def rest(self) -> bytes:
        return self._splitter.rest()


class FrameRelay:
    """Frames of AWS's event stream, whole ones."""

    broken_off = b""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> bytes:
        buffer = self._buffer
        buffer += data
        end = 0
        while len(buffer) - end >= _PRELUDE_BYTES:
            size = int.from_bytes(buffer[end : end + _PRELUDE_BYTES], "big")
            if size < _PRELUDE_BYTES:
                size = len(buffer) - end  # no frame at all: what can't be understood passes on
            if end + size > len(buffer):
                break
            end += size
        whole = bytes(buffer[:end])
        del buffer[:end]
        return whole

    def continuation(self) -> bytes | None:
        return None

    def ending(self) -> bytes | None:
        return None

    def rest(self) -> bytes:
        rest, self._buffer = bytes(self._buffer), bytearray()
        return rest


def whole_events(_call: Call, headers: Headers) -> Relay | None:
    return EventRelay() if is_events(headers) else None


def frames_of_stream(_call: Call, _headers: Headers) -> Relay | None:
    return FrameRelay()


class OpenAiRelay:
    """A completion or chat as server-sent events, which another region may go on with."""

    def __init__(self, operation: str, body: bytes) -> None:
        self.broken_off = b""
        self._operation = operation
        self._body = body
        self._splitter = EventSplitter()
        self._kept: list[bytes] | None = []  #: events that the client has; None: too many
        self._kept_bytes = 0
        self._gone_on_with: dict[str, Any] | None = None  #: id and the like, of the first answer
        self._tokens = 0  #: of the text that was sent along as a part of the prompt

    @classmethod
    def of(cls, operation: str, body: bytes, headers: Headers) -> Relay | None:
        if not is_events(headers):
            return None
        return cls(operation, body) if operation in ("chat", "completions") else EventRelay()

    def feed(self, data: bytes) -> bytes:
        if self.broken_off:
            return b""
        passed = []
        for event in self._splitter.feed(data):
            if b'"error"' in event and _is_break(event):
                self.broken_off = event
                break
            shown = event if self._gone_on_with is None else self._as_before(event)
            if shown:
                passed.append(shown)
        if self._kept is not None:
            self._kept += passed
            self._kept_bytes += sum(map(len, passed))
            if self._kept_bytes > KEPT_BYTES_MAX:
                self._kept = None
        return b"".join(passed)

    def rest(self) -> bytes:
        return self._splitter.rest()

    def ending(self) -> bytes | None:
        asked = self._asked()
        if self._kept is None or asked is None:
            return None
        said = _said(self._kept)
        if said.is_over:
            return b""
        if said.finished >= (asked.get("n") or 1):
            return _END
        most = self._tokens_max(asked, said)
        if said.first is None or said.text is None or most is None or said.tokens < most:
            return None
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": "length"}
        empty: dict[str, Any] = {"delta": {}} if self._operation == "chat" else {"text": ""}
        last = {name: value for name, value in said.first.items() if name != "usage"}
        return _event(last | {"choices": [choice | empty]}) + _END

    def continuation(self) -> bytes | None:
        """Also forgets the half of an event that was read."""
        self._splitter = EventSplitter()
        asked = self._asked()
        if self._kept is None or asked is None:
            return None
        if any(asked.get(name) for name in _NOT_GONE_ON_WITH) or asked.get("n") not in (None, 1):
            return None
        said = _said(self._kept)
        if said.text is None:
            return None
        first = said.first
        if first is None:  # nothing of it was seen
            self.broken_off = b""
            return self._body
        body = self._rest_of(asked, said)
        if body is not None:
            self._gone_on_with = {name: first[name] for name in ("id", "created") if name in first}
            self._tokens = said.tokens
            self.broken_off = b""
        return body

    def _asked(self) -> dict[str, Any] | None:
        try:
            asked: Any = orjson.loads(self._body)
        except ValueError:
            return None
        return asked if isinstance(asked, dict) else None

    def _tokens_max(self, asked: dict[str, Any], said: _Said) -> int | None:
        """Of the whole answer; None: as many as there is room for."""
        for name in ("max_completion_tokens", "max_tokens"):
            most = asked.get(name)
            if isinstance(most, int):
                return most
        # A pipeline, which has no such limit, says more.
        by_default = self._operation == "completions" and said.tokens <= TOKENS_NEW
        return TOKENS_NEW if by_default else None

    def _rest_of(self, asked: dict[str, Any], said: _Said) -> bytes | None:
        """A request for what comes after the text so far."""
        rest = dict(asked)
        most = self._tokens_max(asked, said)
        if most is not None:
            named = "max_completion_tokens" in asked and self._operation == "chat"
            rest["max_completion_tokens" if named else "max_tokens"] = most - said.tokens
        least = asked.get("min_tokens")
        if isinstance(least, int):
            rest["min_tokens"] = max(0, least - said.tokens)
        if self._operation == "completions":
            if not isinstance(asked.get("prompt"), str):
                return None
            rest["prompt"] = asked["prompt"] + said.text
        elif said.text:
            messages = asked.get("messages")
            if not isinstance(messages, list):
                return None
            rest["messages"] = [*messages, {"role": "assistant", "content": said.text}]
            rest["add_generation_prompt"] = False
            rest["continue_final_message"] = True
        return orjson.dumps(rest)

    def _as_before(self, event: bytes) -> bytes:
        """An event of the answer that goes on, as the first answer would have had it."""
        fields = _fields(event)
        if fields is None:
            return event
        for choice in fields.get("choices") or ():
            delta = choice.get("delta") if isinstance(choice, dict) else None
            if isinstance(delta, dict) and delta.pop("role", None) and not delta.get("content"):
                return b""  # the answer has begun long ago
        usage = fields.get("usage")
        if isinstance(usage, dict):
            usage["completion_tokens"] = usage.get("completion_tokens", 0) + self._tokens
            usage["prompt_tokens"] = max(0, usage.get("prompt_tokens", 0) - self._tokens)
        return _event(fields | (self._gone_on_with or {}))


class _Said(NamedTuple):
    """What an answer has said so far."""

    text: str | None  #: None: what it says is more than plain text
    tokens: int  #: pieces that the text came in
    first: dict[str, Any] | None  #: event
    finished: int  #: choices that are complete
    is_over: bool  #: its end is told, or that it failed


def _data(event: bytes) -> bytes:
    lines = [line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines)


def _fields(event: bytes) -> dict[str, Any] | None:
    """Of an event that is an object; None for the end, comments and the like."""
    data = _data(event)
    if data == _DONE:
        return None
    try:
        fields: Any = orjson.loads(data)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None


def _event(fields: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(fields)


def _is_break(event: bytes) -> bool:
    """Whether it says that the region broke the answer off, by no verdict of the model."""
    error = (_fields(event) or {}).get("error")
    return isinstance(error, dict) and error.get("code") in _BROKEN_OFF


def _said(events: list[bytes]) -> _Said:
    said: list[str] = []
    first: dict[str, Any] | None = None
    finished: set[Any] = set()
    plain, is_over = True, False
    for event in events:
        fields = _fields(event)
        if fields is None or fields.get("error"):
            is_over = is_over or fields is not None or _data(event) == _DONE
            plain = False
            continue
        first = first or fields
        plain = plain and "pipeline_event" not in fields
        for choice in fields.get("choices") or ():
            if not isinstance(choice, dict):
                plain = False
                continue
            if choice.get("finish_reason"):
                finished.add(choice.get("index"))
            delta = choice.get("delta")
            piece = delta.get("content") if isinstance(delta, dict) else choice.get("text")
            if isinstance(delta, dict) and delta.keys() - {"role", "content"}:
                plain = False
            if isinstance(piece, str) and piece:
                said.append(piece)
    text = "".join(said) if plain else None
    return _Said(text, len(said), first, len(finished), is_over)
