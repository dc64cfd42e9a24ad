"""What a gateway reads of a stateful model's request: its sequence, in every form of a body."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.core.routing.sequences import sequence_key
from penstock.gateway.dispatch.invocation import Affinity, Invocation
from penstock.gateway.dispatch.sequences import affinity_of
from penstock.wire.frames import RequestMeta, encode_request_meta
from penstock.wire.oip_messages import ModelInferRequest

TOLD = {"sequence_id": 7, "sequence_start": True, "sequence_end": True}


def read(body: bytes, affinity: Affinity | None = None, **meta: Any) -> Affinity:
    nobody: Any = None
    invocation = Invocation(
        "adds", encode_request_meta(RequestMeta(**meta)), body, nobody, received=0.0, deadline=None
    )
    invocation.affinity = affinity
    return affinity_of(invocation)


def grpc_body(sequence: int | str) -> bytes:
    request = ModelInferRequest(model_name="adds")
    if isinstance(sequence, str):
        request.parameters["sequence_id"].string_param = sequence
    else:
        request.parameters["sequence_id"].uint64_param = sequence
    request.parameters["sequence_start"].bool_param = True
    request.inputs.add(name="x", datatype="INT64", shape=(1, 1))
    request.raw_input_contents.append(b"\x01" * 8)
    return bytes(request.SerializeToString())


def test_json_its_binary_extension_and_protobuf_say_the_same() -> None:
    head = json.dumps({"inputs": [], "parameters": TOLD}).encode()
    whole = Affinity(sequence_key("", 7), opens=True, ends=True)
    assert read(head, content_type="application/json") == whole
    assert read(head + b"\xff\x00", json_header_bytes=len(head)) == whole
    sagemaker = f"application/vnd.sagemaker-triton.binary+json;json-header-size={len(head)}"
    assert read(head + b"\xff\x00", content_type=sagemaker) == whole
    begins = read(grpc_body(7), content_type="application/x-oip-grpc")
    assert begins == Affinity(sequence_key("", 7), opens=True)
    text = read(grpc_body("a b"), content_type="application/x-oip-grpc")
    assert text.session == sequence_key("", "a b")


def test_a_component_has_sequences_of_its_own() -> None:
    body = json.dumps({"parameters": TOLD}).encode()
    found = read(body, Affinity(component="c"))
    assert found == Affinity(sequence_key("c", 7), opens=True, ends=True, component="c")


@pytest.mark.parametrize(
    "body",
    [
        b"1,2,3",
        b"[1]",
        b"{",
        b"{}",
        b'{"parameters": []}',
        b'{"parameters": {"sequence_id": 0}}',
        b'{"parameters": {"sequence_id": ""}}',
        b'{"parameters": {"sequence_id": true}}',
        b'{"parameters": {"sequence_id": 1.5}}',
    ],
)
def test_what_has_no_sequence_goes_to_any_copy_which_says_so(body: bytes) -> None:
    assert read(body).session is None
    assert read(body, content_type="application/x-oip-grpc").session is None
