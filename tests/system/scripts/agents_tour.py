"""Run by the environment of `openai-agents`: an agent that calls its one tool, and ends."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Literal

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

BASE, MODEL = sys.argv[1:3]


@function_tool
def weather(city: Literal["Bern", "Oslo"]) -> str:
    """The weather of a city."""
    return f"It rains in {city}."


async def main() -> None:
    set_tracing_disabled(True)
    api = AsyncOpenAI(base_url=f"{BASE}/v1", api_key="any", max_retries=0, timeout=60.0)
    seen: dict[str, object] = {}
    for kind in (OpenAIChatCompletionsModel, OpenAIResponsesModel):
        agent = Agent(
            name="Forecaster",
            instructions="Help.",
            tools=[weather],
            model=kind(model=MODEL, openai_client=api),
            model_settings=ModelSettings(
                tool_choice="required", temperature=0, max_tokens=400, parallel_tool_calls=False
            ),
            tool_use_behavior="stop_on_first_tool",
        )
        result = await Runner.run(agent, "Will it rain?", max_turns=2)
        seen[kind.__name__] = result.final_output in ("It rains in Bern.", "It rains in Oslo.")
    print(json.dumps(seen))


if __name__ == "__main__":
    asyncio.run(main())
