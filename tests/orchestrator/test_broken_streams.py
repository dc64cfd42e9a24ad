"""Answers in pieces that break: gone on with elsewhere, or ended by the protocol's own error."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from botocore.eventstream import EventStreamBuffer
from tests.orchestrator.region_site import (
    EVENTS_HEAD,
    OrchestratorSite,
    RegionRequest,
    Script,
    breaking,
    chunk,
    event,
    saying,
    site,
)

from penstock.api.openai import errors as openai_errors
from penstock.core.traffic.spec import HealthSpec
from penstock.gateway.dispatch.refusals import stream_broken
from penstock.wire.aws import eventstream

CHAT: dict[str, Any] = {
    "model": "echo",
    "stream": True,
    "max_tokens": 5,
    "messages": [{"role": "user", "content": "Count"}],
}
COMPLETION = {"model": "echo", "stream": True, "max_tokens": 5, "prompt": "Count: "}


def streamed(*events: bytes) -> Script:
    async def say(_asked: RegionRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(EVENTS_HEAD + b"".join(map(chunk, events)) + b"0\r\n\r\n")

    return say


def delta(ident: str, said: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": said, "finish_reason": finish}
    return event({"id": ident, "created": 1 if ident == "a" else 2, "choices": [choice]})


def text(ident: str, said: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "text": said, "finish_reason": finish}
    return event({"id": ident, "created": 1 if ident == "a" else 2, "choices": [choice]})


def broken_off() -> bytes:
    """How a region says that the copy that was answering is gone."""
    return openai_errors.event(stream_broken("echo"))


def said_of(body: bytes) -> list[Any]:
    lines = [line[6:] for line in body.decode().splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


async def broken_then(
    here: OrchestratorSite, first: list[bytes], then: Script, path: str, body: dict[str, Any]
) -> bytes:
    """What the client gets of a stream that eu breaks off, where us would answer `then`."""
    here.regions["eu"].script = breaking(EVENTS_HEAD, *first)
    here.regions["us"].script = then
    return (await here.ask(path, json.dumps(body).encode())).body


def scenario(tmp_path: Path, first: list[bytes], then: Script, path: str, body: Any) -> Any:
    """(what the client saw, requests of us)"""

    async def run() -> Any:
        shares = {"us": {"ratio": 0.0001}}
        async with site(tmp_path, "eu", "us", mode="manual", more=shares) as here:
            seen = await broken_then(here, first, then, path, body)
            return seen, here.regions["us"].asked

    return asyncio.run(run())


def test_a_chat_is_gone_on_with_as_one_answer(tmp_path: Path) -> None:
    """One id, one role, every word once; the rest is asked for with the text so far, and as many
    tokens less. Half an event at the break is not seen."""
    first = [
        chunk(delta("a", {"role": "assistant", "content": ""})),
        chunk(delta("a", {"content": "one"})),
        chunk(delta("a", {"content": " two"}) + b'data: {"id": "a", "cho'),
    ]
    usage = event({"id": "b", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}})
    then = streamed(
        delta("b", {"role": "assistant", "content": ""}),
        delta("b", {"content": " three"}),
        delta("b", {}, "stop"),
        usage,
        b"data: [DONE]\n\n",
    )
    body, asked = scenario(tmp_path, first, then, "/v1/chat/completions", CHAT)
    said = said_of(body)
    assert said.pop() == "[DONE]"
    assert {(one["id"], one["created"]) for one in said} == {("a", 1)}
    assert said.pop()["usage"] == {"prompt_tokens": 7, "completion_tokens": 5}
    deltas = [one["choices"][0]["delta"] for one in said]
    assert [one for one in deltas if "role" in one] == deltas[:1]
    assert "".join(one.get("content", "") for one in deltas) == "one two three"
    assert asked[0].json == {
        "model": "echo",
        "stream": True,
        "max_tokens": 3,
        "messages": [*CHAT["messages"], {"role": "assistant", "content": "one two"}],
        "add_generation_prompt": False,
        "continue_final_message": True,
    }


def test_a_completion_is_gone_on_with_from_its_text(tmp_path: Path) -> None:
    first = [chunk(text("a", "one")), chunk(text("a", " two"))]
    then = streamed(text("b", " three", "length"), b"data: [DONE]\n\n")
    body, asked = scenario(tmp_path, first, then, "/v1/completions", COMPLETION)
    said = said_of(body)[:-1]
    assert "".join(one["choices"][0]["text"] for one in said) == "one two three"
    assert asked[0].json == COMPLETION | {"prompt": "Count: one two", "max_tokens": 3}


@pytest.mark.parametrize(
    "more",
    [{"n": 2}, {"tools": [{"type": "function"}]}, {"logprobs": True}],
    ids=["two-at-once", "tools", "logprobs"],
)
def test_what_text_alone_does_not_carry_on_ends_with_an_error_event(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    first = [chunk(delta("a", {"role": "assistant", "content": "one"}))]
    then = saying(b"{}")
    body, asked = scenario(tmp_path, first, then, "/v1/chat/completions", CHAT | more)
    error = said_of(body)[-1]["error"]
    assert (error["code"], asked) == ("stream_broken", [])
    assert "part of the answer was sent" in error["message"]


ALL = [delta("a", {"content": "one"})] * CHAT["max_tokens"]
SAID = [delta("a", {"content": "one"}), delta("a", {}, "stop")]
LAST_WORDS: dict[str, tuple[list[bytes], str]] = {
    "finished": (SAID, "stop"),
    "ended": ([*SAID, b"data: [DONE]\n\n"], "stop"),
    "all-tokens": (ALL, "length"),
}


@pytest.mark.parametrize("told", [False, True], ids=["lost", "told"])
@pytest.mark.parametrize(("first", "finish"), LAST_WORDS.values(), ids=LAST_WORDS)
def test_an_answer_that_had_said_its_last_word_only_ends(
    tmp_path: Path, first: list[bytes], finish: str, told: bool
) -> None:
    """Nothing is asked again, so not one token comes that was not to come; nothing has failed."""
    pieces = [chunk(one) for one in first] + ([chunk(broken_off()), b"0\r\n\r\n"] if told else [])
    body, asked = scenario(tmp_path, pieces, saying(b"{}"), "/v1/chat/completions", CHAT)
    *said, end = said_of(body)
    assert (end, asked) == ("[DONE]", [])
    choices = [one["choices"][0] for one in said]
    words = [choice["delta"].get("content") for choice in choices]
    assert words == ["one"] * (len(words) - 1) + [None]
    assert len(words) == (2 if first is not ALL else len(ALL) + 1)
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(words) - 1) + [finish]
    assert {one["id"] for one in said} == {"a"}


def test_a_completion_s_last_token_is_its_last_where_the_request_names_no_number(
    tmp_path: Path,
) -> None:
    """Completions have 16 tokens then, of which the lost region has said some."""
    body = {name: value for name, value in COMPLETION.items() if name != "max_tokens"}
    then = streamed(text("b", " end", "length"), b"data: [DONE]\n\n")
    some = [chunk(text("a", " a")) for _ in range(10)]
    _, asked = scenario(tmp_path, some, then, "/v1/completions", body)
    assert asked[0].json["max_tokens"] == 6
    every = [chunk(text("a", " a")) for _ in range(16)]
    seen, asked = scenario(tmp_path, every, then, "/v1/completions", body)
    assert (said_of(seen)[-2]["choices"][0]["finish_reason"], asked) == ("length", [])


def test_a_minimum_of_tokens_counts_those_that_came(tmp_path: Path) -> None:
    first = [chunk(text("a", "one")), chunk(text("a", " two"))]
    then = streamed(text("b", " three", "length"), b"data: [DONE]\n\n")
    more = COMPLETION | {"min_tokens": 3}
    _, asked = scenario(tmp_path, first, then, "/v1/completions", more)
    assert (asked[0].json["min_tokens"], asked[0].json["max_tokens"]) == (1, 3)


def test_an_answer_that_breaks_before_its_first_event_is_asked_for_whole(tmp_path: Path) -> None:
    then = streamed(text("b", "one", "length"), b"data: [DONE]\n\n")
    body, asked = scenario(tmp_path, [], then, "/v1/completions", COMPLETION)
    assert said_of(body)[0]["choices"][0]["text"] == "one"
    assert asked[0].json == COMPLETION


# What a region reports inside its answer: its copy is gone, the region is not.


def test_a_break_that_a_region_reports_is_gone_on_with_like_a_lost_one(tmp_path: Path) -> None:
    """Its error event is never seen; and the region is not blamed for one of its instances."""
    first = [chunk(text("a", "one")), chunk(text("a", " two") + broken_off()), b"0\r\n\r\n"]
    then = streamed(text("b", " three", "length"), b"data: [DONE]\n\n")

    async def run() -> Any:
        shares = {"us": {"ratio": 0.0001}}
        async with site(tmp_path, "eu", "us", mode="manual", more=shares) as here:
            seen = await broken_then(here, first, then, "/v1/completions", COMPLETION)
            for _ in range(HealthSpec().failures_max):
                await broken_then(here, first, then, "/v1/completions", COMPLETION)
            health = {
                one["region"]: one["health"]
                for one in (await here.told("/penstock/v1/regions"))["regions"]
            }
            return seen, here.regions["us"].asked[0], health["eu"]

    body, asked, health = asyncio.run(run())
    said = said_of(body)
    assert said.pop() == "[DONE]"
    assert "".join(one["choices"][0]["text"] for one in said) == "one two three"
    assert {one["id"] for one in said} == {"a"}
    assert asked.json == COMPLETION | {"prompt": "Count: one two", "max_tokens": 3}
    assert health == "serving"


def test_the_region_that_reported_the_break_goes_on_itself_where_no_other_serves(
    tmp_path: Path,
) -> None:
    """Only its copy is gone; the next one that it has says the rest."""
    parts = iter(
        (
            streamed(text("a", "one"), broken_off()),
            saying(b'{"error": {}}', status=503),
            streamed(text("b", " two", "stop"), b"data: [DONE]\n\n"),
        )
    )

    async def run() -> bytes:
        async with site(tmp_path, "eu") as here:

            async def script(asked: RegionRequest, writer: asyncio.StreamWriter) -> None:
                await next(parts)(asked, writer)

            here.regions["eu"].script = script
            return (await here.ask("/v1/completions", json.dumps(COMPLETION).encode())).body

    said = said_of(asyncio.run(run()))
    assert said.pop() == "[DONE]"
    assert "".join(one["choices"][0]["text"] for one in said) == "one two"


def test_what_the_model_says_of_its_failure_is_passed_on(tmp_path: Path) -> None:
    verdict = event({"error": {"message": "no", "type": "server_error", "code": "model_failed"}})
    first = [chunk(text("a", "one") + verdict), b"0\r\n\r\n"]
    body, asked = scenario(tmp_path, first, saying(b"{}"), "/v1/completions", COMPLETION)
    assert (said_of(body)[-1]["error"]["code"], asked) == ("model_failed", [])


def test_a_reported_break_that_nobody_can_go_on_with_is_told_in_the_region_s_words(
    tmp_path: Path,
) -> None:
    tools = CHAT | {"tools": [{"type": "function"}]}
    first = [chunk(delta("a", {"content": "one"}) + broken_off()), b"0\r\n\r\n"]
    body, asked = scenario(tmp_path, first, saying(b"{}"), "/v1/chat/completions", tools)
    assert (said_of(body)[-1]["error"], asked) == (said_of(broken_off())[0]["error"], [])


def test_a_region_that_does_not_go_on_ends_the_stream_with_an_error_event(tmp_path: Path) -> None:
    first = [chunk(delta("a", {"content": "one"}))]
    refusing = saying(b'{"error":{}}', status=400)
    body, asked = scenario(tmp_path, first, refusing, "/v1/chat/completions", CHAT)
    assert (said_of(body)[-1]["error"]["code"], len(asked)) == ("stream_broken", 1)


def test_the_last_event_of_a_response_has_its_number(tmp_path: Path) -> None:
    first = [chunk(event({"type": "a", "sequence_number": n})) for n in range(2)]
    body, _ = scenario(tmp_path, first, saying(b"{}"), "/v1/responses", {"model": "echo"})
    assert said_of(body)[-1]["sequence_number"] == 2


@pytest.mark.parametrize("kind", ["completed", "incomplete", "failed"])
def test_a_response_that_had_said_its_last_word_only_ends(tmp_path: Path, kind: str) -> None:
    name = f"response.{kind}"
    last = b"event: %b\n" % name.encode() + event({"type": name, "sequence_number": 1})
    first = [chunk(event({"type": "a", "sequence_number": 0})), chunk(last)]
    body, _ = scenario(tmp_path, first, saying(b"{}"), "/v1/responses", {"model": "echo"})
    assert [one["type"] for one in said_of(body)] == ["a", name]


def test_triton_s_stream_ends_with_its_error(tmp_path: Path) -> None:
    first = [chunk(event({"text_output": "one"}))]
    body, asked = scenario(
        tmp_path, first, saying(b"{}"), "/v2/models/echo/generate_stream", {"text_input": "x"}
    )
    one, error = said_of(body)
    assert (one, "is gone" in error["error"], asked) == ({"text_output": "one"}, True, [])


def test_sagemaker_s_stream_ends_with_a_frame_that_says_so(tmp_path: Path) -> None:
    """Frames are passed on whole: what the region had begun of one is left out."""

    async def run() -> bytes:
        shares = {"us": {"ratio": 0.0001}}
        async with site(tmp_path, "eu", "us", mode="manual", more=shares) as here:
            head = EVENTS_HEAD.replace(b"text/event-stream", eventstream.CONTENT_TYPE.encode())
            part = eventstream.payload_part(b"one")
            here.regions["eu"].script = breaking(head, chunk(part[:7]), chunk(part[7:] + part[:20]))
            return (await here.ask("/endpoints/echo/invocations-response-stream")).body

    frames, stream = EventStreamBuffer(), asyncio.run(run())
    frames.add_data(stream)
    one, error = frames
    assert one.prelude.total_length + error.prelude.total_length == len(stream)
    assert one.payload == b"one"
    assert error.headers[":exception-type"] == "ModelStreamError"


def test_a_plain_answer_that_breaks_after_its_beginning_is_cut(tmp_path: Path) -> None:
    """Part of it is out under status 200, and its length was told: only a cut says the truth."""

    async def run() -> bytes:
        async with site(tmp_path, "eu") as here:
            head = b"HTTP/1.1 200 OK\r\ncontent-length: 9000000\r\n\r\n"
            here.regions["eu"].script = breaking(head, b"x" * 100_000)
            reader, writer = await here.open("/endpoints/echo/invocations")
            async with asyncio.timeout(30):
                try:
                    data = await reader.read()
                except ConnectionError:
                    data = b""
            writer.close()
            return data

    assert len(asyncio.run(run())) < 200_000
