"""Seconds from a model's file to its first right answer, by kind, beside servers of others.

A person has the file that a library wrote. Ours: `penstock deploy NAME FOLDER` as typed, until the
endpoint's answer equals the library's own; `deploy_s` with the server running (an environment for
the library is there from an earlier deploy of other content), `from_nothing_s` with the start of
the server counted too, `first_deploy_s` where the environment is built as well. Peers: from the
start of their server, whose environment is installed before, to the same answer. They start with
each of their settings that may matter to a start; the best one counts. `vs_best` is ours from
nothing over the best peer's: 1 is equal, less is sooner. `pip_s` is what installing the library
takes by hand (a venv and pip), for what `first_deploy_s` holds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tools.environments import interpreter, make
from tools.free_port import free_port

from bench.machine import OthersLoad, foreground
from bench.processes import Running, penstock_up, post, running
from bench.report import ROOT, finish, spread, versions_in

PEERS = Path(__file__).parent / "peers"
MAKER = PEERS / "first_answer_models.py"
WRITER = "own-models"
ENVIRONMENTS = ("mlserver", "bentoml", "mosec-models")
KINDS = ("scikit-learn", "xgboost", "lightgbm", "onnx")
TIMEOUT_S = 180.0


@dataclass(frozen=True, slots=True)
class OwnModel:
    """A model's folder as its library wrote it, rows to ask for, and the library's own answers."""

    kind: str
    folder: Path
    file: str
    rows: list[list[float]]
    expected: list[float]

    def is_right(self, answers: Any) -> bool:
        found = np.asarray(answers, dtype=float).reshape(-1)
        return found.shape == (len(self.expected),) and bool(
            np.allclose(found, self.expected, rtol=1e-5)
        )


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench first_answer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kind", choices=KINDS, action="append", help="only these")
    options = parser.parse_args(arguments)
    foreground()
    for name in (WRITER, *ENVIRONMENTS):
        make(name)
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch, OthersLoad() as others:
        for kind in options.kind or KINDS:
            figures[kind] = _kind(kind, Path(scratch), options.rounds)
            print(json.dumps({kind: figures[kind]}), flush=True)
    worst = max(each["vs_best"] for each in figures.values())
    finish(
        "first_answer",
        {"vs_best_worst": worst, **figures},
        rounds=options.rounds,
        others_cores=round(others.cores, 2),
        versions={
            name: versions_in(name, "mlserver", "bentoml", "mosec", "scikit-learn", "xgboost")
            for name in ENVIRONMENTS
        },
    )


def _kind(kind: str, scratch: Path, rounds: int) -> dict[str, Any]:
    models = [_made(kind, scratch / f"{kind}-{seed}", seed) for seed in range(rounds + 1)]
    first_s, deploy_s, nothing_s = _ours(models, scratch / f"{kind}-state")
    peers: dict[str, dict[str, Any]] = {}
    for name, start in _peers(kind).items():
        took = [_until_right(start, model, scratch / f"{kind}-{name}") for model in models[1:]]
        peers[name] = spread(took)
        print(f"{kind:14} {name:28} {peers[name]}", flush=True)
    best = min(peers, key=lambda name: peers[name]["median"])
    return {
        "first_deploy_s": round(first_s, 2),
        "deploy_s": spread(deploy_s),
        "from_nothing_s": spread(nothing_s),
        "best_peer": best,
        "best_peer_s": peers[best]["median"],
        "vs_best": round(statistics.median(nothing_s) / peers[best]["median"], 3),
        "pip_s": round(_pip_s(kind, scratch), 2),
        "peers": {name: each["median"] for name, each in peers.items()},
    }


def _made(kind: str, folder: Path, seed: int) -> OwnModel:
    folder.mkdir(parents=True)
    argv = [str(interpreter(WRITER)), str(MAKER), kind, str(folder), str(seed)]
    made = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
    return OwnModel(kind, folder, made["file"], made["rows"], made["expected"])


def _ours(models: list[OwnModel], state: Path) -> tuple[float, list[float], list[float]]:
    """(the first deploy, later ones with the server running, later ones with its start)."""
    deployed: list[float] = []
    with penstock_up(state_dir=state) as base_url:
        for at, model in enumerate(models):
            began = time.monotonic()
            _deploy(base_url, f"model-{at}", model)
            deployed.append(time.monotonic() - began)
            _penstock(base_url, "delete", f"model-{at}")
    whole: list[float] = []
    for at, model in enumerate(models[1:]):
        began = time.monotonic()
        with penstock_up(state_dir=state) as base_url:
            _deploy(base_url, f"again-{at}", model)
            whole.append(time.monotonic() - began)
            _penstock(base_url, "delete", f"again-{at}")
    return deployed[0], deployed[1:], whole


def _deploy(base_url: str, name: str, model: OwnModel) -> None:
    trust = ["--trust"] if model.file.endswith((".joblib", ".pkl")) else []
    _penstock(base_url, "deploy", name, str(model.folder), *trust)
    url = f"{base_url}/endpoints/{name}/invocations"
    answered = json.loads(post(url, json.dumps(model.rows).encode()))
    if not model.is_right(_numbers(answered)):
        raise SystemExit(f"{model.kind}: answered {answered}, expected {model.expected}")


def _numbers(answered: Any) -> Any:
    """The predictions, out of whatever stands around them."""
    while isinstance(answered, dict):
        answered = next(iter(answered.values()))
    return answered


def _penstock(base_url: str, *arguments: str) -> None:
    argv = [sys.executable, "-m", "penstock", *arguments, "--url", base_url]
    run = subprocess.run(argv, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise SystemExit(f"penstock {' '.join(arguments)}:\n{run.stderr[-2000:]}")


# Peers: each starts a server for one model in a folder of its own, and knows how to ask it.

Ask = Callable[[OwnModel], Any]
Start = Callable[[OwnModel, Path], contextlib.AbstractContextManager[tuple[Running, Ask]]]


def _until_right(start: Start, model: OwnModel, folder: Path) -> float:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copy(model.folder / model.file, folder / model.file)
    began = time.monotonic()
    last = "nothing"
    with start(model, folder) as (server, ask):
        while not server.ended():
            try:
                if model.is_right(answer := ask(model)):
                    return time.monotonic() - began
                last = f"it answered {answer}"
            except (OSError, ValueError) as error:
                last = str(error)
            if time.monotonic() > began + TIMEOUT_S:
                raise TimeoutError(f"no right answer within {TIMEOUT_S:g} s; last: {last}")
            time.sleep(0.02)
    raise AssertionError("unreachable: a server that ended raises")


def _peers(kind: str) -> dict[str, Start]:
    own_code: dict[str, Start] = {"bentoml": _bentoml, "mosec": _mosec}
    if kind not in _MLSERVER:
        return own_code
    return {
        "mlserver": lambda model, folder: _mlserver(model, folder, workers=0),
        "mlserver, 1 worker": lambda model, folder: _mlserver(model, folder, workers=1),
        **own_code,
    }


#: MLServer has no runtime of the other kinds.
_MLSERVER = {
    "scikit-learn": "mlserver_sklearn.SKLearnModel",
    "xgboost": "mlserver_xgboost.XGBoostModel",
    "lightgbm": "mlserver_lightgbm.LightGBMModel",
}


@contextlib.contextmanager
def _mlserver(model: OwnModel, folder: Path, *, workers: int) -> Iterator[tuple[Running, Ask]]:
    ports = {f"{name}_port": free_port() for name in ("http", "grpc", "metrics")}
    settings = {"host": "127.0.0.1", "parallel_workers": workers, "debug": False, **ports}
    (folder / "settings.json").write_text(json.dumps(settings))
    described = {
        "name": "model",
        "implementation": _MLSERVER[model.kind],
        "parameters": {"uri": f"./{model.file}"},
    }
    (folder / "model-settings.json").write_text(json.dumps(described))
    url = f"http://127.0.0.1:{ports['http_port']}/v2/models/model/infer"

    def ask(model: OwnModel) -> Any:
        rows = np.asarray(model.rows)
        tensor = {"name": "x", "shape": list(rows.shape), "datatype": "FP64", "data": rows.tolist()}
        answer = json.loads(post(url, json.dumps({"inputs": [tensor]}).encode()))
        return answer["outputs"][0]["data"]

    with running([str(_binary("mlserver")), "start", str(folder)], env=_quiet()) as server:
        yield server, ask


@contextlib.contextmanager
def _bentoml(model: OwnModel, folder: Path) -> Iterator[tuple[Running, Ask]]:
    port = free_port()
    service = PEERS / "first_answer_bentoml.py"
    shutil.copy(service, folder / "service.py")
    url = f"http://127.0.0.1:{port}/predict"

    def ask(model: OwnModel) -> Any:
        return json.loads(post(url, json.dumps({"rows": model.rows}).encode()))

    argv = [str(_binary("bentoml")), "serve", "service:Model", "--working-dir", str(folder)]
    argv += ["--host", "127.0.0.1", "--port", str(port)]
    env = _quiet() | {"MODEL_KIND": model.kind, "MODEL_FILE": str(folder / model.file)}
    with running(argv, env=env) as server:
        yield server, ask


@contextlib.contextmanager
def _mosec(model: OwnModel, folder: Path) -> Iterator[tuple[Running, Ask]]:
    port = free_port()
    url = f"http://127.0.0.1:{port}/inference"

    def ask(model: OwnModel) -> Any:
        return json.loads(post(url, json.dumps(model.rows).encode()))

    argv = [str(interpreter("mosec-models")), str(PEERS / "first_answer_mosec.py")]
    argv += ["--address", "127.0.0.1", "--port", str(port)]
    env = _quiet() | {"MODEL_KIND": model.kind, "MODEL_FILE": str(folder / model.file)}
    with running(argv, env=env) as server:
        yield server, ask


def _binary(name: str) -> Path:
    return interpreter(name).parent / name


def _quiet() -> dict[str, str]:
    """Peers' own services are imported from their folders, and nobody is told of their use."""
    return {"BENTOML_DO_NOT_TRACK": "true", "PYTHONPATH": str(PEERS)}


def _pip_s(kind: str, scratch: Path) -> float:
    """A virtual environment and pip, with its cache as it is, by hand."""
    place = scratch / f"{kind}-venv"
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    package = "onnxruntime" if kind == "onnx" else kind
    argv = [str(place / "bin/python"), "-m", "pip", "install", "-q", package]
    subprocess.run(argv, check=True, capture_output=True, cwd=ROOT, env={**os.environ})
    return time.monotonic() - began
