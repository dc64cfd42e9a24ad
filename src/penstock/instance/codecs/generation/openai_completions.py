"""OpenAI's /v1/completions: a prompt in, its continuation out."""

from __future__ import annotations

from typing import Any, Final

from penstock.instance.codecs.generation.calls import (
    Answer,
    Event,
    GenerationCall,
    Served,
    flag,
    unsupported,
    wrong,
)
from penstock.instance.codecs.generation.openai_fields import NAMES, settings_of, usage_wanted
from penstock.instance.codecs.generation.openai_writer import OpenAiWriter
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
        served,
        "cmpl",
        ("text_completion", "text_completion"),
        stream=stream,
        usage=usage_wanted(parsed, stream=stream),
        logprobs=settings["logprobs"] is not None,
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


class _CompletionWriter(OpenAiWriter):
    __slots__ = ("_offset",)  #: characters of the answer's pieces so far

    def chunk(self, event: Event, answer: Answer) -> bytes:
        text = event.get("x", "")
        if not self.begun:
            self.begun = True
            text = answer.prompt_text + text
            self._offset = len(answer.prompt_text)
        finish = event.get("f")
        lines = []
        if text or finish or (self.logprobs and event.get("l")):
            logprobs = self._logprobs_of(event.get("l", [])) if self.logprobs else None
            lines.append(self.line(_choice(text, logprobs, finish)))
        if finish:
            lines.append(self.end(answer))
        return b"".join(lines)

    def whole(self, answer: Answer) -> bytes:
        self._offset = len(answer.prompt_text)
        logprobs = self._logprobs_of(answer.pieces) if self.logprobs else None
        return self.whole_of(_choice(answer.text, logprobs, answer.finish), answer)

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


def _choice(text: str, logprobs: Any, finish: str | None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": finish}
