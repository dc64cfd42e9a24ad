"""OpenAI's /v1/completions: a prompt in, its continuation out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.instance.codecs.generation.calls import (
    Event,
    GeneratedAnswer,
    GeneratedChoice,
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
    constrain,
    missing,
    openai_checked,
    response_format,
    settings_of,
    usage_wanted,
)
from penstock.instance.codecs.generation.openai_parameters import REFUSED, check_parameters
from penstock.runtimes.generation.limits import SEQUENCES_MAX

PROMPTS_MAX: Final = 2048
TOKENS_NEW: Final = 16  #: default if the request has none, as at OpenAI


def decode(parsed: dict[str, Any], served: Served, *, stream: bool) -> GenerationCall:
    """Raises CallerError with the parameter's name in OpenAI's form."""
    check_parameters("completions", parsed)
    settings = settings_of(parsed, served)
    settings["echo"] = flag(parsed, "echo")
    settings["logprobs"] = parsed.get("logprobs")
    settings["prompt_scored"] = settings["echo"] and settings["logprobs"] is not None
    if settings["tokens_new_max"] is None:
        settings["tokens_new_max"] = TOKENS_NEW
    stream = stream or flag(parsed, "stream")
    wants_logprobs = settings["logprobs"] is not None
    given = _best_of(parsed, settings, stream=stream)
    writer = _CompletionWriter(
        served,
        "cmpl",
        ("text_completion", "text_completion"),
        stream=stream,
        usage=usage_wanted(parsed, stream=stream),
        logprobs=wants_logprobs,
    )
    writer.best_of = None if given is None else (given, parsed["best_of"])
    names = NAMES | {"logprobs": "logprobs", "echo": "echo", "prompt_scored": "echo"}
    constrain(parsed, settings, names, response_format(parsed))
    sampling = openai_checked(settings, names)
    return GenerationCall(_prompt(parsed.get("prompt")), sampling, writer, names)


def _prompt(given: Any) -> Any:
    """A text or token ids; {"several": [...]} where the request has a list of these."""
    if given is None:
        raise missing("prompt")
    if isinstance(given, list) and given and isinstance(given[0], str | list):
        if len(given) > PROMPTS_MAX:
            raise wrong("prompt", f"a list of at most {PROMPTS_MAX} prompts")
        each = [_one(one) for one in given]
        return each[0] if len(each) == 1 else {"several": each}
    return _one(given)


def _one(given: Any) -> str | list[int]:
    if isinstance(given, str):
        return given
    if isinstance(given, list) and all(type(each) is int for each in given):
        return given
    raise wrong("prompt", "a text, a list of token ids, or a list of these")


def _best_of(parsed: dict[str, Any], settings: dict[str, Any], *, stream: bool) -> int | None:
    """How many of the answers are given; None: all. So many are made as `best_of` says."""
    best_of, count = parsed.get("best_of"), parsed.get("n")
    if best_of is None or best_of == (1 if count is None else count):
        return None
    if type(best_of) is not int or not (count or 1) < best_of <= SEQUENCES_MAX:
        raise wrong("best_of", f"an integer from n to {SEQUENCES_MAX}")
    if stream:
        raise unsupported("best_of", REFUSED["completions"]["best_of (while streaming)"])
    openai_checked({"sequences": count}, NAMES)
    settings["sequences"] = best_of
    if settings["logprobs"] is None:
        settings["logprobs"] = 0
    return count or 1


class _CompletionWriter(OpenAiWriter):
    __slots__ = ("_offsets", "best_of")

    _offsets: dict[int, int]  #: sequence -> characters of its pieces so far
    best_of: tuple[int, int] | None  #: (answers given, of so many made); None: all are given

    def chunk(self, event: Event, answer: GeneratedAnswer) -> bytes:
        text, at = event.get("x", ""), event.get("n", 0)
        if not self.begun:
            self._offsets = {}
        if at not in self.begun:
            self.begun.add(at)
            prompt = answer.choices[at].prompt_text
            text = prompt + text
            self._offsets[at] = len(prompt)
        finish = finish_of(event)
        lines = []
        pieces = event.get("l", [])
        if text or finish or (self.logprobs and pieces):
            prompt = event.get("k", ())
            logprobs = self._logprobs_of(pieces, at, prompt) if self.logprobs else None
            lines.append(self.line(_choice(at, text, logprobs, finish)))
        if "f" in event:
            lines.append(self.end(answer))
        return b"".join(lines)

    def whole(self, answer: GeneratedAnswer) -> bytes:
        self._offsets = {}
        choices = []
        for at, choice in enumerate(self._given(answer.choices)):
            self._offsets[at] = len(choice.prompt_text)
            prompt = choice.prompt_pieces
            logprobs = self._logprobs_of(choice.pieces, at, prompt) if self.logprobs else None
            choices.append(_choice(at, answer.text_of(choice), logprobs, choice.finish))
        return self.whole_of(choices, answer)

    def _given(self, choices: list[GeneratedChoice]) -> list[GeneratedChoice]:
        """The answers with the highest log-probability per token, the likeliest first."""
        if self.best_of is None:
            return choices
        given, made = self.best_of
        best = []
        for at in range(0, len(choices), made):
            best += sorted(choices[at : at + made], key=_unlikeliness)[:given]
        return best

    def _logprobs_of(self, pieces: list[Any], at: int, prompt: Sequence[Any]) -> dict[str, Any]:
        """`prompt`: pieces of the prompt, which come before."""
        offsets = [offset for *_, offset in prompt]
        for text, _, _ in pieces:
            offsets.append(self._offsets[at])
            self._offsets[at] += len(text)
        pieces = [*(piece for *piece, _ in prompt), *pieces]
        return {
            "tokens": [text for text, _, _ in pieces],
            "token_logprobs": [logprob for _, logprob, _ in pieces],
            "top_logprobs": [_top(*piece) for piece in pieces],
            "text_offset": offsets,
        }


def _top(text: str, logprob: float | None, top: list[Any]) -> dict[str, float] | None:
    """The likeliest tokens and, as at OpenAI, the token itself. Several may have the same text,
    parts of a character above all: the likeliest counts."""
    if logprob is None:
        return None
    return {text: logprob} | {each: value for _, each, value in reversed(top)}


def _unlikeliness(choice: GeneratedChoice) -> float:
    total: float = sum(logprob for _, logprob, _ in choice.pieces)
    return -total / max(1, len(choice.pieces))


def _choice(index: int, text: str, logprobs: Any, finish: str | None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}
