"""Run by the client's own environment: `openai`'s Responses API against a live server.

Arguments: base URL, model, prompt, tokens. Prints one JSON object of what the client made of the
answers: whole, streamed, through the client's stream helper, and asynchronously.
"""

from __future__ import annotations

import asyncio
import json
import sys

import openai


def failed(api: openai.OpenAI, **asked: object) -> list[object]:
    try:
        api.responses.create(**asked)
    except openai.BadRequestError as error:
        return [error.code, error.param, error.type]
    return []


async def asynchronous(base: str, asked: dict[str, object]) -> list[object]:
    async with openai.AsyncOpenAI(base_url=base, api_key="any", max_retries=0) as api:
        whole = await api.responses.create(**asked)
        text = ""
        stream = await api.responses.create(stream=True, **asked)
        async for event in stream:
            if event.type == "response.output_text.delta":
                text += event.delta
        return [whole.output_text, text]


def main() -> None:
    base, model, prompt, tokens = f"{sys.argv[1]}/v1", sys.argv[2], sys.argv[3], int(sys.argv[4])
    api = openai.OpenAI(base_url=base, api_key="any", max_retries=0)
    asked = {"model": model, "input": prompt, "max_output_tokens": tokens, "temperature": 0}
    whole = api.responses.create(**asked)
    seen: dict[str, object] = {
        "whole": whole.output_text,
        "status": whole.status,
        "usage": [whole.usage.input_tokens, whole.usage.output_tokens, whole.usage.total_tokens],
        "models": [whole.model, whole.object],
    }
    events = list(api.responses.create(stream=True, **asked))
    seen["numbers"] = [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    seen["kinds"] = sorted(set(kinds), key=kinds.index)
    seen["streamed"] = events[-1].response.output_text
    with api.responses.stream(**asked) as stream:
        # Its `get_final_response` wants one that is completed; this one is cut at its length.
        *_, last = stream
        seen["helper"] = last.response.output_text
    seen["async"] = asyncio.run(asynchronous(base, asked))
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": prompt}]},
        *whole.output,
        {"role": "user", "content": "And?"},
    ]
    more = api.responses.create(**(asked | {"input": items}), instructions="Be brief.")
    seen["conversation"] = more.usage.input_tokens > whole.usage.input_tokens
    seen["stored"] = failed(api, **asked, store=True)
    seen["previous"] = failed(api, **asked, previous_response_id=whole.id)
    seen["hot"] = failed(api, **(asked | {"temperature": 2.5}))
    try:
        api.responses.retrieve(whole.id)
    except openai.NotFoundError as error:
        seen["retrieved"] = error.code
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
