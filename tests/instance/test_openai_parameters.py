"""A row of the table of OpenAI's parameters is what becomes of the parameter: a test for each."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from penstock.errors import CallerError
from penstock.instance.codecs.generation import openai_parameters as table
from penstock.instance.codecs.generation.calls import GenerationCall, Served
from penstock.instance.codecs.generation.select import decode
from penstock.wire.frames import RequestMeta

SERVED = Served(name="shop", version="2", new_id=lambda: "7f3a", now_s=lambda: 1_700_000_000)
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
FUNCTION = {"name": "f", "parameters": {"type": "object"}}
TOOL = {"type": "function", "function": FUNCTION}
MINIMAL: dict[str, dict[str, Any]] = {
    "chat": {"messages": [{"role": "user", "content": "Hi"}]},
    "completions": {"prompt": "Hi"},
    "responses": {"input": "Hi"},
}
#: Parameters of embeddings have their own test, with a model that embeds.
GENERATING = tuple(MINIMAL)
#: A value that asks for something, and what it needs beside it.
ASKS: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Ho"}], "prompt": "Ho", "input": "Ho",
    "temperature": 0.5, "top_p": 0.5, "top_k": 3, "min_p": 0.1, "presence_penalty": 1,
    "frequency_penalty": 1, "repetition_penalty": 1.1, "seed": 5, "stop": ["x"],
    "stop_token_ids": [7], "include_stop_str_in_output": True, "ignore_eos": True,
    "min_tokens": 2, "skip_special_tokens": False, "truncate_prompt_tokens": 9,
    "guided_json": SCHEMA, "guided_regex": "a+", "guided_choice": ["a", "b"],
    "guided_grammar": 'root ::= "a"', "structured_outputs": {"regex": "b+"},
    "max_tokens": 9, "max_completion_tokens": 9, "max_output_tokens": 9, "n": 2, "best_of": 3,
    "echo": True, "response_format": {"type": "json_object"}, "add_generation_prompt": False,
    "continue_final_message": True, "chat_template_kwargs": {"x": 1}, "reasoning_effort": "low",
    "reasoning": {"effort": "low"}, "instructions": "Be kind.", "metadata": {"a": "b"},
    "text": {"format": {"type": "json_object"}}, "stream": True,
    "stream_options": {"include_usage": True}, "include": ["message.output_text.logprobs"],
    "tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False,
}  # fmt: skip
BESIDE: dict[str, dict[str, Any]] = {
    "stream_options": {"stream": True},
    "min_tokens": {"max_tokens": 20},
    "tool_choice": {"tools": [TOOL]},
    "parallel_tool_calls": {"tools": [TOOL]},
}
#: Parameters whose value depends on the operation.
ASKS_OF: dict[str, dict[str, Any]] = {
    "chat": {"logprobs": True, "top_logprobs": 3},
    "completions": {"logprobs": 3},
    "responses": {
        "top_logprobs": 3, "tools": [{"type": "function", **FUNCTION}],
    },
}  # fmt: skip
BESIDE_OF: dict[str, dict[str, dict[str, Any]]] = {
    "chat": {"top_logprobs": {"logprobs": True}},
    "completions": {},
    "responses": {
        "top_logprobs": {"include": ["message.output_text.logprobs"]},
        "tool_choice": {"tools": [{"type": "function", **FUNCTION}]},
        "parallel_tool_calls": {"tools": [{"type": "function", **FUNCTION}]},
        "min_tokens": {"max_output_tokens": 20},
    },
}


def ask(operation: str, body: dict[str, Any]) -> GenerationCall:
    meta = RequestMeta(door="openai", parameters=json.dumps({"operation": operation}))
    return decode(meta, json.dumps(body).encode(), SERVED)


def told(call: GenerationCall) -> Any:
    """All that can change an answer or its form."""
    kinds = [each for kind in type(call.writer).__mro__ for each in getattr(kind, "__slots__", ())]
    writer = {each: getattr(call.writer, each, None) for each in kinds}
    return call.prompt, asdict(call.sampling), json.dumps(writer, default=str)


def rows(tables: dict[str, dict[str, str]]) -> list[Any]:
    return [
        pytest.param(operation, name, id=f"{operation}-{name}")
        for operation in GENERATING
        for name in tables[operation]
    ]


@pytest.mark.parametrize(("operation", "name"), rows(table.HONOURED))
def test_what_is_honoured_changes_the_call(operation: str, name: str) -> None:
    if name == "model":
        return  # the door reads it: it chose this endpoint
    beside = BESIDE_OF[operation].get(name) or BESIDE.get(name) or {}
    value = ASKS_OF[operation].get(name, ASKS.get(name))
    assert value is not None, "the table has a parameter that this test does not know"
    before = ask(operation, MINIMAL[operation] | beside)
    assert told(ask(operation, MINIMAL[operation] | beside | {name: value})) != told(before)


#: A value that asks for something, where any other than "x" is needed.
REFUSED_VALUES: dict[str, Any] = {
    "function_call": {"name": "f"}, "modalities": ["audio"], "store": True, "background": True,
    "n": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "name"),
    [row for row in rows(table.REFUSED) if not {".", "[", "("} & set(row.values[1])],
)
def test_what_is_refused_is_refused_with_the_tables_words(operation: str, name: str) -> None:
    asked = MINIMAL[operation] | {name: REFUSED_VALUES.get(name, "x")}
    with pytest.raises(CallerError) as caught:
        ask(operation, asked)
    reason = table.REFUSED[operation][name]
    assert caught.value.message == f"{name} is not supported: {reason}"
    assert (caught.value.code, caught.value.param) == ("parameter-unsupported", name)
    for value in (None, *table.harmless(operation, name)):
        assert told(ask(operation, MINIMAL[operation] | {name: value})) == told(
            ask(operation, MINIMAL[operation])
        )


#: Rows about some values of a parameter, or about what is in it.
PLACES: dict[str, tuple[dict[str, Any], str]] = {
    "tools[] (not functions)": ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    "tool_choice (not functions)": ({"tool_choice": {"type": "custom"}}, "tool_choice"),
    "messages[].content[] (not texts)": (
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        "messages[0].content[0]",
    ),
    "structured_outputs (other kinds)": (
        {"structured_outputs": {"structural_tag": "x"}}, "structured_outputs.structural_tag",
    ),
    "best_of (while streaming)": ({"best_of": 2, "stream": True}, "best_of"),
    "text.verbosity": ({"text": {"verbosity": "low"}}, "text.verbosity"),
    "input[] (other items)": ({"input": [{"type": "item_reference"}]}, "input[0]"),
    "input[].content[] (not texts)": (
        {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0]",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "name"),
    [row for row in rows(table.REFUSED) if {".", "[", "("} & set(row.values[1])],
)
def test_what_is_refused_in_part_names_the_place(operation: str, name: str) -> None:
    body, place = PLACES[name]
    if name.startswith("tool_choice"):
        tool = TOOL if operation == "chat" else {"type": "function", **FUNCTION}
        body = body | {"tools": [tool]}
    with pytest.raises(CallerError) as caught:
        ask(operation, MINIMAL[operation] | body)
    assert caught.value.param == place
    assert table.REFUSED[operation][name] in caught.value.message


@pytest.mark.parametrize(("operation", "name"), rows(table.NO_EFFECT))
def test_what_has_no_effect_changes_nothing(operation: str, name: str) -> None:
    value = {"include_obfuscation": False} if name == "stream_options" else "x"
    assert told(ask(operation, MINIMAL[operation] | {name: value})) == told(
        ask(operation, MINIMAL[operation])
    )


@pytest.mark.parametrize("operation", GENERATING)
def test_an_unknown_parameter_is_refused_by_name(operation: str) -> None:
    with pytest.raises(CallerError) as caught:
        ask(operation, MINIMAL[operation] | {"temprature": 0.1})
    assert (caught.value.code, caught.value.param) == ("unknown-parameter", "temprature")
    assert caught.value.message == "Unrecognized request argument supplied: temprature"
    tables = (table.HONOURED, table.REFUSED, table.NO_EFFECT)
    names = [name for each in tables for name in each[operation]]
    assert len(names) == len(set(names)), "a parameter stands in two tables"


@pytest.mark.parametrize("operation", GENERATING)
def test_one_parameter_alone_says_what_the_whole_answer_must_be(operation: str) -> None:
    with pytest.raises(CallerError, match="guided_regex and guided_choice") as caught:
        ask(operation, MINIMAL[operation] | {"guided_regex": "a", "guided_choice": ["a"]})
    assert caught.value.param == "guided_choice"


def test_an_answer_that_could_be_no_call_is_not_wanted_beside_tools() -> None:
    with pytest.raises(CallerError, match="left out where tools are sent") as caught:
        ask("chat", MINIMAL["chat"] | {"tools": [TOOL], "guided_regex": "a"})
    assert caught.value.param == "guided_regex"


@pytest.mark.parametrize(
    ("messages", "param", "code"),
    [
        ("hi", "messages", "invalid-type"),
        ([], "messages", "invalid-parameter"),
        (["hi"], "messages[0]", "invalid-type"),
        ([{"content": "x"}], "messages[0].role", "missing-required-parameter"),
        ([{"role": 5, "content": "x"}], "messages[0].role", "invalid-type"),
        ([{"role": "wizard", "content": "x"}], "messages[0].role", "invalid-value"),
        ([{"role": "user"}], "messages[0].content", "missing-required-parameter"),
        ([{"role": "user", "content": 5}], "messages[0].content", "invalid-type"),
        ([{"role": "user", "content": "x"}, {"role": "assistant"}], "messages[1].content",
         "missing-required-parameter"),
        ([{"role": "tool", "content": "x"}], "messages[0].tool_call_id",
         "missing-required-parameter"),
        ([{"role": "user", "content": "x", "name": 3}], "messages[0].name", "invalid-type"),
        ([{"role": "user", "content": "x", "tool_calls": [{}]}], "messages[0].tool_calls",
         "invalid-parameter"),
        ([{"role": "assistant", "tool_calls": [{"id": "a"}]}], "messages[0].tool_calls[0].function",
         "missing-required-parameter"),
        ([{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}],
         "messages[0].tool_calls[0].function.arguments", "missing-required-parameter"),
    ],
)  # fmt: skip
def test_a_message_that_is_none_is_refused_with_its_place(
    messages: Any, param: str, code: str
) -> None:
    with pytest.raises(CallerError) as caught:
        ask("chat", {"messages": messages})
    assert (caught.value.param, caught.value.code, caught.value.status) == (param, code, 400)


def test_developers_are_the_system_for_chat_templates() -> None:
    made = ask(
        "chat", {"messages": [{"role": "developer", "content": [{"type": "text", "text": "A"}]}]}
    )
    assert made.prompt["messages"] == [{"role": "system", "content": "A"}]
