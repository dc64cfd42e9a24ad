"""Run by the client's own environment: the unmodified `openai` package asks a pipeline.

Arguments: server's URL, endpoint, request as JSON with messages. Prints the text and the events
beside it, streamed and whole.
"""

from __future__ import annotations

import json
import sys

import openai


def main() -> None:
    url, endpoint, request = sys.argv[1:4]
    api = openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, timeout=60.0)
    asked = {"model": endpoint, **json.loads(request)}
    text, beside = "", []
    for chunk in api.chat.completions.create(stream=True, **asked):
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
        else:
            beside.append((chunk.model_extra or {})["pipeline_event"])
    whole = api.chat.completions.create(**asked)
    seen = {
        "streamed": text,
        "beside": beside,
        "whole": whole.choices[0].message.content,
        "events": (whole.model_extra or {})["pipeline_events"],
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
