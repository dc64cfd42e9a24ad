"""Bounds of sampling settings: one table for all engines, and each dialect's changes to it.

A dialect may be narrower than the engines, and has its own words for errors. Both are arguments of
`checked`, so that no dialect can pass an invalid setting to an engine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from penstock.errors import CallerError
from penstock.runtimes.generation.base import LOGPROBS_MAX, Sampling

#: A longer list would only make the server work.
STOPS_MAX: Final = 16
STOP_CHARS_MAX: Final = 256
SCHEMA_CHARS_MAX: Final = 65_536
SEED_MAX: Final = 2**63 - 1
TOKENS_MAX: Final = 1_000_000
_TOKEN_ID_MAX: Final = 2**31 - 1
SEQUENCES_MAX: Final = 128  #: as OpenAI's `n`


@dataclass(frozen=True, slots=True)
class Limit:
    """A number's range; both ends are allowed unless `above`."""

    low: float
    high: float
    whole: bool = False  #: only integers
    above: bool = False  #: the lower end itself is not allowed


#: Field of `Sampling` -> what every engine takes.
ENGINES: Final[dict[str, Limit]] = {
    "temperature": Limit(0, 100),
    "top_p": Limit(0, 1, above=True),
    "min_p": Limit(0, 1),
    "repetition_penalty": Limit(0, 100, above=True),
    "presence_penalty": Limit(-2, 2),
    "frequency_penalty": Limit(-2, 2),
    "tokens_new_max": Limit(1, TOKENS_MAX, whole=True),
    "tokens_new_min": Limit(0, TOKENS_MAX, whole=True),
    "top_k": Limit(0, TOKENS_MAX, whole=True),
    "seed": Limit(-SEED_MAX - 1, SEED_MAX, whole=True),
    "logprobs": Limit(0, LOGPROBS_MAX, whole=True),
    "sequences": Limit(1, SEQUENCES_MAX, whole=True),
    "prompt_tokens_max": Limit(-1, TOKENS_MAX, whole=True),
}
#: OpenAI's API (platform.openai.com/docs/api-reference), where it differs.
OPENAI: Final[dict[str, Limit]] = ENGINES | {"temperature": Limit(0, 2), "top_p": Limit(0, 1)}
_FLAGS: Final = ("stop_included", "ignore_eos", "echo", "special_shown")
#: What binds the whole answer, as a text.
_BOUNDS: Final = ("json_schema", "regex", "grammar")


class Words(Protocol):
    """A dialect's error messages. Each method makes the error to raise; `name` is the dialect's."""

    def out_of_range(self, name: str, value: object, limit: Limit) -> CallerError:
        """A number that the limit does not allow."""

    def wrong_kind(self, name: str, value: object, limit: Limit | None) -> CallerError:
        """The value is no number, or a fraction where an integer is needed; `limit` None: it is no
        flag."""

    def wrong(self, name: str, value: object, allowed: str) -> CallerError:
        """Anything else; `allowed` completes "it must be"."""


class PlainWords:
    """One sentence: the name, the value, what is allowed."""

    def out_of_range(self, name: str, value: object, limit: Limit) -> CallerError:
        kind = "an integer" if limit.whole else "a number"
        start = "above" if limit.above else "from"
        spelled = "d" if limit.whole else "g"
        allowed = f"{kind} {start} {limit.low:{spelled}} to {limit.high:{spelled}}"
        return self.wrong(name, value, allowed)

    def wrong_kind(self, name: str, value: object, limit: Limit | None) -> CallerError:
        if limit is None:
            return self.wrong(name, value, "true or false")
        return self.out_of_range(name, value, limit)

    def wrong(self, name: str, value: object, allowed: str) -> CallerError:
        shown = repr(value)
        shown = shown if len(shown) <= 100 else f"{shown[:97]}..."
        return CallerError("invalid-parameter", f"{name} is {shown}: it must be {allowed}")


def checked(
    given: Mapping[str, Any],
    names: Mapping[str, str] | None = None,
    *,
    limits: Mapping[str, Limit] = ENGINES,
    words: Words | None = None,
) -> Sampling:
    """Checks settings (None: not given) and returns them as `Sampling`.

    Args:
        given: fields of Sampling.
        names: their names in the caller's dialect, for errors.
        limits: the dialect's table.
        words: the dialect's error messages.

    Raises CallerError with the caller's name, the value and what is allowed.
    """
    known = names or {}
    refuse = words or PlainWords()
    values = {key: value for key, value in given.items() if value is not None}
    for key, limit in limits.items():
        if key in values:
            values[key] = _number(known.get(key, key), values[key], limit, refuse)
    for key in _FLAGS:
        if key in values and not isinstance(values[key], bool):
            raise refuse.wrong_kind(known.get(key, key), values[key], None)
    if "stop" in values:
        values["stop"] = _stops(known.get("stop", "stop"), values["stop"], refuse)
    for key in _BOUNDS:
        bound = values.get(key)
        name = known.get(key, key)
        if bound is not None and not isinstance(bound, str):
            raise refuse.wrong(name, bound, "a string")
        if bound is not None and len(bound) > SCHEMA_CHARS_MAX:
            raise refuse.wrong(name, bound, f"at most {SCHEMA_CHARS_MAX} characters")
    if "choices" in values:
        values["choices"] = _choices(known.get("choices", "choices"), values["choices"], refuse)
    if "stop_token_ids" in values:
        name = known.get("stop_token_ids", "stop_token_ids")
        values["stop_token_ids"] = _token_ids(name, values["stop_token_ids"], refuse)
    sampling = Sampling(**values)
    most = sampling.tokens_new_max
    if most is not None and sampling.tokens_new_min > most:
        name = known.get("tokens_new_min", "tokens_new_min")
        raise refuse.wrong(name, sampling.tokens_new_min, f"at most the longest answer, {most}")
    return sampling


def _number(name: str, value: object, limit: Limit, words: Words) -> float:
    if limit.whole and isinstance(value, float) and math.isfinite(value) and value == int(value):
        value = int(value)  # some clients' languages have one kind of number
    kinds = int if limit.whole else int | float
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise words.wrong_kind(name, value, limit)
    # The range is checked before float(): an integer of a thousand digits is no float.
    if not limit.low <= value <= limit.high or (limit.above and value == limit.low):
        raise words.out_of_range(name, value, limit)
    return value if limit.whole else float(value)


def _stops(name: str, value: object, words: Words) -> tuple[str, ...]:
    """One string or a list of them; an empty one would end every answer at once."""
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list | tuple) or len(stops) > STOPS_MAX:
        raise words.wrong(name, value, f"a string or a list of at most {STOPS_MAX} strings")
    for each in stops:
        if not isinstance(each, str) or not 1 <= len(each) <= STOP_CHARS_MAX:
            raise words.wrong(name, each, f"strings of 1 to {STOP_CHARS_MAX} characters")
    return tuple(stops)


def _choices(name: str, value: object, words: Words) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value or not all(map(_is_text, value)):
        raise words.wrong(name, value, "a list of texts that are not empty")
    if sum(map(len, value)) > SCHEMA_CHARS_MAX:
        raise words.wrong(name, value, f"texts of at most {SCHEMA_CHARS_MAX} characters together")
    return tuple(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _token_ids(name: str, value: object, words: Words) -> tuple[int, ...]:
    if (
        not isinstance(value, list | tuple)
        or len(value) > STOPS_MAX
        or any(type(each) is not int or not 0 <= each <= _TOKEN_ID_MAX for each in value)
    ):
        raise words.wrong(name, value, f"a list of at most {STOPS_MAX} token ids")
    return tuple(value)
