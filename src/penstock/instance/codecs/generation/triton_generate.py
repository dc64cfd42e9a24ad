"""Triton's generate extension over HTTP: {"text_input": ..., "parameters": {...}}.

Settings are in `parameters` or beside `text_input`, under the names of Triton's vLLM and
TensorRT-LLM backends. The answer does not include the prompt unless `exclude_input_in_output` is
false, streamed or not, so both forms have the same text.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from penstock.errors import CallerError
from penstock.instance.codecs.generation.calls import (
    Event,
    GeneratedAnswer,
    GenerationCall,
    Served,
    Writer,
    flag,
    mapping,
    parse_object,
    schema_text,
    sse,
    unsupported,
    wrong,
)
from penstock.runtimes.generation.base import Sampling
from penstock.runtimes.generation.limits import checked

TOKENS_NEW: Final = 16  #: default if the request has none, as in vLLM's sampling parameters
#: Field -> its names; the first one found counts.
_NAMES: Final = {
    "tokens_new_max": ("max_tokens", "max_new_tokens"),
    "tokens_new_min": ("min_tokens", "min_length"),
    "temperature": ("temperature",),
    "top_p": ("top_p",),
    "top_k": ("top_k",),
    "min_p": ("min_p",),
    "repetition_penalty": ("repetition_penalty",),
    "presence_penalty": ("presence_penalty",),
    "frequency_penalty": ("frequency_penalty",),
    "seed": ("seed", "random_seed"),
    "stop": ("stop", "stop_words"),
    "ignore_eos": ("ignore_eos",),
}


def decode(parsed: dict[str, Any], served: Served, *, stream: bool) -> GenerationCall:
    """Raises CallerError with the parameter's name as in the request."""
    text = parsed.get("text_input")
    if not isinstance(text, str):
        raise CallerError("invalid-parameter", "text_input must be a text")
    given = settings_given(parsed)
    sampling, asked = sampling_of(given)
    if asked and not stream:
        raise unsupported("stream in a request to generate", "ask generate_stream")
    writer = _GenerateWriter(served, stream, ident=parsed.get("id"))
    return GenerationCall(text, sampling, writer)


def settings_given(parsed: dict[str, Any]) -> dict[str, Any]:
    """Settings from the top level, then `parameters`, then `sampling_parameters` (JSON); later ones
    count."""
    given = {**parsed, **mapping(parsed, "parameters")}
    packed = given.pop("sampling_parameters", None)
    if packed is not None:
        if not isinstance(packed, str | dict):
            raise wrong("sampling_parameters", "a JSON object or its text")
        given |= parse_object(packed.encode()) if isinstance(packed, str) else packed
    return given


def sampling_of(given: dict[str, Any]) -> tuple[Sampling, bool]:
    """The settings, and whether a stream is wanted."""
    settings: dict[str, Any] = {}
    names: dict[str, str] = {}
    for field, known in _NAMES.items():
        for name in known:
            if given.get(name) is not None:
                settings[field], names[field] = given[name], name
                break
    for name in ("n", "best_of", "beam_width"):
        if given.get(name) not in (None, 1):
            raise unsupported(name, "one answer is made of a request")
    if "temperature" not in settings:
        # As in vLLM's parameters; TensorRT-LLM's are greedy unless a setting chooses otherwise.
        shaped = any(key in settings for key in ("top_p", "top_k", "min_p"))
        settings["temperature"] = 1.0 if shaped else 0.0
    if settings.get("top_k") == -1:
        settings["top_k"] = 0
    if settings.get("stop") == "":
        del settings["stop"]
    settings.setdefault("tokens_new_max", TOKENS_NEW)
    if given.get("guided_json") is not None:
        settings["json_schema"] = schema_text("guided_json", given["guided_json"])
    settings["echo"] = not flag(given, "exclude_input_in_output", default=True)
    return checked(settings, names), flag(given, "stream")


class _GenerateWriter(Writer):
    __slots__ = ("_begun", "_head")

    def __init__(self, served: Served, stream: bool, *, ident: Any) -> None:
        super().__init__(stream=stream)
        self._begun = False
        self._head: dict[str, Any] = {
            "model_name": served.name,
            "model_version": served.version,
        }
        if isinstance(ident, str) and ident:
            self._head["id"] = ident

    def chunk(self, event: Event, answer: GeneratedAnswer) -> bytes:
        text = event.get("x", "")
        if not self._begun:
            self._begun = True
            text = answer.prompt_text + text
        if not text and "f" not in event:
            return b""
        return sse({**self._head, "text_output": text})

    def whole(self, answer: GeneratedAnswer) -> bytes:
        return orjson.dumps({**self._head, "text_output": answer.text})
