"""An answer has the name under which its model was asked, in every form that has one."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from tests.instance.test_codecs_fuzz import TEXT
from tests.instance.test_codecs_oip_numbers import body_of, model_of
from tests.instance.test_generation_dialects import SERVED

from penstock.instance.codecs.base import HasName, as_asked
from penstock.instance.codecs.select import decode_tensors
from penstock.wire.frames import RequestMeta
from penstock.wire.oip_messages import ModelInferRequest, ModelInferResponse

NAME = "Qwen/Qwen3-0.6B"


def asked(door: str, **parameters: str) -> RequestMeta:
    return RequestMeta(door=door, parameters=json.dumps(parameters, separators=(",", ":")))


def test_tensors_in_json_and_the_rows_of_generate_carry_the_name() -> None:
    body = body_of("FP32", "[1.5]", 1)
    for meta, sent in (
        (asked("oip", model=NAME), body),
        (asked("oip", version="1", model=NAME), body),
        (asked("oip", operation="generate", model=NAME), b'{"x": [1.5]}'),
    ):
        decoded = decode_tensors(model_of("FP32"), meta, sent)
        answer, _ = decoded.encode({"y": np.array([1.5], np.float32)})
        assert json.loads(answer)["model_name"] == NAME


def test_a_message_carries_the_name() -> None:
    request = ModelInferRequest(model_name=NAME)
    given = request.inputs.add(name="x", datatype="FP32", shape=[1])
    given.contents.fp32_contents.append(1.5)
    meta = asked("oip-grpc", model=NAME)._replace(content_type="application/x-oip-grpc")
    decoded = decode_tensors(model_of("FP32"), meta, request.SerializeToString())
    answer, _ = decoded.encode({"y": np.array([1.5], np.float32)})
    assert ModelInferResponse.FromString(answer).model_name == NAME


def test_without_a_name_of_its_own_a_request_gets_the_models() -> None:
    for meta in (RequestMeta(door="oip"), asked("oip", version="1"), asked("oip", model="")):
        decoded = decode_tensors(model_of("FP32"), meta, body_of("FP32", "[1.5]", 1))
        answer, _ = decoded.encode({"y": np.array([1.5], np.float32)})
        assert json.loads(answer)["model_name"] == "numbers"


def name_of(model: Any) -> str:
    return str(model.name if hasattr(model, "name") else model.codec(set(), model.heads).name)


@pytest.mark.parametrize("model", [model_of("FP32"), TEXT, SERVED])
def test_every_kind_of_model_takes_a_name_and_stays_as_it_is(model: HasName) -> None:
    before = name_of(model)
    assert name_of(as_asked(model, asked("openai", operation="chat", model=NAME))) == NAME
    assert name_of(model) == before
    assert as_asked(model, asked("openai", operation="chat")) is model
