"""Run by the environment of `openai`: answers and calls made Python objects, and errors."""

from __future__ import annotations

import json
import sys
from enum import Enum

import openai
from pydantic import BaseModel

BASE, MODEL = sys.argv[1:3]


class OrderSize(Enum):
    SMALL = "small"
    LARGE = "large"


class ParsedOrder(BaseModel):
    size: OrderSize
    count: int
    paid: bool


class OrderPlace(BaseModel):
    """Orders at a place."""

    size: OrderSize


def refusal(call: object) -> list[object]:
    try:
        call()  # type: ignore[operator]
    except openai.APIStatusError as error:
        return [type(error).__name__, error.status_code, error.code, error.param]
    return ["nothing"]


def main() -> None:
    api = openai.OpenAI(base_url=f"{BASE}/v1", api_key="any", max_retries=0, timeout=60.0)
    chat = api.chat.completions
    messages = [{"role": "user", "content": "An order"}]
    asked = {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 400}
    parsed = chat.parse(**asked, response_format=ParsedOrder).choices[0].message.parsed
    seen: dict[str, object] = {
        "parsed": type(parsed).__name__,
        "count": type(parsed.count).__name__,
    }
    answered = api.responses.parse(
        model=MODEL, input="An order", text_format=ParsedOrder, temperature=0
    )
    seen["responses"] = type(answered.output_parsed).__name__
    tools = [openai.pydantic_function_tool(OrderPlace)]
    called = chat.parse(**asked, tools=tools, tool_choice="required", parallel_tool_calls=False)
    (call,) = called.choices[0].message.tool_calls
    seen["tool"] = type(call.function.parsed_arguments).__name__
    seen["refused"] = [
        refusal(lambda: chat.create(**asked, logit_bias={"5": 1})),
        refusal(lambda: chat.create(**asked, extra_body={"guided_jsn": {}})),
        refusal(lambda: chat.create(**asked, top_logprobs=21, logprobs=True)),
        refusal(lambda: chat.create(**asked | {"messages": [{"role": "wizard", "content": "x"}]})),
        refusal(lambda: chat.create(**asked | {"messages": messages * 4000})),
        refusal(lambda: chat.create(**asked | {"model": "nobody"})),
        refusal(lambda: chat.create(**asked | {"model": "nobody:latest"})),
        refusal(lambda: chat.create(**asked | {"model": f"{MODEL}:latest"})),
    ]
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
