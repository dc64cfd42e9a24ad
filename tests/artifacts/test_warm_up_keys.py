"""Warm-up requests as model.yaml and Triton's config.pbtxt say them."""

from __future__ import annotations

import pytest

from penstock.artifacts.description.description import WarmUp, WarmUpTensor
from penstock.artifacts.description.model_yaml import dump, parse
from penstock.artifacts.triton.config import parse_config
from penstock.errors import CallerError

HEAD = "schema: 1\nruntime: openvino\nfile: model.onnx\n"

YAML = """
warmup:
  - body: '{"instances": [[1, 2]]}'
    times: 3
  - name: photo
    file: warmup/photo.jpg
    content_type: image/jpeg
    accept: text/csv
  - tensors:
      - {name: x, dtype: FP32, shape: [1, 4]}
      - {name: mask, dtype: INT64, shape: [1, 4], fill: random}
      - {name: raw, dtype: UINT8, shape: [2], file: warmup/raw}
"""
READ = (
    WarmUp(body='{"instances": [[1, 2]]}', times=3),
    WarmUp(name="photo", file="warmup/photo.jpg", content_type="image/jpeg", accept="text/csv"),
    WarmUp(
        tensors=(
            WarmUpTensor(name="x", dtype="FP32", shape=(1, 4)),
            WarmUpTensor(name="mask", dtype="INT64", shape=(1, 4), fill="random"),
            WarmUpTensor(name="raw", dtype="UINT8", shape=(2,), file="warmup/raw"),
        )
    ),
)


def test_requests_are_read_and_written_back() -> None:
    description = parse(HEAD + YAML)
    assert description.warmup == READ
    assert parse(dump(description)) == description


@pytest.mark.parametrize(
    ("item", "named"),
    [
        ("{}", "warmup[0].body"),
        ("{body: a, file: b}", "warmup[0].body"),
        ("{body: a, times: 0}", "warmup[0].times"),
        ("{body: a, often: 2}", "warmup[0].often"),
        ("{file: ../secret}", "'..'"),
        ("{tensors: [{name: x, dtype: FP32, shape: [-1]}]}", "warmup[0].tensors[0].shape[0]"),
        ("{tensors: [{name: x, dtype: FP32, shape: [99999, 99999]}]}", "warmup[0].tensors"),
        ("{tensors: [{name: x, dtype: FP99, shape: [1]}]}", "warmup[0].tensors[0].dtype"),
        ("{tensors: [{name: x, dtype: FP32, shape: [1], fill: ones}]}", "tensors[0].fill"),
        (
            "{content_type: a/b, tensors: [{name: x, dtype: FP32, shape: [1]}]}",
            "warmup[0].content_type",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place(item: str, named: str) -> None:
    with pytest.raises(CallerError) as raised:
        parse(f"{HEAD}warmup: [{item}]")
    assert named in raised.value.message


def test_a_model_has_a_bounded_number_of_requests() -> None:
    with pytest.raises(CallerError, match="101 requests"):
        parse(HEAD + "warmup: [" + ", ".join(["{body: a}"] * 101) + "]")


def test_tritons_samples_have_rows_where_the_model_batches() -> None:
    config = parse_config(
        """
        max_batch_size: 8
        model_warmup [
          {
            name: "one"
            batch_size: 2
            inputs { key: "x" value { data_type: TYPE_FP32 dims: [ 3, 4 ] zero_data: true } }
            inputs { key: "y" value: { data_type: TYPE_INT64 dims: 1 random_data: true } }
            count: 5
          },
          { inputs { key: "x" value { data_type: TYPE_STRING dims: [ 1 ] input_data_file: "t" } } }
        ]
        """
    )
    assert config.warmup == (
        WarmUp(
            name="one",
            tensors=(
                WarmUpTensor(name="x", dtype="FP32", shape=(2, 3, 4)),
                WarmUpTensor(name="y", dtype="INT64", shape=(2, 1), fill="random"),
            ),
            times=5,
        ),
        WarmUp(
            tensors=(WarmUpTensor(name="x", dtype="BYTES", shape=(1, 1), file="warmup/t"),),
        ),
    )


def test_without_a_batch_dimension_a_samples_shape_is_as_written() -> None:
    config = parse_config(
        'model_warmup { inputs { key: "x" value { data_type: TYPE_BOOL dims: 7 zero_data: 1 } } }'
    )
    assert config.warmup[0].tensors[0].shape == (7,)


@pytest.mark.parametrize(
    ("sample", "named"),
    [
        ('inputs { key: "x" value { dims: 1 zero_data: true } }', "data_type"),
        ('inputs { key: "x" value { data_type: TYPE_FP32 dims: 1 } }', "zero_data"),
        ('inputs { value { data_type: TYPE_FP32 dims: 1 zero_data: true } }', "key"),
        ("batch_size: 9", "batch_size"),
        ("speed: 9", "speed"),
    ],
)  # fmt: skip
def test_tritons_mistakes_are_named(sample: str, named: str) -> None:
    with pytest.raises(CallerError) as raised:
        parse_config(f"max_batch_size: 8 model_warmup {{ {sample} }}")
    assert raised.value.code == "triton-config-invalid"
    assert named in raised.value.message
