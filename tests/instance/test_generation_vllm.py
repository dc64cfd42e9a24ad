"""vLLM under an interpreter of its own, behind the same copy and dialects."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.instance.generation_client import StreamClient
from tests.instance.instance_harness import instance
from tests.runtimes import vllm_set_up
from tests.runtimes.generation_models import write_weights

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not vllm_set_up.is_ready(), reason="no vLLM: run tests/runtimes/vllm_set_up.py"
    ),
]

COMPLETIONS = {"asked": {"operation": "completions"}, "door": "openai"}
STREAM = {"asked": {"stream": True}}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamClient]:
    root = tmp_path_factory.mktemp("vllm")
    # Its kernels for processors know heads of 32 and more.
    sizes = {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
    model = write_weights(root / "model", **sizes)
    described = {
        "schema": 1,
        "runtime": "vllm",
        "environment": {"VLLM_CPU_OMP_THREADS_BIND": "nobind"},
        "engine": {
            "python": str(vllm_set_up.interpreter()),
            "context_tokens_max": 256,
            "sequences_max": 8,
            "cache_mb": 1024,
            "options": {"dtype": "float32", "enforce_eager": "true"},
        },
    }
    (model / "model.yaml").write_text(json.dumps(described))
    with instance(root) as running:
        connection = StreamClient(running.path)
        connection.socket.settimeout(540)
        loaded = connection.load(1, model)
        assert loaded.get("ok"), (loaded, running.log.read_text()[-4000:])
        yield connection
        connection.close()


def test_answers_are_the_same_streamed_and_whole_and_logprobs_are_there(
    client: StreamClient,
) -> None:
    asked = {"inputs": "Hello", "parameters": {"max_new_tokens": 8, "details": True}}
    whole = client.ask(1, asked).json[0]
    lines = client.ask(1, asked, **STREAM).lines
    assert [line["token"]["id"] for line in lines] == [
        token["id"] for token in whole["details"]["tokens"]
    ]
    assert lines[-1]["generated_text"] == whole["generated_text"]
    body = {"prompt": "Hello", "max_tokens": 3, "temperature": 0, "logprobs": 3}
    found = client.ask(1, body, **COMPLETIONS).json["choices"][0]["logprobs"]
    for chosen, likeliest in zip(found["token_logprobs"], found["top_logprobs"], strict=True):
        assert max(likeliest.values()) == chosen


def test_a_schema_holds_and_a_wrong_one_is_refused(client: StreamClient) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"schema": schema}}
    asked = {"prompt": "x", "max_tokens": 200, "temperature": 2.0, "seed": 1}
    answer = client.ask(1, asked | {"response_format": wanted}, **COMPLETIONS).json["choices"][0]
    assert answer["finish_reason"] == "stop"
    assert list(json.loads(answer["text"])) == ["a"]
    wrong = {"type": "json_schema", "json_schema": {"schema": {"type": "nonsense"}}}
    error = client.ask(1, asked | {"response_format": wrong}, **COMPLETIONS).error
    assert (error["code"], error["status"]) == ("invalid-parameter", 400)


def test_a_cancelled_answer_leaves_room_for_others(client: StreamClient) -> None:
    long = {"inputs": "x", "parameters": {"max_new_tokens": 240, "ignore_eos_token": True}}
    idents = [client.begin(1, long, **STREAM) for _ in range(8)]
    client.begun(idents[0])
    for ident in idents:
        client.cancel(ident)
    assert client.ask(1, long).told["tokens_out"] == 240
