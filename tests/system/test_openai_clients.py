"""Clients of OpenAI's API that need more than text: objects, calls, agents; unmodified and live."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit.generation_models import write_model
from tests.kit.model_files import embedder
from tests.kit.servers import Server
from tests.system.test_clients import client_python, tour

pytest.importorskip("openvino_genai", reason="the extra `generate` is not installed")
pytestmark = [pytest.mark.system, pytest.mark.integration, pytest.mark.timeout(300)]

#: Room for what the clients put into a prompt; a token is a byte.
ENGINE = {"context_tokens_max": 8192, "cache_mb": 32}


@pytest.fixture(scope="module")
def chatting(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = write_model(tmp_path_factory.mktemp("chatting") / "model", engine=ENGINE)
    server.deploy("chatting", folder)
    yield "chatting"
    server.client("sagemaker").delete_endpoint(EndpointName="chatting")


def test_openai_makes_answers_and_calls_objects(server: Server, chatting: str) -> None:
    seen = tour(client_python("openai"), "openai_parse_tour.py", server.url, chatting)
    invalid = ["BadRequestError", 400]
    gone = ["NotFoundError", 404, "model_not_found", "model"]
    assert seen == {
        "parsed": "ParsedOrder", "count": "int", "responses": "ParsedOrder", "tool": "OrderPlace",
        "refused": [
            [*invalid, "parameter_unsupported", "logit_bias"],
            [*invalid, "unknown_parameter", "guided_jsn"],
            [*invalid, "integer_above_max_value", "top_logprobs"],
            [*invalid, "invalid_value", "messages[0].role"],
            [*invalid, "context_length_exceeded", "messages"],
            gone, gone, gone,
        ],
    }  # fmt: skip


def test_instructor_makes_an_object_of_tools_and_of_schemas(server: Server, chatting: str) -> None:
    seen = tour(client_python("instructor"), "instructor_tour.py", server.url, chatting)
    assert seen == {"TOOLS": ["InstructedOrder", True], "JSON_SCHEMA": ["InstructedOrder", True]}


def test_langchain_has_structured_output_and_functions(server: Server, chatting: str) -> None:
    seen = tour(client_python("langchain"), "langchain_tour.py", server.url, chatting)
    assert seen == {
        "json_schema": ["ChainOrder", True],
        "function_calling": ["ChainOrder", True],
        "tools": ["ChainOrder"],
        "streamed": True,
    }


def test_an_agent_calls_its_tool(server: Server, chatting: str) -> None:
    seen = tour(client_python("agents"), "agents_tour.py", server.url, chatting)
    assert seen == {"OpenAIChatCompletionsModel": True, "OpenAIResponsesModel": True}


def test_llama_index_chats_calls_functions_and_embeds(
    server: Server, chatting: str, tmp_path: Path
) -> None:
    server.deploy("embedding", embedder(tmp_path / "embedder"))
    python = client_python("llama-index")
    seen = tour(python, "llama_index_tour.py", server.url, chatting, "embedding")
    server.client("sagemaker").delete_endpoint(EndpointName="embedding")
    assert seen == {
        "streamed": True,
        "completed": True,
        "complete_streamed": True,
        "tool": ["place_order", True],
        "vectors": [2, True],
    }
