"""Models with requirements of their own, in a real instance: each has its own environment."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit import model_files, triton_files
from tests.kit.environments import python_of, wheel
from tests.kit.instances import InstanceProcess, instance
from tests.kit.python_models import pipeline

from penstock.runtimes.environments import interpreters

TELLS = """
import sys
import tiny

def model_fn(model_dir):
    return tiny.VERSION

def predict_fn(data, model):
    return {"version": model, "prefix": sys.prefix, "modules": sorted(sys.modules)}
"""


NO_PACKAGES = ("environment-failed", "index-unreachable")

ASKS = """
try:
    import sklearn
except ImportError:
    sklearn = None

def model_fn(model_dir):
    return sklearn and sklearn.__version__

def predict_fn(data, model):
    return [model]
"""


@pytest.fixture(scope="module")
def walled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstanceProcess]:
    with instance(tmp_path_factory.mktemp("instance")) as process:
        yield process


def model_of(folder: Path, version: str) -> Path:
    """A model that needs a version of a package, which is beside it."""
    model = model_files.code(folder, TELLS)
    wheel(model / "code" / "wheels", "tiny", version, {"tiny.py": f"VERSION = {version!r}\n"})
    (model / "code" / "requirements.txt").write_text(f"tiny=={version}\n")
    return model


def test_two_models_have_two_versions_of_one_package(
    walled: InstanceProcess, tmp_path: Path
) -> None:
    client = walled.client()
    told = []
    for copy, version in ((1, "1.0"), (2, "2.0")):
        client.serve(copy, model_of(tmp_path / version, version))
        told.append(client.invoke(copy, b"[1]", content_type="application/json").json)
    assert [each["version"] for each in told] == ["1.0", "2.0"]
    assert told[0]["prefix"] != told[1]["prefix"]
    # What the server itself is made of is not in a model's environment.
    assert not {"msgspec", "yaml", "openvino"} & set(told[0]["modules"])


def test_models_of_one_environment_share_it(walled: InstanceProcess, tmp_path: Path) -> None:
    client = walled.client()
    for copy, name in ((11, "a"), (12, "b")):
        client.serve(copy, model_of(tmp_path / name, "3.0"))
    first, second = (
        client.invoke(copy, b"[1]", content_type="application/json").json for copy in (11, 12)
    )
    assert first["prefix"] == second["prefix"]
    described = client.control(op="explain", copy=11)
    assert described["environments"][""]["python"]
    log = walled.log.read_text()
    assert "environment: ready, Python" in log


def test_a_failure_ends_with_the_installer_s_last_lines(
    walled: InstanceProcess, tmp_path: Path
) -> None:
    model = model_of(tmp_path / "m", "1.0")
    (model / "code" / "requirements.txt").write_text("--no-index\ntiny==4.4\n")
    error = walled.client().load(21, model)["error"]
    assert error["code"] == "environment-failed"
    assert "No matching distribution found for tiny==4.4" in error["message"]


@pytest.mark.parametrize("runs", [True, False])
def test_uv_installs_where_one_runs_behind_the_walls(tmp_path: Path, runs: bool) -> None:
    """It lies in a folder that models do not see, as in somebody's home. One that does not run
    there, such as a script of a version manager, leaves the work to pip."""
    uv = python_of("installers").parent / "uv"
    (tmp_path / "bin").mkdir()
    if runs:
        (tmp_path / "bin" / "uv").symlink_to(uv)
    else:
        (tmp_path / "bin" / "uv").write_text(f"#!/bin/sh\nexec {uv} $@\n")
        (tmp_path / "bin" / "uv").chmod(0o755)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    # The machine's pip may have an index of its own; then uv needs one too.
    settings = {"PATH": path, "UV_FIND_LINKS": str(tmp_path)}
    with instance(tmp_path / "i", environment=settings) as process:
        client = process.client()
        client.serve(1, model_of(tmp_path / "m", "1.0"))
        told = client.invoke(1, b"[1]", content_type="application/json").json
        log = process.log.read_text()
    assert told["version"] == "1.0"
    assert ("pip installs: " in log) is not runs
    built_by = Path(told["prefix"], "pyvenv.cfg").read_text()
    assert ("\nuv = " in f"\n{built_by}") is runs


def test_model_yaml_names_requirements_and_a_python(
    walled: InstanceProcess, tmp_path: Path
) -> None:
    """Beside the file's own, and refused with what is wrong with them."""
    model = model_of(tmp_path / "m", "1.0")
    model_files.describe(
        model, runtime="python", task="payload", file="code/inference.py", requirements=["-r x"]
    )
    error = walled.client().load(31, model)["error"]
    assert error["code"] == "model-yaml-invalid"
    assert "requirements[0]" in error["message"]
    model_files.describe(
        model, runtime="python", task="payload", file="code/inference.py", python="3.99"
    )
    error = walled.client().load(31, model)["error"]
    assert error["code"] == "python-unavailable"


YIELDS = """
import tiny

def answer(text):
    yield {"version": tiny.VERSION}
"""


def test_steps_of_a_pipeline_run_in_it(walled: InstanceProcess, tmp_path: Path) -> None:
    step = "{name: answer, python: {function: answer}, inputs: {text: $request.text},"
    step += " emit: [{kind: text, data: {text: $piece.version}}]}"
    declared = f"schema: 1\ncode: code/steps.py\nsteps:\n  - {step}\n"
    model = pipeline(tmp_path / "p", declared, YIELDS)
    wheel(model / "code" / "wheels", "tiny", "5.0", {"tiny.py": "VERSION = '5.0'\n"})
    (model / "code" / "requirements.txt").write_text("tiny\n")
    client = walled.client()
    client.serve(41, model)
    told = client.invoke(41, b'{"text": "x"}', content_type="application/json").body
    assert b"5.0" in told


@pytest.mark.timeout(900)  # its packages are downloaded
def test_another_python_where_one_is_installed(walled: InstanceProcess, tmp_path: Path) -> None:
    others = [one for one in interpreters.installed() if one.minor != interpreters.own().minor]
    others = [one for one in others if one.minor >= interpreters.OLDEST]
    if not others:
        pytest.skip("no other Python is installed on this machine")
    model = model_of(tmp_path / "m", "1.0")
    model_files.describe(
        model,
        runtime="python",
        task="payload",
        file="code/inference.py",
        python=others[0].short,
        requirements=["numpy", "orjson"],
    )
    client = walled.client()
    client.socket.settimeout(900)  # it is downloaded
    loaded = client.load(51, model)
    if loaded.get("error", {}).get("code") in NO_PACKAGES:
        pytest.skip(f"no index with packages for it: {loaded['error']['message'][-300:]}")
    told = client.invoke(51, b"[1]", content_type="application/json").json
    assert told["version"] == "1.0"
    assert loaded["description"]["environments"][""]["python"] == others[0].version


def test_without_a_network_wheels_beside_the_model_are_enough(
    walled: InstanceProcess, tmp_path: Path
) -> None:
    client = walled.client()
    loaded = client.load(61, model_of(tmp_path / "m", "6.0"), network_isolated=True)
    if loaded.get("error", {}).get("code") == "network-isolation":
        pytest.skip(loaded["error"]["message"])
    assert loaded.get("ok"), loaded
    model = model_of(tmp_path / "other", "6.0")
    for each in (model / "code" / "wheels").iterdir():
        each.unlink()
    (model / "code" / "wheels").rmdir()
    error = client.load(62, model, network_isolated=True)["error"]
    assert error["code"] == "environment-failed"
    assert "may not come over the network" in error["message"]


def test_a_hostile_package_runs_behind_the_walls_of_its_model(
    walled: InstanceProcess, tmp_path: Path
) -> None:
    """Python runs code of its environment as soon as it starts, before any code of ours."""
    secret = tmp_path / "secret"
    secret.write_text("the key")
    model = model_of(tmp_path / "m", "7.0")
    grabs = f"import pathlib, sys; sys.grabbed = open({str(secret)!r}).read()\n"
    wheel(
        model / "code" / "wheels",
        "tiny",
        "7.0",
        {
            "tiny.py": "import sys\nVERSION = getattr(sys, 'grabbed', 'nothing')\n",
            "tiny-7.0.data/purelib/grabs.pth": grabs,
        },
    )
    client = walled.client()
    client.serve(71, model)
    told = client.invoke(71, b"[1]", content_type="application/json").json
    assert list(Path(told["prefix"]).glob("lib/*/site-packages/grabs.pth"))
    assert told["version"] == "nothing"


def test_off_models_run_in_the_server_s_own_environment(tmp_path: Path) -> None:
    with instance(tmp_path / "i", artifact={"environments": {"enabled": False}}) as process:
        error = process.client().load(1, model_of(tmp_path / "m", "1.0"))["error"]
    assert error["code"] == "model-code-failed"
    assert "code/requirements.txt is not installed by itself" in error["hint"]
    assert not (tmp_path / "i" / "cache" / "environments").exists()


SERVER = """
import http.server, json, os, sys
import tiny

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps({"version": tiny.VERSION, "prefix": sys.prefix}).encode())

    def log_message(self, *_):
        pass

port = int(os.environ["SAGEMAKER_BIND_TO_PORT"])
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def test_a_server_of_the_artifact_runs_in_it(walled: InstanceProcess, tmp_path: Path) -> None:
    model = model_files.describe(
        tmp_path / "m", runtime="process", task="payload", command=["python", "app.py"]
    )
    (model / "app.py").write_text(SERVER)
    (model / "requirements.txt").write_text("tiny\n")
    wheel(model / "wheels", "tiny", "8.0", {"tiny.py": "VERSION = '8.0'\n"})
    client = walled.client()
    client.serve(81, model)
    told = client.invoke(81, b"[1]", content_type="application/json").json
    assert told["version"] == "8.0"


TRITON = """
import tiny

class TritonPythonModel:
    def execute(self, requests):
        return [answer(told=np.array([[tiny.VERSION.encode()]], dtype=object)) for _ in requests]
"""
PACKED = """parameters { key: "EXECUTION_ENV_PATH"
  value { string_value: "$$TRITON_MODEL_DIRECTORY/env.tar.gz" } }"""


def test_what_venv_pack_wrote_is_the_environment_of_a_triton_model(
    walled: InstanceProcess, tmp_path: Path
) -> None:
    """EXECUTION_ENV_PATH names it. Such an archive has two members with one name."""
    packer, venv = python_of("installers").parent / "venv-pack", tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (site,) = venv.glob("lib/python3.*/site-packages")
    (site / "tiny.py").write_text("VERSION = '9.1'\n")
    model = triton_files.python(
        tmp_path / "m" / "says", TRITON, more=PACKED,
        inputs=[("n", "FP32", [1])], outputs=[("told", "STRING", [1])],
    )  # fmt: skip
    archive = model / "env.tar.gz"
    subprocess.run([packer, "--prefix", venv, "--output", archive, "--quiet"], check=True)
    client = walled.client()
    client.serve(95, tmp_path / "m")
    told = client.invoke(95, b'{"inputs": [[1.0]]}', content_type="application/json").json
    assert told == {"predictions": [["9.1"]]}


@pytest.mark.timeout(400)
def test_where_no_index_answers_the_server_s_own_environment_stands_for_an_image(
    tmp_path: Path,
) -> None:
    """As where environments are off, and said: in the log, and in the reason of a failure. What the
    model itself asks for is not left out."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and it never listens
        nowhere = f"http://127.0.0.1:{nobody.getsockname()[1]}/simple"
        settings = {
            "PIP_INDEX_URL": nowhere, "PIP_RETRIES": "1", "PIP_FIND_LINKS": "",
            "PIP_CONFIG_FILE": os.devnull,
        }  # fmt: skip
        with instance(tmp_path / "i", environment=settings) as process:
            client, told = process.client(), {}
            client.socket.settimeout(200)  # pip asks again before it gives up
            for copy, source in enumerate((ASKS, "import sklearn", ASKS), start=1):
                folder = model_files.code(tmp_path / str(copy), source)
                if copy == 3:
                    (folder / "code" / "requirements.txt").write_text("scikit-learn\n")
                image = f"{ECR}/sagemaker-scikit-learn:1.2-1"
                told[copy] = client.load(
                    copy, folder, source={"uri": f"file://{folder}", "image": image}
                )
            assert told[1].get("ok"), told[1]
            answer = client.invoke(1, b"[1]", content_type="application/json").json
            log = process.log.read_text()
    assert answer == [None]
    words = "no index of packages can be reached from the server"
    assert f"{words}; the server's own environment is used" in log
    assert "without scikit-learn" in log
    assert told[2]["error"]["code"] == "model-code-failed"
    assert words in told[2]["error"]["hint"]
    assert told[3]["error"]["code"] == "index-unreachable"


LINEAR = """
import sklearn
from sklearn.linear_model import LinearRegression

def model_fn(model_dir):
    return LinearRegression().fit([[0.0], [1.0]], [1.0, 3.0])

def predict_fn(data, model):
    return {"version": sklearn.__version__, "answer": model.predict(data).round(6).tolist()}
"""
ECR = "683313688378.dkr.ecr.us-east-1.amazonaws.com"


@pytest.mark.timeout(900)  # its packages are downloaded
def test_an_image_s_name_brings_its_framework(walled: InstanceProcess, tmp_path: Path) -> None:
    """Its very version, or the nearest one that can be installed here, which is then said."""
    client, told = walled.client(), {}
    client.socket.settimeout(900)  # it is downloaded
    for copy, tag in ((91, "1.2-1-cpu-py3"), (92, "0.23-1-cpu-py3")):
        folder = model_files.code(tmp_path / tag, LINEAR)
        image = f"{ECR}/sagemaker-scikit-learn:{tag}"
        loaded = client.load(copy, folder, source={"uri": f"file://{folder}", "image": image})
        if "no index of packages can be reached" in str(loaded.get("error", {}).get("hint")):
            pytest.skip("no index of packages can be reached")
        if loaded.get("error", {}).get("code") == "environment-failed":
            pytest.skip(f"no index with scikit-learn: {loaded['error']['message'][-300:]}")
        assert loaded.get("ok"), loaded
        answer = client.invoke(copy, b"[[2.0]]", content_type="application/json").json
        assert answer["answer"] == [5.0]
        told[copy] = answer["version"], loaded["description"]["environments"][""]
    assert told[91][0] == "1.2.1"
    version, described = told[92]
    assert version != "1.2.1"
    if version != "0.23.2":
        (note,) = described["notes"]
        assert "scikit-learn 0.23.2" in note
        assert version in note
        # What can't be loaded there may be of the version that was asked for: the reason says so.
        folder = model_files.code(tmp_path / "older", "import sklearn.gone_since\n" + LINEAR)
        image = f"{ECR}/sagemaker-scikit-learn:0.23-1-cpu-py3"
        failed = client.load(93, folder, source={"uri": f"file://{folder}", "image": image})
        assert failed["error"]["hint"].startswith(f"{note[:1].upper()}{note[1:]}. "), failed
