"""One language model behind every door: the same tokens, from the unmodified clients, live."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit.generation_models import write_model
from tests.kit.polling import wait_until
from tests.kit.servers import Server
from tests.system.test_clients import client_python, tour

pytest.importorskip("openvino_genai", reason="the extra `generate` is not installed")
pytestmark = [pytest.mark.system, pytest.mark.integration]

PROMPT, TOKENS = "Say something", 24
BODY = json.dumps({"inputs": PROMPT, "parameters": {"max_new_tokens": TOKENS}}).encode()
LONG = {"inputs": "x", "parameters": {"max_new_tokens": 400, "ignore_eos_token": True}}
#: Importing the package takes a slow machine a minute.
LITELLM_SECONDS_MAX = 300


@pytest.fixture(scope="module")
def language_model(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An endpoint in service; gone afterwards."""
    folder = write_model(tmp_path_factory.mktemp("generation") / "model")
    server.deploy("language", folder)
    yield "language"
    server.client("sagemaker").delete_endpoint(EndpointName="language")


def whole_text(server: Server, model: str) -> str:
    status, body = server.post(f"/endpoints/{model}/invocations", BODY)
    assert status == 200, body
    return str(json.loads(body)[0]["generated_text"])


def streamed_by_boto3(server: Server, model: str) -> list[dict[str, Any]]:
    answer = server.client("sagemaker-runtime").invoke_endpoint_with_response_stream(
        EndpointName=model, Body=BODY, ContentType="application/json"
    )
    assert answer["ContentType"] == "text/event-stream"
    pieces = [event["PayloadPart"]["Bytes"] for event in answer["Body"]]
    assert all(piece.startswith(b"data:") and piece.endswith(b"\n\n") for piece in pieces)
    return [json.loads(piece[len(b"data:") :]) for piece in pieces]


def events_of(body: bytes) -> list[Any]:
    return [json.loads(line[len("data:") :]) for line in body.decode().splitlines() if line]


def test_boto3_streams_the_tokens_of_the_whole_answer(server: Server, language_model: str) -> None:
    lines = streamed_by_boto3(server, language_model)
    text = whole_text(server, language_model)
    assert lines[-1]["generated_text"] == text
    assert lines[-1]["details"]["generated_tokens"] == len(lines)


def test_openai_and_triton_clients_get_the_same_text(server: Server, language_model: str) -> None:
    text = whole_text(server, language_model)
    given = (language_model, PROMPT, str(TOKENS))
    seen = tour(client_python("openai"), "openai_tour.py", server.url, *given)
    assert {seen["whole"], seen["streamed"], seen["sagemaker"]} == {text}
    assert seen["usage"] == seen["streamed_usage"] == seen["sagemaker_usage"] > 0
    assert seen["chat"] == seen["chat_streamed"]
    assert language_model in seen["models"]
    assert seen["refused"] == ["decimal_below_min_value", "temperature"]
    grpc = f"127.0.0.1:{server.grpc_port}"
    seen = tour(client_python("tritonclient"), "triton_stream_tour.py", grpc, *given)
    assert seen == {"a": text, "b": text}
    asked = json.dumps({"text_input": PROMPT, "parameters": {"max_tokens": TOKENS}}).encode()
    _, body = server.post(f"/v2/models/{language_model}/generate", asked)
    assert json.loads(body)["text_output"] == text
    _, body = server.post(f"/v2/models/{language_model}/generate_stream", asked)
    assert "".join(event["text_output"] for event in events_of(body)) == text


@pytest.mark.timeout(LITELLM_SECONDS_MAX)
def test_litellm_gets_the_same_text_whole_and_streamed_sync_and_async(
    server: Server, language_model: str
) -> None:
    given = (server.url, language_model, PROMPT, str(TOKENS))
    seen = tour(client_python("litellm"), "litellm_tour.py", *given, seconds=LITELLM_SECONDS_MAX)
    text = seen["whole"]
    assert text
    assert seen["tokens"] == TOKENS
    assert seen["whole_async"] == text
    for way in ("streamed", "streamed_async"):
        assert seen[way].pop("chunks") > 2
        assert seen[way] == {"text": text, "finish": [seen["finish"]]}


@pytest.mark.parametrize(
    "asked",
    [
        {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": TOKENS, "stream": True},
        {
            "prompt": PROMPT,
            "max_tokens": TOKENS,
            "stream": True,
            "stream_options": {"include_usage": True},
        },
        {"inputs": PROMPT, "parameters": {"max_new_tokens": TOKENS}},
        {"text_input": PROMPT, "parameters": {"max_tokens": TOKENS}},
    ],
    ids=["chat", "completions", "tgi", "triton"],
)
def test_a_payload_part_is_one_event_in_every_dialect(
    server: Server, language_model: str, asked: dict[str, Any]
) -> None:
    answer = server.client("sagemaker-runtime").invoke_endpoint_with_response_stream(
        EndpointName=language_model, Body=json.dumps(asked), ContentType="application/json"
    )
    pieces = [event["PayloadPart"]["Bytes"] for event in answer["Body"]]
    assert len(pieces) > 3  # tokens that are half a character come with the next one
    assert [piece.count(b"data:") for piece in pieces] == [1] * len(pieces)
    assert all(piece.endswith(b"\n\n") and piece.count(b"\n\n") == 1 for piece in pieces)
    # What a client parses: each piece by itself, up to OpenAI's last word.
    if "messages" in asked or "prompt" in asked:
        assert pieces.pop() == b"data: [DONE]\n\n"
    assert all(json.loads(piece.removeprefix(b"data:")) for piece in pieces)


def test_openai_responses_are_the_chats_text(server: Server, language_model: str) -> None:
    given = (language_model, PROMPT, str(TOKENS))
    python = client_python("openai")
    chat = tour(python, "openai_tour.py", server.url, *given)["chat"]
    seen = tour(python, "openai_responses_tour.py", server.url, *given)
    assert {seen["whole"], seen["streamed"], seen["helper"], *seen["async"]} == {chat}
    tokens_in, tokens_out, total = seen["usage"]
    assert 0 < tokens_out <= TOKENS
    assert total == tokens_in + tokens_out
    assert seen["models"] == [language_model, "response"]
    assert seen["numbers"]
    end = "response.completed" if seen["status"] == "completed" else "response.incomplete"
    assert seen["kinds"] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        end,
    ]
    assert seen["conversation"]
    refused = "invalid_request_error"
    assert seen["stored"] == ["parameter_unsupported", "store", refused]
    assert seen["previous"] == ["parameter_unsupported", "previous_response_id", refused]
    assert seen["hot"] == ["decimal_above_max_value", "temperature", refused]
    assert seen["retrieved"] == "response_not_found"


def test_clients_that_leave_their_streams_leave_nothing_behind(
    server: Server, language_model: str
) -> None:
    path = f"/endpoints/{language_model}/invocations-response-stream"
    for _ in range(20):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        connection.request("POST", path, json.dumps(LONG).encode())
        connection.getresponse().read1(1)
        connection.close()
    wait_until(lambda: not server.outstanding(language_model), "all gone", 60)
    assert streamed_by_boto3(server, language_model)


def test_metrics_and_explain_tell_of_tokens(server: Server, language_model: str) -> None:
    answer = server.client("sagemaker-runtime").invoke_endpoint_with_response_stream(
        EndpointName=language_model, Body=BODY, ContentType="application/json"
    )
    pieces = list(answer["Body"])
    ident = answer["ResponseMetadata"]["RequestId"]
    story = wait_until(lambda: server.get(f"/admin/requests/{ident}"), "the request's story", 60)
    assert story["stream"]["tokens_out"] == len(pieces)
    # A turn of the engine may have made several events.
    assert 1 <= story["stream"]["chunks"] <= len(pieces)
    assert story["stream"]["time_to_first_token_ms"] <= story["total_ms"]

    def tokens_out() -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.request("GET", "/metrics")
        page = connection.getresponse().read().decode()
        connection.close()
        wanted = f'penstock_tokens_total{{direction="out",endpoint="{language_model}"'
        return any(line.startswith(wanted) for line in page.splitlines())

    wait_until(tokens_out, "tokens on the page of metrics", 60)


def test_an_answer_that_is_no_stream_goes_through_the_streaming_call(
    server: Server, query_intent: str
) -> None:
    answer = server.client("sagemaker-runtime").invoke_endpoint_with_response_stream(
        EndpointName=query_intent, Body=b'{"inputs":"where is my order"}',
        ContentType="application/json",
    )  # fmt: skip
    [piece] = [event["PayloadPart"]["Bytes"] for event in answer["Body"]]
    assert json.loads(piece)[0]["label"] == "order-status"


def test_the_command_line_prints_the_text_as_it_comes(
    server: Server, language_model: str, tmp_path: Path
) -> None:
    file = tmp_path / "body.json"
    file.write_bytes(BODY)
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "invoke", language_model, f"@{file}", "--stream",
         "--url", server.url],
        capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    pieces = streamed_by_boto3(server, language_model)
    shown = "".join(line["token"]["text"] for line in pieces if not line["token"]["special"])
    assert done.stdout.decode() == shown
