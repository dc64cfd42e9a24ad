"""Numbers of the Open Inference Protocol in JSON: exact integers, NaN and infinities."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from penstock.artifacts.description.description import TensorSpec
from penstock.errors import ModelError
from penstock.instance.codecs.base import OIP_GRPC, CodecModel
from penstock.instance.codecs.select import decode_tensors
from penstock.wire.frames import RequestMeta
from penstock.wire.oip_messages import ModelInferRequest

TWO_53 = 2**53


def model_of(dtype: str) -> CodecModel:
    return CodecModel(
        name="numbers",
        version="1",
        inputs=(TensorSpec(name="x", dtype=dtype, shape=(-1,)),),
        outputs=(TensorSpec(name="y", dtype=dtype, shape=(-1,)),),
        batched=False,
    )


def body_of(dtype: str, data: str, count: int) -> bytes:
    head = f'{{"inputs": [{{"name": "x", "shape": [{count}], "datatype": "{dtype}", "data": '
    return f"{head}{data}}}]}}".encode()


def there_and_back(dtype: str, data: str, count: int) -> tuple[np.ndarray, bytes]:
    """The tensor that a model sees, and the answer of a model that returns it."""
    body = body_of(dtype, data, count)
    decoded = decode_tensors(model_of(dtype), RequestMeta(door="oip"), body)
    return decoded.tensors["x"], decoded.encode({"y": decoded.tensors["x"]})[0]


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("INT64", [TWO_53 + 1, -TWO_53 - 1, 2**63 - 1, -(2**63)]),
        ("UINT64", [TWO_53 + 1, 2**63 + 1, 2**64 - 1, 0]),
        ("INT8", [-128, 127]),
        ("UINT32", [2**32 - 1]),
    ],
)
def test_integers_are_exact_in_both_directions(dtype: str, values: list[int]) -> None:
    tensor, answer = there_and_back(dtype, json.dumps(values), len(values))
    assert tensor.tolist() == values
    assert json.loads(answer)["outputs"][0]["data"] == values


def test_an_integer_beside_a_fraction_free_float_stays_exact() -> None:
    tensor, _ = there_and_back("INT64", f"[1.0, {TWO_53 + 1}]", 2)
    assert tensor.tolist() == [1, TWO_53 + 1]


@pytest.mark.parametrize(
    ("dtype", "data", "words"),
    [
        ("INT64", f"[{2**63}]", "out of the range of INT64"),
        ("INT64", f"[{-(2**63) - 1}]", "takes INT64"),
        ("UINT64", f"[{2**64 - 1}, -1]", "-1 is out of the range of UINT64"),
        ("UINT64", f"[{2**64}]", "takes UINT64"),
        ("INT64", "[1e18]", "takes INT64"),
        ("INT64", f"[{TWO_53}.0]", "takes INT64"),
        ("INT64", f"[0.5, {TWO_53 + 1}]", "0.5 came"),
        ("INT32", "[NaN]", "nan came"),
        ("INT64", "[null]", "takes INT64, None came"),
        ("UINT8", "[256]", "256 is out of the range"),
    ],
)
def test_integers_that_a_tensor_cannot_hold_are_refused(dtype: str, data: str, words: str) -> None:
    with pytest.raises(ModelError) as caught:
        there_and_back(dtype, data, data.count(",") + 1)
    assert caught.value.original_status == 400
    assert words in caught.value.message


@pytest.mark.parametrize("dtype", ["FP16", "BF16", "FP32", "FP64"])
def test_nan_and_infinity_are_read_and_written_as_triton_does(dtype: str) -> None:
    tensor, answer = there_and_back(dtype, "[NaN, 1.5, Infinity, -Infinity]", 4)
    assert tensor[1:].tolist() == [1.5, math.inf, -math.inf]
    assert math.isnan(tensor[0])
    assert b'"data":[NaN,1.5,Infinity,-Infinity]' in answer
    data = json.loads(answer)["outputs"][0]["data"]  # Python's reader takes them
    assert math.isnan(data[0])
    assert data[1:] == [1.5, math.inf, -math.inf]


@pytest.mark.parametrize(
    "rest",
    [
        '"id": "NaN", "a": 1e999',  # a number beyond its type is an error, not infinity
        '"id": "\\ud800"',  # half of a pair is no character
        '"id": nan',
        '"id": ' + "[" * 100_000,
        '"id": ' + "9" * 5000,
    ],
)
def test_a_body_with_nan_has_the_rules_of_any_other_body(rest: str) -> None:
    body = body_of("FP32", "[NaN]", 1)[:-1] + f", {rest}}}".encode()
    with pytest.raises(ModelError, match="not JSON"):
        decode_tensors(model_of("FP32"), RequestMeta(door="oip"), body)


def test_words_in_strings_stay_words() -> None:
    decoded = decode_tensors(
        model_of("BYTES"), RequestMeta(door="oip"), body_of("BYTES", '["NaN", "null"]', 2)
    )
    assert decoded.tensors["x"].tolist() == [b"NaN", b"null"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"parameters": {"binary_data_output": "yes"}}, "binary_data_output of the request"),
        (
            {"outputs": [{"name": "y", "parameters": {"binary_data": 1}}]},
            "binary_data of output 'y'",
        ),
    ],
)
def test_flags_of_the_binary_extension_are_true_or_false(
    change: dict[str, Any], words: str
) -> None:
    body = json.loads(body_of("FP32", "[1]", 1)) | change
    with pytest.raises(ModelError, match=words):
        decode_tensors(model_of("FP32"), RequestMeta(door="oip"), json.dumps(body).encode())


def test_an_output_may_differ_from_the_default_of_the_request() -> None:
    body = json.loads(body_of("FP32", "[1]", 1)) | {
        "parameters": {"binary_data_output": True},
        "outputs": [{"name": "y", "parameters": {"binary_data": False}}],
    }
    decoded = decode_tensors(model_of("FP32"), RequestMeta(door="oip"), json.dumps(body).encode())
    answer = json.loads(decoded.encode({"y": np.ones(1, dtype=np.float32)})[0])
    assert answer["outputs"][0]["data"] == [1.0]


def test_a_tensor_in_contents_and_in_raw_contents_is_refused_by_name() -> None:
    request = ModelInferRequest(model_name="numbers", raw_input_contents=[b"\0\0\0\0"])
    entry = request.inputs.add(name="x", datatype="FP32", shape=[1])
    entry.contents.fp32_contents.append(1)
    with pytest.raises(ModelError, match=r"input 'x' has contents.*raw_input_contents"):
        decode_tensors(
            model_of("FP32"),
            RequestMeta(door="oip-grpc", content_type=OIP_GRPC),
            request.SerializeToString(),
        )
