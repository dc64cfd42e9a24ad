"""OpenAI's Responses API: golden requests, answers and sequences of events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.errors import CallerError
from penstock.instance.codecs.generation.calls import GeneratedAnswer, GenerationCall, Served
from penstock.instance.codecs.generation.select import decode
from penstock.runtimes.generation.base import Sampling
from penstock.wire.frames import RequestMeta

SERVED = Served(name="shop", version="2", new_id=lambda: "7f3a", now_s=lambda: 1_700_000_000)
EVENTS = (
    {"i": 1, "t": [31], "x": "Hi", "p": 5, "c": 2, "s": 42, "l": [["Hi", -0.5, []]]},
    {"i": 1, "t": [32], "x": "!", "l": [["!", -0.25, []]]},
    {"i": 1, "t": [2], "z": [0], "f": "stop", "l": [["</s>", -0.125, []]]},
)


def ask(body: dict[str, Any]) -> GenerationCall:
    meta = RequestMeta(door="openai", parameters='{"operation":"responses"}')
    return decode(meta, json.dumps(body).encode(), SERVED)


def whole(made: GenerationCall, *events: Any) -> dict[str, Any]:
    answer = GeneratedAnswer()
    for event in events:
        answer.add(event)
    return dict(json.loads(made.writer.whole(answer)))


def streamed(made: GenerationCall, *events: Any) -> list[dict[str, Any]]:
    """The data of the events; each is named by its type, in its line and in its data."""
    answer, found = GeneratedAnswer(), []
    for event in events:
        answer.add(event)
        for written in made.writer.chunk(event, answer).split(b"\n\n")[:-1]:
            name, data = written.split(b"\n")
            found.append(json.loads(data.removeprefix(b"data: ")))
            assert name == b"event: " + found[-1]["type"].encode()
    return found


PART = {"type": "output_text", "text": "Hi!", "annotations": [], "logprobs": []}
MESSAGE = {
    "id": "msg_7f3a", "type": "message", "status": "completed", "role": "assistant",
    "content": [PART],
}  # fmt: skip
RESPONSE = {
    "id": "resp_7f3a", "object": "response", "created_at": 1_700_000_000, "model": "shop",
    "status": "completed", "background": False, "error": None, "incomplete_details": None,
    "output": [MESSAGE], "parallel_tool_calls": True, "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None}, "store": False, "tool_choice": "auto",
    "tools": [], "truncation": "disabled",
    "usage": {
        "input_tokens": 5, "input_tokens_details": {"cached_tokens": 2}, "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 8,
    },
    "instructions": None, "max_output_tokens": None, "metadata": {}, "temperature": 1.0,
    "text": {"format": {"type": "text"}}, "top_logprobs": 0, "top_p": 1.0,
}  # fmt: skip


def test_a_text_is_the_users_message_and_the_answer_one_item() -> None:
    made = ask({"input": "Say", "model": "shop"})
    assert made.prompt == {"messages": [{"role": "user", "content": "Say"}]}
    assert made.sampling == Sampling(temperature=1.0)
    assert whole(made, *EVENTS) == RESPONSE


def test_settings_are_taken_and_told_again() -> None:
    asked = {
        "instructions": "Be brief.", "max_output_tokens": 9, "temperature": 0.5, "top_p": 0.9,
        "metadata": {"tenant": "a"}, "store": False, "user": "me", "service_tier": "auto",
    }  # fmt: skip
    made = ask({"input": "Say"} | asked)
    assert made.prompt["messages"][0] == {"role": "system", "content": "Be brief."}
    assert made.sampling == Sampling(tokens_new_max=9, temperature=0.5, top_p=0.9)
    told = whole(made, *EVENTS)
    for name in ("instructions", "max_output_tokens", "temperature", "top_p", "metadata", "store"):
        assert told[name] == asked[name]


def test_items_are_messages_whichever_form_they_have() -> None:
    items = [
        {"role": "developer", "content": "Rules."},
        {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "One, "}, {"type": "input_text", "text": "two."}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [
            {"type": "output_text", "text": "Three.", "annotations": []}]},
        {"role": "user", "content": "Four?"},
    ]  # fmt: skip
    assert ask({"input": items, "instructions": "Count."}).prompt["messages"] == [
        {"role": "system", "content": "Count.\n\nRules."},
        {"role": "user", "content": "One, two."},
        {"role": "assistant", "content": "Three."},
        {"role": "user", "content": "Four?"},
    ]


def test_a_stream_is_these_events_in_this_order() -> None:
    made = ask({"input": "Say", "stream": True})
    assert made.writer.content_type == "text/event-stream"
    begun = RESPONSE | {"status": "in_progress", "output": [], "usage": None}
    place = {"item_id": "msg_7f3a", "output_index": 0, "content_index": 0}
    blank = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    expected = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {"type": "response.output_item.added", "output_index": 0,
         "item": MESSAGE | {"status": "in_progress", "content": []}},
        {"type": "response.content_part.added", **place, "part": blank},
        {"type": "response.output_text.delta", **place, "delta": "Hi", "logprobs": []},
        {"type": "response.output_text.delta", **place, "delta": "!", "logprobs": []},
        {"type": "response.output_text.done", **place, "text": "Hi!", "logprobs": []},
        {"type": "response.content_part.done", **place, "part": PART},
        {"type": "response.output_item.done", "output_index": 0, "item": MESSAGE},
        {"type": "response.completed", "response": RESPONSE},
    ]  # fmt: skip
    assert streamed(made, *EVENTS) == [
        {"sequence_number": at, **event} for at, event in enumerate(expected)
    ]


def test_an_answer_that_is_cut_is_incomplete() -> None:
    cut = (*EVENTS[:2], {"i": 1, "t": [33], "f": "length"})
    told = whole(ask({"input": "Say", "max_output_tokens": 3}), *cut)
    assert told["status"] == told["output"][0]["status"] == "incomplete"
    assert told["incomplete_details"] == {"reason": "max_output_tokens"}
    last = streamed(ask({"input": "Say", "stream": True}), *cut)[-1]
    assert (last["type"], last["response"]["status"]) == ("response.incomplete", "incomplete")


def test_an_answer_of_nothing_is_an_item_with_no_text() -> None:
    kinds = [event["type"] for event in streamed(ask({"input": "x", "stream": True}), EVENTS[2])]
    assert kinds[2:] == [
        "response.output_item.added", "response.content_part.added", "response.output_text.done",
        "response.content_part.done", "response.output_item.done", "response.completed",
    ]  # fmt: skip


def test_log_probabilities_come_where_they_are_included() -> None:
    include = ["message.output_text.logprobs"]
    made = ask({"input": "Say", "include": include, "top_logprobs": 2})
    assert made.sampling.logprobs == 2
    (item,) = whole(made, *EVENTS)["output"]
    assert item["content"][0]["logprobs"][0] == {
        "token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": [],
    }  # fmt: skip
    events = streamed(ask({"input": "Say", "include": include, "stream": True}), *EVENTS)
    deltas = [each for each in events if each["type"] == "response.output_text.delta"]
    assert [each["logprobs"][0]["token"] for each in deltas] == ["Hi", "!"]


def test_a_format_holds_the_text_to_a_schema() -> None:
    schema = {"type": "object"}
    wanted = {"format": {"type": "json_schema", "name": "x", "schema": schema, "strict": True}}
    made = ask({"input": "x", "text": wanted})
    assert made.sampling.json_schema == '{"type":"object"}'
    assert whole(made, *EVENTS)["text"] == wanted


@pytest.mark.parametrize(
    ("body", "param", "code", "words"),
    [
        ({}, "input", "missing-required-parameter", "Missing required parameter: 'input'."),
        ({"input": 5}, "input", "invalid-type", "expected a string or an array"),
        ({"input": []}, "input", "invalid-parameter", "1 to 4096"),
        ({"input": ["x"]}, "input[0]", "parameter-unsupported", "type None"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role", "invalid-parameter",
         "user, assistant, system, developer"),
        ({"input": [{"role": "user"}]}, "input[0].content", "invalid-parameter", "a text"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
         "input[0].content[0]", "parameter-unsupported", "this model reads text"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]",
         "parameter-unsupported", "item_reference"),
        ({"input": "x", "store": True}, "store", "parameter-unsupported", "leave it out"),
        ({"input": "x", "background": True}, "background", "parameter-unsupported", "kept"),
        ({"input": "x", "previous_response_id": "resp_1"}, "previous_response_id",
         "parameter-unsupported", "send the conversation as input"),
        ({"input": "x", "conversation": "c"}, "conversation", "parameter-unsupported", "kept"),
        ({"input": "x", "prompt": {"id": "p"}}, "prompt", "parameter-unsupported", "kept"),
        ({"input": "x", "truncation": "auto"}, "truncation", "parameter-unsupported", "refused"),
        ({"input": "x", "instructions": ["y"]}, "instructions", "invalid-type", "a string"),
        ({"input": "x", "temperature": 2.5}, "temperature", "decimal-above-max-value", "<= 2"),
        ({"input": "x", "max_output_tokens": 0}, "max_output_tokens", "integer-below-min-value",
         ">= 1"),
        ({"input": "x", "metadata": {"a": 1}}, "metadata", "invalid-parameter", "pairs of texts"),
        ({"input": "x", "text": {"format": {"type": "xml"}}}, "text.format.type",
         "invalid-parameter", "json_schema"),
        ({"input": "x", "stream": "yes"}, "stream", "invalid-parameter", "true or false"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_names_its_parameter(
    body: dict[str, Any], param: str, code: str, words: str
) -> None:
    with pytest.raises(CallerError) as caught:
        ask(body)
    assert (caught.value.param, caught.value.code) == (param, code)
    assert words in caught.value.message
