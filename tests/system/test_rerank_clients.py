"""Clients that rerank, and token ids by OpenAI's client: unmodified, against a live server."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import pytest
from tests.kit import model_files
from tests.kit.servers import Server
from tests.system.test_clients import client_python, tour

pytestmark = [pytest.mark.system, pytest.mark.integration, pytest.mark.timeout(300)]

TEXTS = ["bad film", "good film", "book", "very good"]
LITELLM_SECONDS_MAX = 240  #: its import alone takes a busy machine long


@pytest.fixture(scope="module")
def models(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("rerank")
    server.deploy("cross", model_files.cross_encoder(folder / "cross"))
    server.deploy("vectors", model_files.embedder(folder / "vectors"))
    server.deploy("labels", model_files.classifier(folder / "labels"))
    yield
    for name in ("cross", "vectors", "labels"):
        server.client("sagemaker").delete_endpoint(EndpointName=name)


@pytest.mark.usefixtures("models")
def test_litellm_reranks_by_each_of_its_providers(server: Server) -> None:
    given = (server.url, "cross", "film", json.dumps(TEXTS))
    seen = tour(client_python("litellm"), "rerank_tour.py", *given, seconds=LITELLM_SECONDS_MAX)
    scores = [round(1 / (1 + math.exp(-logit)), 4) for logit in (2.5, 2.25)]
    best = [[3, scores[0], "very good"], [1, scores[1], "good film"]]
    assert seen == {
        "hosted_vllm": best, "jina_ai": best, "cohere": best, "huggingface": best, "refused": True,
    }  # fmt: skip


@pytest.mark.usefixtures("models")
def test_openais_client_sends_token_ids_and_lists_what_answers(server: Server) -> None:
    seen = tour(
        client_python("openai"), "openai_tokens_tour.py", server.url, "vectors", "good film"
    )
    listed = seen.pop("listed")
    assert {name: listed[name] for name in ("cross", "vectors")} == {"cross": 16, "vectors": 16}
    assert "labels" not in listed
    assert seen == {
        "same": True, "count": 2, "back": "good film", "refused": ["invalid_parameter", "input"],
    }  # fmt: skip
