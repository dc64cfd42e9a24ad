"""Run by the client's own environment: the unmodified `openai` package against a live server.

Arguments: base URL, model, prompt, tokens. Prints one JSON object: the text of one prompt, whole
and streamed, at both paths, and what a client that closes a stream early sees.
"""

from __future__ import annotations

import json
import sys

import openai


def main() -> None:
    base, model, prompt, tokens = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    api = openai.OpenAI(base_url=f"{base}/v1", api_key="any", max_retries=0)
    route = openai.OpenAI(
        base_url=f"{base}/endpoints/{model}/openai/v1", api_key="any", max_retries=0
    )
    asked = {"prompt": prompt, "max_tokens": tokens, "temperature": 0}
    whole = api.completions.create(model=model, **asked)
    seen: dict[str, object] = {"whole": whole.choices[0].text, "usage": whole.usage.total_tokens}
    for name, client, called in (("streamed", api, model), ("sagemaker", route, "")):
        stream = client.completions.create(
            model=called, stream=True, stream_options={"include_usage": True}, **asked
        )
        pieces, usage = [], 0
        for chunk in stream:
            pieces += [choice.text for choice in chunk.choices]
            usage = chunk.usage.total_tokens if chunk.usage else usage
        seen[name], seen[f"{name}_usage"] = "".join(pieces), usage
    messages = [{"role": "user", "content": prompt}]
    chat = {"messages": messages, "max_tokens": tokens, "temperature": 0}
    seen["chat"] = api.chat.completions.create(model=model, **chat).choices[0].message.content
    stream = api.chat.completions.create(model=model, stream=True, **chat)
    seen["chat_streamed"] = "".join(
        choice.delta.content or "" for chunk in stream for choice in chunk.choices
    )
    left = api.completions.create(model=model, stream=True, **(asked | {"max_tokens": 400}))
    next(iter(left))
    left.close()
    seen["models"] = [each.id for each in api.models.list()]
    try:
        api.completions.create(model=model, prompt=prompt, temperature=-1)
    except openai.BadRequestError as error:
        seen["refused"] = [error.code, error.param]
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
