"""The messages of a chat, checked: roles, contents, calls and their results.

A message that a template would drop in silence (an unknown role, a call without a name, a content
of another type) is refused with its place, as OpenAI does.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.errors import CallerError
from penstock.instance.codecs.generation.calls import wrong
from penstock.instance.codecs.generation.openai_fields import missing, wrong_type
from penstock.instance.codecs.generation.openai_parameters import REFUSED

MESSAGES_MAX: Final = 4096
ROLES: Final = ("system", "developer", "user", "assistant", "tool")


def messages_of(given: Any) -> list[dict[str, Any]]:
    """Messages whose contents are texts. Raises CallerError with the place of what is wrong."""
    if given is None:
        raise missing("messages")
    if not isinstance(given, list):
        raise wrong_type("messages", given, "an array")
    if not 1 <= len(given) <= MESSAGES_MAX:
        raise wrong("messages", f"a list of 1 to {MESSAGES_MAX} messages")
    return [_message(each, f"messages[{at}]") for at, each in enumerate(given)]


def _message(message: Any, where: str) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise wrong_type(where, message, "an object")
    role = message.get("role")
    if role is None:
        raise missing(f"{where}.role")
    if not isinstance(role, str):
        raise wrong_type(f"{where}.role", role, "a string")
    if role not in ROLES:
        shown = role[:60]
        raise CallerError(
            "invalid-value",
            f"Invalid value: '{shown}'. Supported values are: {', '.join(map(repr, ROLES))}.",
            param=f"{where}.role",
        )
    calls = message.get("tool_calls")
    if calls is not None:
        _check_calls(calls, role, f"{where}.tool_calls")
    if message.get("content") is None and not calls:
        raise missing(f"{where}.content")
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        raise missing(f"{where}.tool_call_id")
    name = message.get("name")
    if name is not None and not isinstance(name, str):
        raise wrong_type(f"{where}.name", name, "a string")
    # Chat templates know the older name of developers.
    role = "system" if role == "developer" else role
    return {
        **message,
        "role": role,
        "content": _content(message.get("content"), f"{where}.content"),
    }


def _check_calls(calls: Any, role: str, where: str) -> None:
    if not isinstance(calls, list):
        raise wrong_type(where, calls, "an array")
    if role != "assistant" and calls:
        raise wrong(where, "left out of a message that is not the assistant's")
    for at, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            raise missing(f"{where}[{at}].function")
        for key in ("name", "arguments"):
            if not isinstance(function.get(key), str):
                raise missing(f"{where}[{at}].function.{key}")


def _content(content: Any, where: str) -> str:
    """A text, or parts that are texts: chat templates of text models take nothing else."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise wrong_type(where, content, "a string or an array")
    texts = []
    for at, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        text = part.get(kind) if kind in ("text", "refusal") else None
        if not isinstance(text, str):
            raise CallerError(
                "parameter-unsupported",
                f"{where}[{at}] is a part of type {str(kind)[:60]!r}:"
                f" {REFUSED['chat']['messages[].content[] (not texts)']}",
                param=f"{where}[{at}]",
            )
        texts.append(text)
    return "".join(texts)
