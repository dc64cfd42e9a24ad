"""Open Inference Protocol bodies: JSON, binary extension, gRPC messages."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest

from penstock.artifacts.description.description import TensorSpec
from penstock.errors import ModelError
from penstock.instance.codecs.base import OIP_GRPC, CodecModel
from penstock.instance.codecs.select import decode_tensors
from penstock.wire.frames import ReplyMeta, RequestMeta, decode_reply_meta
from penstock.wire.oip_messages import ModelInferRequest, ModelInferResponse

MODEL = CodecModel(
    name="points",
    version="3",
    inputs=(
        TensorSpec(name="x", dtype="FP32", shape=(-1, 2)),
        TensorSpec(name="word", dtype="BYTES", shape=(-1,)),
    ),
    outputs=(
        TensorSpec(name="y", dtype="FP32", shape=(-1, 3)),
        TensorSpec(name="said", dtype="BYTES", shape=(-1,)),
    ),
    batched=True,
)
OUTPUTS = {
    "y": np.array([[0.1, 0.7, 0.2]], dtype=np.float32),
    "said": np.array([b"hi"], dtype=object),
}
X = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}
WORD = {"name": "word", "shape": [1], "datatype": "BYTES", "data": ["ok"]}


def decode(body: Any, *, door: str = "oip", **meta: Any) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return decode_tensors(MODEL, RequestMeta(door=door, **meta), data)


@pytest.mark.parametrize("data", [[1, 2], [[1, 2]], [1.0, 2.0]])
def test_json_data_may_be_flat_or_nested(data: list[Any]) -> None:
    decoded = decode({"inputs": [{**X, "data": data}, WORD]})
    assert decoded.tensors["x"].tolist() == [[1.0, 2.0]]
    assert decoded.tensors["word"].tolist() == [b"ok"]


def test_a_json_answer_names_model_version_id_and_tensors() -> None:
    decoded = decode({"id": "42", "inputs": [X, WORD]})
    body, meta = decoded.encode(OUTPUTS)
    assert json.loads(body) == {
        "model_name": "points",
        "model_version": "3",
        "id": "42",
        "outputs": [
            {"name": "y", "datatype": "FP32", "shape": [1, 3], "data": [0.1, 0.7, 0.2]},
            {"name": "said", "datatype": "BYTES", "shape": [1], "data": ["hi"]},
        ],
    }
    assert decode_reply_meta(meta) == ReplyMeta(content_type="application/json")


def test_binary_tensors_follow_the_json_in_both_directions() -> None:
    raw_x = struct.pack("<2f", 1, 2)
    raw_word = b"\x03\x00\x00\x00\x00\xffz"
    head = json.dumps(
        {
            "inputs": [
                {"name": "x", "shape": [1, 2], "datatype": "FP32",
                 "parameters": {"binary_data_size": 8}},
                {"name": "word", "shape": [1], "datatype": "BYTES",
                 "parameters": {"binary_data_size": 7}},
            ],
            "outputs": [{"name": "said", "parameters": {"binary_data": True}}, {"name": "y"}],
        }
    ).encode()  # fmt: skip
    decoded = decode(head + raw_x + raw_word, json_header_bytes=len(head))
    assert decoded.tensors["x"].tolist() == [[1.0, 2.0]]
    assert decoded.tensors["word"].tolist() == [b"\x00\xffz"]
    body, meta = decoded.encode(OUTPUTS)
    size = decode_reply_meta(meta).json_header_bytes
    assert size is not None
    answered = json.loads(body[:size])
    assert answered["outputs"][0]["parameters"] == {"binary_data_size": 6}
    assert answered["outputs"][1]["data"] == pytest.approx([0.1, 0.7, 0.2])
    assert body[size:] == b"\x02\x00\x00\x00hi"


def one_input(dtype: str, shape: tuple[int, ...], *, batched: bool = True) -> CodecModel:
    return CodecModel(
        name="one",
        version="1",
        inputs=(TensorSpec(name="x", dtype=dtype, shape=shape),),
        outputs=(TensorSpec(name="y", dtype="FP32", shape=(-1, 1)),),
        batched=batched,
    )


def test_a_body_without_a_header_is_the_one_input() -> None:
    """Triton's "raw binary request": a header length of 0, one row, and an answer in bytes."""
    meta = RequestMeta(door="oip", json_header_bytes=0)
    for model, body, value in (
        (one_input("FP32", (-1, -1, 2)), struct.pack("<4f", 1, 2, 3, 4), [[[1, 2], [3, 4]]]),
        (one_input("UINT8", (3,), batched=False), b"\x00{\xff", [0, 123, 255]),
        (one_input("BYTES", (-1, 1)), b"\xff\xd8{", [[b"\xff\xd8{"]]),
        (one_input("FP32", (-1,), batched=False), b"", []),
    ):
        decoded = decode_tensors(model, meta, body)
        assert decoded.tensors["x"].tolist() == value
        answer, about = decoded.encode({"y": np.array([[0.5]], np.float32)})
        head_bytes = decode_reply_meta(about).json_header_bytes
        assert head_bytes is not None
        assert answer[head_bytes:] == struct.pack("<f", 0.5)


@pytest.mark.parametrize(
    ("model", "body", "words"),
    [
        (MODEL, b"1234", "the model has 2 inputs"),
        (one_input("FP32", (-1, -1, -1)), b"1234", "more than one free dimension"),
        (one_input("BYTES", (-1, -1)), b"1234", "takes bytes only with the shape"),
        (one_input("FP32", (-1, -1, 2)), b"1234", "input 'x'"),
        (one_input("FP32", (2,), batched=False), b"123", "input 'x'"),
    ],
)
def test_a_body_without_a_header_fits_the_one_input(
    model: CodecModel, body: bytes, words: str
) -> None:
    with pytest.raises(ModelError, match=words):
        decode_tensors(model, RequestMeta(door="oip", json_header_bytes=0), body)


def test_through_invoke_endpoint_the_header_length_is_in_the_content_type() -> None:
    head = json.dumps(
        {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32",
                     "parameters": {"binary_data_size": 8}}, WORD],
         "parameters": {"binary_data_output": True}}
    ).encode()  # fmt: skip
    kind = f"application/vnd.sagemaker-triton.binary+json;json-header-size={len(head)}"
    decoded = decode(head + struct.pack("<2f", 1, 2), door="runtime", content_type=kind)
    body, meta = decoded.encode(OUTPUTS)
    answered = decode_reply_meta(meta)
    prefix = "application/vnd.sagemaker-triton.binary+json;json-header-size="
    assert answered.content_type is not None
    assert answered.content_type.startswith(prefix)
    assert json.loads(body[: int(answered.content_type.removeprefix(prefix))])["outputs"]


def test_v2_json_through_invoke_endpoint_is_known_by_its_form() -> None:
    decoded = decode({"inputs": [X, WORD]}, door="runtime", content_type="application/json")
    assert json.loads(decoded.encode(OUTPUTS)[0])["model_name"] == "points"


def test_classification_answers_the_best_classes() -> None:
    outputs = [{"name": "y", "parameters": {"classification": 2}}]
    decoded = decode({"inputs": [X, WORD], "outputs": outputs})
    (answer,) = json.loads(decoded.encode(OUTPUTS)[0])["outputs"]
    assert (answer["datatype"], answer["shape"]) == ("BYTES", [1, 2])
    assert answer["data"] == ["0.700000:1", "0.200000:2"]


def grpc_request(**fields: Any) -> Any:
    request = ModelInferRequest(model_name="points", id="g", **fields)
    request.inputs.add(name="x", datatype="FP32", shape=[1, 2])
    request.inputs.add(name="word", datatype="BYTES", shape=[1])
    return request


ROWS = 4_096  #: of two FP32: a message of this size is not parsed whole


def large_request(*contents: bytes) -> bytes:
    request = ModelInferRequest(
        model_name="points",
        id="g",
        inputs=[
            {"name": "x", "datatype": "FP32", "shape": [ROWS, 2]},
            {"name": "word", "datatype": "BYTES", "shape": [ROWS]},
        ],
        raw_input_contents=contents,
    )
    return bytes(request.SerializeToString())


def test_large_tensors_are_read_and_written_as_small_ones_are() -> None:
    numbers = np.random.default_rng(1).random((ROWS, 2), dtype=np.float32)
    words = b"\x02\x00\x00\x00ok" * ROWS
    decoded = decode(large_request(numbers.tobytes(), words), content_type=OIP_GRPC)
    assert np.array_equal(decoded.tensors["x"], numbers)
    assert decoded.tensors["word"].tolist() == [b"ok"] * ROWS
    assert decoded.rows == ROWS
    outputs = {
        "y": np.asfortranarray(np.arange(3 * ROWS, dtype=np.float64).reshape(ROWS, 3)),
        "said": np.array([b"hi"] * ROWS, dtype=object),
    }
    response = ModelInferResponse.FromString(decoded.encode(outputs)[0])
    y, said = response.raw_output_contents
    assert (response.id, [each.name for each in response.outputs]) == ("g", ["y", "said"])
    assert y == np.arange(3 * ROWS, dtype="<f4").tobytes()
    assert said == b"\x02\x00\x00\x00hi" * ROWS


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (large_request(bytes(8 * ROWS)), "2 inputs have 1 raw contents"),
        (large_request(bytes(8 * ROWS), b"", b""), "2 inputs have 3 raw contents"),
        (large_request(bytes(8 * ROWS + 4), b""), f"takes {8 * ROWS} bytes, {8 * ROWS + 4} came"),
        (large_request(bytes(8 * ROWS), b"\0") + b"\x0a\xff", "not a ModelInferRequest"),
        (large_request(bytes(8 * ROWS), b"\0") + b"\x2a\x01\xff", "not a ModelInferRequest"),
    ],
)
def test_a_large_request_is_refused_for_what_a_small_one_is(body: bytes, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        decode(body, content_type=OIP_GRPC)


def test_an_output_that_is_asked_for_twice_is_answered_once() -> None:
    """As Triton does: outputs have names, and the first word about each counts."""
    asked = [{"name": "said"}, {"name": "y"}, {"name": "said", "parameters": {"binary_data": True}}]
    body, _ = decode({"inputs": [X, WORD], "outputs": asked}).encode(OUTPUTS)
    assert [each["name"] for each in json.loads(body)["outputs"]] == ["said", "y"]
    request = ModelInferRequest(
        inputs=[
            {"name": "x", "datatype": "FP32", "shape": [1, 2]},
            {"name": "word", "datatype": "BYTES", "shape": [1]},
        ],
        outputs=[{"name": "y"}, {"name": "y"}],
        raw_input_contents=[struct.pack("<2f", 1, 2), b"\x00\x00\x00\x00"],
    )
    body, _ = decode(request.SerializeToString(), content_type=OIP_GRPC).encode(OUTPUTS)
    assert [each.name for each in ModelInferResponse.FromString(body).outputs] == ["y"]


@pytest.mark.parametrize("value", [{"int64_param": 0}, {"int64_param": -1}, {"string_param": "2"}])
def test_grpc_takes_a_number_of_classes_above_0(value: dict[str, Any]) -> None:
    request = grpc_request()
    request.outputs.add(name="y", parameters={"classification": value})
    request.raw_input_contents.extend([struct.pack("<2f", 1, 2), b"\x02\x00\x00\x00ok"])
    with pytest.raises(ModelError, match="classification of output 'y' is not a number of classes"):
        decode(request.SerializeToString(), content_type=OIP_GRPC, door="oip-grpc")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"outputs": {}}, "outputs is not a list"),
        ({"parameters": []}, "parameters is not an object"),
        ({"parameters": ""}, "parameters is not an object"),
        ({"outputs": [{"name": "y", "parameters": []}]}, "parameters of output 'y' are not"),
        ({"inputs": [{**X, "parameters": []}, WORD]}, "parameters of input 'x' are not"),
        ({"id": 0}, "id is not a string"),
    ],
)
def test_what_is_empty_and_of_another_type_is_refused(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        decode({"inputs": [X, WORD], **changed})
    for field in ("outputs", "parameters", "id"):
        decode({"inputs": [X, WORD], field: None})


def test_grpc_refuses_contents_of_a_type_that_the_tensor_does_not_have() -> None:
    request = grpc_request()
    request.inputs[0].contents.fp32_contents.extend([1, 2])
    request.inputs[0].contents.int_contents.extend([1, 2])
    request.inputs[1].contents.bytes_contents.append(b"ok")
    with pytest.raises(ModelError, match="input 'x' is FP32 and has int_contents"):
        decode(request.SerializeToString(), content_type=OIP_GRPC, door="oip-grpc")


def test_grpc_takes_raw_and_typed_contents_and_answers_raw() -> None:
    raw = grpc_request()
    raw.raw_input_contents.extend([struct.pack("<2f", 1, 2), b"\x02\x00\x00\x00ok"])
    typed = grpc_request()
    typed.inputs[0].contents.fp32_contents.extend([1, 2])
    typed.inputs[1].contents.bytes_contents.append(b"ok")
    for request in (raw, typed):
        decoded = decode(request.SerializeToString(), content_type=OIP_GRPC, door="oip-grpc")
        assert decoded.tensors["x"].tolist() == [[1.0, 2.0]]
        assert decoded.tensors["word"].tolist() == [b"ok"]
        body, meta = decoded.encode(OUTPUTS)
        assert decode_reply_meta(meta).content_type == OIP_GRPC
        answer = ModelInferResponse.FromString(body)
        assert (answer.model_name, answer.model_version, answer.id) == ("points", "3", "g")
        assert [each.name for each in answer.outputs] == ["y", "said"]
        assert answer.raw_output_contents[1] == b"\x02\x00\x00\x00hi"


@pytest.mark.parametrize(
    ("body", "meta", "words"),
    [
        (b"\xff\xfe", {}, "not JSON"),
        ({"inputs": {}}, {}, '"inputs"'),
        ({"inputs": [{}]}, {}, "name and datatype"),
        ({"inputs": [X]}, {}, "'word' is missing"),
        ({"inputs": [X, X]}, {}, "came twice"),
        ({"inputs": [{**X, "name": "q"}, WORD]}, {}, "'q' is not one"),
        ({"inputs": [{**X, "datatype": "FP64"}, WORD]}, {}, "'x' takes FP32, FP64 came"),
        ({"inputs": [{**X, "shape": [-1, 2]}, WORD]}, {}, "shape [-1, 2]"),
        ({"inputs": [{**X, "shape": [1, 2**62]}, WORD]}, {}, "does not hold the 2 elements"),
        ({"inputs": [{**X, "shape": [2**40] * 4}, WORD]}, {}, "'x'"),
        ({"inputs": [{**X, "shape": [True, 2]}, WORD]}, {}, "shape"),
        ({"inputs": [{**X, "shape": [2, 1]}, WORD]}, {}, "[2, 1], the model takes [-1, 2]"),
        ({"inputs": [{**X, "data": "AA=="}, WORD]}, {}, "has no data"),
        ({"inputs": [{**X, "parameters": {"binary_data_size": 8}}, WORD]}, {}, "0 are left"),
        ({"inputs": [X, WORD], "outputs": [{"name": "zz"}]}, {}, "'zz' is not one"),
        ({"inputs": [X, WORD], "id": 7}, {}, "id is not"),
        ({"inputs": [X, WORD]}, {"json_header_bytes": 10**9}, "JSON header"),
        ({"inputs": [X, WORD]}, {"json_header_bytes": 0}, "JSON header"),
        (
            {"inputs": [{**X, "parameters": {"shared_memory_region": "a"}}, WORD]}, {},
            "shared memory",
        ),
        (b"\x0a\xff", {"content_type": OIP_GRPC}, "not a ModelInferRequest"),
    ],
)  # fmt: skip
def test_bad_requests_name_the_tensor_and_what_is_allowed(
    body: Any, meta: dict[str, Any], words: str
) -> None:
    with pytest.raises(ModelError) as caught:
        decode(body, **meta)
    assert caught.value.original_status == 400
    assert words in caught.value.message


def test_binary_sizes_are_held_against_the_bytes() -> None:
    head = json.dumps(
        {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32",
                     "parameters": {"binary_data_size": 4}}, WORD]}
    ).encode()  # fmt: skip
    with pytest.raises(ModelError, match="takes 8 bytes, 4 came"):
        decode(head + b"\x00" * 4, json_header_bytes=len(head))
    with pytest.raises(ModelError, match="belong to no input"):
        decode(head.replace(b": 4", b": 8") + b"\x00" * 9, json_header_bytes=len(head))


def test_grpc_shapes_and_counts_are_checked() -> None:
    request = grpc_request()
    request.raw_input_contents.append(b"\x00" * 8)
    with pytest.raises(ModelError, match="1 raw contents"):
        decode(request.SerializeToString(), content_type=OIP_GRPC)
    request = grpc_request()
    request.inputs[0].shape[:] = [1, -2]
    with pytest.raises(ModelError, match="'x' has the shape"):
        decode(request.SerializeToString(), content_type=OIP_GRPC)


def test_output_that_is_not_text_names_its_element_and_asks_for_binary() -> None:
    decoded = decode({"inputs": [X, WORD]})
    with pytest.raises(ModelError) as caught:
        decoded.encode(OUTPUTS | {"said": np.array([b"ok", b"a\xff"], dtype=object)})
    assert (caught.value.code, caught.value.original_status) == ("not-text", 406)
    assert caught.value.message == (
        "output 'said': element 1 is not UTF-8 (byte 1), and JSON and CSV hold text alone; ask for "
        'binary data: "parameters": {"binary_data_output": true} of the Open Inference Protocol, '
        "or gRPC"
    )


#: All that a BYTES element may hold: every byte value, nothing, zero bytes, halves of characters.
ANY_BYTES = [bytes(range(256)), b"", b"\0", b"a\0b\0\0", b"\xed\xa0\x80", b"\xf4\x8f\xbf\xbf"]
RAW = b"".join(struct.pack("<I", len(each)) + each for each in ANY_BYTES)
BLOBS = CodecModel(
    name="blobs", version="1", batched=True,
    inputs=(TensorSpec(name="word", dtype="BYTES", shape=(-1, 3)),),
    outputs=(TensorSpec(name="said", dtype="BYTES", shape=(-1, 3)),),
)  # fmt: skip


def grpc_bytes(*, raw: bool) -> bytes:
    request = ModelInferRequest(model_name="blobs")
    entry = request.inputs.add(name="word", datatype="BYTES", shape=[2, 3])
    if raw:
        request.raw_input_contents.append(RAW)
    else:
        entry.contents.bytes_contents.extend(ANY_BYTES)
    return bytes(request.SerializeToString())


@pytest.mark.parametrize("raw", [True, False])
def test_bytes_over_grpc_are_those_that_came(raw: bool) -> None:
    decoded = decode_tensors(
        BLOBS, RequestMeta(door="oip-grpc", content_type=OIP_GRPC), grpc_bytes(raw=raw)
    )
    assert decoded.tensors["word"].tolist() == [ANY_BYTES[:3], ANY_BYTES[3:]]
    answer = ModelInferResponse.FromString(decoded.encode({"said": decoded.tensors["word"]})[0])
    assert list(answer.raw_output_contents) == [RAW]
    assert list(answer.outputs[0].shape) == [2, 3]


def test_bytes_in_binary_tensors_are_those_that_came() -> None:
    entry = {"name": "word", "shape": [2, 3], "datatype": "BYTES",
             "parameters": {"binary_data_size": len(RAW)}}  # fmt: skip
    head = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    decoded = decode_tensors(
        BLOBS, RequestMeta(door="oip", json_header_bytes=len(head)), head + RAW
    )
    assert decoded.tensors["word"].tolist() == [ANY_BYTES[:3], ANY_BYTES[3:]]
    body, meta = decoded.encode({"said": decoded.tensors["word"]})
    assert body[decode_reply_meta(meta).json_header_bytes :] == RAW


def test_strings_in_json_are_the_bytes_of_their_utf8() -> None:
    data = ["", "a\0b", "h\u00e9", "\U0001f600", "x", "y"]
    entry = {"name": "word", "shape": [2, 3], "datatype": "BYTES", "data": data}
    decoded = decode_tensors(
        BLOBS, RequestMeta(door="oip"), json.dumps({"inputs": [entry]}).encode()
    )
    flat = decoded.tensors["word"].reshape(-1).tolist()
    assert flat == [b"", b"a\0b", b"h\xc3\xa9", b"\xf0\x9f\x98\x80", b"x", b"y"]
    answered = json.loads(decoded.encode({"said": decoded.tensors["word"]})[0])
    assert answered["outputs"][0]["data"] == data


@pytest.mark.parametrize("door", ["oip", "oip-grpc"])
def test_numbers_are_not_answered_as_bytes(door: str) -> None:
    """Three zero bytes are no way to write the number 3."""
    entry = {"name": "word", "shape": [1, 3], "datatype": "BYTES", "data": ["a", "b", "c"]}
    body = json.dumps({"inputs": [entry]}).encode() if door == "oip" else grpc_bytes(raw=True)
    kind = OIP_GRPC if door == "oip-grpc" else None
    decoded = decode_tensors(BLOBS, RequestMeta(door=door, content_type=kind), body)
    with pytest.raises(ModelError, match="'said' as INT64, its configuration says BYTES"):
        decoded.encode({"said": np.array([[1, 2, 3]])})
