"""Run by the environment of `langchain-openai`: structured output by schema and by function."""

from __future__ import annotations

import json
import sys
from typing import Literal

from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field

BASE, MODEL = sys.argv[1:3]


class ChainOrder(BaseModel):
    """An order."""

    size: Literal["small", "large"] = Field(description="How large it is.")
    count: int = Field(ge=1, le=20)


def main() -> None:
    model = ChatOpenAI(
        model=MODEL, base_url=f"{BASE}/v1", api_key="any", temperature=0, max_tokens=400,
        max_retries=0,
    )  # fmt: skip
    seen: dict[str, object] = {}
    for method in ("json_schema", "function_calling"):
        made = model.with_structured_output(ChainOrder, method=method).invoke("A large order")
        seen[method] = [type(made).__name__, 1 <= made.count <= 20]
    called = model.bind_tools([ChainOrder], tool_choice="any").invoke("A large order")
    seen["tools"] = sorted({call["name"] for call in called.tool_calls})
    streamed = list(model.stream("Say something"))
    seen["streamed"] = len(streamed) > 2
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
