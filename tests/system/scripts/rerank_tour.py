"""Run by the client's own environment: the unmodified `litellm` package reranks at a live server.

Arguments: base URL, endpoint, query, documents as JSON. Prints one JSON object: by each provider
the places of the results, their scores and texts; and whether a refusal names its parameter.
"""

from __future__ import annotations

import json
import os
import sys

# Prices and names of models come with the package; without this it asks for newer ones.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm  # it reads the environment when it is imported

litellm.suppress_debug_info = True  # it would print advice beside a refusal


def main() -> None:
    base, endpoint, query, documents = (
        sys.argv[1],
        sys.argv[2],
        sys.argv[3],
        json.loads(sys.argv[4]),
    )
    own = f"{base}/endpoints/{endpoint}/openai"
    seen: dict[str, object] = {}
    for provider, address in (
        ("hosted_vllm", base), ("jina_ai", base), ("cohere", base), ("huggingface", own),
    ):  # fmt: skip
        answer = litellm.rerank(
            model=f"{provider}/{endpoint}",
            query=query,
            documents=documents,
            top_n=2,
            return_documents=True,
            api_base=address,
            api_key="any",
        )
        seen[provider] = [
            [
                each["index"],
                round(each["relevance_score"], 4),
                (each.get("document") or {}).get("text"),
            ]
            for each in answer.results
        ]
    try:
        litellm.rerank(
            model=f"hosted_vllm/{endpoint}",
            query=query,
            documents=documents,
            instruction="Be strict.",
            api_base=base,
        )
    except Exception as error:  # its own kinds
        seen["refused"] = "instruction is not supported" in str(error)
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
