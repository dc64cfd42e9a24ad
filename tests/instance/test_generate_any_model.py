"""Triton's generate extension on a model of tensors: keys that are inputs, and parameters."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from penstock.artifacts.description.description import TensorSpec
from penstock.errors import ModelError
from penstock.instance.codecs.base import CodecModel, Decoded
from penstock.instance.codecs.select import decode_tensors
from penstock.wire.frames import RequestMeta, decode_reply_meta

MODEL = CodecModel(
    name="m",
    version="1",
    inputs=(
        TensorSpec(name="x", dtype="FP32", shape=(-1, -1, 2)),
        TensorSpec(name="word", dtype="BYTES", shape=(-1, 1)),
    ),
    outputs=(TensorSpec(name="y", dtype="FP32", shape=(-1, 2)),),
    batched=True,
)


def generate(body: Any, operation: str = "generate") -> Decoded:
    meta = RequestMeta(door="oip", parameters=json.dumps({"operation": operation}))
    return decode_tensors(MODEL, meta, json.dumps(body).encode())


def test_values_fill_the_model_s_shape_and_other_keys_are_parameters() -> None:
    decoded = generate(
        {"id": "g", "x": [1, 2, 3, 4], "a": 1, "parameters": {"word": "hi", "b": "c"}}
    )
    assert decoded.tensors["x"].tolist() == [[[1.0, 2.0], [3.0, 4.0]]]
    assert decoded.tensors["word"].tolist() == [[b"hi"]]
    assert decoded.metadata is not None
    assert decoded.metadata.request_id == "g"
    assert decoded.metadata.parameters == {"a": 1, "b": "c"}


def test_numbers_that_json_lacks_and_large_integers_stay_what_they_are() -> None:
    """As infer has them: Triton's parser and writer take NaN, and integers have 64 bits."""
    decoded = generate({"x": [float("nan"), float("-inf")], "word": "a"})
    assert str(decoded.tensors["x"].tolist()) == "[[[nan, -inf]]]"
    made = (([[np.nan]], b"NaN"), ([[1.5, np.inf]], b"[1.5,Infinity]"))
    for values, told in made:
        body, _ = decoded.encode({"y": np.array(values, np.float32)})
        assert body == b'{"model_name":"m","model_version":"1","y":%b}' % told
    inputs = (TensorSpec(name="x", dtype="INT64", shape=(-1,)),)
    model = CodecModel(name="m", version="1", inputs=inputs, outputs=(), batched=False)
    meta = RequestMeta(door="oip", parameters=json.dumps({"operation": "generate"}))
    most = decode_tensors(model, meta, b'{"x": [9223372036854775807, -1]}')
    assert most.tensors["x"].tolist() == [2**63 - 1, -1]


@pytest.mark.parametrize(
    ("operation", "kind", "around"),
    [
        ("generate", "application/json", "{}"),
        ("generate_stream", "text/event-stream; charset=utf-8", "data: {}\n\n"),
    ],
)
def test_one_value_stands_alone_and_several_in_a_list(
    operation: str, kind: str, around: str
) -> None:
    decoded = generate({"x": [1, 2], "word": "a"}, operation)
    for values, told in (([[1.5]], 1.5), ([[1.5, 2.5]], [1.5, 2.5])):
        body, meta = decoded.encode({"y": np.array(values, np.float32)})
        answer = json.dumps({"model_name": "m", "model_version": "1", "y": told})
        assert body.decode() == around.replace("{}", answer.replace(" ", ""))
        assert decode_reply_meta(meta).content_type == kind


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([], "JSON object"),
        ({"x": [1, 2, 3], "word": "a"}, "3 elements"),
        ({"x": [1, 2]}, "'word' is missing"),
        ({"x": [1, 2], "word": "a", "more": [1]}, "more"),
        ({"x": [1, 2], "word": "a", "id": 1}, "id is not"),
        ({"x": [1, 2], "word": "a", "parameters": 1}, "parameters is not"),
    ],
)
def test_a_body_that_does_not_fit_is_refused(body: Any, words: str) -> None:
    with pytest.raises(ModelError, match=words) as refused:
        generate(body)
    assert refused.value.original_status == 400
