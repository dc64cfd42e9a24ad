"""OpenAI's /v1/completions: a prompt in, its continuation out."""

from __future__ import annotations

from typing import Any, Final

from penstock.instance.codecs.generation.calls import (
    Event,
    GeneratedAnswer,
    GenerationCall,
    Served,
    finish_of,
    flag,
    unsupported,
    wrong,
)
from penstock.instance.codecs.generation.openai_fields import (
    NAMES,
    OpenAiWriter,
    openai_checked,
    settings_of,
    usage_wanted,
)
from penstock.instance.codecs.generation.openai_refused import REFUSED

TOKENS_NEW: Final = 16  #: default if the request has none, as at OpenAI


def decode(parsed: dict[str, Any], served: Served, *, stream: bool) -> GenerationCall:
    """Raises CallerError with the parameter's name in OpenAI's form."""
    if parsed.get("suffix"):
        raise unsupported("suffix", REFUSED["completions"]["suffix"])
    if parsed.get("best_of") not in (None, 1, parsed.get("n")):
        raise unsupported("best_of", REFUSED["completions"]["best_of"])
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
    sampling = openai_checked(settings, NAMES | {"logprobs": "logprobs", "echo": "echo"})
    return GenerationCall(_prompt(parsed.get("prompt")), sampling, writer)


def _prompt(given: Any) -> str | list[int]:
    """A text, a list of one text, token ids, or a list of one list of ids."""
    if isinstance(given, list) and given and isinstance(given[0], str | list):
        if len(given) > 1:
            cause = REFUSED["completions"]["prompt (several texts)"]
            raise unsupported("prompt with several texts", cause, param="prompt")
        given = given[0]
    if isinstance(given, str):
        return given
    if isinstance(given, list) and all(type(each) is int for each in given):
        return given
    raise wrong("prompt", "a text or a list of token ids")


class _CompletionWriter(OpenAiWriter):
    __slots__ = ("_offsets",)  #: sequence -> characters of its pieces so far

    def chunk(self, event: Event, answer: GeneratedAnswer) -> bytes:
        text, at = event.get("x", ""), event.get("n", 0)
        if not self.begun:
            self._offsets: dict[int, int] = {}
        if at not in self.begun:
            self.begun.add(at)
            text = answer.prompt_text + text
            self._offsets[at] = len(answer.prompt_text)
        finish = finish_of(event)
        lines = []
        if text or finish or (self.logprobs and event.get("l")):
            logprobs = self._logprobs_of(event.get("l", []), at) if self.logprobs else None
            lines.append(self.line(_choice(at, text, logprobs, finish)))
        if "f" in event:
            lines.append(self.end(answer))
        return b"".join(lines)

    def whole(self, answer: GeneratedAnswer) -> bytes:
        self._offsets = {}
        choices = []
        for at, choice in enumerate(answer.choices):
            self._offsets[at] = len(answer.prompt_text)
            logprobs = self._logprobs_of(choice.pieces, at) if self.logprobs else None
            choices.append(_choice(at, answer.text_of(choice), logprobs, choice.finish))
        return self.whole_of(choices, answer)

    def _logprobs_of(self, pieces: list[Any], at: int) -> dict[str, Any]:
        offsets = []
        for text, _, _ in pieces:
            offsets.append(self._offsets[at])
            self._offsets[at] += len(text)
        return {
            "tokens": [text for text, _, _ in pieces],
            "token_logprobs": [logprob for _, logprob, _ in pieces],
            # Several tokens may have the same text, parts of a character above all: the likeliest
            # counts.
            "top_logprobs": [
                {text: value for _, text, value in reversed(top)} for _, _, top in pieces
            ],
            "text_offset": offsets,
        }


def _choice(index: int, text: str, logprobs: Any, finish: str | None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}
