"""Run by vLLM's interpreter: the tool parser alone, without an engine. Argument: a model's folder.

Prints one JSON object of what is read of a text that comes character by character.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from vllm.tokenizers import get_tokenizer

from penstock.errors import PenstockError
from penstock.runtimes.vllm.tools import VllmTools

FUNCTION = {"name": "weather", "parameters": {"type": "object", "properties": {}}}
CHAT: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Hot?"}],
    "tools": [{"type": "function", "function": FUNCTION}],
    "tool_choice": "auto",
}


def call(city: str) -> str:
    asked = json.dumps({"name": "weather", "arguments": {"city": city}}, ensure_ascii=False)
    return f"<tool_call>\n{asked}\n</tool_call>"


def read(tools: VllmTools, text: str, **asked: Any) -> list[Any]:
    reader = tools.reader(CHAT | asked, None)
    reader.begin([1, 2])
    content, calls = "", {}
    for at, char in enumerate(text):
        new, parts = reader.add(char, [ord(char) % 256], finished=at == len(text) - 1)
        content += new
        for index, ident, name, arguments in parts:
            known = calls.setdefault(index, ["", "", ""])
            known[0] += ident or ""
            known[1] += name or ""
            known[2] += arguments
    found = [
        [bool(ident), name, json.loads(arguments)] for ident, name, arguments in calls.values()
    ]
    return [content, found]


def refused(name: str, tokenizer: Any) -> str:
    try:
        VllmTools(name, sys.argv[1], tokenizer, None)
    except PenstockError as error:
        return error.code
    return ""


def main() -> None:
    tokenizer = get_tokenizer(sys.argv[1])
    tools = VllmTools("hermes", sys.argv[1], tokenizer, None)
    two = "Hm. " + call("Zürich") + "\n" + call("Bern")
    seen = {
        "auto": read(tools, two),
        "one": read(tools, two, parallel_tool_calls=False),
        "none": read(tools, two, tool_choice="none"),
        "text": read(tools, "No <tool is called."),
        "unknown": refused("nobody", tokenizer),
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
