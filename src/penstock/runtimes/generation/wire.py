"""Messages between an instance and its engine process, over a socket pair.

The head is that of `runtimes.workers.wire` (payload bytes u32, kind u8, pad, count u16, little
endian); payloads are JSON. INIT, READY and FAILED are as there.

    ADD       one request: `add_message`
    CANCEL    [id, ...]
    EVENTS    {"s": statistics, "e": [event, ...]}: all that one step made, in one message. An event
              is an object with only the keys that say something:
              "i" id, "t" token ids, "z" places of special ones among them, "x" text, "u" new of
              function calls [[index, id, name, arguments], ...], "l" for each
              token [text, log-probability, [[id, text, log-probability] of the likeliest]],
              "n" which of the request's sequences (0 where it is not there), "g" what finished
              that one while others go on, "f" what finished the last one, "e" an error (the last
              event); and with the first event of a sequence "p" tokens of the prompt, "c" those of
              them found in the cache, "s" seed, "h" the prompt's text where it was asked for

Imports the standard library alone: the engine process may be another interpreter.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from penstock.errors import plain
from penstock.runtimes.generation.base import Sampling

HEAD: Final = struct.Struct("<IBxH")
INIT: Final = 1
READY: Final = 2
FAILED: Final = 3
ADD: Final = 16
CANCEL: Final = 17
EVENTS: Final = 18

_compact = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=plain
).encode
#: What stands for a log-probability of minus infinity, as OpenAI's API has it.
_VERY_UNLIKELY: Final = -9999.0


def message(kind: int, value: Any) -> bytes:
    """Bytes that every JSON parser reads: lone surrogates of a text are "?", no number is infinite.

    Both come from models' words and numbers, and must not end the connection that carries them.
    """
    try:
        text = _compact(value)
    except ValueError:
        text = _compact(_finite(value))
    payload = text.encode("utf-8", "replace")
    return HEAD.pack(len(payload), kind, 0) + payload


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return -_VERY_UNLIKELY if value > 0 else _VERY_UNLIKELY
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return value


def add_message(
    ident: int, prompt: Any, sampling: Sampling, *, timeout_s: float | None = None
) -> bytes:
    """`prompt`: a text, a list of token ids, or {"messages": [...]} for the chat template."""
    given = {key: value for key, value in asdict(sampling).items() if value != _DEFAULTS[key]}
    return message(ADD, {"i": ident, "prompt": prompt, "sampling": given, "timeout_s": timeout_s})


def sampling_of(given: dict[str, Any]) -> Sampling:
    """The inverse of what `add_message` makes of it; it was checked before."""
    if "stop" in given:
        given["stop"] = tuple(given["stop"])
    return Sampling(**given)


def read_messages(stream: Any) -> Iterator[tuple[int, Any]]:
    """(kind, value) from a blocking binary stream until it ends."""
    while True:
        head = stream.read(HEAD.size)
        if len(head) < HEAD.size:
            return
        size, kind, _ = HEAD.unpack(head)
        payload = stream.read(size)
        if len(payload) < size:
            return
        yield kind, json.loads(payload)


_DEFAULTS: Final = asdict(Sampling())
