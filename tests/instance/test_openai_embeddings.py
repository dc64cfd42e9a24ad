"""OpenAI's embeddings through a real instance: forms, usage, and what is refused."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.kit import model_files
from tests.kit.instances import FrameClient, serving

from penstock.instance.codecs.generation import openai_parameters

EMBEDDER, CLASSIFIER = 1, 2
EMBEDDINGS = {"door": "openai", "parameters": '{"operation":"embeddings"}'}
CHAT = {"door": "openai", "parameters": '{"operation":"chat"}'}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrameClient]:
    folder: Path = tmp_path_factory.mktemp("embeddings")
    models = {
        EMBEDDER: model_files.embedder(folder / "embedder"),
        CLASSIFIER: model_files.classifier(folder / "classifier"),
    }
    with serving(folder, models) as made:
        yield made


def ask(client: FrameClient, **body: Any) -> Any:
    return client.invoke(EMBEDDER, json.dumps(body).encode(), **EMBEDDINGS).json


def refused(client: FrameClient, body: Any, copy: int = EMBEDDER, **meta: Any) -> str:
    error = client.invoke(copy, json.dumps(body).encode(), **(meta or EMBEDDINGS)).error
    assert 400 in (error.get("original_status"), error["status"])
    return str(error["message"])


def test_each_text_gets_its_vector_and_usage_counts_the_tokens(client: FrameClient) -> None:
    plain = client.invoke(EMBEDDER, b'{"inputs":["good film","bad"]}').json
    answer = ask(client, model="shop", input=["good film", "bad"])
    assert answer == {
        "object": "list",
        "data": [
            {"object": "embedding", "index": 0, "embedding": plain[0]},
            {"object": "embedding", "index": 1, "embedding": plain[1]},
        ],
        "model": "shop",
        "usage": {"prompt_tokens": 3, "total_tokens": 3},
    }
    assert ask(client, model="shop", input="bad")["data"][0]["embedding"] == plain[1]


def test_base64_is_the_vector_in_little_endian_float32(client: FrameClient) -> None:
    [vector] = client.invoke(EMBEDDER, b'{"inputs":["good film"]}').json
    answer = ask(client, input=["good film"], encoding_format="base64")
    packed = base64.b64decode(answer["data"][0]["embedding"])
    assert np.frombuffer(packed, dtype="<f4").tolist() == pytest.approx(vector)


def test_dimensions_may_be_named_if_they_are_the_models_own(client: FrameClient) -> None:
    size = len(ask(client, input="good")["data"][0]["embedding"])
    assert ask(client, input="good", dimensions=size)["data"]
    assert f"have {size}" in refused(client, {"input": "good", "dimensions": size + 1})


def test_a_text_that_is_too_long_is_refused_unless_it_may_be_cut(client: FrameClient) -> None:
    """Two texts that begin alike would get one vector."""
    fits, longer = " ".join(["good"] * 16), " ".join(["good"] * 16 + ["bad"])
    assert ask(client, input=["bad", fits])["usage"]["prompt_tokens"] == 17
    for text in (longer, fits + " " * 100_000 + "bad"):
        body = json.dumps({"input": ["bad", text]}).encode()
        error = client.invoke(EMBEDDER, body, **EMBEDDINGS).error
        assert (error["code"], error["param"], error["status"]) == ("prompt-too-long", "input", 400)
        assert "at place 1 of input has more than 16 tokens" in error["message"]
    for asked in ({"truncate_prompt_tokens": -1}, {"truncate": True}):
        cut = ask(client, input=["bad", longer], **asked)
        assert cut["data"] == ask(client, input=["bad", fits])["data"]


def test_token_ids_are_those_of_the_models_own_tokenizer(client: FrameClient) -> None:
    texts = ask(client, input=["good film", "bad"])
    assert ask(client, input=[[2, 6], [3]]) == texts
    assert ask(client, input=[2, 6])["data"] == texts["data"][:1]
    longer = [2] * 16 + [3]
    assert "at place 0 of input has more than 16 tokens" in refused(client, {"input": longer})
    cut = ask(client, input=longer, truncate_prompt_tokens=-1)
    assert cut["data"] == ask(client, input=[[2] * 16])["data"]


REFUSED = [name for name in openai_parameters.REFUSED["embeddings"] if "(" not in name]


@pytest.mark.parametrize("name", [*REFUSED, "colour"])
def test_a_parameter_of_the_table_is_refused_with_its_words(client: FrameClient, name: str) -> None:
    body = json.dumps({"input": "good", name: "x"}).encode()
    error = client.invoke(EMBEDDER, body, **EMBEDDINGS).error
    assert (error["param"], error["status"]) == (name, 400)
    words = openai_parameters.REFUSED["embeddings"].get(name, "Unrecognized request argument")
    assert words in error["message"]
    for harmless in (None, *openai_parameters.harmless("embeddings", name)):
        if name != "colour":
            assert ask(client, input="good", **{name: harmless})["data"]


def test_what_has_no_effect_is_taken(client: FrameClient) -> None:
    names = openai_parameters.NO_EFFECT["embeddings"]
    plain = ask(client, input="good")
    assert ask(client, input="good", **dict.fromkeys(names, "x")) == plain


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "input must be"),
        ({"input": []}, "no texts"),
        ({"input": ["a", 1]}, "input must be"),
        ({"input": "a", "truncate_prompt_tokens": 5}, "may be -1"),
        ({"input": [1, 8]}, "ids of this model are from 0 to 7"),
        ({"input": [[1, 2], [-1]]}, "has the token -1 at place 1"),
        ({"input": [[1], []]}, "input must be"),
        ({"input": [1, True]}, "input must be"),
        ({"input": [[1], "a"]}, "input must be"),
        ({"input": "a", "encoding_format": "int8"}, "float, base64"),
        ({"input": "a", "dimensions": 0}, "from 1 on"),
        (["a"], "not a JSON object"),
    ],
)
def test_what_can_not_be_embedded_is_refused(client: FrameClient, body: Any, words: str) -> None:
    assert words in refused(client, body)


def test_a_model_is_asked_for_what_it_can_do(client: FrameClient) -> None:
    assert "makes no embeddings" in refused(client, {"input": "a"}, CLASSIFIER)
    assert "generates no text" in refused(client, {"messages": []}, EMBEDDER, **CHAT)
    assert "generates no text" in refused(client, {"messages": []}, CLASSIFIER, **CHAT)
