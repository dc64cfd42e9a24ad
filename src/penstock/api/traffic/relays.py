"""Answers in pieces: the client gets only whole events, or whole frames.

So a broken answer can end with the protocol's own error, or another region can continue it. That
works for OpenAI's completions and chats: the other region gets the prompt with the text so far, and
a token limit lowered by what came. The client still sees one answer: one id, one role.

A region whose copy is gone reports that in an event under status 200. This is a break like a lost
connection, and its event is not passed on. An error that the model itself reports is passed on. An
answer that broke after its last token is complete: no region is asked for more.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import orjson

from penstock.gateway.http.call import Call
from penstock.instance.codecs.generation.openai_completions import TOKENS_NEW
from penstock.orchestrator.request import Relay
from penstock.wire.http_client import Headers
from penstock.wire.server_sent_events import EventSplitter

#: Bound of an answer that is kept so that it can be continued: as long as a novel.
KEPT_BYTES_MAX: Final = 4 << 20
#: Types of the event that ends a response.
_LAST_OF_RESPONSE: Final = ("response.completed", "response.incomplete", "response.failed")
_PRELUDE_BYTES: Final = 4
_DONE: Final = b"[DONE]"
_END: Final = b"data: [DONE]\n\n"
#: Codes of a region's last event that show that the region, not the model, broke the answer off.
_BROKEN_OFF: Final = ("stream_broken", "internal_error")
#: Members of a request with which the rest of an answer depends on more than its text so far.
_NOT_GONE_ON_WITH: Final = (
    "tools", "functions", "response_format", "logprobs", "top_logprobs", "echo", "suffix",
    "best_of", "guided_json",
)  # fmt: skip


def is_events(headers: Headers) -> bool:
    return any(
        name == b"content-type" and value.lower().startswith(b"text/event-stream")
        for name, value in headers
    )


class EventRelay(Relay):
    """Passes on server-sent events as a whole."""

    def __init__(self) -> None:
        self.events = 0  #: events that have left
        self._last = b""
        self._splitter = EventSplitter()

    def feed(self, data: bytes) -> bytes:
        events = self._splitter.feed(data)
        self.events += len(events)
        if events:
            self._last = events[-1]
        return b"".join(events)

    def ending(self) -> bytes | None:
        last = _fields(self._last) or {}
        return b"" if last.get("type") in _LAST_OF_RESPONSE or last.get("error") else None

    def rest(self) -> bytes:
        return self._splitter.rest()


class FrameRelay(Relay):
    """Passes on frames of AWS's event stream as a whole."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> bytes:
        buffer = self._buffer
        buffer += data
        end = 0
        while len(buffer) - end >= _PRELUDE_BYTES:
            size = int.from_bytes(buffer[end : end + _PRELUDE_BYTES], "big")
            if size < _PRELUDE_BYTES:
                size = len(buffer) - end  # not a frame; bytes that can't be parsed are passed on
            if end + size > len(buffer):
                break
            end += size
        whole = bytes(buffer[:end])
        del buffer[:end]
        return whole

    def rest(self) -> bytes:
        rest, self._buffer = bytes(self._buffer), bytearray()
        return rest


def whole_events(_call: Call, headers: Headers) -> Relay | None:
    return EventRelay() if is_events(headers) else None


def frames_of_stream(_call: Call, _headers: Headers) -> Relay | None:
    return FrameRelay()


class OpenAiRelay(Relay):
    """Passes on a completion or chat as server-sent events, and lets another region continue it."""

    def __init__(self, operation: str, body: bytes) -> None:
        self._operation = operation
        self._body = body
        self._splitter = EventSplitter()
        self._kept: list[bytes] | None = []  #: events that the client has; None: too many to keep
        self._kept_bytes = 0
        self._gone_on_with: dict[str, Any] | None = None  #: id and other fields of the first answer
        self._tokens = 0  #: tokens of the text that was sent as a part of the prompt

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
        """The request that continues the answer. It also drops an event that was read in part."""
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
        if first is None:  # nothing of the answer has arrived
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
        """Token limit of the whole answer; None: limited only by the context."""
        for name in ("max_completion_tokens", "max_tokens"):
            most = asked.get(name)
            if isinstance(most, int):
                return most
        # A pipeline has no such limit and may write more.
        by_default = self._operation == "completions" and said.tokens <= TOKENS_NEW
        return TOKENS_NEW if by_default else None

    def _rest_of(self, asked: dict[str, Any], said: _Said) -> bytes | None:
        """A request for the text after what has arrived."""
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
        """An event of the continued answer, with the fields of the first answer."""
        fields = _fields(event)
        if fields is None:
            return event
        for choice in fields.get("choices") or ():
            delta = choice.get("delta") if isinstance(choice, dict) else None
            if isinstance(delta, dict) and delta.pop("role", None) and not delta.get("content"):
                return b""  # the event that begins an answer; the client has one
        usage = fields.get("usage")
        if isinstance(usage, dict):
            usage["completion_tokens"] = usage.get("completion_tokens", 0) + self._tokens
            usage["prompt_tokens"] = max(0, usage.get("prompt_tokens", 0) - self._tokens)
        return _event(fields | (self._gone_on_with or {}))


class _Said(NamedTuple):
    """What an answer contains so far."""

    text: str | None  #: None: it has more than plain text
    tokens: int  #: number of pieces that carried the text
    first: dict[str, Any] | None  #: its first event
    finished: int  #: number of complete choices
    is_over: bool  #: whether its end, or a failure, has arrived


def _data(event: bytes) -> bytes:
    lines = [line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines)


def _fields(event: bytes) -> dict[str, Any] | None:
    """The fields of an event that is an object; None for the end, comments and the like."""
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
    """Whether the region broke the answer off, and not the model."""
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
