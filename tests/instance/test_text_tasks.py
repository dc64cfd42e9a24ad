"""Text tasks through a real instance: what goes in, what comes out, what is refused.

The model is the graph of `text_task_files`, small enough to work every answer out by hand.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.kit import model_files
from tests.kit.instances import FrameClient, serving
from text_task_files import HEADS, multi_head, pair_classifier, regression, text_task

from penstock.instance.codecs.base import OIP_GRPC
from penstock.wire.oip_messages import ModelInferRequest, ModelInferResponse

PAIRS, WORTH, HEADED, SINGLE = 1, 2, 3, 4

#: gap 2, so logits -2 and 2
GOOD_FILM_AGAINST_BOOK = {"text": "good film", "text_pair": "book"}
#: gap -1.5 - 2 = -3.5
NOT_GOOD = {"text": "not bad very book", "text_pair": "good"}


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrameClient]:
    folder = tmp_path_factory.mktemp("tasks")
    models = {
        PAIRS: pair_classifier(folder / "pairs"),
        WORTH: regression(folder / "worth"),
        HEADED: multi_head(folder / "headed"),
        SINGLE: model_files.classifier(folder / "single"),
    }
    with serving(folder, models) as made:
        yield made


def ask(client: FrameClient, copy: int, body: Any, **meta: Any) -> Any:
    return client.invoke(copy, json.dumps(body).encode(), **meta).json


def refused(client: FrameClient, copy: int, body: Any, **meta: Any) -> str:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    error = client.invoke(copy, content, **meta).error
    assert error["code"] in ("bad-input", "unsupported-content-type")
    return error["message"]


def test_a_pair_in_an_object_is_answered_with_an_object(client: FrameClient) -> None:
    answer = ask(client, PAIRS, {"inputs": GOOD_FILM_AGAINST_BOOK})
    assert answer == {"label": "first", "score": pytest.approx(sigmoid(4.0))}


def test_a_list_of_pairs_is_answered_with_a_list(client: FrameClient) -> None:
    answer = ask(client, PAIRS, {"inputs": [GOOD_FILM_AGAINST_BOOK, NOT_GOOD]})
    assert answer == [
        {"label": "first", "score": pytest.approx(sigmoid(4.0))},
        {"label": "second", "score": pytest.approx(sigmoid(7.0))},
    ]
    assert ask(client, PAIRS, [NOT_GOOD])[0]["label"] == "second"


def test_top_k_ranks_the_labels_of_a_pair(client: FrameClient) -> None:
    body = {"inputs": GOOD_FILM_AGAINST_BOOK, "parameters": {"top_k": None}}
    answer = ask(client, PAIRS, body)
    assert [each["label"] for each in answer] == ["first", "second"]
    assert sum(each["score"] for each in answer) == pytest.approx(1.0)


def test_csv_lines_of_two_fields_are_pairs(client: FrameClient) -> None:
    answer = client.invoke(PAIRS, b"good film,book\nbad,good\n", content_type="text/csv").json
    assert [each["label"] for each in answer] == ["first", "second"]


def test_the_order_of_the_two_texts_counts(client: FrameClient) -> None:
    first = ask(client, PAIRS, {"inputs": {"text": "good", "text_pair": "bad"}})
    second = ask(client, PAIRS, {"inputs": {"text": "bad", "text_pair": "good"}})
    assert (first["label"], second["label"]) == ("first", "second")


def test_regression_answers_the_models_own_number(client: FrameClient) -> None:
    assert ask(client, WORTH, {"inputs": ["very good", "bad film"]}) == [
        {"label": "worth", "score": 3.0},
        {"label": "worth", "score": -1.5},
    ]
    assert ask(client, WORTH, {"inputs": "very good"}) == [{"label": "worth", "score": 3.0}]


def test_regression_reads_texts_and_pairs_in_one_request(client: FrameClient) -> None:
    inputs = ["good", {"text": "good"}, {"text": "good", "text_pair": "very"}]
    scores = [each["score"] for each in ask(client, WORTH, {"inputs": inputs})]
    assert scores == [2.0, 2.0, 1.0]


def test_every_head_answers_every_text(client: FrameClient) -> None:
    assert ask(client, HEADED, {"inputs": [GOOD_FILM_AGAINST_BOOK, "bad"]}) == [
        {
            "better": {"label": "first", "score": pytest.approx(sigmoid(4.0))},
            "gap": {"score": 2.0},
            "mean-worth": [1.0],  # good film book: 2, 0.5, 0.5
        },
        {
            "better": {"label": "second", "score": pytest.approx(sigmoid(4.0))},
            "gap": {"score": -2.0},
            "mean-worth": [-2.0],
        },
    ]


def test_a_request_may_ask_for_some_heads(client: FrameClient) -> None:
    body = {"inputs": GOOD_FILM_AGAINST_BOOK, "parameters": {"heads": ["gap"]}}
    assert ask(client, HEADED, body) == {"gap": {"score": 2.0}}
    body = {"inputs": "good", "parameters": {"heads": ["gap", "better"], "top_k": 2}}
    answer = ask(client, HEADED, body)
    assert [list(each) for each in answer] == [["better", "gap"]]
    assert [each["label"] for each in answer[0]["better"]] == ["first", "second"]


def test_more_texts_than_a_batch_holds_are_joined_again(client: FrameClient) -> None:
    inputs = ["very " * (at % 7) for at in range(50)]
    body = {"inputs": inputs, "parameters": {"heads": ["gap"]}}
    assert [each["gap"]["score"] for each in ask(client, HEADED, body)] == [
        float(at % 7) for at in range(50)
    ]


@pytest.mark.parametrize(
    ("copy", "body", "message"),
    [
        (PAIRS, {"inputs": "good"}, "text_pair is missing"),
        (PAIRS, {"inputs": [GOOD_FILM_AGAINST_BOOK, "good"]}, "text_pair is missing"),
        (PAIRS, {"inputs": {"text": "good", "text_pair": 7}}, "text_pair is not a text"),
        (PAIRS, {"inputs": {"text_pair": "good"}}, "must be a text"),
        (PAIRS, {"inputs": {"text": "a", "pair": "b"}}, "'pair' is not a key"),
        (SINGLE, {"inputs": GOOD_FILM_AGAINST_BOOK}, "reads one text at a time"),
        (SINGLE, {"inputs": "good", "parameters": {"heads": ["gap"]}}, "models of several heads"),
        (HEADED, {"inputs": "good", "parameters": {"heads": ["worse"]}}, "'worse' is not one"),
        (HEADED, {"inputs": "good", "parameters": {"heads": []}}, "heads is a list of names"),
        (HEADED, {"inputs": "good", "parameters": {"heads": [3]}}, "'3' is not one"),
        (HEADED, {"inputs": "good", "parameters": {"heads": 3}}, "heads is a list of names"),
        (HEADED, {"inputs": []}, "no texts"),
    ],
)
def test_what_is_wrong_is_said(client: FrameClient, copy: int, body: Any, message: str) -> None:
    assert message in refused(client, copy, body)


def test_plain_text_is_no_pair(client: FrameClient) -> None:
    message = refused(client, PAIRS, b"good", content_type="text/plain")
    assert "text_pair is missing" in message
    assert "one text" in refused(client, SINGLE, b"good,bad\n", content_type="text/csv")


def oip(*texts: tuple[str, list[str]], **fields: Any) -> dict[str, Any]:
    inputs = [
        {"name": name, "shape": [len(data)], "datatype": "BYTES", "data": data}
        for name, data in texts
    ]
    return {"inputs": inputs, **fields}


def test_pairs_over_the_open_inference_protocol_are_two_tensors(client: FrameClient) -> None:
    body = oip(("text", ["good film", "bad"]), ("text_pair", ["book", "good"]))
    assert ask(client, PAIRS, body, door="oip")["outputs"] == [
        {"name": "label", "datatype": "BYTES", "shape": [2], "data": ["first", "second"]},
        {
            "name": "score",
            "datatype": "FP32",
            "shape": [2],
            "data": pytest.approx([sigmoid(4.0), sigmoid(8.0)]),
        },
    ]
    assert "'text_pair' is missing" in refused(client, PAIRS, oip(("text", ["a"])), door="oip")


def test_each_head_has_tensors_of_its_own(client: FrameClient) -> None:
    body = oip(("text", ["good film"]))
    outputs = {each["name"]: each for each in ask(client, HEADED, body, door="oip")["outputs"]}
    assert list(outputs) == ["better.label", "better.score", "gap.score", "mean-worth.embedding"]
    assert outputs["better.label"]["data"] == ["first"]
    assert outputs["gap.score"] == {
        "name": "gap.score", "datatype": "FP32", "shape": [1], "data": [2.5]
    }  # fmt: skip
    assert outputs["mean-worth.embedding"]["shape"] == [1, 1]


@pytest.mark.parametrize(
    "fields",
    [
        {"parameters": {"heads": "gap"}},
        {"parameters": {"heads": ["gap"]}},
        {"outputs": [{"name": "gap.score"}]},
        {"parameters": {"heads": "better, gap"}, "outputs": [{"name": "gap.score"}]},
    ],
)
def test_the_heads_follow_from_the_outputs_or_from_a_parameter(
    client: FrameClient, fields: dict[str, Any]
) -> None:
    body = oip(("text", ["good"]), ("text_pair", ["very"]), **fields)
    answer = ask(client, HEADED, body, door="oip")
    assert [(each["name"], each["data"]) for each in answer["outputs"]] == [("gap.score", [1.0])]


def test_an_output_of_a_head_that_is_not_asked_for_is_refused(client: FrameClient) -> None:
    body = oip(("text", ["good"]), parameters={"heads": "gap"}, outputs=[{"name": "better.label"}])
    assert "'better.label' is not one" in refused(client, HEADED, body, door="oip")


def test_pairs_over_grpc(client: FrameClient) -> None:
    request = ModelInferRequest(model_name="e")
    for name, text in (("text", b"very good"), ("text_pair", b"book")):
        tensor = request.inputs.add(name=name, datatype="BYTES", shape=[1])
        tensor.contents.bytes_contents.append(text)
    request.parameters["heads"].string_param = "gap,better"
    reply = client.invoke(HEADED, request.SerializeToString(), content_type=OIP_GRPC)
    answer = ModelInferResponse.FromString(reply.body)
    assert [output.name for output in answer.outputs] == [
        "better.label", "better.score", "gap.score"
    ]  # fmt: skip
    assert np.frombuffer(answer.raw_output_contents[2], np.float32).tolist() == [2.5]


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"output": "nowhere"}, "output-missing", "read from output 'nowhere'"),
        ({"labels": ["one", "two", "three"]}, "labels-mismatch", "'better' names 3 labels"),
        ({"output": "token_vectors"}, "output-mismatch", "no classification of one text"),
    ],
)
def test_a_head_that_does_not_fit_the_model_fails_the_load(
    client: FrameClient, tmp_path: Path, change: dict[str, Any], code: str, message: str
) -> None:
    heads = [{**HEADS[0], **change}, *HEADS[1:]]
    loaded = client.load(9, text_task(tmp_path, "multi-head", heads=heads))
    assert loaded["error"]["code"] == code
    assert message in loaded["error"]["message"]
