"""A pipeline asked as a model of OpenAI's: its text is the message, its other events go beside it.

Text leaves as deltas, so that any client of OpenAI's shows it. Every other event is a chunk without
choices that carries `pipeline_event`, {"event": kind, "data": ...}; clients pass over a chunk that
has none (as over the one with the usage), and who knows pipelines reads it in its place. The body
is `$request` as it came: `$request.messages`. A whole answer has all events in `pipeline_events`.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from penstock.errors import CallerError, PenstockError
from penstock.instance.codecs.generation.calls import (
    JSON,
    SSE,
    Event,
    GeneratedAnswer,
    Served,
    flag,
    sse,
    unsupported,
)

TEXT_KIND: Final = "text"
_KINDS: Final = {
    "chat": ("chatcmpl-", "chat.completion.chunk", "chat.completion"),
    "completions": ("cmpl-", "text_completion", "text_completion"),
}
_END: Final = b"data: [DONE]\n\n"


def writer_of(request: dict[str, Any], operation: str, served: Served) -> OpenAiPipelineWriter:
    """Raises CallerError (`invalid-parameter`, `parameter-unsupported`)."""
    if operation not in _KINDS:
        raise CallerError(
            "parameter-unsupported",
            f"{served.name} is a pipeline and has no {operation}",
            hint="Ask it at chat/completions, or at its endpoint's invocations.",
        )
    if request.get("n") not in (None, 1):
        raise unsupported("n", "a pipeline has one answer")
    return OpenAiPipelineWriter(served, operation, stream=flag(request, "stream"))


def text_of(kind: str, data: Any) -> str | None:
    """What an event adds to the text; None for one that is none."""
    if kind != TEXT_KIND or not isinstance(data, dict):
        return None
    return str(data.get("text", ""))


class OpenAiPipelineWriter:
    __slots__ = ("_begun", "_chat", "_head", "_said", "_whole_kind", "content_type", "stream")

    def __init__(self, served: Served, operation: str, *, stream: bool) -> None:
        prefix, kind, whole_kind = _KINDS[operation]
        self.stream = stream
        self.content_type = SSE if stream else JSON
        self._chat = operation == "chat"
        self._head = {
            "id": f"{prefix}{served.new_id()}",
            "object": kind,
            "created": served.now_s(),
            "model": served.name,
        }
        self._whole_kind = whole_kind
        self._begun = False
        self._said: list[dict[str, Any]] = []

    def chunk(self, event: Event, answer: GeneratedAnswer) -> bytes:
        lines = []
        if not self._begun:
            self._begun = True
            if self._chat:
                lines.append(self._line({"role": "assistant", "content": ""}, None))
        if "k" not in event:
            lines += [self._line({}, "stop"), _END]
            return b"".join(lines)
        text = text_of(event["k"], event["d"])
        if text is None:
            said = {"event": event["k"], "data": event["d"]}
            lines.append(sse({**self._head, "choices": [], "pipeline_event": said}))
        else:
            lines.append(self._line({"content": text}, None))
        return b"".join(lines)

    def _line(self, delta: dict[str, Any], finish: str | None) -> bytes:
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": finish}
        if self._chat:
            choice["delta"] = delta
        else:
            choice["text"] = delta.get("content", "")
        return sse({**self._head, "choices": [choice]})

    def broken(self, error: PenstockError) -> bytes:
        return b""  # OpenAI's own error event follows

    def gather(self, event: Event) -> None:
        if "k" in event:
            self._said.append({"event": event["k"], "data": event["d"]})

    def whole(self, answer: GeneratedAnswer) -> bytes:
        texts = [text_of(each["event"], each["data"]) or "" for each in self._said]
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": "stop"}
        if self._chat:
            choice["message"] = {"role": "assistant", "content": "".join(texts), "refusal": None}
        else:
            choice["text"] = "".join(texts)
        return orjson.dumps(
            {
                **self._head,
                "object": self._whole_kind,
                "choices": [choice],
                "usage": None,
                "pipeline_events": self._said,
            }
        )
