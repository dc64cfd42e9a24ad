"""Triton ensembles from config.pbtxt: what is read, and what is refused with file and step."""

from __future__ import annotations

from pathlib import Path

import pytest
from artifact_files import error_of, onnx_bytes, write
from hypothesis import given
from hypothesis import strategies as st

from penstock.artifacts.description.description import (
    Batching,
    EnsembleStep,
    ModelDescription,
    ModelInside,
    TensorSpec,
)
from penstock.artifacts.detection.detect import detect
from penstock.artifacts.triton import triton_models
from penstock.artifacts.triton.config import parse_config
from penstock.artifacts.triton.ensemble import ModelTensors, check_steps, in_order
from penstock.errors import CallerError

#: As Triton's documentation has it, but for the sizes.
CLASSIFY_AND_SEGMENT = """
name: "ensemble_model"
platform: "ensemble"
max_batch_size: 1
input [ { name: "IMAGE" data_type: TYPE_STRING dims: [ 1 ] } ]
output [
  { name: "CLASSIFICATION" data_type: TYPE_FP32 dims: [ 1000 ] },
  { name: "SEGMENTATION" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] }
]
ensemble_scheduling {
  max_inflight_requests: 16
  step [
    {
      model_name: "image_preprocess_model"
      model_version: -1
      input_map { key: "RAW_IMAGE" value: "IMAGE" }
      output_map { key: "PREPROCESSED_OUTPUT" value: "preprocessed_image" }
    },
    {
      model_name: "classification_model"
      model_version: 3
      input_map { key: "FORMATTED_IMAGE" value: "preprocessed_image" }
      output_map { key: "CLASSIFICATION_OUTPUT" value: "CLASSIFICATION" }
    },
    {
      model_name: "segmentation_model"
      input_map { key: "FORMATTED_IMAGE" value: "preprocessed_image" }
      output_map: { key: "SEGMENTATION_OUTPUT", value: "SEGMENTATION" }
    }
  ]
}
"""


def test_the_steps_and_their_maps_are_read() -> None:
    config = parse_config(CLASSIFY_AND_SEGMENT)
    assert (config.name, config.backend) == ("ensemble_model", "ensemble")
    assert config.batching == Batching(rows_max=1)
    assert config.steps == (
        EnsembleStep(
            model="image_preprocess_model",
            inputs={"RAW_IMAGE": "IMAGE"},
            outputs={"PREPROCESSED_OUTPUT": "preprocessed_image"},
        ),
        EnsembleStep(
            model="classification_model",
            version=3,
            inputs={"FORMATTED_IMAGE": "preprocessed_image"},
            outputs={"CLASSIFICATION_OUTPUT": "CLASSIFICATION"},
        ),
        EnsembleStep(
            model="segmentation_model",
            inputs={"FORMATTED_IMAGE": "preprocessed_image"},
            outputs={"SEGMENTATION_OUTPUT": "SEGMENTATION"},
        ),
    )


MAPS = 'input_map { key: "a" value: "b" } output_map { key: "c" value: "d" }'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('platform: "ensemble"', "ensemble_scheduling is 'missing'"),
        ("ensemble_scheduling { }", "ensemble_scheduling.step is '0'"),
        ('backend: "python" ensemble_scheduling { step { } }', "platform is 'python'"),
        ("ensemble_scheduling { step { " + MAPS + " } }", "step[0].model_name is 'missing'"),
        ('ensemble_scheduling { step { model_name: "m" } }', "step[0].input_map is 'missing'"),
        ('ensemble_scheduling { step { model_name: "m" input_map { key: "a" value: "b" } } }',
         "step[0].output_map is 'missing'"),
        ('ensemble_scheduling { step { model_name: "m" input_map { key: "a" } } }',
         "step[0].input_map[0].value is 'empty'"),
        ('ensemble_scheduling { step { model_name: "m" input_map { key: "a" value: "b" } '
         'input_map { key: "a" value: "c" } } }', "step[0].input_map[1].key is 'a'"),
        ('ensemble_scheduling { step { model_name: "m" model_version: -2 ' + MAPS + " } }",
         "step[0].model_version is '-2'"),
        ('ensemble_scheduling { step { model_name: "m" retries: 3 ' + MAPS + " } }",
         "step[0].retries is not a field"),
        ('ensemble_scheduling { step { model_name: "m" model_namespace: "n" ' + MAPS + " } }",
         "step[0].model_namespace is not supported"),
        ("max_batch_size: 2 dynamic_batching { } ensemble_scheduling { step { } }",
         "dynamic_batching is not supported: an ensemble computes nothing itself"),
        ("instance_group { count: 2 } ensemble_scheduling { step { } }",
         "instance_group is not supported: an ensemble computes nothing itself"),
    ],
)  # fmt: skip
def test_a_wrong_configuration_names_its_field(text: str, words: str) -> None:
    assert words in error_of(lambda: parse_config(text)).message


# --- maps against models


def spec(name: str, *shape: int, dtype: str = "FP32") -> TensorSpec:
    return TensorSpec(name=name, dtype=dtype, shape=shape)


MODELS = {
    "tokens": ModelTensors(
        inputs=(spec("text", -1, 1, dtype="BYTES"),),
        outputs=(spec("ids", -1, -1, dtype="INT64"), spec("mask", -1, -1, dtype="INT64")),
        versions=(1,), rows_max=8,
    ),
    "encoder": ModelTensors(
        inputs=(spec("input_ids", -1, 16, dtype="INT64"), spec("mask", -1, -1, dtype="INT64")),
        outputs=(spec("vector", -1, 4),), versions=(2,), rows_max=8,
    ),
    "fixed": ModelTensors(
        inputs=(spec("vector", 2, 4),), outputs=(spec("score", 2, 1),), versions=(1,), rows_max=0
    ),
    "from its file": ModelTensors(inputs=(), outputs=(), versions=(1,), rows_max=8),
}  # fmt: skip
TOKENS = EnsembleStep(model="tokens", inputs={"text": "TEXT"}, outputs={"ids": "i", "mask": "m"})
ENCODE = EnsembleStep(
    model="encoder", inputs={"input_ids": "i", "mask": "m"}, outputs={"vector": "VECTOR"}
)
TEXT = (spec("TEXT", -1, 1, dtype="BYTES"),)
VECTOR = (spec("VECTOR", -1, 4),)


def check(
    *steps: EnsembleStep,
    inputs: tuple[TensorSpec, ...] = TEXT,
    outputs: tuple[TensorSpec, ...] = VECTOR,
    rows_max: int = 8,
) -> None:
    check_steps(steps, inputs, outputs, MODELS, rows_max=rows_max, where="e/config.pbtxt")


def test_steps_fit_in_whichever_order_they_stand() -> None:
    check(TOKENS, ENCODE)
    check(ENCODE, TOKENS)
    assert in_order((ENCODE, TOKENS), where="e") == (1, 0)


def test_a_batched_ensemble_may_hold_a_model_without_batches_where_the_sizes_fit() -> None:
    score = EnsembleStep(model="fixed", inputs={"vector": "VECTOR"}, outputs={"score": "SCORE"})
    check(TOKENS, ENCODE, score, outputs=(spec("SCORE", -1, 1),))


def test_what_a_configuration_leaves_to_the_model_file_is_not_judged_yet() -> None:
    step = EnsembleStep(model="from its file", inputs={"any": "TEXT"}, outputs={"what": "VECTOR"})
    check(step)


@pytest.mark.parametrize(
    ("steps", "more", "words"),
    [
        ([EnsembleStep(model="nobody", inputs={"a": "TEXT"}, outputs={"b": "VECTOR"})], {},
         "step 0 (nobody): the repository has no model 'nobody'"),
        ([TOKENS, EnsembleStep(model="encoder", version=7, inputs=ENCODE.inputs,
                               outputs=ENCODE.outputs)], {},
         "step 1 (encoder): it asks for version 7, served is 2"),
        ([TOKENS, ENCODE], {"rows_max": 9},
         "step 0 (tokens): the ensemble's max_batch_size is 9, its is 8"),
        ([TOKENS, EnsembleStep(model="encoder", inputs={"input_ids": "i", "maks": "m"},
                               outputs=ENCODE.outputs)], {},
         "step 1 (encoder): the model has no input 'maks'"),
        ([TOKENS, EnsembleStep(model="encoder", inputs={"input_ids": "i"},
                               outputs=ENCODE.outputs)], {},
         "step 1 (encoder): nothing is mapped to the model's input 'mask'"),
        ([TOKENS, EnsembleStep(model="encoder", inputs=ENCODE.inputs,
                               outputs={"logits": "VECTOR"})], {},
         "step 1 (encoder): the model has no output 'logits'"),
        ([TOKENS, TOKENS, ENCODE], {},
         "step 1 (tokens): the tensor 'i' is made twice: it is also an output of step 0"),
        ([EnsembleStep(model="tokens", inputs={"text": "TEXT"}, outputs={"ids": "TEXT"})], {},
         "the tensor 'TEXT' is made twice: it is also the ensemble's input"),
        ([EnsembleStep(model="encoder", inputs=ENCODE.inputs, outputs=ENCODE.outputs)], {},
         "step 0 (encoder): its input 'input_ids' is the tensor 'i', which nothing makes"),
        ([TOKENS], {}, "no step makes the ensemble's output 'VECTOR'"),
        ([TOKENS, ENCODE], {"outputs": (spec("VECTOR", -1, 5),)},
         "output: the tensor 'VECTOR' is [-1, 4], [-1, 5] is wanted"),
        ([TOKENS, ENCODE], {"outputs": (spec("VECTOR", -1, 4, dtype="FP16"),)},
         "output: the tensor 'VECTOR' is FP32, FP16 is wanted"),
        ([TOKENS, ENCODE], {"inputs": (spec("TEXT", -1, dtype="BYTES"),)},
         "step 0 (tokens), input 'text': the tensor 'TEXT' is [-1], [-1, 1] is wanted"),
        ([EnsembleStep(model="tokens", inputs={"text": "i"}, outputs={"ids": "i"})], {},
         "input 'text': the tensor 'i' is INT64, BYTES is wanted"),
        ([TOKENS, ENCODE], {"inputs": ()}, "the ensemble names no input"),
        ([TOKENS, ENCODE], {"outputs": ()}, "the ensemble names no output"),
    ],
)  # fmt: skip
def test_maps_that_do_not_fit_the_models_are_told_with_the_step(
    steps: list[EnsembleStep], more: dict[str, object], words: str
) -> None:
    error = error_of(lambda: check(*steps, **more))  # type: ignore[arg-type]
    assert error.code == "triton-ensemble-invalid"
    assert error.message.startswith("e/config.pbtxt")
    assert words in error.message
    assert error.hint


def test_steps_in_a_circle_are_named() -> None:
    loop = {"text": "x"}, {"text": "y"}
    steps = (
        EnsembleStep(model="there", inputs=loop[0], outputs={"out": "y"}),
        EnsembleStep(model="back", inputs=loop[1], outputs={"out": "x"}),
        EnsembleStep(model="apart", inputs={"text": "TEXT"}, outputs={"out": "z"}),
    )
    error = error_of(lambda: in_order(steps, where="e/config.pbtxt"))
    assert "the steps 0 (there), 1 (back) wait for one another" in error.message


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 6), min_size=1, max_size=3, unique=True),
            st.sampled_from([(), (), (), (4,), (9,)]),
        ),
        min_size=1, max_size=5,
    )
)  # fmt: skip
def test_whatever_maps_pass_can_be_run_in_the_order_that_is_given(
    maps: list[tuple[list[int], tuple[int, ...]]],
) -> None:
    """Of any maps: either they are refused, or every tensor that a step reads was there before it,
    and had one maker. Tensors 0 to 2 are the ensemble's inputs; each step makes the next one, and
    some make one more."""
    steps = tuple(
        EnsembleStep(
            model=f"m{at}",
            inputs={f"in{n}": str(tensor) for n, tensor in enumerate(reads)},
            outputs={f"out{n}": str(tensor) for n, tensor in enumerate((3 + at, *more))},
        )
        for at, (reads, more) in enumerate(maps)
    )
    models = {
        step.model: ModelTensors(
            inputs=tuple(spec(name, 1) for name in step.inputs),
            outputs=tuple(spec(name, 1) for name in step.outputs),
            versions=(1,), rows_max=0,
        )
        for step in steps
    }  # fmt: skip
    inputs = tuple(spec(str(tensor), 1) for tensor in range(3))
    outputs = (spec("3", 1),)
    if refused(steps, inputs, outputs, models):
        return
    order = in_order(steps, where="e")
    assert sorted(order) == list(range(len(steps)))
    there = {"0", "1", "2"}
    for at in order:
        assert set(steps[at].inputs.values()) <= there
        made = set(steps[at].outputs.values())
        assert not made & there
        there |= made


def refused(
    steps: tuple[EnsembleStep, ...],
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    models: dict[str, ModelTensors],
) -> bool:
    try:
        check_steps(steps, inputs, outputs, models, rows_max=0, where="e")
    except CallerError as error:
        return error.code == "triton-ensemble-invalid"
    return False


# --- repositories


def config(*lines: str) -> str:
    return "\n".join(lines)


X = 'input { name: "x" data_type: TYPE_FP32 dims: 4 }'
Y = 'output { name: "y" data_type: TYPE_FP32 dims: 4 }'
PLAIN = {"config.pbtxt": config("max_batch_size: 8", X, Y), "1/model.onnx": onnx_bytes()}
PYTHON = config('backend: "python" max_batch_size: 8', X, Y)
QUIET = {"config.pbtxt": PYTHON, "1/model.py": "class TritonPythonModel: ..."}
CALLER = {
    "config.pbtxt": PYTHON,
    "1/model.py": "import helper",
    "1/helper.py": "import triton_python_backend_utils as pb\npb.InferenceRequest(...)",
}


def ensemble(*models: str) -> dict[str, bytes | str]:
    """A chain: x of the first, y of the last."""
    tensors = ["x", *(f"t{at}" for at in range(len(models) - 1)), "y"]
    steps = [
        f'step {{ model_name: "{model}" input_map {{ key: "x" value: "{tensors[at]}" }} '
        f'output_map {{ key: "y" value: "{tensors[at + 1]}" }} }}'
        for at, model in enumerate(models)
    ]
    scheduling = "ensemble_scheduling { " + " ".join(steps) + " }"
    return {"config.pbtxt": config("max_batch_size: 8", X, Y, scheduling)}


def repository(root: Path, **models: dict[str, bytes | str]) -> Path:
    for name, files in models.items():
        write(root / name, files)
    return root


def named(description: ModelDescription) -> list[str]:
    return [each.name for each in description.models]


def test_the_only_ensemble_is_served_with_the_models_of_its_steps_and_no_others(
    tmp_path: Path,
) -> None:
    root = repository(tmp_path, a=PLAIN, b=QUIET, other=PLAIN, both=ensemble("a", "b"))
    detected = detect(root)
    description = detected.description
    assert detected.root == root / "both"
    assert (description.runtime, description.task, description.name) == (
        "pipeline", "tensor", "both",
    )  # fmt: skip
    assert description.version == "1", "a version folder may have got lost: it is empty"
    assert named(description) == ["a", "b"]
    first = description.models[0]
    assert isinstance(first, ModelInside)
    assert first.folder == "../a"
    alone = triton_models.named(detect(root / "a").description, "a")
    assert first.description == alone
    trusted = detect(root, trusted=True).description
    assert all(each.trusted for each in (trusted, *(each.description for each in trusted.models)))


def test_the_outermost_of_nested_ensembles_is_served(tmp_path: Path) -> None:
    root = repository(tmp_path, a=PLAIN, inner=ensemble("a"), outer=ensemble("inner", "a"))
    description = detect(root).description
    assert description.name == "outer"
    assert named(description) == ["a", "inner"]


def test_of_two_ensembles_one_must_be_named(tmp_path: Path) -> None:
    root = repository(tmp_path, a=PLAIN, one=ensemble("a"), two=ensemble("a"))
    assert error_of(lambda: detect(root)).code == "triton-model-ambiguous"
    chosen = {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "two"}
    assert detect(root, environment=chosen).description.name == "two"
    chosen = {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "a"}
    assert detect(root, environment=chosen).description.models == ()


def test_python_code_that_speaks_of_requests_is_given_the_whole_repository(tmp_path: Path) -> None:
    root = repository(tmp_path, a=PLAIN, quiet=QUIET, caller=CALLER, both=ensemble("a", "quiet"))
    chosen = {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "caller"}
    assert named(detect(root, environment=chosen).description) == ["a", "both", "quiet"]
    chosen = {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "quiet"}
    assert detect(root, environment=chosen).description.models == ()
    write(root / "both", ensemble("a", "caller"))
    chosen = {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "both"}
    inside = detect(root, environment=chosen).description.models
    assert {each.name: each.description.calls_models for each in inside} == {
        "a": False, "caller": True, "quiet": False,
    }  # fmt: skip


def test_ensembles_that_are_steps_of_one_another_are_refused(tmp_path: Path) -> None:
    root = repository(
        tmp_path, a=PLAIN, one=ensemble("two", "a"), two=ensemble("one"), top=ensemble("one")
    )
    error = error_of(lambda: detect(root))
    assert error.code == "triton-ensemble-invalid"
    assert "the ensembles one, two are steps of one another" in error.message


def test_a_step_that_is_not_there_or_wrong_is_told_by_its_name(tmp_path: Path) -> None:
    root = repository(tmp_path, a=PLAIN, both=ensemble("a", "b"))
    error = error_of(lambda: detect(root))
    assert error.message.startswith("both/config.pbtxt, step 1 (b): the repository has no model")
    write(root / "b", {"config.pbtxt": 'backend: "tensorrt"'})
    error = error_of(lambda: detect(root))
    assert error.code == "triton-config-unsupported"
    assert error.message.startswith("model 'b': ")
    write(root / "b", {**PLAIN, "config.pbtxt": 'name: "c"'})
    assert "name is 'c', and its folder is 'b'" in error_of(lambda: detect(root)).message


def test_an_ensemble_alone_has_no_models(tmp_path: Path) -> None:
    """An artifact of one model's folder has no repository around it: the cache is none. Nor has
    the error the name of the cache's folder."""
    mine = ensemble("a", "b")
    for text in (mine["config.pbtxt"], f'name: "both"\n{mine["config.pbtxt"]}'):
        write(tmp_path / "artifacts" / "sha256-17", {"config.pbtxt": text})
        write(tmp_path / "artifacts" / "a", PLAIN)
        error = error_of(lambda: detect(tmp_path / "artifacts" / "sha256-17"))
        assert error.code == "triton-ensemble-invalid"
        assert "the ensemble's steps, 'a', 'b', are not in the artifact" in error.message
        assert "sha256" not in error.message + error.hint


# --- models of a pipeline


PIPELINE = """
schema: 1
steps:
  - name: embed
    model: {folder: models/small}
    inputs: {x: $request.x}
"""


def test_a_pipelines_models_are_found_as_artifacts_of_their_own_would_be(tmp_path: Path) -> None:
    write(tmp_path, {"pipeline.yaml": PIPELINE})
    write(tmp_path / "models" / "small", {"model.onnx": onnx_bytes()})
    (model,) = detect(tmp_path).description.models
    assert (model.name, model.folder) == ("models/small", "models/small")
    assert model.description == detect(tmp_path / "models" / "small").description


@pytest.mark.parametrize(
    ("folder", "code"),
    [
        ("models/large", "artifact-incomplete"),
        ("../elsewhere", "artifact-path-unsafe"),
        ("empty", "artifact-layout-unknown"),
        ("nested", "pipeline-invalid"),
    ],
)
def test_a_pipelines_model_that_is_none_is_told_by_its_folder(
    tmp_path: Path, folder: str, code: str
) -> None:
    write(tmp_path, {"pipeline.yaml": PIPELINE.replace("models/small", folder), "empty/x": ""})
    write(tmp_path / "nested", {"pipeline.yaml": PIPELINE.replace("models/small", "deeper")})
    write(tmp_path / "nested" / "deeper", {"model.onnx": onnx_bytes()})
    error = error_of(lambda: detect(tmp_path))
    assert error.code == code
    assert folder in error.message
