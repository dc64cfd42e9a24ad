"""OpenAI's `echo` and `logprobs`, as evaluations of language models use them, and what answers are
drawn by where a request does not say: one engine, asked over its instance's frames."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.instance.generation_client import StreamClient
from tests.kit.generation_models import write_model
from tests.kit.instances import instance

pytest.importorskip("openvino_genai", reason="the extra `generate` is not installed")

CHAT = {"asked": {"operation": "chat"}, "door": "openai"}
COMPLETIONS = {"asked": {"operation": "completions"}, "door": "openai"}
RESPONSES = {"asked": {"operation": "responses"}, "door": "openai"}
#: A token is a byte: the euro has three.
TEXT = "It is 5 € or so"
TOKENS = 1 + len(TEXT.encode())
SCORED = {"echo": True, "logprobs": 2, "temperature": 0}
#: By this the likeliest token is drawn, as good as always.
MODELS_OWN = {"temperature": 0.00002, "top_p": 0.9, "top_k": 7, "repetition_penalty": 1.5}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamClient]:
    """Copy 1: no generation_config.json; 2: one; 3: the same, and OpenAI's defaults instead."""
    root = tmp_path_factory.mktemp("echo")
    with instance(root) as running:
        made = StreamClient(running.path)
        made.serve(1, write_model(root / "plain"))
        for copy, engine in ((2, {}), (3, {"sampling_defaults": "openai"})):
            folder = write_model(root / f"copy{copy}", engine=engine)
            (folder / "generation_config.json").write_text(json.dumps(MODELS_OWN))
            made.serve(copy, folder)
        yield made
        made.close()


def choices(client: StreamClient, copy: int = 1, **asked: Any) -> list[dict[str, Any]]:
    return list(client.ask(copy, asked, **COMPLETIONS).json["choices"])


def test_the_prompts_tokens_come_with_their_numbers_and_places(client: StreamClient) -> None:
    whole = client.ask(1, {"prompt": TEXT, "max_tokens": 3, **SCORED}, **COMPLETIONS).json
    (choice,) = whole["choices"]
    told = choice["logprobs"]
    assert choice["text"].startswith(TEXT)
    assert {len(each) for each in told.values()} == {TOKENS + 3}
    assert whole["usage"]["prompt_tokens"] == TOKENS
    assert (told["token_logprobs"][0], told["top_logprobs"][0]) == (None, None)
    assert told["tokens"][:4] == ["<s>", "I", "t", " "]
    assert all(each < 0 for each in told["token_logprobs"][1:])
    # <s> is not in the text, and the bytes of the euro are at one place.
    euro = TEXT.index("€")
    before = [0, *range(euro), euro, euro, *range(euro, len(TEXT))]
    assert told["text_offset"][:TOKENS] == before
    assert told["text_offset"][TOKENS] == len(TEXT)
    for token, logprob, top in zip(
        told["tokens"][1:], told["token_logprobs"][1:], told["top_logprobs"][1:], strict=True
    ):
        assert 1 <= len(top) <= 3  # the likeliest two and the token; bytes may have one text
        assert max(top.values()) >= logprob or token == "\ufffd"
        assert token in top


def test_nothing_need_be_generated(client: StreamClient) -> None:
    asked = {"prompt": TEXT, "max_tokens": 0}
    whole = client.ask(1, asked | SCORED, **COMPLETIONS).json
    (choice,) = whole["choices"]
    assert (choice["text"], choice["finish_reason"]) == (TEXT, "length")
    assert len(choice["logprobs"]["tokens"]) == TOKENS
    assert (whole["usage"]["completion_tokens"], whole["usage"]["total_tokens"]) == (0, TOKENS)
    (plain,) = choices(client, **asked, echo=True)
    assert (plain["text"], plain["logprobs"], plain["finish_reason"]) == (TEXT, None, "length")
    error = client.ask(1, asked, **COMPLETIONS).error
    assert (error["code"], error["param"]) == ("integer-below-min-value", "max_tokens")


def test_lists_of_texts_and_of_tokens_have_an_answer_each(client: StreamClient) -> None:
    asked = {"max_tokens": 1, **SCORED}
    prompts = [TEXT, "x", "another one"]
    tokenize = {"asked": {"operation": "tokenize"}, "door": "openai"}
    tokens = [client.ask(1, {"prompt": each}, **tokenize).json["tokens"] for each in prompts]
    alone = [choices(client, prompt=each, **asked)[0] for each in prompts]
    texts = choices(client, prompt=prompts, **asked)
    ids = choices(client, prompt=tokens, **asked)
    for at, (one, of_text, of_ids) in enumerate(zip(alone, texts, ids, strict=True)):
        assert (of_text["index"], of_ids["index"]) == (at, at)
        for other in (of_text, of_ids):
            assert other["text"] == one["text"]
            near = pytest.approx(one["logprobs"]["token_logprobs"][1:], abs=1e-4)
            assert other["logprobs"]["token_logprobs"][1:] == near
            for key in ("tokens", "text_offset"):
                assert other["logprobs"][key] == one["logprobs"][key]


def test_a_stream_has_the_same_numbers(client: StreamClient) -> None:
    asked = {"prompt": [TEXT, "x"], "max_tokens": 5, "n": 2, "seed": 3, **SCORED, "temperature": 1}
    whole = choices(client, **asked)
    *lines, done = client.ask(1, asked | {"stream": True}, **COMPLETIONS).lines
    assert done == "[DONE]"
    assert len(whole) == 4
    for at, expected in enumerate(whole):
        parts = [one for line in lines for one in line["choices"] if one["index"] == at]
        assert "".join(part["text"] for part in parts) == expected["text"]
        for key, values in expected["logprobs"].items():
            streamed = [each for part in parts for each in part["logprobs"][key]]
            assert streamed == (pytest.approx(values) if key == "token_logprobs" else values)


def test_best_of_chooses_by_the_answers_alone(client: StreamClient) -> None:
    asked = {"prompt": TEXT, "max_tokens": 6, "seed": 5, **SCORED, "temperature": 1}
    made = choices(client, **asked, n=4)
    (best,) = choices(client, **asked, best_of=4)

    def per_token(choice: dict[str, Any]) -> float:
        own = choice["logprobs"]["token_logprobs"][TOKENS:]
        return sum(own) / len(own)

    assert best["text"] == max(made, key=per_token)["text"]


@pytest.mark.parametrize("temperature", [0, 1.3])
def test_a_chat_has_as_many_likeliest_tokens_as_are_wanted(
    client: StreamClient, temperature: float
) -> None:
    asked = {
        "messages": [{"role": "user", "content": "Hi"}], "temperature": temperature, "seed": 1,
        "max_tokens": 8, "logprobs": True, "top_logprobs": 5, "ignore_eos": True,
    }  # fmt: skip
    content = client.ask(1, asked, **CHAT).json["choices"][0]["logprobs"]["content"]
    assert [len(each["top_logprobs"]) for each in content] == [5] * 8
    for each in content:
        values = [one["logprob"] for one in each["top_logprobs"]]
        assert values == sorted(values, reverse=True)


def settings_shown(client: StreamClient, copy: int, **asked: Any) -> list[Any]:
    """A response shows what it was drawn by."""
    told = client.ask(copy, {"input": "Hi", "max_output_tokens": 1, **asked}, **RESPONSES).json
    return [told["temperature"], told["top_p"]]


def test_what_a_request_does_not_say_is_as_the_model_says(client: StreamClient) -> None:
    assert settings_shown(client, 1) == [1.0, 1.0]
    assert settings_shown(client, 2) == [0.00002, 0.9]
    assert settings_shown(client, 2, temperature=0.5) == [0.5, 0.9]
    assert settings_shown(client, 3) == [1.0, 1.0]
    asked = {"prompt": TEXT, "max_tokens": 12, "ignore_eos": True}
    drawn = [{choices(client, copy, **asked)[0]["text"] for _ in range(4)} for copy in (1, 2, 3)]
    assert [len(each) > 1 for each in drawn] == [True, False, True]
    (greedy,) = choices(client, 1, **asked, temperature=0, repetition_penalty=1.5)
    assert drawn[1] == {greedy["text"]}


def test_settings_that_no_answer_can_be_drawn_by_are_told_at_load(
    client: StreamClient, tmp_path: Path
) -> None:
    folder = write_model(tmp_path / "model")
    (folder / "generation_config.json").write_text('{"temperature": -1}')
    told = json.dumps(client.load(9, folder))
    assert "generation_config.json: temperature is -1" in told
    assert "engine.sampling_defaults: openai" in told
