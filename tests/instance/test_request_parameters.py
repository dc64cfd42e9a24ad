"""What a request says beside its tensors: by JSON, by gRPC, and with wrong types."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from penstock.artifacts.description.description import TensorSpec
from penstock.errors import ModelError
from penstock.instance.codecs.base import OIP_GRPC, CodecModel
from penstock.instance.codecs.select import decode_tensors
from penstock.runtimes.infer_metadata import InferMetadata
from penstock.wire.frames import RequestMeta
from penstock.wire.oip_messages import ModelInferRequest

MODEL = CodecModel(
    name="m",
    version="1",
    inputs=(TensorSpec(name="x", dtype="FP32", shape=(-1, 1)),),
    outputs=(
        TensorSpec(name="y", dtype="FP32", shape=(-1, 1)),
        TensorSpec(name="z", dtype="FP32", shape=(-1, 1)),
    ),
    batched=True,
)
X = {"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1]}
FIELD = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}


def by_json(given: dict[str, Any], **more: Any) -> InferMetadata:
    body = json.dumps({"inputs": [X], "parameters": given, **more}).encode()
    metadata = decode_tensors(MODEL, RequestMeta(door="oip"), body).metadata
    assert metadata is not None
    return metadata


def by_grpc(given: dict[str, Any], **more: Any) -> InferMetadata:
    request = ModelInferRequest(model_name="m", id=more.get("id", ""))
    request.inputs.add(name="x", datatype="FP32", shape=(1, 1))
    request.raw_input_contents.append(np.float32(1).tobytes())
    for each in more.get("outputs", ()):
        request.outputs.add(name=each["name"])
    for name, value in given.items():
        setattr(request.parameters[name], FIELD[type(value)], value)
    meta = RequestMeta(door="oip-grpc", content_type=OIP_GRPC)
    metadata = decode_tensors(MODEL, meta, request.SerializeToString()).metadata
    assert metadata is not None
    return metadata


both = pytest.mark.parametrize("read", [by_json, by_grpc])


@both
def test_what_the_protocol_names_is_told_apart_from_what_it_does_not(read: Any) -> None:
    given = {
        "sequence_id": 7, "sequence_start": True, "sequence_end": True, "priority": 2,
        "timeout": 1000, "text": "a", "whole": 3, "part": 0.5, "yes": False,
    }  # fmt: skip
    assert read(given, id="r1", outputs=[{"name": "z"}]) == InferMetadata(
        request_id="r1", correlation_id=7, flags=3, priority=2, timeout_us=1000,
        parameters={"text": "a", "whole": 3, "part": 0.5, "yes": False}, outputs=("z",),
    )  # fmt: skip


@both
def test_a_request_without_any_says_nothing_and_wants_all_outputs(read: Any) -> None:
    assert read({}) == InferMetadata(outputs=("y", "z"))


@both
def test_a_sequence_may_have_a_text_as_its_id(read: Any) -> None:
    assert read({"sequence_id": "mine"}).correlation_id == "mine"


@both
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sequence_id", True), ("sequence_id", 1.5), ("sequence_id", -1),
        ("sequence_id", "a" * 129),
        ("sequence_start", 1), ("sequence_end", "true"), ("priority", "1"), ("priority", -1),
        ("timeout", 0.5), ("timeout", True), ("triton_mine", 1), ("binary_data_output", 1),
        ("triton_enable_empty_final_response", 1),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_by_its_name(read: Any, name: str, value: Any) -> None:
    with pytest.raises(ModelError, match=name) as refused:
        read({name: value})
    assert refused.value.original_status == 400


@pytest.mark.parametrize("value", [None, [1], {"a": 1}])
def test_only_plain_values_are_parameters(value: Any) -> None:
    with pytest.raises(ModelError, match="mine"):
        by_json({"mine": value})
