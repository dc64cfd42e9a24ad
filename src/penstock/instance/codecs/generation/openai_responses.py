"""OpenAI's /v1/responses: input items in, output items or a stream of events out.

It offers the functions of chat in the form of the newer API. Nothing is stored between requests: a
missing `store` counts as false, and any reference to a stored response (`store: true`,
`previous_response_id`, `conversation`, `background`, an `item_reference`) is refused instead of
being accepted and dropped. Keys that do not change an answer are ignored, as in chat.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.errors import CallerError
from penstock.instance.codecs.generation.calls import (
    GenerationCall,
    Served,
    flag,
    mapping,
    unsupported,
    wrong,
)
from penstock.instance.codecs.generation.openai_fields import (
    NAMES,
    constrain,
    json_schema_of,
    missing,
    openai_checked,
    reasoning_effort,
    settings_of,
    wrong_type,
)
from penstock.instance.codecs.generation.openai_parameters import REFUSED, check_parameters
from penstock.instance.codecs.generation.openai_responses_writer import ResponsesWriter
from penstock.instance.codecs.generation.openai_tools import add_call, responses_tools_of

ITEMS_MAX: Final = 4096
_ROLES: Final = ("user", "assistant", "system", "developer")
_LOGPROBS: Final = "message.output_text.logprobs"
#: Most pairs, characters of a key, characters of a value; as OpenAI
_METADATA_MAX: Final = (16, 64, 512)
_REFUSED: Final = REFUSED["responses"]
_NAMES: Final = NAMES | {"tokens_new_max": "max_output_tokens", "logprobs": "top_logprobs"}


def decode(parsed: dict[str, Any], served: Served) -> GenerationCall:
    """Raises CallerError with the parameter's name in OpenAI's form."""
    check_parameters("responses", parsed)
    if mapping(parsed, "text").get("verbosity") not in (None, "medium"):
        raise unsupported("text.verbosity", REFUSED["responses"]["text.verbosity"])
    messages = _messages(parsed.get("input"))
    instructions = parsed.get("instructions")
    if instructions is not None:
        if not isinstance(instructions, str):
            raise wrong_type("instructions", instructions, "a string")
        messages = _with_instructions(instructions, messages)
    settings = settings_of(parsed, served) | {"sequences": None}
    settings["tokens_new_max"] = parsed.get("max_output_tokens")
    text = mapping(parsed, "text")
    names = dict(_NAMES)
    tools = responses_tools_of(parsed)
    wanted = ("json_schema", _format(text), "text.format")
    constrain(parsed, settings, names, wanted, tools=bool(tools))
    include = parsed.get("include")
    if isinstance(include, list) and _LOGPROBS in include:
        settings["logprobs"] = parsed.get("top_logprobs") or 0
    sampling = openai_checked(settings, names)
    writer = ResponsesWriter(
        served,
        stream=flag(parsed, "stream"),
        logprobs=sampling.logprobs is not None,
        asked={
            "instructions": instructions,
            "max_output_tokens": sampling.tokens_new_max,
            "metadata": _metadata(parsed),
            "temperature": sampling.temperature,
            "text": text if "format" in text else text | {"format": {"type": "text"}},
            "top_logprobs": sampling.logprobs or 0,
            "top_p": sampling.top_p if parsed.get("top_p") is None else parsed["top_p"],
            **_tools_told(parsed, tools),
        },
    )
    chat: dict[str, Any] = {"messages": messages, **tools}
    effort = mapping(parsed, "reasoning").get("effort")
    if effort not in (None, "none"):
        chat["reasoning_effort"] = reasoning_effort(effort, "reasoning.effort")
    names |= {"messages": "input", "reasoning_effort": "reasoning.effort"}
    return GenerationCall(chat, sampling, writer, names)


def _tools_told(parsed: dict[str, Any], tools: dict[str, Any]) -> dict[str, Any]:
    """The tools as the request has them, for the response."""
    if not tools:
        return {}
    return {
        "tools": parsed["tools"],
        "tool_choice": parsed.get("tool_choice") or "auto",
        "parallel_tool_calls": tools["parallel_tool_calls"],
    }


def _messages(given: Any) -> list[dict[str, Any]]:
    """Input items as the messages of a chat."""
    if given is None:
        raise missing("input")
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not isinstance(given, list):
        raise wrong_type("input", given, "a string or an array")
    if not 1 <= len(given) <= ITEMS_MAX:
        raise wrong("input", f"a text or a list of 1 to {ITEMS_MAX} items")
    messages: list[dict[str, Any]] = []
    for at, item in enumerate(given):
        kind = item.get("type", "message") if isinstance(item, dict) else None
        if kind == "message":
            messages.append(_message(item, f"input[{at}]"))
        elif kind in ("function_call", "function_call_output"):
            add_call(messages, item, f"input[{at}]")
        elif kind != "reasoning":  # earlier reasoning of a model is not part of the chat
            raise unsupported(
                f"input[{at}] of type {kind!r}",
                _REFUSED["input[] (other items)"],
                param=f"input[{at}]",
            )
    return messages


def _message(item: dict[str, Any], name: str) -> dict[str, Any]:
    role = item.get("role")
    if role not in _ROLES:
        raise wrong(f"{name}.role", f"one of {', '.join(_ROLES)}")
    content = item.get("content")
    if isinstance(content, list):
        content = "".join(_part(part, f"{name}.content[{at}]") for at, part in enumerate(content))
    if not isinstance(content, str):
        raise wrong(f"{name}.content", "a text or a list of parts")
    # Chat templates know the older of the two names.
    return {"role": "system" if role == "developer" else role, "content": content}


def _part(part: Any, name: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in ("input_text", "output_text", "text") and isinstance(part.get("text"), str):
        return str(part["text"])
    if kind == "refusal" and isinstance(part.get("refusal"), str):
        return str(part["refusal"])
    raise CallerError(
        "parameter-unsupported",
        f"{name} is a part of type {kind!r}: {_REFUSED['input[].content[] (not texts)']}",
        param=name,
    )


def _with_instructions(instructions: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Templates take one system message, the first one: instructions are joined with it."""
    if messages and messages[0]["role"] == "system":
        instructions = f"{instructions}\n\n{messages[0]['content']}"
        messages = messages[1:]
    return [{"role": "system", "content": instructions}, *messages]


def _format(text: dict[str, Any]) -> str | None:
    """`text.format` has in one level what chat's `response_format` has in two."""
    wanted = mapping(text, "format")
    return json_schema_of(
        wanted.get("type", "text"), wanted.get("schema"), ("text.format.type", "text.format.schema")
    )


def _metadata(parsed: dict[str, Any]) -> dict[str, str]:
    given = mapping(parsed, "metadata")
    pairs_max, key_max, value_max = _METADATA_MAX
    for key, value in given.items():
        if not isinstance(value, str) or len(value) > value_max or len(key) > key_max:
            raise wrong(
                "metadata",
                f"pairs of texts, keys of at most {key_max} and values of at most {value_max} "
                "characters",
            )
    if len(given) > pairs_max:
        raise wrong("metadata", f"at most {pairs_max} pairs")
    return given
