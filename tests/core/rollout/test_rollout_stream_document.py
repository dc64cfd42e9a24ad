"""What the parts of a stream come to: `core/rollout/stream_document.py`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock.core.rollout.agreement import AgreementSpec
from penstock.core.rollout.comparison import agree
from penstock.core.rollout.stream_document import document


def events(*values: Any, name: str = "") -> bytes:
    named = b"event: %b\n" % name.encode() if name else b""
    return b"".join(b"%bdata: %b\n\n" % (named, json.dumps(value).encode()) for value in values)


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def chat(delta: dict[str, Any], *, index: int = 0, **more: Any) -> dict[str, Any]:
    choice = {"index": index, "delta": delta, "finish_reason": None} | more
    return {"id": "c1", "object": "chunk", "created": 5, "model": "m", "choices": [choice]}


def token(text: str, **more: Any) -> dict[str, Any]:
    return {"token": {"id": 7, "text": text, "special": False}, "generated_text": None} | more


def named(kind: str, number: int, **more: Any) -> bytes:
    return events({"type": kind, "sequence_number": number, "item_id": "msg_1"} | more, name=kind)


def over_openai(kind: str, data: Any) -> dict[str, Any]:
    return {"id": "c1", "choices": [], "pipeline_event": {"event": kind, "data": data}}


DONE = b"data: [DONE]\n\n"
CHAT = {"object": "chunk", "model": "m"}
DELTA = "response.output_text.delta"
LOGPROBS = [{"token": "a", "logprob": -0.1}, {"token": "b", "logprob": -0.2}]


@pytest.mark.parametrize(
    ("stream", "value"),
    [
        pytest.param(
            events(
                chat({"role": "assistant", "content": ""}), chat({"content": "one "}),
                chat({"content": "two"}), chat({}, finish_reason="stop"),
                {"id": "c1", "choices": [], "usage": {"completion_tokens": 2}},
            ) + DONE,
            CHAT | {
                "choices": [{
                    "index": 0, "delta": {"role": "assistant", "content": "one two"},
                    "finish_reason": "stop",
                }],
                "usage": {"completion_tokens": 2},
            },
            id="chat",
        ),
        pytest.param(
            events(
                chat({"reasoning_content": "h", "content": None}), chat({"reasoning_content": "m"}),
                chat({"refusal": "n"}), chat({"refusal": "o"}),
            ),
            CHAT | {"choices": [{
                "index": 0, "delta": {"reasoning_content": "hm", "refusal": "no"},
            }]},
            id="thoughts and refusals",
        ),
        pytest.param(
            events(
                chat({"content": "b"}, index=1), chat({"content": "a"}),
                chat({"content": "d"}, index=1), chat({"content": "c"}),
            ),
            CHAT | {"choices": [
                {"index": 0, "delta": {"content": "ac"}}, {"index": 1, "delta": {"content": "bd"}},
            ]},
            id="choices by their index, whichever speaks first",
        ),
        pytest.param(
            events(
                chat({"tool_calls": [
                    {"index": 0, "id": "x", "function": {"name": "f", "arguments": ""}},
                ]}),
                chat({"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]}),
                chat({"tool_calls": [
                    {"index": 1, "id": "y", "function": {"name": "g", "arguments": "{}"}},
                ]}),
                chat({"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]}),
            ),
            CHAT | {"choices": [{"index": 0, "delta": {"tool_calls": [
                {"index": 0, "function": {"name": "f", "arguments": '{"a":1}'}},
                {"index": 1, "function": {"name": "g", "arguments": "{}"}},
            ]}}]},
            id="tool calls by their index",
        ),
        pytest.param(
            events(
                chat({"content": "a"}, logprobs={"content": LOGPROBS[:1]}),
                chat({"content": "b"}, logprobs={"content": LOGPROBS[1:]}),
            ),
            CHAT | {"choices": [
                {"index": 0, "delta": {"content": "ab"}, "logprobs": {"content": LOGPROBS}},
            ]},
            id="probabilities follow each other",
        ),
        pytest.param(
            events({"choices": [{"text": "a", "index": 0, "logprobs": {"tokens": ["a"]}}]},
                   {"choices": [{"text": "b", "index": 0, "logprobs": {"tokens": ["b"]}}]}),
            {"choices": [{"text": "ab", "index": 0, "logprobs": {"tokens": ["a", "b"]}}]},
            id="completions",
        ),
        pytest.param(
            named("response.created", 0, response={"id": "r"})
            + named(DELTA, 1, delta="a", obfuscation="x7")
            + named(DELTA, 2, delta="b")
            + named("response.completed", 3, response={"id": "r", "status": "done"}),
            {
                "response.created": [{"type": "response.created", "response": {"id": "r"}}],
                DELTA: {"type": DELTA, "delta": "ab"},
                "response.completed": [
                    {"type": "response.completed", "response": {"id": "r", "status": "done"}},
                ],
            },
            id="the Responses API",
        ),
        pytest.param(
            events({"type": "ping"}, name="ping")
            + events({"type": "content_block_delta", "index": 0, "delta": {"text": "a"}})
            + events({"type": "ping"}, name="ping")
            + events({"type": "content_block_delta", "index": 0, "delta": {"text": "b"}}),
            {"content_block_delta": {"type": "content_block_delta", "delta": {"text": "ab"}}},
            id="Anthropic, whose pings are by the clock",
        ),
        pytest.param(
            b"data:" + events(token("a", index=1))[6:]
            + events(token("b", index=2, generated_text="ab", details={"finish_reason": "length"})),
            {
                "token": {"text": "ab", "special": False}, "generated_text": "ab",
                "details": {"finish_reason": "length"},
            },
            id="TGI",
        ),
        pytest.param(
            events({"model_name": "m", "text_output": "a"}, {"text_output": "b"}),
            {"model_name": "m", "text_output": "ab"},
            id="Triton",
        ),
        pytest.param(
            events({"model_name": "m", "OUT": 1}, {"model_name": "m", "OUT": 2}),
            [{"model_name": "m", "OUT": 1}, {"model_name": "m", "OUT": 2}],
            id="without text each event is whole",
        ),
        pytest.param(
            events({"text": "a "}, name="text") + events({"id": "p1", "events": 1}, name="product")
            + events({"text": "b"}, name="text") + events({"id": "p2", "price": 2}, name="product")
            + events(3, name="sum") + events({"steps": {"find": "done"}, "events": 5}, name="done"),
            {
                "text": {"text": "a b"}, "sum": [3], "done": [{"steps": {"find": "done"}}],
                "product": [{"id": "p1", "events": 1}, {"id": "p2", "price": 2}],
            },
            id="a pipeline",
        ),
        pytest.param(
            events(
                chat({"content": "a"}), over_openai("product", {"id": "p1"}),
                over_openai("product", {"id": "p2"}), chat({"content": "b"}),
                over_openai("done", {"steps": {}, "events": 4}),
                {"pipeline_event": {"event": 5}}, {"pipeline_event": 6},
            ),
            {
                "": CHAT | {
                    "choices": [{"index": 0, "delta": {"content": "ab"}}], "pipeline_event": 6,
                },
                "product": [{"id": "p1"}, {"id": "p2"}],
                "done": [{"steps": {}}],
            },
            id="a pipeline over OpenAI's API",
        ),
        pytest.param(
            lines({"message": {"content": "a"}, "done": False},
                  {"message": {"content": "b"}, "done": True}),
            {"message": {"content": "ab"}, "done": True},
            id="JSON lines: Ollama",
        ),
        pytest.param(
            b'{"outputs": ["a"]}{"outputs": ["b"]} ', {"outputs": ["ab"]},
            id="objects without anything between, and lists by place",
        ),
        pytest.param(lines([0.1], [0.2]), [[0.1], [0.2]], id="lists"),
        pytest.param(lines([{"text": "a"}], [{"text": "b"}]), [{"text": "ab"}], id="in lists"),
        pytest.param(
            b": hello\r\nid: 5\r\nretry: 10\r\ndata: one\r\n\r\n: still here\r\n\r\n"
            b"data:  two\r\n\r\ndata: 3\r\n\r\n",
            "one two3", id="text alone, comments and ids",
        ),
        pytest.param(events("a", "b"), "ab", id="JSON strings"),
        pytest.param(b'data: {"text":\ndata: "a"}\n\n', {"text": "a"}, id="data of two lines"),
        pytest.param(b'data: {"text": "a"}', {"text": "a"}, id="the last event without an end"),
        pytest.param(b'data: {"text": ""}\r\rdata: {"text": "a", "n": 1}', {"text": "a", "n": 1},
                     id="nothing said"),
        pytest.param(
            events({"text": "a", "x": [1], "y": "z"}, {"text": None, "x": [None], "y": ""}),
            {"text": "a", "x": [1], "y": "z"},
            id="null and an empty text say nothing",
        ),
        pytest.param(
            events({"text": "a", "x": {"y": 1}, "z": 1}, {"text": "b", "x": 2, "z": [1]},
                   {"text": ["c"], "x": [1], "z": {"text": "d"}}),
            {"text": ["c"], "x": [1], "z": {"text": "d"}},
            id="of another type: the last one counts",
        ),
    ],
)  # fmt: skip
def test_what_a_stream_comes_to(stream: bytes, value: Any) -> None:
    assert json.loads(document(stream)) == value


@pytest.mark.parametrize(
    "stream",
    [
        b"", b"one two", b"12\n34\n", b'{"text": "a"} and more', b"\xff\xfe", b"{" * 9, b": hi\n",
        b"data: one\nWhat is this?", b'{"a": 1', b'"a" "b"', DONE, b"[" * 100_000,
        b"Ingredients: data: no\n",
    ],
)  # fmt: skip
def test_what_is_no_stream_of_events_stays_as_it_is(stream: bytes) -> None:
    assert document(stream) == stream


def pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


SHAPES: dict[str, Callable[[str], bytes]] = {
    "openai": lambda text: events(chat({"content": text})),
    "responses": lambda text: named(DELTA, len(text), delta=text),
    "tgi": lambda text: events(token(text, index=len(text))),
    "triton": lambda text: events({"text_output": text}),
    "lines": lambda text: lines({"text": text}),
    "bare": lambda text: json.dumps({"text": text}).encode(),
    "plain": lambda text: text.encode(),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["scores", "text", "exact"])
def test_the_same_text_agrees_in_three_or_thirty_pieces_and_other_text_does_not(
    shape: str, kind: str
) -> None:
    text = "The cat sat on the mat, and it \U0001f63a purred."
    spec = AgreementSpec(kind=kind, tolerance=0.0)

    def answered(text: str, size: int) -> bytes:
        return document(b"".join(SHAPES[shape](piece) for piece in pieces(text, size)))

    assert agree(answered(text, 16), answered(text, 1), spec)
    assert not agree(answered(text, 16), answered(text.replace("cat", "cow"), 16), spec)
    assert not agree(answered(text, 16), answered(text[:-4], 16), spec)


def test_halves_of_one_sign_are_one_sign() -> None:
    """JSON writes one beyond the first 65,536 as two, and a piece may end between them."""
    halves = b'{"text": "\\ud83d"}{"text": "\\ude3a"}'
    assert document(halves) == document('{"text": "\U0001f63a"}'.encode())


def test_when_a_member_first_comes_makes_no_difference() -> None:
    """Texts are compared in the order of their members."""
    early, late = {"by": "m", "text": "a"}, {"text": "b"}
    assert document(events(early, late)) == document(
        events({"text": "a"}, {"text": "b"}, {"by": "m", "text": None})
    )


def test_what_differs_from_call_to_call_is_not_in_it() -> None:
    """So `exact` agrees; what a stream without text says is all its own."""
    ids = [
        events(chat({"content": "a"}) | {"id": one, "created": at}) for at, one in enumerate("xy")
    ]
    assert document(ids[0]) == document(ids[1])
    assert document(events({"id": "p1"})) != document(events({"id": "p2"}))


def test_each_event_without_text_has_to_agree() -> None:
    old, new = events({"OUT": 1.0}, {"OUT": 2.0}), events({"OUT": 1.5}, {"OUT": 2.0})
    assert not agree(document(old), document(new), AgreementSpec())
    near = events({"OUT": 1.001}, {"OUT": 2.001})
    assert agree(document(old), document(near), AgreementSpec())
