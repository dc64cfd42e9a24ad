"""Settings, answers (head, lines and end) and errors that OpenAI's chat and text completions share.

Names are those of platform.openai.com/docs/api-reference, and those that vLLM made usual;
`openai_parameters` says what becomes of each.

Errors have OpenAI's words and codes, and the parameter's name. Their forms are those that OpenAI's
users show in error reports (`decimal_above_max_value`, `integer_below_min_value`, `invalid_type`
...); clients match on them.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from penstock.errors import CallerError
from penstock.instance.codecs.generation.calls import (
    GeneratedAnswer,
    Served,
    Writer,
    flag,
    mapping,
    schema_text,
    sse,
    unsupported,
    wrong,
)
from penstock.instance.codecs.generation.openai_parameters import REFUSED
from penstock.runtimes.generation.base import Sampling
from penstock.runtimes.generation.limits import OPENAI, TOKENS_MAX, Limit, checked

NAMES: Final = {
    "tokens_new_max": "max_tokens",
    "tokens_new_min": "min_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "seed": "seed",
    "stop": "stop",
    "stop_token_ids": "stop_token_ids",
    "stop_included": "include_stop_str_in_output",
    "special_shown": "skip_special_tokens",
    "prompt_tokens_max": "truncate_prompt_tokens",
    "ignore_eos": "ignore_eos",
    "sequences": "n",
}


#: OpenAI's, where neither the request nor the model says more.
_DEFAULTS: Final = {"temperature": 1.0}


def settings_of(parsed: dict[str, Any], served: Served) -> dict[str, Any]:
    """Fields of `Sampling` as the request has them, else as the model does."""
    settings = {field: parsed.get(name) for field, name in NAMES.items()}
    for field, value in {**_DEFAULTS, **served.sampling}.items():
        if settings[field] is None:
            settings[field] = value
    if settings["top_k"] == -1:  # in vLLM, -1 means all tokens
        settings["top_k"] = 0
    if settings["special_shown"] is not None:
        settings["special_shown"] = not flag(parsed, "skip_special_tokens")
    return settings


def usage_wanted(parsed: dict[str, Any], *, stream: bool) -> bool:
    options = mapping(parsed, "stream_options")
    if options and not stream:
        raise wrong("stream_options", "left out where stream is not true")
    return bool(options.get("include_usage"))


def usage(answer: GeneratedAnswer) -> dict[str, Any]:
    counts: dict[str, Any] = {
        "prompt_tokens": answer.tokens_in,
        "completion_tokens": answer.tokens_out,
        "total_tokens": answer.tokens_in + answer.tokens_out,
    }
    if answer.tokens_cached is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": answer.tokens_cached}
    return counts


#: Kind of vLLM's `structured_outputs` -> (field of `Sampling`, the older parameter).
_KINDS_BOUND: Final = {
    "json": ("json_schema", "guided_json"),
    "regex": ("regex", "guided_regex"),
    "choice": ("choices", "guided_choice"),
    "grammar": ("grammar", "guided_grammar"),
}


def constrain(
    parsed: dict[str, Any],
    settings: dict[str, Any],
    names: dict[str, str],
    format_: Constraining,
    *,
    tools: bool = False,
) -> None:
    """Adds what the whole answer must be to `settings`, and its parameter to `names`. Raises
    CallerError for several at once, and for an answer that could be no call where the request has
    `tools`. `format_`: what the operation's own parameter says."""
    found = [format_] if format_[1] is not None else []
    structured = mapping(parsed, "structured_outputs")
    for kind, value in structured.items():
        if value is None or (kind == "json_object" and value is False):
            continue
        place = f"structured_outputs.{kind}"
        if kind == "json_object" and value is True:
            found.append(("json_schema", ANY_OBJECT, place))
        elif kind in _KINDS_BOUND:
            found.append(_bound(kind, value, place))
        else:
            cause = REFUSED["chat"]["structured_outputs (other kinds)"]
            raise unsupported(place, cause)
    for kind, (_, older) in _KINDS_BOUND.items():
        if parsed.get(older) is not None:
            found.append(_bound(kind, parsed[older], older))
    for field, value, name in found:
        settings[field], names[field] = value, name
        if tools and field != "json_schema":
            raise wrong(name, "left out where tools are sent")
    if len(found) > 1:
        listed = " and ".join(name for _, _, name in found)
        raise CallerError(
            "invalid-value",
            f"{listed} each say what the whole answer must be: send one of them.",
            param=found[1][2],
        )


#: (field of `Sampling`, its value, the parameter's name)
Constraining = tuple[str, Any, str]


def _bound(kind: str, value: Any, place: str) -> Constraining:
    field = _KINDS_BOUND[kind][0]
    return field, schema_text(place, value) if kind == "json" else value, place


def response_format(parsed: dict[str, Any]) -> Constraining:
    wanted = mapping(parsed, "response_format")
    names = ("response_format.type", "response_format.json_schema.schema")
    schema = mapping(wanted, "json_schema").get("schema")
    found = json_schema_of(wanted.get("type", "text"), schema, names)
    return "json_schema", found, "response_format"


#: The schema of JSON mode.
ANY_OBJECT: Final = '{"type":"object"}'


def json_schema_of(kind: Any, schema: Any, names: tuple[str, str]) -> str | None:
    """The schema that a format of type `kind` must match; None for text. `names`: those of kind and
    schema, for errors."""
    if kind == "text":
        return None
    if kind == "json_object":
        return ANY_OBJECT
    if kind == "json_schema":
        if schema is None:
            raise missing(names[1])
        return schema_text(names[1], schema)
    raise wrong(names[0], "text, json_object or json_schema")


def reasoning_effort(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise wrong_type(name, value, "a string")
    return value


_KINDS: Final = {
    bool: "a boolean", str: "a string", int: "an integer", float: "a decimal number",
    list: "an array", dict: "an object",
}  # fmt: skip
_SHOWN_MAX: Final = 100


class OpenAiWords:
    """Implements `limits.Words`."""

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


#: A prompt alone may come back.
_ECHO: Final = {"tokens_new_max": Limit(0, TOKENS_MAX, whole=True)}


def openai_checked(settings: dict[str, Any], names: dict[str, str]) -> Sampling:
    """`limits.checked` with OpenAI's table and words."""
    if settings.get("top_p") == 0 and not isinstance(settings["top_p"], bool):
        # The smallest nucleus is the likeliest token; but engines need a share above 0.
        settings = settings | {"top_p": None, "top_k": 1}
    limits = OPENAI | _ECHO if settings.get("echo") else OPENAI
    return checked(settings, names, limits=limits, words=OpenAiWords())


def _shown(value: object) -> str:
    shown = repr(value) if isinstance(value, str) else str(value)
    return shown if len(shown) <= _SHOWN_MAX else f"{shown[: _SHOWN_MAX - 3]}..."


DONE: Final = b"data: [DONE]\n\n"


class OpenAiWriter(Writer):
    """Writes one answer; subclasses define the form of a choice."""

    __slots__ = (
        "_created", "_ident", "_line_object", "_model", "_object", "_usage", "begun", "logprobs",
    )  # fmt: skip

    def __init__(
        self,
        served: Served,
        ident: str,
        objects: tuple[str, str],
        *,
        stream: bool,
        usage: bool,
        logprobs: bool,
    ) -> None:
        """
        Args:
            ident: prefix of ids of this kind.
            objects: object names of the whole answer and of a streamed line.
            usage: the end of a stream has the token counts.
        """
        super().__init__(stream=stream)
        self._object, self._line_object = objects
        self._ident = f"{ident}-{served.new_id()}"
        self._created = served.now_s()
        self._model = served.name
        self._usage = usage
        self.logprobs = logprobs  #: whether the request asks for log-probabilities
        self.begun: set[int] = set()  #: sequences that have at least one line

    def line(self, choice: dict[str, Any]) -> bytes:
        """A streamed line. It has a `usage` of null only if the last line will have the counts."""
        return sse(self._line([choice]))

    def _line(self, choices: list[Any]) -> dict[str, Any]:
        made = self._head(self._line_object, choices, None)
        if not self._usage:
            del made["usage"]
        return made

    def end(self, answer: GeneratedAnswer) -> bytes:
        """The lines after the last choice of a stream."""
        if not self._usage:
            return DONE
        return sse(self._head(self._line_object, [], usage(answer))) + DONE

    def whole_of(self, choices: list[dict[str, Any]], answer: GeneratedAnswer) -> bytes:
        """The whole answer, without streaming."""
        return orjson.dumps(self._head(self._object, choices, usage(answer)))

    def _head(self, kind: str, choices: list[Any], used: Any) -> dict[str, Any]:
        return {
            "id": self._ident,
            "object": kind,
            "created": self._created,
            "model": self._model,
            "choices": choices,
            "usage": used,
        }


def logprob_of(piece: list[Any]) -> dict[str, Any]:
    """A token, with the likeliest tokens at its place."""
    text, logprob, top = piece
    return {
        "token": text,
        "logprob": logprob,
        "bytes": list(text.encode("utf-8", "replace")),
        "top_logprobs": [
            {"token": each, "logprob": value, "bytes": list(each.encode("utf-8", "replace"))}
            for _, each, value in top
        ],
    }
