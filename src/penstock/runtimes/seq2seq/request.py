"""The parameters of a generation request, checked against the model's limits.

Names and meanings are those of transformers' `generate`, so a client written for the Hugging Face
toolkit keeps its parameters. Unsupported parameters are refused by name: ignoring one would give an
answer that nobody asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from penstock.artifacts.description.description import ModelDescription
from penstock.errors import ModelError

#: Accepted without effect: they ask for what happens anyway.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "do_sample": (False, None),
    "num_return_sequences": (1, None),
    "num_beam_groups": (1, None),
    "temperature": (1, 1.0, None),
    "repetition_penalty": (1, 1.0, None),
    "return_text": (True, None),
    "return_tensors": (False, None),
    "truncation": (True, None),
    "use_cache": (True, None),
    "clean_up_tokenization_spaces": (True, False, None),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """How one answer is generated."""

    max_new_tokens: int = 64
    min_new_tokens: int = 0
    num_beams: int = 1
    length_penalty: float = 1.0  #: beam scores are divided by length ** this
    early_stopping: bool | str = False  #: False | True | "never", as in transformers
    no_repeat_ngram_size: int = 0  #: 0 = repeats are allowed
    forced_bos_token_id: int | None = None  #: always the first token
    forced_eos_token_id: int | None = None  #: always the token at `max_new_tokens`


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationLimits:
    """Defaults and bounds of one model."""

    defaults: GenerationRequest
    tokens_new_max: int
    beams_max: int

    @classmethod
    def of(cls, description: ModelDescription, rows_max: int) -> GenerationLimits:
        """From model.yaml: `generation`, and defaults in `parameters` under the names above."""
        generation = description.generation
        if generation is None:
            raise ModelError(
                "generation-missing",
                "a text2text-generation model needs `generation` in model.yaml",
                hint="Compile the model with `penstock compile`; it writes the section.",
            )
        known = {field.name for field in fields(GenerationRequest)}
        own = {k: _parsed(v) for k, v in description.parameters.items() if k in known}
        beams_max = min(generation.beams_max, rows_max)
        limits = cls(
            defaults=GenerationRequest(max_new_tokens=generation.tokens_new_max),
            tokens_new_max=generation.tokens_new_max,
            beams_max=beams_max,
        )
        return replace(limits, defaults=limits.checked(own))

    def checked(self, parameters: Mapping[str, Any]) -> GenerationRequest:
        """Raises ModelError 400 naming the parameter, its value and what is allowed."""
        if not parameters:
            return self.defaults
        values: dict[str, Any] = {}
        for name, value in parameters.items():
            if name in ("max_length", "min_length"):
                raise _wrong(name, value, "left out: give max_new_tokens and min_new_tokens")
            check = _CHECKS.get(name)
            if check is not None:
                values[name] = check(self, name, value)
            elif name not in _NEUTRAL:
                raise _wrong(name, value, f"left out; known are {', '.join(_CHECKS)}")
            elif value not in _NEUTRAL[name]:
                raise _wrong(name, value, f"left out or {_NEUTRAL[name][0]!r}")
        request = replace(self.defaults, **values)
        if request.min_new_tokens > request.max_new_tokens:
            if "min_new_tokens" in values:
                raise _wrong(
                    "min_new_tokens", request.min_new_tokens,
                    f"at most max_new_tokens ({request.max_new_tokens})",
                )  # fmt: skip
            request = replace(request, min_new_tokens=request.max_new_tokens)
        return request


def _parsed(value: str) -> Any:
    """Parses a value of model.yaml's `parameters`, which are all text."""
    words = {"true": True, "false": False, "none": None}
    if value.lower() in words:
        return words[value.lower()]
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def _wrong(name: str, value: Any, allowed: str) -> ModelError:
    return ModelError(
        "bad-parameter",
        f"parameters.{name} is {str(value)[:60]!r}; it must be {allowed}",
        hint="See the model's `generation` section for its limits.",
        original_status=400,
    )


def _whole(name: str, value: Any, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise _wrong(name, value, f"a whole number from {low} to {high}")
    return value


def _penalty(limits: GenerationLimits, name: str, value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or abs(value) > 100:
        raise _wrong(name, value, "a number from -100 to 100")
    return float(value)


def _stopping(limits: GenerationLimits, name: str, value: Any) -> bool | str:
    if value is None:
        return False
    if type(value) is not bool and value != "never":
        raise _wrong(name, value, 'true, false or "never"')
    return value  # type: ignore[no-any-return]


def _token_id(limits: GenerationLimits, name: str, value: Any) -> int | None:
    return None if value is None else _whole(name, value, 0, 2**31 - 1)


#: Parameter -> its value as a field of `GenerationRequest`, checked.
_CHECKS: Mapping[str, Callable[[GenerationLimits, str, Any], Any]] = {
    "max_new_tokens": lambda own, name, value: _whole(name, value, 1, own.tokens_new_max),
    "min_new_tokens": lambda own, name, value: _whole(name, value, 0, own.tokens_new_max),
    "num_beams": lambda own, name, value: _whole(name, value, 1, own.beams_max),
    "length_penalty": _penalty,
    "early_stopping": _stopping,
    "no_repeat_ngram_size": lambda own, name, value: _whole(name, value, 0, 100),
    "forced_bos_token_id": _token_id,
    "forced_eos_token_id": _token_id,
}

#: Names that a request may use.
PARAMETERS = (*_CHECKS, *_NEUTRAL)
