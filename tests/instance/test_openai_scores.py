"""Rerank and score through a real instance: every form, raw numbers, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit import model_files
from tests.kit.instances import FrameClient, serving

from penstock.instance.codecs.generation import openai_parameters as table

CROSS, REGRESSION, CLASSIFIER, EMBEDDER = 1, 2, 3, 4
TEXTS = ["bad film", "good film", "book", "very good"]
LOGITS = [-1.75, 2.25, 0.0, 2.5]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrameClient]:
    folder: Path = tmp_path_factory.mktemp("scores")
    models = {
        CROSS: model_files.cross_encoder(folder / "cross"),
        REGRESSION: model_files.cross_encoder(folder / "regression", task="text-regression"),
        CLASSIFIER: model_files.classifier(folder / "classifier"),
        EMBEDDER: model_files.embedder(folder / "embedder"),
    }
    with serving(folder, models) as made:
        yield made


def meta(operation: str) -> dict[str, str]:
    return {"door": "openai", "parameters": json.dumps({"operation": operation})}


def ask(client: FrameClient, operation: str, copy: int = CROSS, **body: Any) -> Any:
    return client.invoke(copy, json.dumps(body).encode(), **meta(operation)).json


def rerank(client: FrameClient, copy: int = CROSS, **body: Any) -> Any:
    return ask(client, "rerank", copy, **({"query": "film", "documents": TEXTS} | body))


def refused(client: FrameClient, operation: str, copy: int = CROSS, **body: Any) -> tuple[str, Any]:
    """The words and the parameter."""
    error = client.invoke(copy, json.dumps(body).encode(), **meta(operation)).error
    assert 400 in (error.get("original_status"), error["status"])
    return str(error["message"]), error.get("param")


def sigmoid(logits: list[float]) -> list[float]:
    return [1 / (1 + math.exp(-each)) for each in logits]


def test_rerank_sorts_documents_and_has_the_form_of_jina_cohere_and_vllm(
    client: FrameClient,
) -> None:
    answer = rerank(client, model="shop", top_n=3)
    assert set(answer) == {"id", "model", "usage", "results"}
    assert answer["id"].startswith("rerank-")
    assert answer["model"] == "shop"
    assert answer["usage"] == {"prompt_tokens": 11, "total_tokens": 11}
    scores = sigmoid(LOGITS)
    assert answer["results"] == [
        {
            "index": at,
            "document": {"text": TEXTS[at]},
            "relevance_score": pytest.approx(scores[at], abs=1e-5),
        }
        for at in (3, 1, 2)
    ]
    bare = rerank(client, return_documents=False, documents=[{"text": "good"}, "bad"])
    assert [set(each) for each in bare["results"]] == [{"index", "relevance_score"}] * 2
    assert bare["model"] == "e", "the endpoint's, where the request names none"
    assert len(rerank(client, top_n=0)["results"]) == len(TEXTS)


def test_rerank_has_teis_form_where_texts_are_sent(client: FrameClient) -> None:
    body = {"query": "film", "texts": TEXTS, "truncation_direction": "Right"}
    best, *_ = ask(client, "rerank", **body, raw_scores=True, return_text=True)
    assert best == {"index": 3, "score": pytest.approx(2.5, abs=1e-5), "text": "very good"}
    plain = ask(client, "rerank", **body, raw_scores=False)
    assert [set(each) for each in plain] == [{"index", "score"}] * 4
    assert [each["index"] for each in plain] == [3, 1, 2, 0]


def test_a_score_is_the_number_of_the_models_other_doors(client: FrameClient) -> None:
    pairs = [{"text": "film", "text_pair": text} for text in TEXTS]
    for copy in (CROSS, REGRESSION):
        plain = client.invoke(copy, json.dumps({"inputs": pairs}).encode()).json
        scored = ask(client, "score", copy, text_1="film", text_2=TEXTS)
        assert [each["score"] for each in scored["data"]] == pytest.approx(
            [each["score"] for each in plain], abs=1e-6
        )
    raw = ask(client, "score", text_1="film", text_2=TEXTS, use_activation=False)
    assert [each["score"] for each in raw["data"]] == pytest.approx(LOGITS, abs=1e-5)
    best = rerank(client, REGRESSION)["results"][0]
    assert best["relevance_score"] == pytest.approx(2.5, abs=1e-5)


@pytest.mark.parametrize(
    "sides", [("text_1", "text_2"), ("queries", "documents"), ("queries", "items"),
              ("data_1", "data_2")],
)  # fmt: skip
def test_score_has_vllms_form_for_one_and_many(client: FrameClient, sides: tuple[str, str]) -> None:
    first, second = sides
    answer = ask(client, "score", model="shop", **{first: ["film", "book"], second: TEXTS[:2]})
    assert (answer["object"], answer["model"]) == ("list", "shop")
    assert answer["usage"] == {"prompt_tokens": 6, "total_tokens": 6}
    assert isinstance(answer["created"], int)
    expected = sigmoid(LOGITS)[:2]
    assert answer["data"] == [
        {"index": at, "object": "score", "score": pytest.approx(expected[at], abs=1e-5)}
        for at in range(2)
    ]
    assert len(ask(client, "score", **{first: "film", second: "good"})["data"]) == 1
    words, param = refused(client, "score", **{first: ["a", "b"], second: ["a"]})
    assert (param, f"{first} has 2" in words) == (second, True)


def test_a_pair_that_is_too_long_is_refused_unless_it_may_be_cut(client: FrameClient) -> None:
    fits, longer = " ".join(["good"] * 15), " ".join(["good"] * 16)
    assert rerank(client, documents=["bad", fits])["usage"]["total_tokens"] == 18
    for text in (longer, "good " + " " * 100_000):
        words, param = refused(client, "rerank", query="film", documents=["bad", text])
        assert param == "documents"
        assert "at place 1 of documents and the one beside it have more than 16 tokens" in words
    for cut in ({"truncate_prompt_tokens": -1}, {"truncate": True}):
        assert rerank(client, documents=["bad", longer], **cut)["usage"]["total_tokens"] == 18


@pytest.mark.parametrize(
    ("operation", "body", "words", "param"),
    [
        ("rerank", {"documents": ["a"]}, "Missing required parameter: 'query'", "query"),
        ("rerank", {"query": "a"}, "Missing required parameter: 'documents'", "documents"),
        ("rerank", {"query": 5, "documents": ["a"]}, "expected a string", "query"),
        ("rerank", {"query": "a", "documents": "a"}, "expected an array", "documents"),
        ("rerank", {"query": "a", "documents": []}, "no texts", "documents"),
        ("rerank", {"query": "a", "documents": ["a", {"image": "x"}]}, "expected a string",
         "documents[1]"),
        ("rerank", {"query": "a", "documents": ["a"], "texts": ["a"]}, "left out", "texts"),
        ("rerank", {"query": "a", "documents": ["a"], "top_n": -1}, "from 0", "top_n"),
        ("rerank", {"query": "a", "documents": ["a"], "return_documents": "yes"}, "true or false",
         "return_documents"),
        ("score", {"text_1": "a"}, "Missing required parameter: 'text_2'", "text_2"),
        ("score", {"text_1": "a", "documents": "a"}, "the two sides are", "documents"),
        ("score", {}, "Missing required parameter", "text_1"),
        ("score", {"text_1": "a", "text_2": ["a", 5]}, "expected a string", "text_2[1]"),
    ],
)  # fmt: skip
def test_what_can_not_be_compared_is_refused_by_name(
    client: FrameClient, operation: str, body: dict[str, Any], words: str, param: str
) -> None:
    message, name = refused(client, operation, **body)
    assert (words in message, name) == (True, param), message


BODIES: dict[str, dict[str, Any]] = {
    "rerank": {"query": "film", "documents": ["good"]},
    "score": {"text_1": "film", "text_2": "good"},
    "tokenize": {"prompt": "good"},
    "detokenize": {"tokens": [2]},
}


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        (operation, name)
        for operation in BODIES
        for name in (*table.REFUSED[operation], "colour")
        if "(" not in name
    ],
)
def test_a_refused_parameter_is_refused_with_the_tables_words(
    client: FrameClient, operation: str, name: str
) -> None:
    words, param = refused(client, operation, **BODIES[operation], **{name: "x"})
    expected = table.REFUSED[operation].get(name, "Unrecognized request argument")
    assert (expected in words, param) == (True, name)
    if name != "colour":
        for value in (None, *table.harmless(operation, name)):
            assert ask(client, operation, **BODIES[operation], **{name: value})


def test_a_regression_has_no_number_before_its_own(client: FrameClient) -> None:
    for name, value in {"raw_scores": True, "use_activation": False}.items():
        words, param = refused(client, "rerank", REGRESSION, **BODIES["rerank"], **{name: value})
        assert param == name
        assert table.REFUSED["rerank"][f"{name} (of a text-regression)"] in words
    assert rerank(client, REGRESSION, raw_scores=False, use_activation=True)["results"]


@pytest.mark.parametrize("operation", BODIES)
def test_what_has_no_effect_changes_nothing(client: FrameClient, operation: str) -> None:
    names = dict.fromkeys(table.NO_EFFECT[operation], "x")
    answers = [ask(client, operation, **BODIES[operation], **more) for more in ({}, names)]
    for answer in answers:
        for changing in ("id", "created"):
            answer.pop(changing, None)
    assert answers[0] == answers[1]
    tables = (table.HONOURED, table.REFUSED, table.NO_EFFECT)
    listed = [name for each in tables for name in each[operation]]
    assert len(listed) == len(set(listed)), "a parameter stands in two tables"


def test_a_model_is_asked_for_what_it_can_do(client: FrameClient) -> None:
    for copy in (CLASSIFIER, EMBEDDER):
        for operation in ("rerank", "score"):
            words, _ = refused(client, operation, copy, **BODIES[operation])
            assert f"no number for two texts, which {operation} needs" in words
    assert "makes no embeddings" in refused(client, "embeddings", input="a")[0]


def test_many_documents_are_computed_in_parts_and_keep_their_places(client: FrameClient) -> None:
    texts = [" ".join(["good"] * (at % 7) + ["book"]) for at in range(300)]
    answer = rerank(client, documents=texts)
    assert [each["index"] for each in answer["results"]] == sorted(
        range(300), key=lambda at: (-(at % 7), at)
    )


@pytest.mark.parametrize("copy", [CROSS, CLASSIFIER, EMBEDDER])
def test_the_tokens_of_a_text_and_the_text_of_tokens(client: FrameClient, copy: int) -> None:
    answer = ask(client, "tokenize", copy, prompt="very good film", return_token_strs=True)
    assert answer == {
        "count": 3,
        "max_model_len": 16,
        "tokens": [4, 2, 6],
        "token_strs": ["very", "good", "film"],
    }
    assert ask(client, "detokenize", copy, tokens=[4, 2, 6]) == {"prompt": "very good film"}
    longer = ask(client, "tokenize", copy, prompt="good " * 100 + "bad")
    assert longer["tokens"] == [2] * 100 + [3], "more than the model reads are counted"
    assert longer["token_strs"] is None


@pytest.mark.parametrize(
    ("operation", "body", "param"),
    [
        ("tokenize", {}, "prompt"),
        ("tokenize", {"prompt": ["a"]}, "prompt"),
        ("tokenize", {"messages": [{"role": "user", "content": "a"}]}, "messages"),
        ("tokenize", {"prompt": "a", "messages": []}, "messages"),
        ("tokenize", {"prompt": "a", "tools": []}, "tools"),
        ("tokenize", {"prompt": "a" * 70_000}, "prompt"),
        ("tokenize", {"prompt": "a", "add_special_tokens": "yes"}, "add_special_tokens"),
        ("detokenize", {}, "tokens"),
        ("detokenize", {"tokens": "a"}, "tokens"),
        ("detokenize", {"tokens": [True]}, "tokens"),
        ("detokenize", {"tokens": [8]}, "tokens"),
        ("detokenize", {"tokens": [-1]}, "tokens"),
    ],
)  # fmt: skip
def test_a_question_about_tokens_that_is_none_is_refused_by_name(
    client: FrameClient, operation: str, body: dict[str, Any], param: str
) -> None:
    assert refused(client, operation, **body)[1] == param
