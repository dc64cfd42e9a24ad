"""Run by the client's own environment: the unmodified `openai` package against a live server.

Arguments: base URL, model, text. Prints one JSON object: whether token ids give the vector of their
text, what ids that are none are refused with, and the models that are listed.
"""

from __future__ import annotations

import json
import sys

import openai


def main() -> None:
    base, model, text = sys.argv[1:]
    api = openai.OpenAI(base_url=f"{base}/v1", api_key="any", max_retries=0)
    told = api.post("/tokenize", body={"model": model, "prompt": text}, cast_to=object)
    ids = told["tokens"]
    vectors = [
        api.embeddings.create(model=model, input=each).data[0].embedding for each in (text, [ids])
    ]
    seen: dict[str, object] = {"same": vectors[0] == vectors[1], "count": len(ids)}
    back = api.post("/detokenize", body={"model": model, "tokens": ids}, cast_to=object)
    seen["back"] = back["prompt"]
    try:
        api.embeddings.create(model=model, input=[[10**9]])
    except openai.BadRequestError as error:
        seen["refused"] = [error.code, error.param]
    listed = {each.id: each.model_dump().get("max_model_len") for each in api.models.list()}
    seen["listed"] = listed
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
