"""Tools in both of OpenAI's APIs: what the engine is asked, and calls in the answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.errors import CallerError
from penstock.instance.codecs.generation.calls import GeneratedAnswer, GenerationCall, Served
from penstock.instance.codecs.generation.select import decode
from penstock.wire.frames import RequestMeta

SERVED = Served(name="shop", version="2", new_id=lambda: "7f3a", now_s=lambda: 1_700_000_000)
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
FUNCTION = {"name": "weather", "description": "Now.", "parameters": PARAMETERS}
TOOL = {"type": "function", "function": FUNCTION}
CHAT = {"messages": [{"role": "user", "content": "Hot?"}], "tools": [TOOL]}
RESPONSES = {"input": "Hot?", "tools": [{"type": "function", **FUNCTION}]}
#: A word, then two calls, as an engine that reads them tells: the second begins with its arguments.
EVENTS = (
    {"i": 1, "t": [31], "x": "Hm.", "p": 5, "s": 1},
    {"i": 1, "t": [32], "u": [[0, "call-a", "weather", ""]]},
    {"i": 1, "t": [33], "u": [[0, None, None, '{"city":']]},
    {"i": 1, "t": [34], "u": [[0, None, None, '"Bern"}'], [1, "call-b", "weather", "{}"]]},
    {"i": 1, "t": [2], "z": [0], "f": "stop"},
)


def ask(operation: str, body: dict[str, Any]) -> GenerationCall:
    meta = RequestMeta(door="openai", parameters=json.dumps({"operation": operation}))
    return decode(meta, json.dumps(body).encode(), SERVED)


def whole(made: GenerationCall, *events: Any) -> Any:
    answer = GeneratedAnswer()
    for event in events:
        answer.add(event)
    return json.loads(made.writer.whole(answer))


def streamed(made: GenerationCall, *events: Any) -> list[Any]:
    answer, written = GeneratedAnswer(), b""
    for event in events:
        answer.add(event)
        written += made.writer.chunk(event, answer)
    lines = [part.split(b"data: ", 1)[1] for part in written.split(b"\n\n") if part]
    return [json.loads(line) for line in lines if line != b"[DONE]"]


def call_of(ident: str, arguments: str) -> dict[str, Any]:
    function = {"name": "weather", "arguments": arguments}
    return {"id": ident, "type": "function", "function": function}


def test_chat_hands_tools_to_the_engine() -> None:
    asked = {"tools": [TOOL], "tool_choice": "auto", "parallel_tool_calls": True}
    messages = [{"role": "user", "content": "Hot?"}]
    assert ask("chat", CHAT).prompt == {"messages": messages, **asked}
    named = {"type": "function", "function": {"name": "weather"}}
    for choice in ("required", named):
        assert ask("chat", CHAT | {"tool_choice": choice}).prompt["tool_choice"] == choice
    for without in ({"tools": []}, {"tool_choice": "none"}):
        assert ask("chat", CHAT | without).prompt == {"messages": messages}


def test_a_call_in_a_chat() -> None:
    (choice,) = whole(ask("chat", CHAT), *EVENTS)["choices"]
    assert choice["message"] == {
        "role": "assistant", "content": "Hm.", "refusal": None,
        "tool_calls": [call_of("call-a", '{"city":"Bern"}'), call_of("call-b", "{}")],
    }  # fmt: skip
    assert choice["finish_reason"] == "tool_calls"


def test_a_chat_without_words_has_no_content() -> None:
    (choice,) = whole(ask("chat", CHAT), *EVENTS[1:])["choices"]
    assert choice["message"]["content"] is None


def test_a_call_in_a_streamed_chat() -> None:
    lines = streamed(ask("chat", CHAT | {"stream": True}), *EVENTS)
    choices = [line["choices"][0] for line in lines]
    assert [choice["delta"] for choice in choices] == [
        {"role": "assistant", "content": ""},
        {"content": "Hm."},
        {"tool_calls": [{"index": 0, **call_of("call-a", "")}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"city":'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '"Bern"}'}},
                        {"index": 1, **call_of("call-b", "{}")}]},
        {},
    ]  # fmt: skip
    assert choices[-1]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(
    ("choice", "end", "finish"),
    [
        ("auto", "length", "length"),
        ("required", "stop", "tool_calls"),
        ({"type": "function", "function": {"name": "weather"}}, "stop", "stop"),
    ],
)
def test_how_an_answer_with_calls_ended(choice: Any, end: str, finish: str) -> None:
    last = EVENTS[-1] | {"f": end}
    (told,) = whole(ask("chat", CHAT | {"tool_choice": choice}), *EVENTS[:-1], last)["choices"]
    assert told["finish_reason"] == finish


def test_responses_hand_over_the_same_tools() -> None:
    made = ask("responses", RESPONSES)
    assert made.prompt["tools"] == [TOOL]
    choice = {"type": "function", "name": "weather"}
    made = ask("responses", RESPONSES | {"tool_choice": choice, "parallel_tool_calls": False})
    assert made.prompt["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
    told = whole(made, *EVENTS)
    assert told["tools"] == RESPONSES["tools"]
    assert (told["tool_choice"], told["parallel_tool_calls"]) == (choice, False)


MESSAGE = {
    "id": "msg_7f3a", "type": "message", "status": "completed", "role": "assistant",
    "content": [{"type": "output_text", "text": "Hm.", "annotations": [], "logprobs": []}],
}  # fmt: skip
FIRST = {
    "id": "fc_7f3a_1", "type": "function_call", "status": "completed", "call_id": "call-a",
    "name": "weather", "arguments": '{"city":"Bern"}',
}  # fmt: skip
SECOND = FIRST | {"id": "fc_7f3a_2", "call_id": "call-b", "arguments": "{}"}


def test_calls_are_items_of_a_response() -> None:
    assert whole(ask("responses", RESPONSES), *EVENTS)["output"] == [MESSAGE, FIRST, SECOND]
    only = whole(ask("responses", RESPONSES), *EVENTS[1:])["output"]
    assert [each["type"] for each in only] == ["function_call", "function_call"]


def test_calls_in_a_stream_of_events() -> None:
    events = streamed(ask("responses", RESPONSES | {"stream": True}), *EVENTS)
    assert [each["sequence_number"] for each in events] == list(range(len(events)))
    assert [(each["type"].removeprefix("response."), each.get("output_index")) for each in events][
        2:
    ] == [
        ("output_item.added", 0),
        ("content_part.added", 0),
        ("output_text.delta", 0),
        ("output_text.done", 0),
        ("content_part.done", 0),
        ("output_item.done", 0),
        ("output_item.added", 1),
        ("function_call_arguments.delta", 1),
        ("function_call_arguments.delta", 1),
        ("function_call_arguments.done", 1),
        ("output_item.done", 1),
        ("output_item.added", 2),
        ("function_call_arguments.delta", 2),
        ("function_call_arguments.done", 2),
        ("output_item.done", 2),
        ("completed", None),
    ]
    done = [each["item"] for each in events if each["type"] == "response.output_item.done"]
    assert done == events[-1]["response"]["output"] == [MESSAGE, FIRST, SECOND]


def test_what_calls_gave_comes_back_as_messages() -> None:
    items = [
        {"role": "user", "content": "Hot?"}, MESSAGE, FIRST, SECOND,
        {"type": "function_call_output", "call_id": "call-a", "output": "21"},
        {"type": "function_call_output", "call_id": "call-b",
         "output": [{"type": "input_text", "text": "?"}]},
    ]  # fmt: skip
    assert ask("responses", RESPONSES | {"input": items}).prompt["messages"] == [
        {"role": "user", "content": "Hot?"},
        {"role": "assistant", "content": "Hm.",
         "tool_calls": [call_of("call-a", '{"city":"Bern"}'), call_of("call-b", "{}")]},
        {"role": "tool", "tool_call_id": "call-a", "content": "21"},
        {"role": "tool", "tool_call_id": "call-b", "content": "?"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "body", "param", "code"),
    [
        ("chat", {"tools": {}}, None, None),
        ("chat", {"tools": {"a": 1}}, "tools", "invalid-type"),
        ("chat", {"tools": ["x"]}, "tools[0]", "invalid-type"),
        ("chat", {"tools": [{"type": "web_search"}]}, "tools[0].type", "parameter-unsupported"),
        ("chat", {"tools": [{"type": "function"}]}, "tools[0].function",
         "missing-required-parameter"),
        ("chat", {"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name",
         "missing-required-parameter"),
        ("chat", {"tools": [TOOL] * 129}, "tools", "invalid-parameter"),
        ("chat", {"tool_choice": "maybe"}, "tool_choice", "invalid-parameter"),
        ("chat", {"tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice",
         "invalid-value"),
        ("chat", {"tools": None, "tool_choice": "required"}, "tool_choice", "invalid-value"),
        ("chat", {"functions": [{}]}, "functions", "parameter-unsupported"),
        ("responses", {"tools": [{"type": "file_search"}]}, "tools[0].type",
         "parameter-unsupported"),
        ("responses", {"tools": [TOOL]}, "tools[0].name", "missing-required-parameter"),
        ("responses", {"input": [{"type": "function_call", "name": "x"}]}, "input[0].call_id",
         "missing-required-parameter"),
    ],
)  # fmt: skip
def test_tools_that_are_none_are_refused_by_name(
    operation: str, body: dict[str, Any], param: str | None, code: str | None
) -> None:
    asked = (CHAT if operation == "chat" else RESPONSES) | body
    if param is None:
        assert "tools" not in ask(operation, asked).prompt
        return
    with pytest.raises(CallerError) as caught:
        ask(operation, asked)
    assert (caught.value.param, caught.value.code) == (param, code)
