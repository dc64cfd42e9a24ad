"""OpenAI's /v1/completions: a prompt in, its continuation out."""

from __future__ import annotations

from typing import Any, Final

import orjson

from penstock.instance.codecs.generation.calls import (
    JSON,
    SSE,
    Answer,
    Event,
    GenerationCall,
    Served,
    flag,
    sse,
    unsupported,
    wrong,
)
from penstock.instance.codecs.generation.openai_fields import (
    NAMES,
    settings_of,
    usage,
    usage_wanted,
)
from penstock.runtimes.generation.base import checked

TOKENS_NEW: Final = 16  #: where the request does not say, as OpenAI


def decode(parsed: dict[str, Any], served: Served, *, stream: bool) -> GenerationCall:
    """Raises CallerError naming the parameter as OpenAI does."""
    if parsed.get("suffix"):
        raise unsupported("suffix", "text is only continued")
    if parsed.get("best_of") not in (None, 1):
        raise unsupported("best_of", "one answer is made of a request")
    settings = settings_of(parsed)
    settings["echo"] = flag(parsed, "echo")
    settings["logprobs"] = parsed.get("logprobs")
    if settings["tokens_new_max"] is None:
        settings["tokens_new_max"] = TOKENS_NEW
    stream = stream or flag(parsed, "stream")
    writer = _CompletionWriter(
        served, stream, usage_wanted(parsed, stream=stream), settings["logprobs"] is not None
    )
    sampling = checked(settings, NAMES | {"logprobs": "logprobs", "echo": "echo"})
    return GenerationCall(_prompt(parsed.get("prompt")), sampling, writer)


def _prompt(given: Any) -> str | list[int]:
    """A text, a list of one, token ids, or a list of one list of them."""
    if isinstance(given, list) and given and isinstance(given[0], str | list):
        if len(given) > 1:
            raise unsupported("prompt with several texts", "send a request for each")
        given = given[0]
    if isinstance(given, str):
        return given
    if isinstance(given, list) and all(type(each) is int for each in given):
        return given
    raise wrong("prompt", "a text or a list of token ids")


class _CompletionWriter:
    __slots__ = (
        "_begun", "_created", "_ident", "_logprobs", "_model", "_offset", "_usage",
        "content_type", "stream",
    )  # fmt: skip

    def __init__(self, served: Served, stream: bool, usage: bool, logprobs: bool) -> None:
        self.stream = stream
        self.content_type = SSE if stream else JSON
        self._ident = f"cmpl-{served.new_id()}"
        self._created = served.now_s()
        self._model = served.name
        self._usage = usage
        self._logprobs = logprobs
        self._begun = False
        self._offset = 0  #: characters of the answer's pieces so far

    def chunk(self, event: Event, answer: Answer) -> bytes:
        text = event.get("x", "")
        if not self._begun:
            self._begun = True
            text = answer.prompt_text + text
            self._offset = len(answer.prompt_text)
        finish = event.get("f")
        lines = []
        if text or finish or (self._logprobs and event.get("l")):
            logprobs = self._logprobs_of(event.get("l", [])) if self._logprobs else None
            made = self._head([_choice(text, logprobs, finish)], None)
            if not self._usage:
                del made["usage"]
            lines.append(sse(made))
        if finish:
            if self._usage:
                lines.append(sse(self._head([], usage(answer))))
            lines.append(b"data: [DONE]\n\n")
        return b"".join(lines)

    def whole(self, answer: Answer) -> bytes:
        self._offset = len(answer.prompt_text)
        logprobs = self._logprobs_of(answer.pieces) if self._logprobs else None
        return orjson.dumps(
            self._head([_choice(answer.text, logprobs, answer.finish)], usage(answer))
        )

    def _logprobs_of(self, pieces: list[Any]) -> dict[str, Any]:
        offsets = []
        for text, _, _ in pieces:
            offsets.append(self._offset)
            self._offset += len(text)
        return {
            "tokens": [text for text, _, _ in pieces],
            "token_logprobs": [logprob for _, logprob, _ in pieces],
            # Tokens may have one text, parts of a character above all: the likeliest counts.
            "top_logprobs": [
                {text: value for _, text, value in reversed(top)} for _, _, top in pieces
            ],
            "text_offset": offsets,
        }

    def _head(self, choices: list[Any], used: Any) -> dict[str, Any]:
        return {
            "id": self._ident,
            "object": "text_completion",
            "created": self._created,
            "model": self._model,
            "choices": choices,
            "usage": used,
        }


def _choice(text: str, logprobs: Any, finish: str | None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": finish}
