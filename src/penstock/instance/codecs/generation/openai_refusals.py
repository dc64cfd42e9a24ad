"""How OpenAI's API refuses: its words, its codes, and the parameter's name beside them.

The forms are those that its users print in their reports of errors (`decimal_above_max_value`,
`integer_below_min_value`, `invalid_type` ...); clients match on them.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.errors import CallerError
from penstock.runtimes.generation.base import Sampling
from penstock.runtimes.generation.limits import OPENAI, Limit, checked

_KINDS: Final = {
    bool: "a boolean", str: "a string", int: "an integer", float: "a decimal number",
    list: "an array", dict: "an object",
}  # fmt: skip
_SHOWN_MAX: Final = 100


class OpenAiWords:
    """See `limits.Words`."""

    def out_of_range(self, name: str, value: object, limit: Limit) -> CallerError:
        kind = "integer" if limit.whole else "decimal"
        below = not isinstance(value, int | float) or not value > limit.low
        if below:
            sign, end, how = (">" if limit.above else ">="), limit.low, "below minimum"
        else:
            sign, end, how = "<=", limit.high, "above maximum"
        code = f"{kind}-{'below-min' if below else 'above-max'}-value"
        expected = f"{end:d}" if limit.whole else f"{end:g}"
        return CallerError(
            code,
            f"Invalid '{name}': {kind} {how} value. Expected a value {sign} {expected}, but got "
            f"{_shown(value)} instead.",
            param=name,
        )

    def wrong_kind(self, name: str, value: object, limit: Limit | None) -> CallerError:
        expected = "a boolean"
        if limit is not None:
            expected = "an integer" if limit.whole else "a decimal"
        return wrong_type(name, value, expected)

    def wrong(self, name: str, value: object, allowed: str) -> CallerError:
        if isinstance(value, list | tuple) and "list of at most" in allowed:
            return CallerError(
                "array-above-max-length",
                f"Invalid '{name}': array too long. Expected {allowed}, but got an array with "
                f"length {len(value)} instead.",
                param=name,
            )
        return CallerError(
            "invalid-value", f"Invalid '{name}': {_shown(value)}. It must be {allowed}.", param=name
        )


def wrong_type(name: str, value: object, expected: str) -> CallerError:
    got = _KINDS.get(type(value), "null")
    return CallerError(
        "invalid-type",
        f"Invalid type for '{name}': expected {expected}, but got {got} instead.",
        param=name,
    )


def missing(name: str) -> CallerError:
    return CallerError(
        "missing-required-parameter", f"Missing required parameter: '{name}'.", param=name
    )


def openai_checked(settings: dict[str, Any], names: dict[str, str]) -> Sampling:
    """`limits.checked` by OpenAI's table and in its words."""
    if settings.get("top_p") == 0 and not isinstance(settings["top_p"], bool):
        # The smallest nucleus is the likeliest token; engines want a share above 0.
        settings = settings | {"top_p": None, "top_k": 1}
    return checked(settings, names, limits=OPENAI, words=OpenAiWords())


def _shown(value: object) -> str:
    shown = repr(value) if isinstance(value, str) else str(value)
    return shown if len(shown) <= _SHOWN_MAX else f"{shown[: _SHOWN_MAX - 3]}..."
