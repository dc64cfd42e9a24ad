"""vLLM's /tokenize and /detokenize at models that generate text: the prompt of a request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.instance.generation_client import StreamClient
from tests.kit.generation_models import BOS, write_tokenizer
from tests.kit.instances import instance

from penstock.artifacts.description.description import Tokenizer
from penstock.errors import CallerError
from penstock.instance.codecs.generation.openai_tokens import question_of
from penstock.instance.engines.text_tokens import open_tokenizer
from penstock.runtimes.generation.prompts import Prompts

TEMPLATE = (
    "{% if tools %}[{{ tools | length }}]{% endif %}"
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ mood or '' }}>{% endif %}"
)
CHAT = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamClient]:
    folder = tmp_path_factory.mktemp("tokens")
    (folder / "model").mkdir()
    (folder / "model" / "model.yaml").write_text(
        '{"schema": 1, "runtime": "paced", "engine": {"context_tokens_max": 256}}'
    )
    with instance(folder) as running:
        made = StreamClient(running.path)
        assert made.load(1, folder / "model").get("ok")
        yield made
        made.close()


def ask(client: StreamClient, operation: str, **body: Any) -> Any:
    return client.ask(1, body, asked={"operation": operation}, door="openai")


def test_the_tokens_are_those_of_the_prompt_that_the_engine_reads(client: StreamClient) -> None:
    text = "Once upon a time, ähnlich"
    told = ask(client, "tokenize", prompt=text, return_token_strs=True).json
    assert told["count"] == len(told["tokens"]) == len(told["token_strs"])
    made = ask(client, "completions", prompt=told["tokens"], max_tokens=3).json
    assert made["usage"]["prompt_tokens"] == told["count"]
    assert told["max_model_len"] > told["count"]
    assert ask(client, "detokenize", tokens=told["tokens"]).json == {"prompt": text}
    chat = ask(client, "tokenize", messages=CHAT).json
    made = ask(client, "chat", messages=CHAT, max_tokens=3).json
    assert made["usage"]["prompt_tokens"] == chat["count"]
    assert chat["token_strs"] is None
    assert ask(client, "tokenize", prompt=text).meta.generation is None, "it counts as no answer"


def test_what_no_tokenizer_can_answer_is_refused_by_name(client: StreamClient) -> None:
    for body, param in (
        ({"tokens": [1 << 40]}, "tokens"),
        ({"tokens": [-1]}, "tokens"),
        ({"tokens": "a"}, "tokens"),
        ({"tokens": [1], "model": "x", "colour": 1}, "colour"),
    ):
        error = ask(client, "detokenize", **body).error
        assert (error["status"], error["param"]) == (400, param)
    error = ask(client, "tokenize", prompt="a" * 100_000).error
    assert (error["code"], error["param"]) == ("prompt-too-long", "prompt")
    assert ask(client, "tokenize", prompt="still there").json["count"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"prompt": "Hi"}, "<s>Hi"),
        ({"prompt": "Hi", "add_special_tokens": False}, "Hi"),
        ({"messages": CHAT}, "<user>Hi>"),
        ({"messages": CHAT, "add_special_tokens": True}, "<s><user>Hi>"),
        ({"messages": CHAT, "add_generation_prompt": False}, "<user>Hi"),
        ({"messages": CHAT, "chat_template_kwargs": {"mood": ":)"}}, "<user>Hi:)>"),
        ({"messages": CHAT, "tools": [TOOL]}, "[1]<user>Hi>"),
        ({"messages": [{"role": "assistant", "content": "Hi"}], "continue_final_message": True,
          "add_generation_prompt": False}, "<assistant>Hi"),
    ],
)  # fmt: skip
def test_each_parameter_changes_the_prompt_as_in_a_chat(
    tmp_path: Path, body: dict[str, Any], text: str
) -> None:
    pytest.importorskip("jinja2", reason="the extra `generate` is not installed")
    write_tokenizer(tmp_path, template=TEMPLATE)
    prompts = Prompts(tmp_path)
    told = prompts.told(question_of("tokenize", body), tokens_max=100)
    back = prompts.told(question_of("detokenize", {"tokens": told["tokens"]}), tokens_max=100)
    assert back == {"text": text}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": CHAT, "prompt": "Hi"}, "messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": CHAT, "tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"messages": CHAT, "chat_template_kwargs": {"tools": []}}, "chat_template_kwargs"),
        ({"messages": CHAT, "chat_template": "x"}, "chat_template"),
        ({"prompt": "Hi", "continue_final_message": True}, "continue_final_message"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused_by_name(
    body: dict[str, Any], param: str
) -> None:
    with pytest.raises(CallerError) as caught:
        question_of("tokenize", body)
    assert caught.value.param == param


def test_all_tokens_of_a_text_are_told_where_the_model_reads_fewer(tmp_path: Path) -> None:
    """The library cuts a text into rows, each with the special tokens around it."""
    write_tokenizer(tmp_path)
    short = open_tokenizer(tmp_path, Tokenizer(file="tokenizer.json", tokens_max=8), 0)
    text = "a text of more than eight tokens"
    told = short.told(question_of("tokenize", {"prompt": text}))
    assert told["tokens"] == [BOS, *short.told({"tokens_of": text, "special": False,
                                                "strings": False})["tokens"]]  # fmt: skip
    assert short.told({"text_of": told["tokens"]}) == {"text": f"<s>{text}"}
    assert len(told["tokens"]) == 1 + len(text)
