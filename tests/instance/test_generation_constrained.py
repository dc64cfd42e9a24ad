"""What an answer must be, by a real engine: schemas, expressions, choices, grammars, tools; and
several prompts in one request."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.instance.generation_client import StreamClient
from tests.kit.generation_models import TEMPLATE, write_model
from tests.kit.instances import instance

pytest.importorskip("openvino_genai", reason="the extra `generate` is not installed")

CHAT = {"asked": {"operation": "chat"}, "door": "openai"}
COMPLETIONS = {"asked": {"operation": "completions"}, "door": "openai"}
ASK = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 300, "temperature": 0}
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Bern", "Oslo"]}, "days": {"type": "integer"}},
            "required": ["city", "days"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock"}}
#: Room for tools in a prompt whose tokens are bytes.
ENGINE = {"context_tokens_max": 2048, "cache_mb": 8}
#: A template as Qwen's, Mistral's and Llama's: what a model is taught to write.
TEMPLATES = {
    "hermes": "{% if tools %}<tool_call>{{ tools | tojson }}{% endif %}" + TEMPLATE,
    "mistral": "{% if tools %}[TOOL_CALLS]{{ tools | tojson }}{% endif %}" + TEMPLATE,
    "llama": "{% if tools %}{'name': 0, \"parameters\": 0}{{ tools | tojson }}{% endif %}"
    + TEMPLATE,
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamClient]:
    """Copy 1 has a template without tools, the others those of the families."""
    folder = tmp_path_factory.mktemp("constrained")
    with instance(folder) as running:
        made = StreamClient(running.path)
        made.serve(1, write_model(folder / "model", engine=ENGINE))
        for copy, (name, template) in enumerate(TEMPLATES.items(), start=2):
            model = write_model(folder / name, engine=ENGINE)
            settings = json.loads((model / "tokenizer_config.json").read_text())
            settings["chat_template"] = template
            (model / "tokenizer_config.json").write_text(json.dumps(settings))
            made.serve(copy, model)
        yield made
        made.close()


def content(client: StreamClient, **asked: Any) -> str:
    answered = client.ask(1, ASK | asked, **CHAT).json
    (choice,) = answered["choices"]
    assert choice["finish_reason"] == "stop", choice
    return str(choice["message"]["content"])


@pytest.mark.parametrize("temperature", [0, 1])
def test_a_strict_schema_is_json_that_ends(client: StreamClient, temperature: int) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}
    for asked in (
        {"response_format": wanted},
        {"guided_json": SCHEMA},
        {"structured_outputs": {"json": SCHEMA}},
    ):
        value = json.loads(content(client, **asked, temperature=temperature, seed=5))
        assert list(value) == ["name", "age"]
        assert len(value["name"]) <= 5
        assert type(value["age"]) is int


def test_expressions_choices_and_grammars_bind_the_whole_answer(client: StreamClient) -> None:
    assert re.fullmatch("(ab){2,3}c", content(client, guided_regex="(ab){2,3}c"))
    assert content(client, guided_choice=["sunny", 'r"ain']) in ("sunny", 'r"ain')
    assert content(client, structured_outputs={"choice": ["ü€"]}) == "ü€"
    assert content(client, guided_grammar='root ::= "a" [0-9] "b"')[::2] == "ab"
    text = client.ask(
        1, {"prompt": "x", "guided_choice": ["yes", "no"], "max_tokens": 9}, **COMPLETIONS
    ).json
    assert text["choices"][0]["text"] in ("yes", "no")


@pytest.mark.parametrize(
    ("asked", "param", "code"),
    [
        ({"guided_regex": "(("}, "guided_regex", "grammar-refused"),
        ({"guided_grammar": "no rule"}, "guided_grammar", "grammar-refused"),
        ({"structured_outputs": {"grammar": "x ::="}}, "structured_outputs.grammar",
         "grammar-refused"),
        ({"guided_json": {"type": "wrong"}}, "guided_json", "json-schema-refused"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"not": {}}}}],
          "tool_choice": "required"}, "tools", "json-schema-refused"),
        ({"n": 100}, "n", "invalid-parameter"),
        ({"reasoning_effort": "low"}, "reasoning_effort", "parameter-unsupported"),
        ({"messages": [{"role": "user", "content": "x" * 3000}]}, "messages", "prompt-too-long"),
    ],
)  # fmt: skip
def test_what_the_engine_refuses_has_the_callers_name(
    client: StreamClient, asked: dict[str, Any], param: str, code: str
) -> None:
    error = client.ask(1, ASK | asked, **CHAT).error
    assert (error["param"], error["code"], error["status"]) == (param, code, 400)
    assert content(client, guided_choice=["a"]) == "a"  # the engine goes on


def calls_of(answered: dict[str, Any]) -> list[tuple[str, Any]]:
    message = answered["choices"][0]["message"]
    assert all(call["id"] and call["type"] == "function" for call in message["tool_calls"])
    return [
        (call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in message["tool_calls"]
    ]


@pytest.mark.parametrize("copy", [1, 2, 3, 4], ids=["none", *TEMPLATES])
def test_a_call_that_is_demanded_is_made_of_the_functions(client: StreamClient, copy: int) -> None:
    tools = {"tools": [WEATHER, CLOCK], "temperature": 1, "seed": 3, "max_tokens": 400}
    named = {"type": "function", "function": {"name": "weather"}}
    answered = client.ask(copy, ASK | tools | {"tool_choice": named}, **CHAT).json
    ((name, arguments),) = calls_of(answered)
    assert name == "weather"
    assert arguments["city"] in ("Bern", "Oslo")
    assert type(arguments["days"]) is int
    assert answered["choices"][0]["message"]["content"] is None
    required = tools | {"tool_choice": "required", "parallel_tool_calls": False}
    answered = client.ask(copy, ASK | required, **CHAT).json
    ((name, _),) = calls_of(answered)
    assert name in ("weather", "clock")
    assert answered["choices"][0]["finish_reason"] == "tool_calls"
    lines = client.ask(copy, ASK | tools | {"tool_choice": named, "stream": True}, **CHAT).lines
    deltas = [line["choices"][0]["delta"] for line in lines[:-1]]
    (call,) = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert call["function"]["name"] == "weather"
    assert json.loads(call["function"]["arguments"])["city"] in ("Bern", "Oslo")


def test_no_tools_are_called_where_none_are_wanted(client: StreamClient) -> None:
    """The prompt has no tools either: the answer is that of a request without them."""
    plain = client.ask(2, ASK | {"max_tokens": 8}, **CHAT).json
    none = {"tools": [WEATHER], "tool_choice": "none", "max_tokens": 8}
    answered = client.ask(2, ASK | none, **CHAT).json
    assert answered["choices"] == plain["choices"]
    assert answered["usage"]["prompt_tokens"] == plain["usage"]["prompt_tokens"]


def test_the_model_decides_by_its_template(client: StreamClient) -> None:
    """Its prompt has the tools; a model that writes no call answers in words."""
    auto = {"tools": [CLOCK], "max_tokens": 8, "ignore_eos": True}
    for copy in (1, 2):
        answered = client.ask(copy, ASK | auto, **CHAT).json
        plain = client.ask(copy, ASK | {"max_tokens": 8}, **CHAT).json
        assert answered["usage"]["prompt_tokens"] > plain["usage"]["prompt_tokens"] + 10
        assert "tool_calls" not in answered["choices"][0]["message"]


def test_several_prompts_are_answered_as_each_alone(client: StreamClient) -> None:
    asked = {"max_tokens": 6, "temperature": 0, "echo": True, "ignore_eos": True}
    prompts = ["Hello", "a longer one", "ü€"]
    alone = [client.ask(1, asked | {"prompt": each}, **COMPLETIONS).json for each in prompts]
    together = client.ask(1, asked | {"prompt": prompts}, **COMPLETIONS).json
    assert [each["index"] for each in together["choices"]] == [0, 1, 2]
    assert [each["text"] for each in together["choices"]] == [
        each["choices"][0]["text"] for each in alone
    ]
    for key in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert together["usage"][key] == sum(each["usage"][key] for each in alone)
    lines = client.ask(1, asked | {"prompt": prompts, "stream": True}, **COMPLETIONS).lines
    texts = ["", "", ""]
    for line in lines[:-1]:
        texts[line["choices"][0]["index"]] += line["choices"][0]["text"]
    assert texts == [each["text"] for each in together["choices"]]
    several = client.ask(1, asked | {"prompt": prompts, "n": 2}, **COMPLETIONS).json["choices"]
    assert [each["text"] for each in several[::2]] == texts
    error = client.ask(1, {"prompt": ["x"] * 200}, **COMPLETIONS).error
    assert error["param"] == "prompt"


def test_the_best_of_several_answers_is_the_likeliest(client: StreamClient) -> None:
    asked = {"prompt": "x", "max_tokens": 6, "temperature": 1, "seed": 4, "logprobs": 0}
    made = client.ask(1, asked | {"n": 4}, **COMPLETIONS).json["choices"]

    def mean(choice: dict[str, Any]) -> float:
        logprobs = choice["logprobs"]["token_logprobs"]
        return float(sum(logprobs) / len(logprobs))

    best = client.ask(1, asked | {"best_of": 4, "n": 2}, **COMPLETIONS).json
    texts = [each["text"] for each in sorted(made, key=mean, reverse=True)]
    assert [each["text"] for each in best["choices"]] == texts[:2]
    assert best["usage"]["completion_tokens"] == sum(
        len(each["logprobs"]["tokens"]) for each in made
    )


def test_a_stop_token_ends_the_answer_and_is_left_out(client: StreamClient) -> None:
    asked = {"prompt": "Hello", "max_tokens": 12, "temperature": 0, "ignore_eos": True}
    whole = client.ask(1, asked | {"logprobs": 0}, **COMPLETIONS).json["choices"][0]
    # A token of one byte each: the ids are places in GPT-2's alphabet.
    piece = next(each for each in whole["logprobs"]["tokens"][1:] if each.isascii() and each > " ")
    ident = ord(piece) - ord("!")
    at = whole["text"].index(piece)
    stopped = client.ask(1, asked | {"stop_token_ids": [ident]}, **COMPLETIONS).json["choices"][0]
    assert (stopped["text"], stopped["finish_reason"]) == (whole["text"][:at], "stop")
    kept = asked | {"stop_token_ids": [ident], "include_stop_str_in_output": True}
    assert client.ask(1, kept, **COMPLETIONS).json["choices"][0]["text"] == whole["text"][: at + 1]


def test_a_prompt_is_cut_to_its_last_tokens_where_that_is_wanted(client: StreamClient) -> None:
    asked = {"max_tokens": 4, "temperature": 0, "echo": True}
    cut = asked | {"prompt": "a long prompt", "truncate_prompt_tokens": 6}
    answered = client.ask(1, cut, **COMPLETIONS).json
    assert answered["usage"]["prompt_tokens"] == 6
    assert answered["choices"][0]["text"].startswith("prompt")
    longest = asked | {"prompt": "x" * 5000, "truncate_prompt_tokens": -1}
    assert client.ask(1, longest, **COMPLETIONS).json["usage"]["prompt_tokens"] == 2047
