"""Whatever bytes come, a codec answers with a ModelError or with rows, and nothing else."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.artifacts.description.description import Head, TensorSpec
from penstock.errors import ModelError
from penstock.instance.codecs.base import OIP_GRPC, CodecModel
from penstock.instance.codecs.select import decode_tensors
from penstock.instance.codecs.text import TextModel, decode_texts
from penstock.wire.frames import RequestMeta
from penstock.wire.oip_messages import ModelInferRequest

DTYPES = ("FP16", "FP32", "BF16", "INT8", "UINT64", "BOOL", "BYTES")
MODELS = [
    CodecModel(
        name="m", version="1", batched=batched, outputs=(),
        inputs=(TensorSpec(name="x", dtype=dtype, shape=(-1, 2)),),
    )
    for dtype in DTYPES
    for batched in (True, False)
]  # fmt: skip
EMPTY = CodecModel(name="t", version="1", inputs=(), outputs=(), batched=True)
LABELS = Head(name="", task="classification", output="", labels=("no", "yes"))
TEXT = TextModel(EMPTY, "text-classification", (LABELS,))
PAIRS = TextModel(EMPTY, "pair-classification", (LABELS,))
HEADS = TextModel(
    EMPTY,
    "multi-head",
    (
        Head(name="same", task="classification", output="", labels=("no", "yes")),
        Head(name="alike", task="regression", output="", labels=("LABEL_0",)),
        Head(name="vector", task="embedding", output=""),
    ),
)

TYPES = (
    None, "application/json", "text/csv", "text/plain", "application/x-npy", "application/x-npz",
    "application/jsonlines", "application/octet-stream", OIP_GRPC,
    "application/vnd.sagemaker-triton.binary+json;json-header-size=20",
)  # fmt: skip

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["inputs", "instances", "x", "name", "shape", "datatype", "data", "parameters",
             "outputs", "id", "top_k", "binary_data_size", "text", "text_pair", "heads", "same"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip

tensor_entries = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["x", "text", "text_pair"]),
        "shape": st.lists(st.integers(-2, 2**63 - 1) | st.integers(0, 3), max_size=4),
        "datatype": st.sampled_from(DTYPES),
        "data": values,
    },
    optional={"parameters": st.fixed_dictionaries({"binary_data_size": st.integers(-5, 50)})},
)
oip_requests = st.fixed_dictionaries(
    {"inputs": st.lists(tensor_entries, max_size=2)},
    optional={"outputs": values, "parameters": values, "id": values},
)


def survive(model: CodecModel, meta: RequestMeta, body: bytes) -> None:
    for decode in (
        lambda: decode_tensors(model, meta, body),
        lambda: decode_texts(TEXT, meta, body),
        lambda: decode_texts(PAIRS, meta, body),
        lambda: decode_texts(HEADS, meta, body),
    ):
        refused: ModelError | None = None
        try:
            decoded: Any = decode()
        except ModelError as error:
            refused = error
        if refused is None:
            assert decoded.rows >= 1
        else:
            assert 400 <= refused.original_status < 500
            assert len(refused.message) < 2000


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(MODELS), st.sampled_from(TYPES), st.binary(max_size=200), st.booleans())
def test_random_bytes(model: CodecModel, kind: str | None, body: bytes, oip: bool) -> None:
    meta = RequestMeta(content_type=kind, door="oip" if oip else "runtime")
    survive(model, meta, body)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(MODELS), values | oip_requests, st.booleans(), st.binary(max_size=16))
def test_random_json(model: CodecModel, value: Any, oip: bool, rest: bytes) -> None:
    head = json.dumps(value).encode("utf-8", "surrogatepass")
    meta = RequestMeta(content_type="application/json", door="oip" if oip else "runtime")
    survive(model, meta, head)
    if head:
        survive(model, meta._replace(door="oip", json_header_bytes=len(head)), head + rest)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(MODELS),
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3), max_size=3),
    st.sampled_from(DTYPES),
    st.binary(max_size=40),
    st.booleans(),
)
def test_random_messages(
    model: CodecModel, shape: list[int], dtype: str, raw: bytes, has_raw: bool
) -> None:
    request = ModelInferRequest(model_name="m")
    request.inputs.add(name="x", datatype=dtype, shape=shape)
    request.inputs[0].contents.int_contents.extend([1, 2])
    if has_raw:
        request.raw_input_contents.append(raw)
    survive(model, RequestMeta(content_type=OIP_GRPC), request.SerializeToString())


def test_texts_over_the_open_inference_protocol() -> None:
    request = {
        "inputs": [{"name": "text", "shape": [2, 1], "datatype": "BYTES", "data": ["a", "ü"]}]
    }
    decoded = decode_texts(TEXT, RequestMeta(door="oip"), json.dumps(request).encode())
    assert decoded.texts == ["a", "ü"]
    import numpy as np

    scores = np.array([[0.25, 0.75], [0.5, 0.5]], dtype=np.float32)
    assert json.loads(decoded.encode({"score": scores})[0])["outputs"] == [
        {"name": "label", "datatype": "BYTES", "shape": [2], "data": ["yes", "no"]},
        {"name": "score", "datatype": "FP32", "shape": [2], "data": [0.75, 0.5]},
    ]


def test_embeddings_over_grpc() -> None:
    head = Head(name="", task="embedding", output="")
    model = TextModel(EMPTY, "feature-extraction", (head,))
    request = ModelInferRequest(model_name="e")
    request.inputs.add(name="text", datatype="BYTES", shape=[1])
    request.raw_input_contents.append(b"\x02\x00\x00\x00hi")
    decoded = decode_texts(model, RequestMeta(content_type=OIP_GRPC), request.SerializeToString())
    import numpy as np

    body, _ = decoded.encode({"embedding": np.array([[1.0, 2.0]], dtype=np.float32)})
    assert struct.pack("<2f", 1, 2) in body


@pytest.mark.parametrize("inputs", [7, [], [1], None, {"a": 1}])
def test_what_is_no_text_is_refused(inputs: Any) -> None:
    with pytest.raises(ModelError, match="text"):
        decode_texts(TEXT, RequestMeta(), json.dumps({"inputs": inputs}).encode())
