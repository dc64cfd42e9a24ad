"""What is asked of a generation engine, and what it yields.

Settings are checked here once for all dialects: an engine never sees an impossible one. Nothing
here knows a protocol, a tokenizer or an engine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.errors import CallerError

#: More would be a way to make the server work, not a request.
STOPS_MAX = 16
STOP_CHARS_MAX = 256
LOGPROBS_MAX = 20
SCHEMA_CHARS_MAX = 65_536
SEED_MAX = 2**63 - 1
#: What finished a sequence: a stop token or string, the length asked for, nobody wanting it.
STOP, LENGTH, CANCELLED = "stop", "length", "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the next token is chosen, and when to end. Made by `checked`."""

    tokens_new_max: int | None = None  #: None: what is left of the context
    tokens_new_min: int = 0
    temperature: float = 0.0  #: 0 = the likeliest token, always
    top_p: float = 1.0
    top_k: int = 0  #: 0 = all
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None  #: None: the engine's process chooses one and tells it
    stop: tuple[str, ...] = ()
    stop_included: bool = False  #: the text ends with the stop string instead of before it
    logprobs: int | None = None  #: None: none; n: of the chosen token and the n likeliest
    json_schema: str | None = None  #: the text is JSON that this schema allows; "" = any object
    ignore_eos: bool = False
    echo: bool = False  #: the answer's text begins with the prompt


_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0.0, 100.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.0, 100.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
}
#: of the ranges above, those that may not be at their lower end
_ABOVE = ("top_p", "repetition_penalty")
_COUNTS: dict[str, tuple[int, int]] = {
    "tokens_new_max": (1, 1_000_000),
    "tokens_new_min": (0, 1_000_000),
    "top_k": (0, 1_000_000),
    "seed": (-SEED_MAX - 1, SEED_MAX),
    "logprobs": (0, LOGPROBS_MAX),
}
_FLAGS = ("stop_included", "ignore_eos", "echo")


def checked(given: dict[str, Any], names: dict[str, str] | None = None) -> Sampling:
    """Settings that were given (None: not given) as `Sampling`.

    Args:
        given: fields of Sampling.
        names: what the caller's dialect calls them, for errors.

    Raises CallerError (`invalid-parameter`) with the caller's name, the value and what is allowed.
    """
    known = names or {}
    values = {key: value for key, value in given.items() if value is not None}
    for key, (low, high) in _RANGES.items():
        if key in values:
            values[key] = _number(known.get(key, key), values[key], low, high, key in _ABOVE)
    for key, bounds in _COUNTS.items():
        if key in values:
            values[key] = _count(known.get(key, key), values[key], *bounds)
    for key in _FLAGS:
        if key in values and not isinstance(values[key], bool):
            raise invalid(known.get(key, key), values[key], "true or false")
    if "stop" in values:
        values["stop"] = _stops(known.get("stop", "stop"), values["stop"])
    schema = values.get("json_schema")
    if schema is not None and len(schema) > SCHEMA_CHARS_MAX:
        name = known.get("json_schema", "json_schema")
        raise invalid(name, schema, f"at most {SCHEMA_CHARS_MAX} characters")
    sampling = Sampling(**values)
    most = sampling.tokens_new_max
    if most is not None and sampling.tokens_new_min > most:
        name = known.get("tokens_new_min", "tokens_new_min")
        raise invalid(name, sampling.tokens_new_min, f"at most the longest answer, {most}")
    return sampling


def invalid(name: str, value: object, allowed: str) -> CallerError:
    """The one error of a wrong setting."""
    shown = repr(value)
    shown = shown if len(shown) <= 100 else f"{shown[:97]}..."
    return CallerError("invalid-parameter", f"{name} is {shown}: it must be {allowed}")


def _number(name: str, value: object, low: float, high: float, above: bool) -> float:
    allowed = f"a number {'above' if above else 'from'} {low:g} to {high:g}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise invalid(name, value, allowed)
    # Compared first: an integer of a thousand digits is no float.
    if not low <= value <= high or (above and value == low):
        raise invalid(name, value, allowed)
    return float(value)


def _count(name: str, value: object, low: int, high: int) -> int:
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        value = int(value)  # clients in languages with one kind of number
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise invalid(name, value, f"an integer from {low} to {high}")
    return value


def _stops(name: str, value: object) -> tuple[str, ...]:
    """One string or a list of them; empty ones would end every answer at once."""
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list | tuple) or len(stops) > STOPS_MAX:
        raise invalid(name, value, f"a string or a list of at most {STOPS_MAX} strings")
    for each in stops:
        if not isinstance(each, str) or not 1 <= len(each) <= STOP_CHARS_MAX:
            raise invalid(name, each, f"strings of 1 to {STOP_CHARS_MAX} characters")
    return tuple(stops)


@dataclass(slots=True)
class EngineRequest:
    """One sequence as an engine takes it: the prompt is not empty and fits the context."""

    ident: int
    prompt: list[int]
    sampling: Sampling
    tokens_new_max: int  #: at most what is left of the context
    seed: int
    deadline: float | None = None


@dataclass(slots=True)
class StepOutput:
    """What a step added to one sequence."""

    ident: int
    token_ids: list[int]
    logprobs: list[float] | None = None  #: of each token
    top: list[list[tuple[int, float]]] | None = None  #: of each token, the likeliest ones
    finish: str | None = None  #: STOP, LENGTH; None: it goes on
    tokens_cached: int = 0  #: of the prompt, found in the prefix cache


@dataclass(frozen=True, slots=True)
class EngineStatistics:
    running: int  #: sequences of the last step
    waiting: int  #: sequences that wait for room
    cache_use: float  #: share of the cache's blocks in use, 0 to 1
    cache_bytes: int


class GenerationEngine(Protocol):
    """Lives in the engine process. Calls come from one thread; none is made during a step."""

    name: str
    context_tokens_max: int  #: of prompt and answer together
    logprobs_max: int  #: likeliest tokens that it can name; 0: the chosen one only
    has_json_schema: bool

    def add(self, request: EngineRequest) -> None:
        """Takes a sequence. Raises PenstockError where it can't be run."""

    def check_schema(self, schema: str) -> None:
        """Raises CallerError for a JSON schema that can't be held to. Called from another thread
        than the rest, and before `add`."""

    def cancel(self, ident: int) -> None:
        """Ends a sequence; its blocks are free for the next step. Unknown ones are ignored."""

    def step(self) -> Sequence[StepOutput]:
        """Computes the next token of what runs. Returns at once where nothing does."""

    @property
    def has_work(self) -> bool: ...

    def statistics(self) -> EngineStatistics: ...

    def close(self) -> None: ...
