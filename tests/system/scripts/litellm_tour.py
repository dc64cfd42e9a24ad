"""Run by the client's own environment: the unmodified `litellm` package against a live server.

Arguments: base URL, endpoint, prompt, tokens. Prints one JSON object: the text of one prompt by
`sagemaker_chat`, whole and streamed, sync and async, and how many chunks a stream had.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

# Prices and names of models come with the package; without this it asks for newer ones.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
os.environ |= {
    "AWS_ACCESS_KEY_ID": "none",
    "AWS_SECRET_ACCESS_KEY": "none",
    "AWS_REGION": "us-east-1",
}

import litellm  # it reads the environment when it is imported


def asked(base: str, endpoint: str, prompt: str, tokens: int, *, stream: bool) -> dict[str, object]:
    """litellm's words: `sagemaker_base_url` is the whole address of the operation."""
    operation = "invocations-response-stream" if stream else "invocations"
    return {
        "model": f"sagemaker_chat/{endpoint}",
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
        "temperature": 0,
        "stream": stream,
        "sagemaker_base_url": f"{base}/endpoints/{endpoint}/{operation}",
    }


def pieces(chunks: list[litellm.ModelResponseStream]) -> dict[str, object]:
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    return {
        "text": "".join(choice.delta.content or "" for choice in choices),
        "chunks": len(chunks),
        "finish": [choice.finish_reason for choice in choices if choice.finish_reason],
    }


async def stream_later(request: dict[str, object]) -> list[litellm.ModelResponseStream]:
    return [chunk async for chunk in await litellm.acompletion(**request)]


def main() -> None:
    base, endpoint, prompt, tokens = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    whole = asked(base, endpoint, prompt, tokens, stream=False)
    stream = asked(base, endpoint, prompt, tokens, stream=True)
    answer = litellm.completion(**whole)
    later = asyncio.run(litellm.acompletion(**whole))
    seen = {
        "whole": answer.choices[0].message.content,
        "tokens": answer.usage.completion_tokens,
        "finish": answer.choices[0].finish_reason,
        "whole_async": later.choices[0].message.content,
        "streamed": pieces(list(litellm.completion(**stream))),
        "streamed_async": pieces(asyncio.run(stream_later(stream))),
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
