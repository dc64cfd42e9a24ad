"""Answers in pieces: only whole events, or whole frames, go to the client.

So that one which breaks can end with the protocol's own error, or be gone on with by another
region. OpenAI's completions and chats are: the rest is asked for with the prompt and the text so
far, and as many tokens less as came. What the client sees stays one answer: its id, its role once.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from penstock.gateway.call import Call
from penstock.orchestrator.asked import Relay
from penstock.orchestrator.upstream import Headers
from penstock.wire.server_sent_events import EventSplitter

#: Of an answer that could be gone on with: a novel.
KEPT_BYTES_MAX: Final = 4 << 20
_PRELUDE_BYTES: Final = 4
_DONE: Final = b"[DONE]"
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

    def __init__(self) -> None:
        self.events = 0  #: that have left
        self._splitter = EventSplitter()

    def feed(self, data: bytes) -> bytes:
        events = self._splitter.feed(data)
        self.events += len(events)
        return b"".join(events)

    def continuation(self) -> bytes | None:
        return None

    def rest(self) -> bytes:
        return self._splitter.rest()


class FrameRelay:
    """Frames of AWS's event stream, whole ones."""

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
        events = self._splitter.feed(data)
        if self._gone_on_with is not None:
            events = [event for event in map(self._as_before, events) if event]
        kept = self._kept
        if kept is not None:
            kept += events
            self._kept_bytes += sum(map(len, events))
            if self._kept_bytes > KEPT_BYTES_MAX:
                self._kept = None
        return b"".join(events)

    def rest(self) -> bytes:
        return self._splitter.rest()

    def continuation(self) -> bytes | None:
        """Also forgets the half of an event that was read."""
        self._splitter = EventSplitter()
        if self._kept is None:
            return None
        try:
            asked: Any = orjson.loads(self._body)
        except ValueError:
            return None
        if not isinstance(asked, dict) or any(asked.get(name) for name in _NOT_GONE_ON_WITH):
            return None
        if asked.get("n") not in (None, 1):
            return None
        text, tokens, first = _said(self._kept)
        if first is None or text is None:
            return None
        self._gone_on_with = {name: first[name] for name in ("id", "created") if name in first}
        self._tokens = tokens
        return _rest_of(asked, self._operation, text, tokens)

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
        return b"data: %b\n\n" % orjson.dumps(fields | (self._gone_on_with or {}))


def _fields(event: bytes) -> dict[str, Any] | None:
    """Of an event that is an object; None for the end, comments and the like."""
    lines = [line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")]
    data = b"\n".join(lines)
    if data == _DONE:
        return None
    try:
        fields: Any = orjson.loads(data)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None


def _said(events: list[bytes]) -> tuple[str | None, int, dict[str, Any] | None]:
    """Text so far, how many pieces it came in, and the first event.

    No text: it has ended, or says something that is no plain text.
    """
    said: list[str] = []
    first: dict[str, Any] | None = None
    for event in events:
        fields = _fields(event)
        if fields is None or fields.get("error"):
            return None, 0, None
        first = first or fields
        for choice in fields.get("choices") or ():
            if not isinstance(choice, dict) or choice.get("finish_reason"):
                return None, 0, None
            delta = choice.get("delta")
            piece = delta.get("content") if isinstance(delta, dict) else choice.get("text")
            if isinstance(delta, dict) and delta.keys() - {"role", "content"}:
                return None, 0, None
            if isinstance(piece, str) and piece:
                said.append(piece)
    return "".join(said), len(said), first


def _rest_of(asked: dict[str, Any], operation: str, text: str, tokens: int) -> bytes | None:
    """A request for what comes after `text`."""
    rest = dict(asked)
    for name in ("max_tokens", "max_completion_tokens"):
        most = asked.get(name)
        if isinstance(most, int):
            rest[name] = max(1, most - tokens)
    if operation == "completions":
        if not isinstance(asked.get("prompt"), str):
            return None
        rest["prompt"] = asked["prompt"] + text
    elif text:
        messages = asked.get("messages")
        if not isinstance(messages, list):
            return None
        rest["messages"] = [*messages, {"role": "assistant", "content": text}]
        rest["add_generation_prompt"] = False
        rest["continue_final_message"] = True
    return orjson.dumps(rest)
