"""The sample request of a model: of its own names, types and shapes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.cli.endpoints.sample import boto3_script, curl_command, sample_of


def tensor(name: str, datatype: str, *shape: int) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": list(shape)}


TEXTS = [tensor("text", "BYTES", -1)]


@pytest.mark.parametrize(
    ("model", "body"),
    [
        (
            {"task": "tensor", "rows_max": 8, "inputs": [tensor("x", "FP32", -1, 3)]},
            {"inputs": [[0.0, 0.0, 0.0]]},
        ),
        (
            {"task": "tensor", "rows_max": 0, "inputs": [tensor("x", "INT64", 2, 2)]},
            {"inputs": [[0, 0], [0, 0]]},
        ),
        (
            {
                "task": "tensor",
                "rows_max": 1,
                "inputs": [tensor("a", "BOOL", -1, 1), tensor("b", "BYTES", -1, 1)],
            },
            {"inputs": {"a": [[False]], "b": [["where is my order"]]}},
        ),
        ({"task": "text-classification", "inputs": TEXTS}, {"inputs": "where is my order"}),
        (
            {"task": "pair-classification", "inputs": [*TEXTS, tensor("text_pair", "BYTES", -1)]},
            {
                "inputs": {
                    "text": "where is my order",
                    "text_pair": "when will my parcel arrive",
                }
            },
        ),
    ],
)
def test_the_body_has_the_models_names_types_and_shapes(model: Any, body: Any) -> None:
    sample = sample_of(model)
    assert json.loads(sample.body) == body
    assert eval(sample.expression) == body
    assert sample.note == ""


def test_a_large_input_is_an_expression_of_the_same_value() -> None:
    picture = tensor("pixels", "FP32", -1, 3, 32, 32)
    sample = sample_of({"task": "tensor", "rows_max": 4, "inputs": [picture]})
    assert len(sample.expression) < 100
    assert eval(sample.expression) == json.loads(sample.body)
    call = curl_command("http://h:1", "shop", sample, auth=False)
    assert call.startswith("python3 -c ")
    assert "--data-binary @-" in call


def test_the_models_own_warm_up_request_comes_first() -> None:
    own = {"content_type": "text/csv", "body": "1,2\n"}
    sample = sample_of({"task": "payload", "inputs": [], "sample": own})
    assert (sample.content_type, sample.body, sample.note) == ("text/csv", "1,2\n", "")
    script = "\n".join(boto3_script("http://h:1", "shop", sample, auth=False))
    compile(script, "snippet", "exec")
    assert "Body='1,2\\n'" in script


def test_of_a_model_that_reads_bodies_itself_the_user_is_told_to_write_one() -> None:
    assert "the model's own code" in sample_of({"task": "payload", "inputs": []}).note.lower()
