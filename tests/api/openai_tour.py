"""Run by the client's own environment: the unmodified `openai` package against a gateway.

Prints one JSON object of what the client made of the answers.
"""

from __future__ import annotations

import json
import sys

import openai

BASE = sys.argv[1]


def client(path: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{BASE}{path}", api_key="any", max_retries=0, timeout=20.0)


def chat_text(api: openai.OpenAI, model: str) -> list[str | None]:
    stream = api.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "hi"}], stream=True
    )
    return [chunk.choices[0].delta.content for chunk in stream if chunk.choices]


def response_text(api: openai.OpenAI, model: str) -> list[str]:
    stream = api.responses.create(model=model, input="hi", stream=True)
    return [event.delta for event in stream if event.type == "response.output_text.delta"]


def failed(call: object) -> list[object]:
    try:
        call()  # type: ignore[operator]
    except openai.APIStatusError as error:
        return [type(error).__name__, error.status_code, error.code, error.request_id is not None]
    except openai.APIError as error:
        return [type(error).__name__, error.code, str(error)]
    return ["nothing"]


def main() -> None:
    api = client("/v1")
    sagemaker = client("/endpoints/echo/openai/v1")
    seen: dict[str, object] = {"models": [model.id for model in api.models.list()]}
    answer = api.chat.completions.create(
        model="echo", messages=[{"role": "user", "content": "whole"}]
    )
    seen["whole"] = [answer.choices[0].message.content, answer.usage.total_tokens]  # type: ignore[union-attr]
    seen["stream"] = chat_text(api, "echo")
    seen["sagemaker"] = chat_text(sagemaker, "")
    texts = api.completions.create(model="echo", prompt="x", stream=True)
    seen["completions"] = [chunk.choices[0].text for chunk in texts]
    vectors = api.embeddings.create(model="echo", input=["a", "b"])
    seen["embeddings"] = [entry.embedding for entry in vectors.data]
    seen["responses"] = response_text(api, "echo")
    seen["broken response"] = failed(
        lambda: response_text(client("/endpoints/echo/openai/v1"), "break")
    )
    seen["unknown"] = failed(lambda: chat_text(api, "nobody"))
    seen["broken"] = failed(lambda: chat_text(client("/endpoints/echo/openai/v1"), "break"))
    seen["refused"] = failed(lambda: chat_text(api, "echo-not") or api.models.retrieve("gone"))
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
