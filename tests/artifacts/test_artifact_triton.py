"""Triton's config.pbtxt and repositories: what is taken over, and what is refused by name."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path

import pytest
from artifact_files import IR_XML, error_of, onnx_bytes, write

from penstock.artifacts.description.description import Batching, ModelDescription, TensorSpec
from penstock.artifacts.detection.detect import detect
from penstock.artifacts.triton.config import TritonConfig, parse_config
from penstock.core.batching.spec import LevelPolicy

FULL = """
# A classifier, as a team would write it.
name: "intent"
backend: "onnxruntime"
max_batch_size: 64
default_model_filename: "intent.onnx"
input [
  { name: "input_ids", data_type: TYPE_INT64, dims: [ -1 ] },
  { name: "text" data_type: TYPE_STRING dims: 1 }
]
output { name: "logits"; data_type: TYPE_FP32; dims: [ 7 ]; label_filename: "labels.txt" }
version_policy: { specific { versions: [ 1, 3 ] } }
dynamic_batching {
  preferred_batch_size: [ 32, 8 ]
  max_queue_delay_microseconds: 2500
  priority_levels: 2
  default_priority_level: 1
  default_queue_policy {
    timeout_action: REJECT
    default_timeout_microseconds: 100000
    max_queue_size: 500
  }
}
instance_group [ { count: 2 kind: KIND_CPU }, { kind: KIND_CPU } ]
parameters { key: "threshold" value: { string_value: "0.5" } }
parameters: { key: "FORCE" "_CPU" value { string_value: "yes" } }
optimization { graph { level: 1 } }
model_warmup [ { name: "w" batch_size: 1 } ]
"""


def test_a_full_configuration() -> None:
    config = parse_config(FULL)
    assert config.name == "intent"
    assert config.backend == "onnxruntime"
    assert config.file == "intent.onnx"
    assert config.versions == (1, 3)
    assert config.inputs == (
        TensorSpec(name="input_ids", dtype="INT64", shape=(-1, -1)),
        TensorSpec(name="text", dtype="BYTES", shape=(-1, 1)),
    )
    assert config.outputs == (TensorSpec(name="logits", dtype="FP32", shape=(-1, 7)),)
    assert config.label_files == {"logits": "labels.txt"}
    assert config.batching == Batching(
        rows_max=64,
        wait_s_max=0.0025,
        rows_preferred=(8, 32),
        queue_rows_max=500,
        queue_wait_s_max=0.1,
        priorities=2,
    )
    assert config.lanes == 3
    assert config.parameters == {"threshold": "0.5", "FORCE_CPU": "yes"}


def test_an_empty_configuration_leaves_everything_to_the_model_file() -> None:
    assert parse_config("") == TritonConfig(batching=Batching(rows_max=0))


def test_without_a_batch_dimension_shapes_are_as_written() -> None:
    config = parse_config('input { name: "x" data_type: TYPE_BF16 dims: [ 2, 3 ] }')
    assert config.inputs == (TensorSpec(name="x", dtype="BF16", shape=(2, 3)),)
    assert config.batching.rows_max == 0


def test_without_dynamic_batching_nothing_waits() -> None:
    assert parse_config("max_batch_size: 8").batching == Batching(rows_max=8, wait_s_max=0.0)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("max_batchsize: 8", "max_batchsize"),
        ("max_batch_size: -1", "max_batch_size"),
        ("max_batch_size: 1.5", "max_batch_size"),
        ('max_batch_size: "8"', "max_batch_size"),
        ("max_batch_size: 1 max_batch_size: 2", "max_batch_size"),
        ("name: intent", "name"),
        ("input { data_type: TYPE_FP32 dims: 1 }", "input[0].name"),
        ('input { name: "x" dims: 1 }', "input[0].data_type"),
        ('input { name: "x" data_type: TYPE_FP99 dims: 1 }', "input[0].data_type"),
        ('input { name: "x" data_type: "TYPE_FP32" dims: 1 }', "input[0].data_type"),
        ('input { name: "x" data_type: TYPE_FP32 }', "input[0].dims"),
        ('input { name: "x" data_type: TYPE_FP32 dims: [ 1, -2 ] }', "input[0].dims[1]"),
        ('input { name: "x" data_type: TYPE_FP32 dims: 1 size: 1 }', "input[0].size"),
        ("input: 1", "input[0]"),
        ("max_batch_size: 4 dynamic_batching { preferred_batch_size: 8 }",
         "dynamic_batching.preferred_batch_size[0]"),
        ("max_batch_size: 4 dynamic_batching { max_delay: 8 }", "dynamic_batching.max_delay"),
        ("instance_group { count: 2000 }", "instance_group[0].count"),
        ("instance_group { kind: KIND_TPU }", "instance_group[0].kind"),
        ("version_policy { specific { } }", "version_policy.specific.versions"),
        ('parameters { key: "a" } parameters { key: "a" }', "parameters[1].key"),
        ('input { name: "x" data_type: TYPE_BOOL dims: 1 optional: maybe }', "input[0].optional"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named_by_its_path(text: str, path: str) -> None:
    error = error_of(lambda: parse_config(text))
    assert error.code == "triton-config-invalid"
    assert error.message.startswith(f"config.pbtxt: {path} is ")


def test_an_environment_is_an_archive_in_the_model_s_own_folder() -> None:
    def config(place: str) -> str:
        return f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{place}" }} }}'

    found = parse_config(config("$$TRITON_MODEL_DIRECTORY/1/env.tar.gz"))
    assert found.packed_environment == "1/env.tar.gz"
    for place, code in (
        ("/opt/env.tar.gz", "triton-config-unsupported"),
        ("$$TRITON_MODEL_DIRECTORY/env", "triton-config-unsupported"),
        ("$$TRITON_MODEL_DIRECTORY/../env.tar.gz", "artifact-path-unsafe"),
    ):
        assert error_of(partial(parse_config, config(place))).code == code


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('platform: "tensorrt_plan"', "backend"),
        ('platform: "ensemble" instance_group { }', "instance_group"),
        ("sequence_batching { iterative_sequence: true }", "sequence_batching.iterative_sequence"),
        ("model_transaction_policy { decoupled: true }", "model_transaction_policy.decoupled"),
        ('input { name: "x" data_type: TYPE_FP32 dims: 1 is_shape_tensor: true }',
         "input[0].is_shape_tensor"),
        ("instance_group { passive: true }", "instance_group"),
        ('parameters { key: "EXECUTION_ENV_PATH" value { string_value: "e.tar.gz" } }',
         "parameters[EXECUTION_ENV_PATH]"),
    ],
)  # fmt: skip
def test_what_would_change_answers_is_refused_and_not_ignored(text: str, path: str) -> None:
    error = error_of(lambda: parse_config(text))
    assert error.code == "triton-config-unsupported"
    assert f"config.pbtxt: {path} is not supported" in error.message


def test_one_tensor_has_one_entry() -> None:
    tensor = 'input { name: "x" data_type: TYPE_FP32 dims: 1 }'
    assert "given twice" in error_of(lambda: parse_config(tensor * 2)).message


# --- repositories


def test_a_repository_in_one_top_folder(tmp_path: Path) -> None:
    write(
        tmp_path / "repository" / "intent",
        {
            "config.pbtxt": FULL,
            "labels.txt": "search\nmedia\n\n",
            "1/intent.onnx": onnx_bytes(),
            "2/intent.onnx": onnx_bytes(),
            "3/intent.onnx": onnx_bytes(),
            "4/intent.onnx": onnx_bytes(),
            "03/intent.onnx": onnx_bytes(),
        },
    )
    detected = detect(tmp_path)
    assert detected.root == tmp_path / "repository" / "intent"
    assert detected.description.file == "3/intent.onnx"
    assert detected.description.version == "3"
    assert detected.description.labels == ("search", "media")
    assert detected.description.runtime == "onnxruntime"
    assert detected.description.task == "tensor"


@pytest.mark.parametrize(
    ("policy", "version"),
    [
        ("", "10"),
        ("version_policy { latest { num_versions: 2 } }", "10"),
        ("version_policy { all { } }", "10"),
        ("version_policy { specific { versions: [ 2, 9 ] } }", "9"),
        ("version_policy: { specific: { versions: 2 } }", "2"),
    ],
)
def test_the_highest_version_of_the_policy_is_served(
    tmp_path: Path, policy: str, version: str
) -> None:
    """Versions are numbers: 10 is above 9."""
    write(tmp_path / "m", {f"{n}/model.onnx": onnx_bytes() for n in (2, 9, 10)})
    write(tmp_path / "m", {"config.pbtxt": policy})
    assert detect(tmp_path).description.version == version


def test_a_python_model(tmp_path: Path) -> None:
    write(
        tmp_path / "m",
        {
            "config.pbtxt": 'backend: "python" max_batch_size: 4 '
            'input { name: "x" data_type: TYPE_STRING dims: 1 }',
            "1/model.py": "class TritonPythonModel: ...",
        },
    )
    described = detect(tmp_path).description
    assert dataclasses.replace(described, triton=None) == ModelDescription(
        runtime="python",
        task="payload",
        name="m",
        file="1/model.py",
        inputs=(TensorSpec(name="x", dtype="BYTES", shape=(-1, 1)),),
        batching=Batching(rows_max=4),
        triton_python=True,
    )


def test_an_openvino_model_and_an_onnx_model_run_by_openvino(tmp_path: Path) -> None:
    ir = write(
        tmp_path / "ir",
        {"config.pbtxt": 'backend: "openvino"', "1/model.xml": IR_XML, "1/model.bin": bytes(16)},
    )
    assert detect(ir).description.runtime == "openvino"
    onnx = write(tmp_path / "onnx", {"config.pbtxt": "", "1/model.onnx": onnx_bytes()})
    assert detect(onnx).description.runtime == "onnxruntime"
    assert detect(onnx, runtime="openvino").description.runtime == "openvino"


def test_an_onnx_model_with_its_weights_in_a_folder(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"config.pbtxt": 'platform: "onnxruntime_onnx"', "1/model.onnx/model.onnx": onnx_bytes()},
    )
    assert detect(tmp_path).description.file == "1/model.onnx/model.onnx"


def test_several_models_need_a_choice(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, {"config.pbtxt": "", "1/model.onnx": onnx_bytes()})
    error = error_of(lambda: detect(tmp_path))
    assert error.code == "triton-model-ambiguous"
    assert "'a', 'b'" in error.message
    chosen = detect(tmp_path, environment={"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "b"})
    assert chosen.root == tmp_path / "b"
    error = error_of(
        lambda: detect(tmp_path, environment={"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "c"})
    )
    assert error.code == "triton-model-missing"


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({"config.pbtxt": ""}, "artifact-incomplete"),
        ({"config.pbtxt": "", "1/other.bin": "x"}, "artifact-incomplete"),
        ({"config.pbtxt": 'backend: "python"', "1/x": ""}, "artifact-incomplete"),
        ({"config.pbtxt": "version_policy { specific { versions: 7 } }", "1/model.onnx": ""},
         "artifact-incomplete"),
        ({"config.pbtxt": 'default_model_filename: "../../x.onnx" backend: "onnxruntime"',
          "1/model.onnx": ""}, "artifact-path-unsafe"),
        ({"config.pbtxt": b"\xff\xfe", "1/model.onnx": ""}, "triton-config-invalid"),
        ({"config.pbtxt": "", "1/model.onnx": onnx_bytes()[:-9]}, "model-file-invalid"),
        ({"config.pbtxt": 'backend: "openvino" input { name: "x" data_type: TYPE_STRING dims: 1 }',
          "1/model.xml": IR_XML, "1/model.bin": bytes(16)}, "triton-config-unsupported"),
    ],
)  # fmt: skip
def test_an_incomplete_repository(tmp_path: Path, files: dict[str, bytes | str], code: str) -> None:
    assert error_of(lambda: detect(write(tmp_path / "m", files))).code == code


def test_each_priority_level_may_have_a_policy_of_its_own() -> None:
    config = parse_config(
        """max_batch_size: 8 dynamic_batching {
          priority_levels: 3 default_priority_level: 2
          default_queue_policy { default_timeout_microseconds: 500000 max_queue_size: 7 }
          priority_queue_policy { key: 3 value {
            timeout_action: DELAY default_timeout_microseconds: 1000000 } } }"""
    )
    usual = LevelPolicy(rows_max=7, wait_s_max=0.5)
    assert config.batching == Batching(
        rows_max=8,
        priorities=3,
        priority_default=1,
        levels=(usual, usual, LevelPolicy(wait_s_max=1.0, delays=True)),
    )
    for entry in ("key: 4", "key: 0", "value { }"):
        text = f"dynamic_batching {{ priority_levels: 3 priority_queue_policy {{ {entry} }} }}"
        assert error_of(partial(parse_config, text)).code == "triton-config-invalid"
