"""SageMaker's toolkits: where their code may lie, whose defaults complete it, which variables of a
model's environment are honoured, and what is served without code."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from artifact_files import error_of, onnx_bytes, write

from penstock.artifacts.detection.detect import Detected, detect
from penstock.artifacts.detection.toolkits import served_as_it_is, toolkit_of
from penstock.runtimes.python import toolkit_variables

ECR = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
SKLEARN = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"
XGBOOST = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"
PYTORCH = f"{ECR}/pytorch-inference:2.6-cpu-py312"
HUGGINGFACE = f"{ECR}/huggingface-pytorch-inference:2.6.0-transformers4.51.3-cpu-py312-ubuntu22.04"
HANDLERS = "penstock.runtimes.toolkits."
LOADS = "def model_fn(model_dir): return 1\n"


def found(folder: Path, image: str = "", **environment: str) -> Detected:
    return detect(folder, image=image, environment=environment)


# Where the code lies


@pytest.mark.parametrize(
    ("files", "environment", "expected"),
    [
        (["code/inference.py"], {}, "code/inference.py"),
        (["inference.py"], {}, "inference.py"),
        (["inference.py", "code/inference.py"], {}, "code/inference.py"),
        (["inference.py", "code/inference.py"],
         {"SAGEMAKER_SUBMIT_DIRECTORY": "/opt/ml/model"}, "inference.py"),
        (["inference.py", "code/inference.py"],
         {"SAGEMAKER_SUBMIT_DIRECTORY": "file:///opt/ml/model/"}, "inference.py"),
        (["inference.py", "code/inference.py"],
         {"SAGEMAKER_SUBMIT_DIRECTORY": "/opt/ml/code"}, "code/inference.py"),
        (["inference.py", "src/inference.py"],
         {"SAGEMAKER_SUBMIT_DIRECTORY": "/opt/ml/model/src"}, "src/inference.py"),
        (["inference.py"], {"SAGEMAKER_SUBMIT_DIRECTORY": "/opt/ml/model/code"}, "inference.py"),
        (["serve.py", "inference.py"], {"SAGEMAKER_PROGRAM": "serve.py"}, "serve.py"),
        (["serve.py", "code/serve.py"], {"SAGEMAKER_PROGRAM": "serve.py"}, "code/serve.py"),
        (["code/serve.py"], {"SAGEMAKER_PROGRAM": "serve"}, "code/serve.py"),
    ],
)  # fmt: skip
def test_code_lies_where_the_toolkits_look_for_it(
    tmp_path: Path, files: list[str], environment: dict[str, str], expected: str
) -> None:
    write(tmp_path, dict.fromkeys(files, LOADS))
    assert found(tmp_path, **environment).description.file == expected


def test_a_script_of_that_name_at_the_root_is_no_model(tmp_path: Path) -> None:
    """It may be anything: only functions of the contract make it one."""
    write(tmp_path, {"inference.py": "print('run me')\n", "model.onnx": onnx_bytes()})
    assert found(tmp_path).description.file == "model.onnx"
    (tmp_path / "model.onnx").unlink()
    error = error_of(lambda: found(tmp_path))
    assert (error.code, "model_fn" in error.hint) == ("artifact-layout-unknown", True)


@pytest.mark.parametrize("code", ["from helpers import *\n", "def model_fn(:\n"])
def test_what_can_not_be_read_may_define_the_functions(tmp_path: Path, code: str) -> None:
    write(tmp_path, {"inference.py": code})
    assert found(tmp_path).description.file == "inference.py"


def test_a_program_that_is_missing_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"inference.py": LOADS})
    error = error_of(lambda: found(tmp_path, SAGEMAKER_PROGRAM="serve.py"))
    assert error.code == "artifact-incomplete"
    assert "code/serve.py" in error.message


@pytest.mark.parametrize("handler", ["input_handler(data, context)", "output_handler(r, context)"])
def test_code_for_tensorflow_serving_is_refused_by_its_handlers(
    tmp_path: Path, handler: str
) -> None:
    write(tmp_path, {"code/inference.py": f"def {handler}: return data\n"})
    error = error_of(lambda: found(tmp_path))
    assert error.code == "toolkit-not-served"
    assert handler.partition("(")[0] in error.message
    write(tmp_path, {"code/inference.py": f"def {handler}: return data\n{LOADS}"})
    assert found(tmp_path).description.runtime == "python"


# Whose defaults complete it


@pytest.mark.parametrize(
    ("image", "toolkit"),
    [(SKLEARN, "sklearn"), (XGBOOST, "xgboost"), (PYTORCH, "pytorch"),
     (HUGGINGFACE, "huggingface"), ("local://python", "")],
)  # fmt: skip
@pytest.mark.parametrize("file", ["inference.py", "code/inference.py"])
def test_the_images_toolkit_completes_the_code(
    tmp_path: Path, image: str, toolkit: str, file: str
) -> None:
    write(tmp_path, {file: LOADS, "model.joblib": b"\x80"})
    handler = found(tmp_path, image).description.handler
    assert handler == (HANDLERS + toolkit if toolkit else "")


@pytest.mark.parametrize(
    ("imports", "toolkit"),
    [
        ("import torch", "pytorch"),
        ("import torch.nn as nn\nfrom transformers import AutoModel", "huggingface"),
        ("from sklearn.svm import SVC", "sklearn"),
        ("import joblib", "sklearn"),
        ("import lightgbm as lgb", "sklearn"),
        ("try:\n    import xgboost\nexcept ImportError:\n    raise", "xgboost"),
        ("import xgboost, sklearn", ""),
        ("import torch, sklearn", ""),
        ("import numpy", ""),
        ("from . import torch", ""),
        ("def model_fn(d):\n    import torch\n    return torch", ""),
    ],
)
def test_without_an_image_the_frameworks_that_are_imported_decide(
    tmp_path: Path, imports: str, toolkit: str
) -> None:
    write(tmp_path, {"code/inference.py": f"{imports}\n{LOADS}"})
    assert found(tmp_path).description.handler == (HANDLERS + toolkit if toolkit else "")
    assert found(tmp_path, SKLEARN).description.handler == f"{HANDLERS}sklearn"


def test_a_model_yaml_is_completed_likewise(tmp_path: Path) -> None:
    write(tmp_path, {"model.yaml": "schema: 1\nruntime: python\n", "code/inference.py": LOADS})
    assert found(tmp_path).description.handler == ""
    assert found(tmp_path, PYTORCH).description.handler == f"{HANDLERS}pytorch"


def test_several_packages_of_one_framework_are_one() -> None:
    assert toolkit_of(["torch", "transformers", "numpy"]) == "huggingface"
    assert toolkit_of(["transformers", "xgboost"]) == ""
    assert toolkit_of([]) == ""


# Without code


def hugging_face(folder: Path, architecture: str = "BertForSequenceClassification") -> Path:
    write(folder, {"config.json": json.dumps({"architectures": [architecture]}),
                   "model.safetensors": b"weights"})  # fmt: skip
    return folder


def test_weights_are_served_by_the_images_toolkit(tmp_path: Path) -> None:
    hugging_face(tmp_path)
    description = found(tmp_path, HUGGINGFACE, MMS_DEFAULT_WORKERS_PER_MODEL="2").description
    assert (description.runtime, description.file, description.lanes) == (
        "python",
        "config.json",
        2,
    )
    assert description.handler == f"{HANDLERS}huggingface"
    assert served_as_it_is(tmp_path, "huggingface", {})
    assert not served_as_it_is(tmp_path, "", {})  # then they are compiled
    assert error_of(lambda: found(tmp_path, PYTORCH)).code == "artifact-layout-unknown"


def test_a_graph_or_an_engine_is_faster_than_a_toolkit(tmp_path: Path) -> None:
    write(hugging_face(tmp_path / "exported"), {"model.onnx": onnx_bytes()})
    assert found(tmp_path / "exported", HUGGINGFACE).description.file == "model.onnx"
    language = hugging_face(tmp_path / "language", "LlamaForCausalLM")
    assert not served_as_it_is(language, "huggingface", {})


def test_own_code_beside_weights_is_never_compiled(tmp_path: Path) -> None:
    write(hugging_face(tmp_path), {"serve.py": LOADS})
    assert not served_as_it_is(tmp_path, "", {})
    assert served_as_it_is(tmp_path, "", {"SAGEMAKER_PROGRAM": "serve.py"})
    write(tmp_path, {"inference.py": LOADS})
    assert served_as_it_is(tmp_path, "", {})


def torchscript(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("m/data.pkl", "m/constants.pkl", "m/code/__torch__.py"):
            archive.writestr(name, b"")
    return path


def test_torchscript_is_served_as_the_toolkit_chooses_it(tmp_path: Path) -> None:
    torchscript(tmp_path / "net.pth")
    description = found(tmp_path, PYTORCH).description
    assert (description.file, description.handler) == ("net.pth", f"{HANDLERS}pytorch")
    assert description.runtime == found(tmp_path).description.runtime == "torchscript"
    assert found(tmp_path).description.handler == "penstock.runtimes.torchscript.handler"
    for image in (PYTORCH, ""):
        lanes = found(tmp_path, image, TS_DEFAULT_WORKERS_PER_MODEL="2").description.lanes
        assert lanes == 2
    torchscript(tmp_path / "model.pt")
    assert found(tmp_path, PYTORCH).description.file == "model.pt"
    (tmp_path / "model.pt").rename(tmp_path / "other.pt")
    assert error_of(lambda: found(tmp_path, PYTORCH)).code == "artifact-ambiguous"
    for name in ("net.pth", "other.pt"):
        (tmp_path / name).unlink()
    with zipfile.ZipFile(tmp_path / "model.pt", "w") as archive:
        archive.writestr("m/data.pkl", b"pickled tensors")
    assert error_of(lambda: found(tmp_path, PYTORCH)).code == "artifact-untrusted"


# Variables


@pytest.mark.parametrize("name", [row.name for row in toolkit_variables.TABLE if row.workers])
def test_each_name_for_workers_is_honoured(tmp_path: Path, name: str) -> None:
    write(tmp_path, {"inference.py": LOADS})
    assert found(tmp_path, **{name: "3"}).description.lanes == 3
    error = error_of(lambda: found(tmp_path, **{name: "many"}))
    assert (error.code, name in error.message) == ("environment-invalid", True)


def test_the_first_name_for_one_thing_counts() -> None:
    environment = {"TS_DEFAULT_WORKERS_PER_MODEL": "2", "SAGEMAKER_MODEL_SERVER_WORKERS": "4"}
    assert toolkit_variables.workers(environment) == 4
    seconds = {"MMS_DEFAULT_RESPONSE_TIMEOUT": "7", "SAGEMAKER_TS_RESPONSE_TIMEOUT": "5"}
    limited = toolkit_variables.with_time_limit(seconds)
    assert limited["SAGEMAKER_MODEL_SERVER_TIMEOUT"] == "5"


@pytest.mark.parametrize(
    ("name", "value"),
    [("SAGEMAKER_HANDLER", "mine.py"), ("TS_DEFAULT_SERVICE_HANDLER", "mine:handle"),
     ("SAGEMAKER_BASE_DIR", "/data"), ("SAGEMAKER_TFS_ENABLE_BATCHING", "true"),
     ("SAGEMAKER_INFERENCE_ACCELERATOR_PRESENT", "true")],
)  # fmt: skip
@pytest.mark.parametrize("declared", [False, True])
def test_what_would_change_an_answer_is_refused_by_name(
    tmp_path: Path, name: str, value: str, declared: bool
) -> None:
    write(tmp_path, {"code/inference.py": LOADS})
    if declared:
        write(tmp_path, {"model.yaml": "schema: 1\nruntime: python\n"})
    error = error_of(lambda: found(tmp_path, **{name: value}))
    assert (error.code, name in error.message) == ("variable-not-served", True)
    assert name in error.hint


def test_what_changes_nothing_is_not_refused(tmp_path: Path) -> None:
    write(tmp_path, {"inference.py": LOADS})
    harmless = {
        "SAGEMAKER_SERVING_MODULE": "sagemaker_sklearn_container.serving:main",
        "SAGEMAKER_BASE_DIR": "/opt/ml",
        "SAGEMAKER_INFERENCE_ACCELERATOR_PRESENT": "false",
        "SAGEMAKER_BIND_TO_PORT": "8080",
        "SAGEMAKER_MINE": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "MY_OWN": "x",
    }
    assert found(tmp_path, **harmless).description.file == "inference.py"
    notes = toolkit_variables.notes(harmless)
    assert [line.split()[0] for line in notes] == ["SAGEMAKER_BIND_TO_PORT", "SAGEMAKER_MINE"]
