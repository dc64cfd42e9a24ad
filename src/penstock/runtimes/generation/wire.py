"""Messages between an instance and its engine process, over a socket pair.

The head, INIT, READY and FAILED are those of `workers.wire`; payloads are JSON.

    ADD       one request: `add_message`
    CANCEL    [id, ...]
    ADAPTER   {"key", "folder"}: load it; without a folder: unload it
    ADAPTED   {"key"} with "error" where it could not be loaded: the answer to each
    EVENTS    {"s": statistics, "e": [event, ...]}: all that one step made, in one message. An event
              is an object with only the keys that say something:
              "i" id, "t" token ids, "z" places of special ones among them, "x" text, "u" new of
              function calls [[index, id, name, arguments], ...], "l" for each
              token [text, log-probability, [[id, text, log-probability] of the likeliest]],
              "k" the same of the prompt's tokens, each with the index of its first character,
              "n" which of the request's sequences (0 where it is not there), "g" what finished
              that one while others go on, "f" what finished the last one, "e" an error (the last
              event); and with the first event of a sequence "s" seed, "h" the prompt's text where
              it was asked for, and of the first sequence of a prompt "p" its tokens, "c" those of
              them found in the cache, where the engine tells; "v" is the answer to a question
              about tokens (`add_message`), with "f" and nothing else

Imports the standard library alone: the engine process may be another interpreter.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any, Final

from penstock.errors import plain
from penstock.runtimes.generation.base import Sampling
from penstock.runtimes.workers import wire

ADD: Final = 16
CANCEL: Final = 17
EVENTS: Final = 18
ADAPTER: Final = 19
ADAPTED: Final = 20

_compact = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=plain
).encode
#: The number that OpenAI's API uses for a log-probability of minus infinity.
_VERY_UNLIKELY: Final = -9999.0


def message(kind: int, value: Any) -> bytes:
    """Bytes that every JSON parser reads: lone surrogates become "?", and no number is infinite.

    Both come from a model's output, and must not end the connection that carries them.
    """
    try:
        text = _compact(value)
    except ValueError:
        text = _compact(_finite(value))
    return wire.message(kind, text.encode("utf-8", "replace"))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return -_VERY_UNLIKELY if value > 0 else _VERY_UNLIKELY
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return value


def add_message(ident: int, prompt: Any, sampling: Sampling, *, adapter: str = "") -> bytes:
    """`prompt`: a text, a list of token ids, {"messages": [...]} for the chat template, or
    {"several": [...]}, a list of texts and lists of ids; {"tokens_of": text or chat, ...} or
    {"text_of": ids}, which nothing is generated for (`Prompts.told`)."""
    given = {key: value for key, value in asdict(sampling).items() if value != _DEFAULTS[key]}
    call = {"i": ident, "prompt": prompt, "sampling": given}
    return message(ADD, call | {"adapter": adapter} if adapter else call)


def is_question(prompt: Any) -> bool:
    """Whether a prompt is a question about tokens."""
    return isinstance(prompt, dict) and ("tokens_of" in prompt or "text_of" in prompt)


def sampling_of(given: dict[str, Any]) -> Sampling:
    """The inverse of `add_message` for sampling settings, which were checked before."""
    for name in ("stop", "choices", "stop_token_ids"):
        if name in given:
            given[name] = tuple(given[name])
    return Sampling(**given)


_DEFAULTS: Final = asdict(Sampling())
