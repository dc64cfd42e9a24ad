"""Tools of OpenAI's API: the two request forms (chat, Responses), and calls in answers.

The engine finds the calls in an answer; this module only converts formats. An engine without that
function refuses `tools`.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.errors import CallerError
from penstock.instance.codecs.generation.calls import flag, unsupported, wrong
from penstock.instance.codecs.generation.openai_fields import missing, wrong_type
from penstock.instance.codecs.generation.openai_parameters import REFUSED

TOOLS_MAX: Final = 128  #: most tools of a request, as OpenAI
_CHOICES: Final = ("none", "auto", "required")


def tools_of(parsed: dict[str, Any]) -> dict[str, Any]:
    """`tools`, `tool_choice` and `parallel_tool_calls` of chat, for the engine; {} without tools.

    Raises CallerError.
    """
    tools = _listed(parsed)
    if not tools:
        return {}
    names = []
    for at, tool in enumerate(tools):
        _check_kind(tool, f"tools[{at}]")
        function = tool.get("function")
        if not isinstance(function, dict):
            raise missing(f"tools[{at}].function")
        names.append(_name(function, f"tools[{at}].function"))
    choice = parsed.get("tool_choice")
    if isinstance(choice, dict):
        function = choice.get("function")
        choice = _named(choice, function if isinstance(function, dict) else {}, names)
    return _asked(parsed, tools, choice)


def responses_tools_of(parsed: dict[str, Any]) -> dict[str, Any]:
    """`tools_of` for Responses, whose tools and choices have the function's fields on one level."""
    tools = _listed(parsed)
    if not tools:
        return {}
    names, made = [], []
    for at, tool in enumerate(tools):
        _check_kind(tool, f"tools[{at}]")
        names.append(_name(tool, f"tools[{at}]"))
        fields = ("name", "description", "parameters", "strict")
        function = {key: tool[key] for key in fields if tool.get(key) is not None}
        made.append({"type": "function", "function": function})
    choice = parsed.get("tool_choice")
    if isinstance(choice, dict):
        choice = _named(choice, choice, names)
    return _asked(parsed, made, choice)


def add_call(messages: list[dict[str, Any]], item: dict[str, Any], where: str) -> None:
    """Adds a call of an earlier answer, or its result, to the chat: Responses have them as
    items."""
    ident = item.get("call_id")
    if not isinstance(ident, str):
        raise missing(f"{where}.call_id")
    if item["type"] == "function_call_output":
        messages.append({"role": "tool", "tool_call_id": ident, "content": _output(item, where)})
        return
    name, arguments = item.get("name"), item.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, str):
        raise missing(f"{where}.{'arguments' if isinstance(name, str) else 'name'}")
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": ""})
    call = {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}
    messages[-1].setdefault("tool_calls", []).append(call)


def _output(item: dict[str, Any], where: str) -> str:
    output = item.get("output")
    if isinstance(output, list):
        output = "".join(
            part["text"] for part in output
            if isinstance(part, dict) and isinstance(part.get("text"), str)
        )  # fmt: skip
    if not isinstance(output, str):
        raise missing(f"{where}.output")
    return output


def is_named(tools: dict[str, Any]) -> bool:
    """Whether the request named the one function to call; OpenAI then answers `stop` and not
    `tool_calls`."""
    return isinstance(tools.get("tool_choice"), dict)


def call_delta(call: list[Any]) -> dict[str, Any]:
    """The new part of a call, in chat's form."""
    index, ident, name, arguments = call
    made: dict[str, Any] = {"index": index}
    function: dict[str, Any] = {}
    if ident is not None:
        made |= {"id": ident, "type": "function"}
    if name is not None:
        function["name"] = name
    function["arguments"] = arguments
    return made | {"function": function}


def whole_call(call: dict[str, str]) -> dict[str, Any]:
    """A call of `GeneratedChoice.calls` in chat's form."""
    function = {"name": call["name"], "arguments": call["arguments"]}
    return {"id": call["id"], "type": "function", "function": function}


def _listed(parsed: dict[str, Any]) -> list[Any]:
    tools = parsed.get("tools")
    if not tools:
        if parsed.get("tool_choice") not in (None, "none", "auto"):
            raise CallerError(
                "invalid-value",
                "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are "
                "specified.",
                param="tool_choice",
            )
        return []
    if not isinstance(tools, list):
        raise wrong_type("tools", tools, "an array")
    if len(tools) > TOOLS_MAX:
        raise wrong("tools", f"at most {TOOLS_MAX} tools")
    return tools


def _check_kind(tool: Any, name: str) -> None:
    if not isinstance(tool, dict):
        raise wrong_type(name, tool, "an object")
    if tool.get("type") != "function":
        raise unsupported(
            f"a tool of type {tool.get('type')!r}",
            REFUSED["chat"]["tools[] (not functions)"],
            param=f"{name}.type",
        )


def _name(function: dict[str, Any], where: str) -> str:
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise missing(f"{where}.name")
    if not isinstance(function.get("parameters", {}) or {}, dict):
        raise wrong_type(f"{where}.parameters", function["parameters"], "an object")
    return name


def _named(choice: dict[str, Any], function: dict[str, Any], names: list[str]) -> dict[str, Any]:
    if choice.get("type") != "function":
        raise unsupported(
            f"a choice of type {choice.get('type')!r}",
            REFUSED["chat"]["tool_choice (not functions)"],
            param="tool_choice",
        )
    name = function.get("name")
    if name not in names:
        raise CallerError(
            "invalid-value",
            f"Tool choice {name!r} not found in 'tools' parameter."[:300],
            param="tool_choice",
        )
    return {"type": "function", "function": {"name": name}}


def _asked(parsed: dict[str, Any], tools: list[Any], choice: Any) -> dict[str, Any]:
    if choice is None:
        choice = "auto"
    if not isinstance(choice, dict) and choice not in _CHOICES:
        raise wrong("tool_choice", f"one of {', '.join(_CHOICES)}, or a function")
    if choice == "none":
        return {}  # a model that does not know them does not write calls
    parallel = flag(parsed, "parallel_tool_calls", default=True)
    return {"tools": tools, "tool_choice": choice, "parallel_tool_calls": parallel}
