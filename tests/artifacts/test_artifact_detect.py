"""What an artifact is taken for: the order of the layouts, images as hints, and clear refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from artifact_files import IR_XML, error_of, onnx_bytes, write
from onnx import TensorProto

from penstock.artifacts.description.description import (
    Batching,
    Embedding,
    ModelDescription,
    Tokenizer,
)
from penstock.artifacts.detection.detect import detect
from penstock.artifacts.detection.images import image_hint
from penstock.artifacts.files.onnx_header import OnnxTensor, read_header

IR = {"model.xml": IR_XML, "model.bin": bytes(16)}
EVERYTHING = {
    "model.yaml": "{schema: 1, runtime: onnxruntime, name: explicit}",
    "code/inference.py": "",
    "t/config.pbtxt": "",
    "t/1/model.onnx": onnx_bytes(),
    **IR,
    "model.onnx": onnx_bytes(),
}


@pytest.mark.parametrize(
    ("removed", "runtime", "file"),
    [
        (0, "onnxruntime", "model.onnx"),
        (1, "python", "code/inference.py"),
        (2, "onnxruntime", "1/model.onnx"),
        (4, "openvino", "model.xml"),
        (6, "openvino", "model.onnx"),
    ],
)
def test_the_order_of_the_layouts(tmp_path: Path, removed: int, runtime: str, file: str) -> None:
    """model.yaml, code/inference.py, Triton repository, OpenVINO IR, ONNX."""
    write(tmp_path, dict(list(EVERYTHING.items())[removed:]))
    description = detect(tmp_path).description
    assert (description.runtime, description.file) == (runtime, file)


def test_one_folder_around_everything_is_stepped_into(tmp_path: Path) -> None:
    write(tmp_path / "my_model", {"model.onnx": onnx_bytes()})
    assert detect(tmp_path).root == tmp_path / "my_model"


def test_a_folder_named_code_is_not_stepped_into(tmp_path: Path) -> None:
    write(tmp_path, {"code/inference.py": ""})
    detected = detect(tmp_path)
    assert detected.root == tmp_path
    assert detected.description == ModelDescription(
        runtime="python", task="payload", file="code/inference.py"
    )


def test_sagemakers_variables_name_the_program_and_the_workers(tmp_path: Path) -> None:
    write(tmp_path, {"code/serve.py": "", "code/inference.py": ""})
    environment = {"SAGEMAKER_PROGRAM": "serve.py", "SAGEMAKER_MODEL_SERVER_WORKERS": "3"}
    description = detect(tmp_path, environment=environment).description
    assert (description.file, description.lanes) == ("code/serve.py", 3)
    for bad in (
        {"SAGEMAKER_PROGRAM": "missing.py"},
        {"SAGEMAKER_PROGRAM": "../../etc/passwd"},
        {"SAGEMAKER_MODEL_SERVER_WORKERS": "many"},
        {"SAGEMAKER_MODEL_SERVER_WORKERS": "99999"},
    ):
        error_of(lambda bad=bad: detect(tmp_path, environment=bad))


# --- ONNX and IR


@pytest.mark.parametrize(
    ("batch", "rows_max"),
    [("batch_size", 32), ("N", 32), ("sequence", 0), (1, 0), (None, 0)],
)
def test_rows_are_joined_only_where_the_file_names_its_batch(
    tmp_path: Path, batch: object, rows_max: int
) -> None:
    """A free first dimension may be a sequence's length: joining would change answers."""
    write(tmp_path, {"model.onnx": onnx_bytes(batch=batch)})
    assert detect(tmp_path).description.batching == Batching(rows_max=rows_max)


def test_the_header_of_an_onnx_file(tmp_path: Path) -> None:
    write(tmp_path, {"m.onnx": onnx_bytes(batch="b", dtype=TensorProto.INT64)})
    header = read_header(tmp_path / "m.onnx", shown="m.onnx")
    assert header.inputs == (OnnxTensor("x", "INT64", ("b", 4)),)
    assert header.outputs == (OnnxTensor("y", "INT64", ("b", 4)),)


def test_weights_that_old_files_list_among_the_inputs_are_no_inputs(tmp_path: Path) -> None:
    import onnx

    model = onnx.load_from_string(onnx_bytes())
    model.graph.initializer.append(onnx.numpy_helper.from_array(__import__("numpy").ones(4), "w"))
    model.graph.input.append(onnx.helper.make_tensor_value_info("w", TensorProto.DOUBLE, [4]))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert [t.name for t in read_header(tmp_path / "m.onnx", shown="m").inputs] == ["x"]


def test_string_tensors_go_to_onnx_runtime(tmp_path: Path) -> None:
    write(tmp_path, {"model.onnx": onnx_bytes(dtype=TensorProto.STRING)})
    assert detect(tmp_path).description.runtime == "onnxruntime"
    error = error_of(lambda: detect(tmp_path, runtime="openvino"))
    assert error.code == "runtime-mismatch"


@pytest.mark.parametrize("keep", [0, 1, 10, 40, 60, -1])
def test_an_onnx_file_cut_short_is_named(tmp_path: Path, keep: int) -> None:
    write(tmp_path, {"model.onnx": onnx_bytes()[:keep]})
    error = error_of(lambda: detect(tmp_path))
    assert error.code == "model-file-invalid"
    assert "model.onnx" in error.message


@pytest.mark.parametrize(
    ("files", "code", "named"),
    [
        ({"model.xml": IR_XML}, "artifact-incomplete", "model.bin"),
        ({"model.xml": IR_XML, "model.bin": bytes(15)}, "model-file-invalid", "model.bin"),
        ({"model.xml": IR_XML[:-20], "model.bin": bytes(16)}, "model-file-invalid", "model.xml"),
    ],
)
def test_an_ir_that_is_not_whole_is_named(
    tmp_path: Path, files: dict[str, bytes | str], code: str, named: str
) -> None:
    error = error_of(lambda: detect(write(tmp_path, files)))
    assert error.code == code
    assert named in error.message


def test_other_xml_files_are_no_models(tmp_path: Path) -> None:
    write(tmp_path, {"pom.xml": "<project/>", "openvino_tokenizer.xml": IR_XML, **IR})
    assert detect(tmp_path).description.file == "model.xml"


def test_several_models_are_ambiguous_unless_one_has_the_usual_name(tmp_path: Path) -> None:
    write(tmp_path, {"a.onnx": onnx_bytes(), "b.onnx": onnx_bytes()})
    error = error_of(lambda: detect(tmp_path))
    assert error.code == "artifact-ambiguous"
    assert "'a.onnx', 'b.onnx'" in error.message
    write(tmp_path, {"model.onnx": onnx_bytes()})
    assert detect(tmp_path).description.file == "model.onnx"


# --- model.yaml together with the files


@pytest.mark.parametrize(
    ("yaml", "code"),
    [
        ("{schema: 1, runtime: openvino, file: missing.onnx}", "artifact-incomplete"),
        ("{schema: 1, runtime: openvino, file: notes.txt}", "model-yaml-invalid"),
        ("{schema: 1, runtime: onnxruntime, file: model.xml}", "model-yaml-invalid"),
        ("{schema: 1, runtime: python}", "artifact-incomplete"),
        ("{schema: 1, runtime: python, file: model.onnx}", "model-yaml-invalid"),
        ("{schema: 1, runtime: openvino, task: text-classification, labels: [a], tokenizer: {}}",
         "artifact-incomplete"),
    ],
)  # fmt: skip
def test_what_model_yaml_names_must_be_there(tmp_path: Path, yaml: str, code: str) -> None:
    write(tmp_path, {"model.yaml": yaml, "notes.txt": "", "model.onnx": onnx_bytes(), **IR})
    assert error_of(lambda: detect(tmp_path)).code == code


def test_a_link_out_of_the_artifact_is_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "out", {"model.onnx": onnx_bytes()})
    write(tmp_path / "m", {"model.yaml": "{schema: 1, runtime: openvino, file: model.onnx}"})
    (tmp_path / "m/model.onnx").symlink_to(tmp_path / "out/model.onnx")
    assert error_of(lambda: detect(tmp_path / "m")).code == "artifact-path-unsafe"


def test_trust_comes_from_the_operator_alone(tmp_path: Path) -> None:
    write(tmp_path, {"code/inference.py": "", "model.joblib": ""})
    assert detect(tmp_path).description.trusted is False
    assert detect(tmp_path, trusted=True).description.trusted is True


# --- Hugging Face exports


CLASSIFIER = {
    "model.onnx": onnx_bytes(batch="batch_size"),
    "tokenizer.json": "{}",
    "config.json": json.dumps(
        {
            "architectures": ["BertForSequenceClassification"],
            "id2label": {"1": "media", "0": "search"},
            "pad_token_id": 3,
            "max_position_embeddings": 128,
        }
    ),
    "tokenizer_config.json": json.dumps({"model_max_length": 1e30}),
}


def test_an_exported_classifier_takes_text_and_gives_labels(tmp_path: Path) -> None:
    assert detect(write(tmp_path, CLASSIFIER)).description == ModelDescription(
        runtime="openvino",
        task="text-classification",
        file="model.onnx",
        labels=("search", "media"),
        tokenizer=Tokenizer(tokens_max=128, pad_id=3),
        batching=Batching(rows_max=32),
        runtime_fallback="onnxruntime",
    )


@pytest.mark.parametrize(
    "change",
    [
        {"problem_type": "multi_label_classification"},
        {"architectures": ["BertForMaskedLM"]},
        {"id2label": {"0": "a", "2": "b"}},
        {"architectures": None},
    ],
)
def test_what_is_not_surely_a_classifier_stays_a_tensor_model(
    tmp_path: Path, change: dict[str, object]
) -> None:
    config = json.loads(CLASSIFIER["config.json"]) | change
    write(tmp_path, CLASSIFIER | {"config.json": json.dumps(config)})
    assert detect(tmp_path).description.task == "tensor"


def test_an_exported_sentence_encoder_gives_vectors(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "model.onnx": onnx_bytes(),
            "tokenizer.json": "{}",
            "config.json": '{"architectures": ["BertModel"]}',
            "1_Pooling/config.json": '{"pooling_mode_cls_token": true, '
            '"pooling_mode_mean_tokens": false, "word_embedding_dimension": 4}',
            "sentence_bert_config.json": '{"max_seq_length": 256}',
        },
    )
    description = detect(tmp_path).description
    assert description.task == "feature-extraction"
    assert description.embedding == Embedding(pooling="cls", normalize=False)
    assert description.tokenizer == Tokenizer(tokens_max=256)


def test_broken_json_of_an_exporter_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, CLASSIFIER | {"config.json": "{"})
    error = error_of(lambda: detect(tmp_path))
    assert error.code == "model-file-invalid"
    assert "config.json" in error.message


# --- what is not understood


@pytest.mark.parametrize(
    ("files", "code", "words"),
    [
        ({"readme.txt": ""}, "artifact-layout-unknown", "it holds 'readme.txt'"),
        ({"config.json": "{}", "model.safetensors": ""}, "artifact-layout-unknown", "compiling"),
        ({"config.json": "{}", "pytorch_model.bin": ""}, "artifact-untrusted", "pickle"),
        ({"model.joblib": ""}, "artifact-untrusted", "trusted_artifacts"),
        ({"model.pt": ""}, "artifact-untrusted", "ONNX"),
        ({"xgboost-model": ""}, "artifact-untrusted", "pickle"),
        ({"inference.py": ""}, "artifact-layout-unknown", "model_fn(model_dir)"),
        ({"model.yml": ""}, "artifact-layout-unknown", "Rename"),
        ({"model.gguf": ""}, "artifact-layout-unknown", "generation"),
        ({"model.tar.gz": ""}, "artifact-layout-unknown", "CompressionType"),
        ({"graph.pb": ""}, "artifact-layout-unknown", "TensorFlow"),
        ({"serving.properties": ""}, "artifact-layout-unknown", "DJL"),
        ({"adapter_config.json": "{}", "a.safetensors": ""}, "artifact-layout-unknown", "LoRA"),
        ({"m.bin": ""}, "artifact-layout-unknown", ".xml"),
    ],
)
def test_a_refusal_says_what_it_saw_and_what_to_do(
    tmp_path: Path, files: dict[str, str], code: str, words: str
) -> None:
    error = error_of(lambda: detect(write(tmp_path, files)))
    assert error.code == code
    assert words in f"{error.message} {error.hint}"


def test_a_trusted_pickle_still_needs_code_that_serves_it(tmp_path: Path) -> None:
    error = error_of(lambda: detect(write(tmp_path, {"model.joblib": ""}), trusted=True))
    assert error.code == "artifact-layout-unknown"
    assert "code/inference.py" in error.hint


# --- images


ECR = "763104351884.dkr.ecr.us-east-1.amazonaws.com"


@pytest.mark.parametrize(
    ("image", "kind"),
    [
        ("", ""),
        (f"{ECR}/djl-inference:0.29.0-lmi11.0.0-cu124", "generation"),
        (f"{ECR}/huggingface-pytorch-tgi-inference:2.3.0-tgi2.2.0-gpu", "generation"),
        ("vllm/vllm-openai:latest", "generation"),
        ("lmsysorg/sglang", "generation"),
        (f"{ECR}/sagemaker-tritonserver:24.09-py3", "triton"),
        (f"{ECR}/huggingface-pytorch-inference:2.1.0", "python"),
        (f"{ECR}/pytorch-inference:2.3.0-cpu-py311", "python"),
        ("683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1", "python"),
        ("683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1", "python"),
        ("registry/filmindex:1", "unknown"),
        ("registry/latgidas", "unknown"),
        ("local://triton", "triton"),
        ("local://openvino", "local"),
    ],
)
def test_what_an_image_stands_for(image: str, kind: str) -> None:
    assert image_hint(image, {}).kind == kind


def test_the_operators_mapping_comes_first() -> None:
    commands = {"vllm": ("serve-llm",), "registry/*:prod": ("serve",)}
    assert image_hint("vllm/vllm-openai", commands).command == ("serve-llm",)
    assert image_hint("registry/any:prod", commands).command == ("serve",)
    assert image_hint("registry/any:test", commands).kind == "unknown"


def test_a_local_image_names_the_runtime(tmp_path: Path) -> None:
    write(tmp_path, {**IR, "model.onnx": onnx_bytes()})
    description = detect(tmp_path, image="local://onnxruntime").description
    assert (description.runtime, description.file) == ("onnxruntime", "model.onnx")
    assert error_of(lambda: detect(tmp_path, image="local://python")).code == (
        "artifact-layout-unknown"
    )
    assert error_of(lambda: detect(tmp_path, image="local://tensorrt")).code == "runtime-unknown"
    assert error_of(lambda: detect(tmp_path, runtime="tensorrt")).code == "runtime-unknown"


def test_a_generation_image_is_refused_unless_the_artifact_explains_itself(tmp_path: Path) -> None:
    write(tmp_path, {"model.onnx": onnx_bytes()})
    error = error_of(lambda: detect(tmp_path, image="vllm/vllm-openai"))
    assert error.code == "artifact-no-language-model"
    assert "no language model" in error.message
    write(tmp_path, {"model.yaml": "{schema: 1, runtime: onnxruntime}"})
    assert detect(tmp_path, image="vllm/vllm-openai").description.runtime == "onnxruntime"


def test_a_plain_file_beside_an_image_that_nothing_knows_is_refused(tmp_path: Path) -> None:
    """The image would have said how the file is served; nginx says nothing."""
    write(tmp_path, {"model.onnx": onnx_bytes()})
    assert error_of(lambda: detect(tmp_path, image="nginx")).code == "image-not-mapped"
    of_an_account = "123456789012.dkr.ecr.us-east-1.amazonaws.com/ours:1"
    assert detect(tmp_path, image=of_an_account).description.runtime == "openvino"


def test_an_unknown_image_is_no_obstacle_to_a_known_layout(tmp_path: Path) -> None:
    own = {"model.onnx": onnx_bytes(), "model.yaml": "{schema: 1, runtime: onnxruntime}"}
    write(tmp_path / "known", own)
    assert detect(tmp_path / "known", image="registry/ours:1").description.runtime == "onnxruntime"
    write(tmp_path / "unknown", {"weights.dat": ""})
    error = error_of(lambda: detect(tmp_path / "unknown", image="registry/ours:1"))
    assert error.code == "image-not-mapped"
    assert "registry/ours:1" in error.message
    assert "control.image_commands" in error.hint


def test_a_mapped_image_runs_its_command_whatever_the_artifact_is(tmp_path: Path) -> None:
    write(tmp_path, {"weights.dat": ""})
    detected = detect(tmp_path, image="ours:1", image_commands={"ours": ("serve", "{port}")})
    assert detected.description == ModelDescription(
        runtime="process", task="payload", command=("serve", "{port}"), mapped_command=True
    )
    assert detected.root == tmp_path
