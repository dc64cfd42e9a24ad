"""The settings that OpenAI's chat and text completions share, and the parts of their answers.

Names of platform.openai.com/docs/api-reference; `top_k`, `min_p`, `repetition_penalty`,
`min_tokens` and `ignore_eos` are the extensions that vLLM made usual. Keys that do not change an
answer (user, store, metadata ...) are ignored, as OpenAI's own servers have ever more of them; keys
that would and are not supported are refused.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.instance.codecs.generation.calls import (
    GeneratedAnswer,
    mapping,
    schema_text,
    unsupported,
    wrong,
)

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
    "ignore_eos": "ignore_eos",
    "sequences": "n",
}


def settings_of(parsed: dict[str, Any]) -> dict[str, Any]:
    """Fields of `Sampling` as they were given."""
    if parsed.get("logit_bias"):
        raise unsupported("logit_bias", "the engine does not have it")
    settings = {field: parsed.get(name) for field, name in NAMES.items()}
    if settings["temperature"] is None:
        settings["temperature"] = 1.0
    if settings["top_k"] == -1:  # vLLM's way to say all
        settings["top_k"] = 0
    settings["json_schema"] = _response_format(parsed)
    return settings


def usage_wanted(parsed: dict[str, Any], *, stream: bool) -> bool:
    options = mapping(parsed, "stream_options")
    if options and not stream:
        raise wrong("stream_options", "left out where stream is not true")
    return bool(options.get("include_usage"))


def usage(answer: GeneratedAnswer) -> dict[str, Any]:
    return {
        "prompt_tokens": answer.tokens_in,
        "completion_tokens": answer.tokens_out,
        "total_tokens": answer.tokens_in + answer.tokens_out,
        "prompt_tokens_details": {"cached_tokens": answer.tokens_cached},
    }


def _response_format(parsed: dict[str, Any]) -> str | None:
    wanted = mapping(parsed, "response_format")
    names = ("response_format.type", "response_format.json_schema.schema")
    schema = mapping(wanted, "json_schema").get("schema")
    return json_schema_of(wanted.get("type", "text"), schema, names)


def json_schema_of(kind: Any, schema: Any, names: tuple[str, str]) -> str | None:
    """The schema that a format of type `kind` holds to; None for text. `names`: those of kind and
    schema, for errors."""
    if kind == "text":
        return None
    if kind == "json_object":
        return '{"type":"object"}'
    if kind == "json_schema":
        return schema_text(names[1], schema)
    raise wrong(names[0], "text, json_object or json_schema")
