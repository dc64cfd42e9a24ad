"""vLLM under an interpreter of its own, behind the same copy and dialects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.instance.generation_client import StreamClient
from tests.instance.test_generation_serving import ids_of, prompt_ids
from tests.kit.adapter_files import pairs, write_adapter, write_merged
from tests.kit.environments import python_of
from tests.kit.generation_models import CONFIG, greedy, write_weights
from tests.kit.instances import instance

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(600),
]

CHAT = {"asked": {"operation": "chat"}, "door": "openai"}
RESPONSES = {"asked": {"operation": "responses"}, "door": "openai"}
COMPLETIONS = {"asked": {"operation": "completions"}, "door": "openai"}
STREAM = {"asked": {"stream": True}}
#: Its kernels for processors know heads of 32 and more.
SIZES = {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamClient]:
    root = tmp_path_factory.mktemp("vllm")
    model = write_weights(root / "model", **SIZES)
    described = {
        "schema": 1,
        "runtime": "vllm",
        "environment": {"VLLM_CPU_OMP_THREADS_BIND": "nobind"},
        "engine": {
            "python": str(python_of("vllm")),
            "context_tokens_max": 512,
            "sequences_max": 8,
            "cache_mb": 1024,
            "options": {
                "dtype": "float32",
                "enforce_eager": "true",
                "tool_call_parser": "hermes",
                "enable_auto_tool_choice": "true",
                "enable_lora": "true",
                "max_loras": "2",
            },
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


PARAMETERS = {
    "type": "object",
    "properties": {"city": {"enum": ["Bern", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
FUNCTION = {"name": "weather", "parameters": PARAMETERS, "strict": True}
TOOLS = [{"type": "function", "function": FUNCTION}]
HOT = [{"role": "user", "content": "Hot?"}]


def city(arguments: str) -> str:
    (only,) = json.loads(arguments).items()
    assert only[0] == "city"
    return str(only[1])


NAMED = {"type": "function", "function": {"name": "weather"}}


@pytest.mark.parametrize("choice", ["required", NAMED])
def test_a_call_that_is_asked_for_is_made_whole_and_streamed(
    client: StreamClient, choice: object
) -> None:
    """The engine's own grammar holds a model with random weights to a call."""
    asked = {
        "messages": HOT, "tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": False,
        "max_tokens": 200, "temperature": 1.0, "seed": 3,
    }  # fmt: skip
    (told,) = client.ask(1, asked, **CHAT).json["choices"]
    (call,) = told["message"]["tool_calls"]
    assert call["function"]["name"] == "weather"
    assert city(call["function"]["arguments"]) in ("Bern", "Oslo")
    assert call["id"]
    assert told["finish_reason"] == ("tool_calls" if choice == "required" else "stop")
    lines = client.ask(1, asked | {"stream": True}, **CHAT).lines[:-1]
    deltas = [line["choices"][0]["delta"] for line in lines]
    parts = [part for delta in deltas for part in delta.get("tool_calls", ())]
    assert parts[0]["function"]["name"] == "weather"
    written = "".join(part["function"]["arguments"] for part in parts)
    assert json.loads(written) == json.loads(call["function"]["arguments"])
    assert lines[-1]["choices"][0]["finish_reason"] == told["finish_reason"]


def test_a_response_has_the_call_as_an_item(client: StreamClient) -> None:
    asked = {
        "input": "Hot?", "tools": [{"type": "function", **FUNCTION}], "tool_choice": "required",
        "parallel_tool_calls": False, "max_output_tokens": 200,
    }  # fmt: skip
    (item,) = client.ask(1, asked, **RESPONSES).json["output"]
    assert (item["type"], item["name"]) == ("function_call", "weather")
    assert city(item["arguments"]) in ("Bern", "Oslo")


def test_tools_that_are_not_called_leave_the_text_as_it_is(client: StreamClient) -> None:
    asked = {"messages": HOT, "max_tokens": 12, "temperature": 0}
    plain = client.ask(1, asked, **CHAT).json["choices"][0]
    none = client.ask(1, asked | {"tools": TOOLS, "tool_choice": "none"}, **CHAT).json["choices"][0]
    assert none["message"]["content"] == plain["message"]["content"]
    assert "tool_calls" not in none["message"]


def test_tools_that_the_engine_does_not_take_are_named(client: StreamClient) -> None:
    wrong = [{"type": "function", "function": {"name": "f", "parameters": {}, "strict": "very"}}]
    error = client.ask(1, {"messages": HOT, "tools": wrong}, **CHAT).error
    assert (error["code"], error["param"], error["status"]) == ("invalid-parameter", "tools", 400)


def test_several_answers_come_from_one_request(client: StreamClient) -> None:
    asked = {"prompt": "x", "n": 3, "max_tokens": 8, "temperature": 1.0, "seed": 5}
    answered = client.ask(1, asked | {"ignore_eos": True}, **COMPLETIONS).json
    assert [each["index"] for each in answered["choices"]] == [0, 1, 2]
    assert len({each["text"] for each in answered["choices"]}) > 1
    assert answered["usage"]["completion_tokens"] == 24


def test_adapters_and_their_base_answer_in_one_batch_as_each_does_alone(
    client: StreamClient, tmp_path: Path
) -> None:
    """As the models that they are merged into; vLLM loads them while it runs, and lets them go."""
    config = CONFIG | SIZES
    given = {
        11: pairs(1, config=config),
        12: pairs(2, ("q_proj", "up_proj"), rank=8, config=config),
        13: pairs(3, ("down_proj",), rank=2, config=config),
    }
    asked = {"inputs": "Hello", "parameters": {"max_new_tokens": 8, "details": True}}
    expected = {1: ids_of(client.ask(1, asked))}
    for copy, pair in given.items():
        adapter = write_adapter(tmp_path / f"{copy}", pair)
        client.serve(copy, adapter, base_copy=1)
        merged = write_merged(tmp_path / f"merged-{copy}", pair, **SIZES)
        expected[copy] = greedy(merged, prompt_ids("Hello"), 8)
    assert len({str(each) for each in expected.values()}) == 4
    alone = {copy: ids_of(client.ask(copy, asked)) for copy in expected}
    assert alone == expected
    # Of three adapters two have room in a batch; the third takes its turn.
    for _ in range(2):
        idents = [(copy, client.begin(copy, asked)) for copy in (1, 11, 12, 13, 11, 1)]
        for copy, ident in idents:
            assert ids_of(client.whole(ident)) == expected[copy]
    assert client.control(op="unload", copy=11, drain_s=5.0)["found"]
    assert ids_of(client.ask(12, asked)) == expected[12]
    assert ids_of(client.ask(1, asked)) == expected[1]


def test_an_adapter_that_does_not_fit_reaches_no_step_of_vllm(
    client: StreamClient, tmp_path: Path
) -> None:
    narrow = pairs(4, ("q_proj",))  # of a model that is 48 wide
    refused = client.load(21, write_adapter(tmp_path / "narrow", narrow), base_copy=1)
    assert refused["error"]["code"] == "adapter-mismatch"
    assert "q_proj maps 64 to 64 numbers in the base" in refused["error"]["message"]
    wide = pairs(5, ("q_proj",), rank=64, config=CONFIG | SIZES)  # max_lora_rank is 16
    refused = client.load(22, write_adapter(tmp_path / "wide", wide), base_copy=1)
    assert refused["error"]["code"] == "adapter-mismatch"
    assert "vLLM says" in refused["error"]["message"]
    assert client.ask(1, {"inputs": "Hello", "parameters": {"max_new_tokens": 2}}).json
