"""Files of other tools are known by their content, and what can be done is said in commands."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest
from artifact_files import error_of, write

from penstock.artifacts.detection.detect import detect
from penstock.artifacts.detection.server_code import web_apps
from penstock.artifacts.detection.torch_files import classes_of
from penstock.artifacts.files.model_files import saved_model

TENSORS = (
    b"\x80\x02ccollections\nOrderedDict\nctorch._utils\n_rebuild_tensor_v2\nctorch\nFloatStorage\n."
)
MODULE = b"\x80\x02cmy_code\nNet\nctorch._utils\n_rebuild_tensor_v2\n."


def archive(**parts: bytes) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as made:
        for name, content in parts.items():
            made.writestr(name.replace("__", "/").replace("_DOT_", "."), content)
    return held.getvalue()


def torchscript() -> bytes:
    return archive(
        m__data_DOT_pkl=MODULE, m__constants_DOT_pkl=b".", m__code__net_DOT_py=b"", m__version=b"3"
    )


def put(root: Path, name: str, content: bytes) -> Path:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(content)
    return root


@pytest.mark.parametrize("name", ["model.pt", "net.pth", "a.ts"])
def test_torchscript_is_known_by_its_parts(name: str, tmp_path: Path) -> None:
    found = detect(put(tmp_path, name, torchscript())).description
    assert (found.runtime, found.file, found.task) == ("torchscript", name, "payload")
    assert found.framework == ("torch",)
    assert found.handler == "penstock.runtimes.torchscript.handler"


def test_a_description_may_name_the_runtime(tmp_path: Path) -> None:
    put(tmp_path, "net.pt", torchscript())
    write(tmp_path, {"model.yaml": "schema: 1\nruntime: torchscript\nlanes: 2\n"})
    found = detect(tmp_path).description
    assert (found.file, found.lanes, found.framework) == ("net.pt", 2, ("torch",))


@pytest.mark.parametrize(
    ("content", "code", "words", "remedy"),
    [
        (archive(m__data_DOT_pkl=TENSORS), "artifact-layout-unknown", "state_dict", "jit.script"),
        (archive(m__data_DOT_pkl=MODULE), "artifact-untrusted", "my_code.Net", "code/inference.py"),
        (archive(m__models__model_DOT_json=b""), "artifact-layout-unknown", "export", "mv m.pt m"),
    ],
)  # fmt: skip
def test_other_files_of_pytorch_are_told_apart(
    content: bytes, code: str, words: str, remedy: str, tmp_path: Path
) -> None:
    error = error_of(lambda: detect(put(tmp_path, "m.pt", content)))
    assert error.code == code
    assert words in error.message
    assert remedy in error.hint


def test_the_classes_of_a_pickle_are_read_without_making_them() -> None:
    assert classes_of(TENSORS) == []
    assert classes_of(MODULE) == ["my_code.Net"]
    assert classes_of(b"\x80\x04\x8c\x02os\x8c\x06system\x93.") == ["os.system"]


def keras(*layers: str) -> bytes:
    config = {"config": {"layers": [{"class_name": each} for each in layers]}}
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as made:
        made.writestr("config.json", json.dumps(config, separators=(",", ":")))
        made.writestr("model.weights.h5", b"")
    return held.getvalue()


def test_a_keras_model_needs_its_library_and_no_code(tmp_path: Path) -> None:
    found = detect(put(tmp_path / "a", "model.keras", keras("Dense"))).description
    assert (found.runtime, found.framework) == ("keras", ("keras>=3", "tensorflow-cpu"))
    code = put(tmp_path / "b", "model.keras", keras("Dense", "Lambda"))
    assert error_of(lambda: detect(code)).code == "artifact-untrusted"
    for trust in ("trusted", "vouched"):  # it runs behind the walls of its worker for both
        found = detect(code, **{trust: True}).description
        assert (found.runtime, found.trusted, found.unconfined) == ("keras", True, False)


def test_hdf5_with_weights_alone_is_no_model(tmp_path: Path) -> None:
    magic = b"\x89HDF\r\n\x1a\n"
    whole = put(tmp_path / "a", "m.h5", magic + b"model_config {}")
    assert detect(whole).description.runtime == "keras"
    hidden = magic + b'model_config {"class_name": "Lambda"}'
    assert (
        error_of(lambda: detect(put(tmp_path / "b", "m.h5", hidden))).code == "artifact-untrusted"
    )
    error = error_of(lambda: detect(put(tmp_path / "c", "m.h5", magic + b"weights")))
    assert "no whole model of Keras" in error.message


def test_a_saved_model_is_the_newest_of_its_versions(tmp_path: Path) -> None:
    for version in ("1", "9", "10"):
        put(tmp_path, f"export/Servo/{version}/saved_model.pb", b"x")
    assert saved_model(tmp_path) == "export/Servo/10/saved_model.pb"
    assert detect(tmp_path).description.runtime == "openvino"
    put(tmp_path, "other/saved_model.pb", b"x")
    assert error_of(lambda: saved_model(tmp_path)).code == "artifact-ambiguous"


def test_a_lite_model_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    put(tmp_path / "a", "m.tflite", b"\x1c\0\0\0TFL3")
    assert detect(tmp_path / "a").description.runtime == "openvino"
    error_of(lambda: detect(put(tmp_path / "b", "m.tflite", b"something else")))


@pytest.mark.parametrize(
    ("files", "words", "remedy"),
    [
        ({"MLmodel": "", "data/model.keras": "x"}, "MLflow", "/data"),
        ({"MLmodel": "", "model.xgb": "x"}, "MLflow", "copy model.xgb"),
        ({"MLmodel": "", "python_model.pkl": "x"}, "MLflow", "mlflow.pyfunc.load_model"),
        ({"m.mar": "x"}, "TorchServe", "unzip"),
        ({"a/b.mlmodel": "x"}, "Core ML", "ONNX"),
        ({"m.pmml": "<PMML/>"}, "PMML", "pypmml"),
        ({"g.pb": "x"}, "frozen TensorFlow graph", "tf2onnx.convert --graphdef"),
    ],
)
def test_other_forms_are_named_with_what_to_do(
    files: dict[str, str], words: str, remedy: str, tmp_path: Path
) -> None:
    error = error_of(lambda: detect(write(tmp_path, files)))
    assert words in error.message
    assert remedy in error.hint


def test_routes_are_read_and_nothing_is_run(tmp_path: Path) -> None:
    write(tmp_path, {"srv.py": "import fastapi\nraise SystemExit\napi: object = fastapi.FastAPI()\n"
        "@api.get('/')\ndef a(): ...\n@api.get('/healthz')\ndef b(): ...\n"
        "@api.post('/items/{n}')\ndef c(): ...\n@api.post('/other')\ndef d(): ...\n"
        "@api.post('/infer')\ndef e(): ...\n"})  # fmt: skip
    [app] = web_apps(tmp_path)
    assert (app.module, app.name, app.health, app.predict) == ("srv", "api", "/healthz", "/infer")
    found = detect(tmp_path).description
    assert found.command[:4] == ("python", "-m", "uvicorn", "srv:api")
    assert (found.health, found.predict) == ("/healthz", "/infer")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"a.py": "from fastapi import FastAPI\nx = FastAPI()\n"}, "path of requests is not clear"),
        ({"a.py": "app = Flask('a')\n", "b.py": "app = Flask('b')\n"}, "several could be meant"),
        ({"a.py": "from aiohttp import web\napp = web.Application()\n"}, "it serves itself"),
        ({"Dockerfile": "FROM x"}, "images are not built here"),
    ],
)
def test_a_server_that_is_not_clear_gets_the_description_to_write(
    files: dict[str, str], words: str, tmp_path: Path
) -> None:
    error = error_of(lambda: detect(write(tmp_path, files)))
    assert words in error.message
    assert "runtime: process, command: [" in error.hint
    assert "predict: /invocations" in error.hint


def test_code_that_is_no_server_is_none(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "class FastAPI: ...\ndef f():\n    app = FastAPI()\n", "b.py": "(("})
    assert web_apps(tmp_path) == []
