"""AWS's own samples for its framework containers, by boto3 and their image names: answers equal the
libraries'. The server runs in an environment that has the frameworks."""

from __future__ import annotations

import json
import shlex
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit.environments import printed_by, python_of
from tests.kit.multi_model import create_multi_model
from tests.kit.servers import Server, penstock, up

pytestmark = [pytest.mark.system, pytest.mark.integration]

ECR = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
SKLEARN = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"
PYTORCH = f"{ECR}/pytorch-inference:2.6-cpu-py312"
HUGGINGFACE = f"{ECR}/huggingface-pytorch-inference:2.6.0-transformers4.51.3-cpu-py312-ubuntu22.04"
JSON, CSV = "application/json", "text/csv"
ROWS = [[1500.0, 3.0, 2.0], [900.0, 1.0, 1.0]]

#: Makes the models of all tests; the last line has what each library answers.
MAKES = """
import json, sys
from pathlib import Path
import joblib, numpy as np, torch, transformers
from sklearn.ensemble import RandomForestRegressor
sys.path.insert(0, TOUR)
import toolkits_tour

folder, rows = Path(sys.argv[1]), np.array(ROWS, np.float32)
expected = {}
features = np.random.default_rng(0).uniform(1, 2000, (64, 3))
for at, city in enumerate(("Boston", "Chicago")):
    (folder / city).mkdir()
    model = RandomForestRegressor(n_estimators=3, random_state=at).fit(features, features.sum(1))
    joblib.dump(model, folder / city / "model.joblib")
    expected[city] = model.predict(rows).tolist()
(folder / "net" / "code").mkdir(parents=True)
net = torch.nn.Linear(3, 2)
torch.save(net.state_dict(), folder / "net" / "model.pth")
(folder / "script").mkdir()
torch.jit.script(net).save(folder / "script" / "model.pth")
with torch.no_grad():
    expected["net"] = net(torch.tensor(rows)).tolist()
(folder / "texts").mkdir()
toolkits_tour.classifier(folder / "texts")
pipeline = transformers.pipeline("text-classification", model=str(folder / "texts"))
expected["texts"] = pipeline(["good film", "bad"], top_k=2)
print(json.dumps(expected))
"""

#: The whole file of the multi-model sample.
LOADS = """
import os

import joblib


def model_fn(model_dir):
    return joblib.load(os.path.join(model_dir, "model.joblib"))
"""

#: Opens its weights by the path that they have in the container.
NET = """
import logging

import torch

logger = logging.getLogger(__name__)


def model_fn(model_dir, context):
    net = torch.nn.Linear(3, 2)
    with open("/opt/ml/model/model.pth", "rb") as file:
        net.load_state_dict(torch.load(file, map_location="cpu"))
    logger.info("loaded for GPU %s", context.system_properties.get("gpu_id"))
    return net
"""


def flat(rows: list[list[float]]) -> list[float]:
    return [each for row in rows for each in row]


#: A server that is not ours, of a container that is brought along.
FOREIGN = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(b"")

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.answer(open("/opt/ml/model/answer.json", "rb").read())

    def answer(self, body):
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(body)


HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


APPLICATION = """
from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()


class Row(BaseModel):
    values: list[float]


@app.get("/")
def home():
    return {}


@app.post("/score")
def score(row: Row):
    return {"sum": sum(row.values)}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("models")
    tour = str(Path(__file__).parents[1] / "runtimes")
    code = MAKES.replace("TOUR", repr(tour)).replace("ROWS", repr(ROWS))
    answers: dict[str, Any] = json.loads(
        printed_by("compile", "-c", code, str(folder)).splitlines()[-1]
    )
    return folder, answers


@pytest.fixture(scope="module")
def toolkit_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Its own environment has the frameworks: none is made for the versions of the images."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PENSTOCK_CONTROL_ENVIRONMENTS", "off")
        with up(tmp_path_factory.mktemp("server"), python=str(python_of("compile"))) as server:
            yield server


def test_the_multi_model_sample_serves_with_model_fn_alone(
    toolkit_server: Server, made: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder, expected = made
    (tmp_path / "inference.py").write_text(LOADS)
    for city, place in (("Boston", "code/inference.py"), ("Chicago", "inference.py")):
        with tarfile.open(tmp_path / f"{city}.tar.gz", "w:gz") as tar:
            tar.add(folder / city / "model.joblib", "model.joblib")
            tar.add(tmp_path / "inference.py", place)
    (tmp_path / "inference.py").unlink()
    create_multi_model(toolkit_server, "homes", tmp_path, image=SKLEARN)
    for city in ("Boston", "Chicago"):
        target = f"{city}.tar.gz"
        assert toolkit_server.invoke("homes", ROWS, TargetModel=target) == expected[city]
        answer = toolkit_server.runtime.invoke_endpoint(
            EndpointName="homes", TargetModel=target, ContentType=CSV, Accept=CSV,
            Body="\n".join(",".join(map(str, row)) for row in ROWS),
        )  # fmt: skip
        assert answer["ContentType"] == CSV
        assert [float(line) for line in answer["Body"].read().split()] == expected[city]


def test_pytorchs_defaults_complete_code_that_opens_the_containers_folder(
    toolkit_server: Server, made: tuple[Path, dict[str, Any]]
) -> None:
    folder, expected = made
    (folder / "net" / "code" / "net.py").write_text(NET)
    toolkit_server.deploy(
        "net", folder / "net", Image=PYTORCH,
        Environment={"SAGEMAKER_PROGRAM": "net.py", "TS_DEFAULT_WORKERS_PER_MODEL": "2",
                     "SAGEMAKER_SUBMIT_DIRECTORY": "/opt/ml/model/code",
                     "SAGEMAKER_MODEL_SERVER_VMARGS": "-Xmx1g"},
    )  # fmt: skip
    assert flat(toolkit_server.invoke("net", ROWS)) == pytest.approx(flat(expected["net"]))
    with pytest.raises(Exception, match="content type 'image/png' is not one") as caught:
        toolkit_server.runtime.invoke_endpoint(
            EndpointName="net", ContentType="image/png", Body=b""
        )
    assert caught.value.response["OriginalStatusCode"] == 415  # type: ignore[attr-defined]
    log = json.dumps(toolkit_server.get("/admin/endpoints/net/logs?lines=1000"))
    assert log.count("INFO net: loaded for GPU None") == 2, "a process for each worker asked for"
    assert "SAGEMAKER_MODEL_SERVER_VMARGS has no effect here" in log


def test_a_foreign_server_finds_its_model_in_the_containers_folder(
    toolkit_server: Server, tmp_path: Path
) -> None:
    (tmp_path / "serve.py").write_text(FOREIGN)
    (tmp_path / "answer.json").write_text("[1]")
    (tmp_path / "model.yaml").write_text(
        "schema: 1\nruntime: process\ncommand: [python3, '{model_dir}/serve.py', '{port}']\n"
    )
    toolkit_server.deploy("foreign", tmp_path)
    assert toolkit_server.invoke("foreign", []) == [1]


def test_torchscript_and_hugging_face_weights_serve_without_code(
    toolkit_server: Server, made: tuple[Path, dict[str, Any]]
) -> None:
    folder, expected = made
    toolkit_server.deploy("script", folder / "script", Image=PYTORCH)
    assert flat(toolkit_server.invoke("script", ROWS)) == pytest.approx(flat(expected["net"]))
    toolkit_server.deploy(
        "texts", folder / "texts", Image=HUGGINGFACE, Environment={"HF_TASK": "text-classification"}
    )
    request = {"inputs": ["good film", "bad"], "parameters": {"top_k": 2}}
    assert toolkit_server.invoke("texts", request) == expected["texts"]


@pytest.mark.parametrize(
    ("image", "environment", "words"),
    [
        (SKLEARN, {}, ["defines no model_fn(model_dir), and scikit-learn has no default one"]),
        (SKLEARN, {"SAGEMAKER_HANDLER": "mine.py"}, ["SAGEMAKER_HANDLER='mine.py'", "not served"]),
        (PYTORCH, {}, ["needs model.pt, or exactly one .pt or .pth", "there is none"]),
    ],
)
def test_what_can_not_be_served_says_what_is_missing(
    toolkit_server: Server,
    tmp_path: Path,
    image: str,
    environment: dict[str, str],
    words: list[str],
) -> None:
    (tmp_path / "inference.py").write_text("def predict_fn(data, model):\n    return data\n")
    name = f"refused-{abs(hash((image, *environment)))}"
    toolkit_server.deploy(name, tmp_path, wait=False, Image=image, Environment=environment)
    reason = toolkit_server.settled(name)["FailureReason"]
    for each in words:
        assert each in reason
    toolkit_server.delete(name)


def test_a_model_of_a_hub_is_refused_by_its_name(toolkit_server: Server) -> None:
    client = toolkit_server.client("sagemaker")
    client.create_model(
        ModelName="hub",
        PrimaryContainer={"Image": HUGGINGFACE, "Environment": {"HF_MODEL_ID": "org/of-a-hub"}},
    )
    toolkit_server.endpoint("hub", wait=False)
    reason = toolkit_server.settled("hub")["FailureReason"]
    assert "HF_MODEL_ID names 'org/of-a-hub': models are not fetched from a hub" in reason
    assert "hf download" in reason


def from_init(server: Server, kind: str, file: Path, out: Path) -> Any:
    """Writes a folder by `penstock init` and deploys it; the answer to its sample request."""
    told = penstock("init", kind, str(file), "--out", str(out)).stdout.splitlines()
    deploy, *invoke = [shlex.split(line)[1:] for line in told]
    penstock(*deploy, server=server)
    return json.loads(penstock(*invoke[0], server=server).stdout) if invoke else None


def test_what_init_writes_for_each_library_answers_as_the_library(
    toolkit_server: Server, made: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """The samples that it names are answered, also as the warm-up requests of the model."""
    folder, expected = made
    forest = folder / "Boston" / "model.joblib"
    of_zeros = from_init(toolkit_server, "sklearn", forest, tmp_path / "forest")
    assert len(of_zeros["predictions"]) == 1
    answer = toolkit_server.invoke("forest", ROWS)
    assert answer["predictions"] == expected["Boston"]
    assert (
        from_init(toolkit_server, "pytorch", folder / "script/model.pth", tmp_path / "jit") is None
    )
    answer = toolkit_server.invoke("jit", {"inputs": ROWS})
    assert flat(answer["predictions"]) == pytest.approx(flat(expected["net"]))
    (said,) = from_init(toolkit_server, "huggingface", folder / "texts", tmp_path / "hf-texts")
    assert said["label"] in ("POSITIVE", "NEGATIVE")
    request = {"inputs": ["good film", "bad"], "parameters": {"top_k": 2}}
    assert toolkit_server.invoke("hf-texts", request) == expected["texts"]


def test_weights_alone_answer_once_their_module_is_made(
    toolkit_server: Server, made: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder, expected = made
    out = tmp_path / "weights"
    file = str(folder / "net" / "model.pth")
    said = penstock("init", "pytorch", file, "--out", str(out)).stderr
    code = out / "code" / "inference.py"
    assert f"module() of {code}" in said.splitlines()[-1]
    failed = penstock("deploy", "weights", str(out), server=toolkit_server, status=1).stderr
    assert "make the module of model.pth in module() of code/inference.py" in failed
    text = code.read_text()
    line = next(line for line in text.splitlines() if "raise NotImplementedError" in line)
    code.write_text(text.replace(line, "    return torch.nn.Linear(3, 2)"))
    penstock("deploy", "weights", str(out), server=toolkit_server)
    answer = toolkit_server.invoke("weights", ROWS)
    assert flat(answer["predictions"]) == pytest.approx(flat(expected["net"]))


def test_an_application_of_init_answers(toolkit_server: Server, tmp_path: Path) -> None:
    """In an environment of other tests: the server's own has no FastAPI."""
    (tmp_path / "app.py").write_text(APPLICATION)
    penstock("init", "fastapi", str(tmp_path / "app.py"), "--out", str(tmp_path / "adds"))
    described = tmp_path / "adds" / "model.yaml"
    described.write_text(described.read_text().replace("[python,", f"[{python_of('web')},"))
    penstock("deploy", "adds", str(tmp_path / "adds"), server=toolkit_server)
    assert toolkit_server.invoke("adds", {"values": [1, 2, 3]}) == {"sum": 6.0}
