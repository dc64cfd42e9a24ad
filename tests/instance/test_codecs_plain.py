"""Plain bodies of tensor models: JSON, JSON lines, CSV, NPY, NPZ; what comes in, what goes out."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from penstock.artifacts.description.description import TensorSpec
from penstock.errors import ModelError
from penstock.instance.codecs.base import CodecModel
from penstock.instance.codecs.select import decode_tensors
from penstock.wire.frames import RequestMeta, decode_reply_meta

POINTS = CodecModel(
    name="m",
    version="1",
    inputs=(TensorSpec(name="x", dtype="FP32", shape=(-1, 2)),),
    outputs=(TensorSpec(name="y", dtype="FP32", shape=(-1, 2)),),
    batched=True,
)
PAIR = CodecModel(
    name="m",
    version="1",
    inputs=(
        TensorSpec(name="id", dtype="INT64", shape=(-1,)),
        TensorSpec(name="word", dtype="BYTES", shape=(-1,)),
    ),
    outputs=(),
    batched=True,
)
COUNTS = CodecModel(
    name="m",
    version="1",
    inputs=(TensorSpec(name="n", dtype="UINT8", shape=(-1, -1)),),
    outputs=(),
    batched=True,
)


def decode(model: CodecModel, body: bytes, **meta: Any) -> Any:
    return decode_tensors(model, RequestMeta(**meta), body)


def npy(array: np.ndarray, **options: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def npz(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


ONE_TWO = [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"[[1, 2]]", None),
        (b"[[1, 2]]", "application/json; charset=utf-8"),
        (b'{"instances": [[1, 2.0]]}', "Application/JSON"),
        (b'{"inputs": [[1, 2]]}', "application/json"),
        (b'{"inputs": {"x": [[1, 2]]}}', "application/json"),
        (b'{"instances": [{"x": [1, 2]}]}', "application/json"),
        (b"[1, 2]\n", "application/jsonlines"),
        (b"1,2\n", "text/csv"),
        (npy(np.array([[1, 2]], dtype=np.int16)), "application/x-npy"),
        (npy(np.array([[1], [2]], dtype=">f8").T), "application/x-npy"),
        (npz(x=np.array([[1.0, 2.0]])), "application/x-npz"),
        (npz(arr_0=np.array([[1.0, 2.0]])), "application/x-npz"),
    ],
)
def test_every_form_of_the_same_row(body: bytes, content_type: str | None) -> None:
    decoded = decode(POINTS, body, content_type=content_type)
    assert decoded.rows == 1
    assert decoded.tensors["x"].dtype == np.float32
    assert decoded.tensors["x"].tolist() == ONE_TWO


def test_several_inputs_come_by_name() -> None:
    expected = {"id": [1, 2], "word": [b"a", b"\xc3\xbc"]}
    for body in (
        {"inputs": {"id": [1, 2], "word": ["a", "ü"]}},
        {"instances": [{"id": 1, "word": "a"}, {"id": 2, "word": "ü"}]},
    ):
        decoded = decode(PAIR, json.dumps(body).encode())
        assert {name: array.tolist() for name, array in decoded.tensors.items()} == expected
        assert decoded.rows == 2


@pytest.mark.parametrize(
    ("accept", "content_type", "body"),
    [
        (None, "application/json", b'{"predictions":[[0.1,2.0]]}'),
        ("*/*", "application/json", b'{"predictions":[[0.1,2.0]]}'),
        ("text/html, text/csv;q=0.5", "text/csv", b"0.1,2.0\n"),
        ("text/*", "text/csv", b"0.1,2.0\n"),
    ],
)
def test_accept_chooses_the_form_of_the_answer(
    accept: str | None, content_type: str, body: bytes
) -> None:
    decoded = decode(POINTS, b"[[1, 2]]", accept=accept)
    written, meta = decoded.encode({"y": np.array([[0.1, 2.0]], dtype=np.float32)})
    assert (written, decode_reply_meta(meta).content_type) == (body, content_type)


def test_bytes_in_npy_lose_nothing_or_are_refused() -> None:
    """NPY pads elements with zero bytes and takes them off again when it is read."""
    decoded = decode(POINTS, npy(np.zeros((1, 2))), content_type="application/x-npy")
    mixed = np.array([b"\xff", b"a\0b", "\u00e9"], dtype=object)
    answered = np.load(io.BytesIO(decoded.encode({"y": mixed})[0]))
    assert answered.tolist() == [b"\xff", b"a\0b", b"\xc3\xa9"]
    with pytest.raises(ModelError, match="'y' has an element that ends with a zero byte"):
        decoded.encode({"y": np.array([b"a\0"], dtype=object)})


def test_npy_is_answered_with_npy() -> None:
    decoded = decode(POINTS, npy(np.zeros((1, 2))), content_type="application/x-npy")
    written, _ = decoded.encode({"y": np.array([[0.5, 2.0]], dtype=np.float32)})
    assert np.load(io.BytesIO(written)).tolist() == [[0.5, 2.0]]


def test_several_outputs_are_one_object_per_row() -> None:
    outputs = {"a": np.array([1, 2]), "b": np.array([[0.5], [1.5]])}
    written, _ = decode(POINTS, b"[[1, 2]]").encode(outputs)
    assert json.loads(written) == {"predictions": [{"a": 1, "b": [0.5]}, {"a": 2, "b": [1.5]}]}


def test_nan_and_infinity_become_null_in_json() -> None:
    outputs = {"y": np.array([[np.nan, np.inf]], dtype=np.float32)}
    written, _ = decode(POINTS, b"[[1, 2]]").encode(outputs)
    assert json.loads(written) == {"predictions": [[None, None]]}


@pytest.mark.parametrize(
    ("model", "body", "meta", "status", "words"),
    [
        (POINTS, b"", {}, 400, "not JSON"),
        (POINTS, b"[[1, 2]", {}, 400, "not JSON"),
        (POINTS, b"[[1, NaN]]", {}, 400, "not JSON"),
        (POINTS, b"[" * 5000 + b"]" * 5000, {}, 400, "JSON"),
        (POINTS, b"[" * 90 + b"]" * 90, {}, 400, "'x'"),
        (POINTS, b"[[1, 2, 3]]", {}, 400, "[1, 3], the model takes [-1, 2]"),
        (POINTS, b"[[1, 2], [3]]", {}, 400, "'x' is ragged"),
        (POINTS, b"[]", {}, 400, "shape [0]"),
        (POINTS, b'[["1", "2"]]', {}, 400, "'x' takes FP32"),
        (POINTS, b"[[1, null]]", {}, 400, "'x' takes FP32"),
        (POINTS, b"[[true, {}]]", {}, 400, "'x' takes FP32"),
        (POINTS, b"[[1e300, 2]]", {}, 400, "1e+300 is too large for FP32"),
        (POINTS, b"7", {}, 400, "shape []"),
        (POINTS, b'{"data": []}', {}, 400, "'data'"),
        (POINTS, b'{"inputs": {"z": [[1, 2]]}}', {}, 400, "'z' is not one of the model's: x"),
        (PAIR, b'{"inputs": {"id": [1]}}', {}, 400, "'word' is missing"),
        (PAIR, b'{"inputs": {"id": [1, 2], "word": ["a"]}}', {}, 400, "1 rows"),
        (PAIR, b'{"inputs": {"id": [1.5], "word": ["a"]}}', {}, 400, "1.5 came"),
        (PAIR, b'{"inputs": {"id": [1], "word": [1]}}', {}, 400, "takes BYTES"),
        (PAIR, b"[1]", {}, 400, "several inputs"),
        (COUNTS, b"[[256]]", {}, 400, "256 is out of the range of UINT8"),
        (COUNTS, b"[[-1]]", {}, 400, "-1 is out of the range"),
        (POINTS, b"1,2\n3\n", {"content_type": "text/csv"}, 400, "line 2"),
        (POINTS, b"1,x\n", {"content_type": "text/csv"}, 400, "not a number"),
        (POINTS, b"\xff,2\n", {"content_type": "text/csv"}, 400, "UTF-8"),
        (COUNTS, b"nan\n", {"content_type": "text/csv"}, 400, "nan came"),
        (POINTS, b"junk", {"content_type": "application/x-npy"}, 400, "NPY"),
        (POINTS, npy(np.zeros((9, 2)))[:-1], {"content_type": "application/x-npy"}, 400, "claims"),
        (POINTS, npy(np.array([[{}, 1]]), allow_pickle=True),
         {"content_type": "application/x-npy"}, 400, "pickle"),
        (POINTS, b"PK\x03\x04junk", {"content_type": "application/x-npz"}, 400, "NPZ"),
        (POINTS, b"x", {"content_type": "image/png"}, 415, "application/json, "),
        (POINTS, b"[[1, 2]]", {"accept": "image/png"}, 406, "text/csv"),
    ],
)  # fmt: skip
def test_bad_bodies_are_the_models_own_4xx(
    model: CodecModel, body: bytes, meta: dict[str, Any], status: int, words: str
) -> None:
    with pytest.raises(ModelError) as caught:
        decode(model, body, **meta)
    assert caught.value.status == 424
    assert caught.value.original_status == status
    assert words in caught.value.message


def test_a_header_that_claims_a_huge_array_allocates_nothing() -> None:
    whole = npy(np.zeros((1, 2)))
    body = whole.replace(b"(1, 2), }" + b" " * 10, b"(99999999999, 2), }")
    assert len(body) == len(whole)
    with pytest.raises(ModelError, match=r"claims shape \(99999999999, 2\)"):
        decode(POINTS, body, content_type="application/x-npy")


def test_csv_of_a_model_without_batches_is_a_row_a_line_too() -> None:
    """Its first dimension is not known to be the batch, but a matrix has rows all the same."""
    whole = replace(POINTS, batched=False)
    decoded = decode(whole, b"1,2\n3,4\n", content_type="text/csv")
    body, _ = decoded.encode({"y": np.array([[1, 2], [3, 4]], dtype=np.float32)})
    assert body == b"1.0,2.0\n3.0,4.0\n"
    body, _ = decoded.encode({"y": np.array([1, 2], dtype=np.float32)})
    assert body == b"1.0,2.0\n"


def test_csv_of_no_rows_is_empty() -> None:
    decoded = decode(POINTS, b"1,2\n", content_type="text/csv")
    body, _ = decoded.encode({"y": np.zeros((0, 2), dtype=np.float32)})
    assert body == b"\n"


TABLE = CodecModel(
    name="m",
    version="1",
    inputs=(
        TensorSpec(name="age", dtype="INT64", shape=(-1, 1)),
        TensorSpec(name="city", dtype="BYTES", shape=(-1, 1)),
    ),
    outputs=(
        TensorSpec(name="label", dtype="INT64", shape=(-1,)),
        TensorSpec(name="scores", dtype="FP32", shape=(-1, 2)),
    ),
    batched=False,
    columns={"scores": ("no", "yes")},
)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"instances": [{"age": 20, "city": "x,y"}, {"age": 30, "city": "z"}]}', ""),
        (b'{"inputs": {"age": [20, 30], "city": [["x,y"], ["z"]]}}', ""),
        (b'20,"x,y"\n30,z\n', "text/csv"),
    ],
)
def test_columns_of_a_table_are_inputs(body: bytes, kind: str) -> None:
    """As converters export a data frame: each column an input. The answer to CSV is JSON, because
    CSV holds one output."""
    decoded = decode(TABLE, body, content_type=kind)
    assert {name: array.tolist() for name, array in decoded.tensors.items()} == {
        "age": [[20], [30]],
        "city": [[b"x,y"], [b"z"]],
    }
    written, meta = decoded.encode(
        {"label": np.array([1, 0]), "scores": np.array([[0.25, 0.75], [1.0, 0.0]])}
    )
    assert decode_reply_meta(meta).content_type == "application/json"
    assert json.loads(written)["predictions"] == [
        {"label": 1, "scores": {"no": 0.25, "yes": 0.75}},
        {"label": 0, "scores": {"no": 1.0, "yes": 0.0}},
    ]


@pytest.mark.parametrize("body", [b"20\n", b"old,x\n"])
def test_rows_that_are_not_the_tables_are_refused(body: bytes) -> None:
    with pytest.raises(ModelError, match=r"2 columns: 'age', 'city'|a cell that is not a number"):
        decode(TABLE, body, content_type="text/csv")
