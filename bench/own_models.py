"""Models of one's own, of twenty kinds: what is typed, how long it takes, and whether it is right.

Each is written by its own library in an environment of its own (`peers/own_model_files.py`), then
deployed as a person would: `penstock deploy NAME FOLDER` as first typed, or through boto3 with the
image that AWS would use. It is right where the endpoint answers what the library itself answers.
Kinds go one after another on one server, in one state directory: `seconds` is from the command to
the answer, an environment that is made on the way included, and `again_seconds` the same for the
same kind once more, of other files, when the environment is there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import boto3
import numpy as np
from tools.environments import interpreter, make

from bench.processes import penstock_up, post
from bench.report import finish, versions_in

MAKER = Path(__file__).parent / "peers" / "own_model_files.py"
_OLDER = "own-models-older"
_ROLE = "arn:aws:iam::123456789012:role/any-role"
_ACCOUNT = "683313688378.dkr.ecr.us-east-1.amazonaws.com"


@dataclass(frozen=True, slots=True)
class OwnKind:
    """How a kind is deployed: options of `penstock deploy`, or an image for boto3."""

    name: str
    made_in: str = "own-models"
    options: tuple[str, ...] = ()
    image: str = ""
    environment: tuple[tuple[str, str], ...] = ()


KINDS: Final = (
    OwnKind("sklearn-joblib", options=("--trust",)),
    OwnKind("sklearn-pickle", options=("--trust",)),
    OwnKind("sklearn-skops"),
    OwnKind("sklearn-columns", options=("--trust",)),
    OwnKind(
        "sklearn-code",
        made_in="own-models-older",
        image=f"{_ACCOUNT}/sagemaker-scikit-learn:1.2-1-cpu-py3",
    ),
    OwnKind("xgboost-json"),
    OwnKind("xgboost-ubj"),
    OwnKind(
        "xgboost-builtin", made_in="own-models-older", image=f"{_ACCOUNT}/sagemaker-xgboost:1.7-1"
    ),
    OwnKind("lightgbm-text"),
    OwnKind("catboost-cbm"),
    OwnKind("onnx-zipmap"),
    OwnKind("onnx-no-zipmap"),
    OwnKind("onnx-regressor"),
    OwnKind("torchscript", made_in="compile"),
    OwnKind("torch-onnx", made_in="compile"),
    OwnKind("torch-code", made_in="compile", image=f"{_ACCOUNT}/pytorch-inference:2.3.0-cpu-py311"),
    OwnKind("hugging-face", made_in="compile"),
    OwnKind("fastapi"),
    OwnKind("flask"),
    OwnKind("plain-code"),
)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench own_models")
    names = [kind.name for kind in KINDS]
    parser.add_argument("--kind", choices=names, action="append", help="only these")
    parser.add_argument("--no-again", action="store_true", help="each only once")
    options = parser.parse_args(arguments)
    chosen = [kind for kind in KINDS if not options.kind or kind.name in options.kind]
    for environment in sorted({kind.made_in for kind in chosen}):
        make(environment)
    table: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as scratch, penstock_up() as base_url:
        for kind in chosen:
            table[kind.name] = _tried(base_url, kind, Path(scratch), again=not options.no_again)
            print(f"{kind.name:16} {json.dumps(table[kind.name])}", flush=True)
    right = sum(row["verdict"] == "right" for row in table.values())
    finish(
        "own_models",
        {"right": right, "kinds": len(table), **table},
        versions=versions_in("own-models", "scikit-learn", "xgboost", "lightgbm", "catboost"),
    )


def _tried(base_url: str, kind: OwnKind, scratch: Path, *, again: bool) -> dict[str, Any]:
    folder = scratch / kind.name
    folder.mkdir()
    argv = [str(interpreter(kind.made_in)), str(MAKER), kind.name, str(folder)]
    run = subprocess.run(argv, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        return {"verdict": f"not made: {run.stderr[-600:]}"}
    said = json.loads(run.stdout.splitlines()[-1])
    typed = f"penstock deploy my-model FOLDER {' '.join(kind.options)}".strip()
    row: dict[str, Any] = {"typed": f"boto3, {kind.image}" if kind.image else typed}
    for name in ("seconds", "again_seconds") if again else ("seconds",):
        began = time.monotonic()
        endpoint = f"{kind.name}-{name.partition('_')[0]}"
        if name == "again_seconds":
            (folder / "NOTE").write_text("other content, the same model\n")
        try:
            answer = _deployed(base_url, endpoint, kind, folder, said)
        except Exception as error:
            return row | {"verdict": f"failed: {str(error)[-900:]}"}
        row[name] = round(time.monotonic() - began, 2)
        row["verdict"] = "right" if _is_right(said, answer) else f"wrong: {answer[:300]!r}"
        _penstock(base_url, "delete", endpoint, "--yes")
    return row


def _deployed(
    base_url: str, endpoint: str, kind: OwnKind, folder: Path, said: dict[str, Any]
) -> bytes:
    if kind.image:
        _by_boto3(base_url, endpoint, kind, folder)
    else:
        _penstock(base_url, "deploy", endpoint, str(folder), *kind.options)
    url = f"{base_url}/endpoints/{endpoint}/invocations"
    headers = {"Content-Type": said["content_type"]}
    return post(url, said["body"].encode(), headers=headers, timeout_s=60.0)


def _by_boto3(base_url: str, endpoint: str, kind: OwnKind, folder: Path) -> None:
    archive = folder.parent / f"{endpoint}.tar.gz"
    with tarfile.open(archive, "w:gz") as made:
        for path in sorted(folder.iterdir()):
            made.add(path, path.name)
    client = boto3.client(
        "sagemaker", endpoint_url=base_url, region_name="us-east-1", aws_access_key_id="none",
        aws_secret_access_key="none",
    )  # fmt: skip
    container = {
        "Image": kind.image,
        "ModelDataUrl": archive.as_uri(),
        "Environment": dict(kind.environment),
    }
    client.create_model(
        ModelName=endpoint,
        PrimaryContainer=container,
        ExecutionRoleArn=_ROLE,
    )
    variant = {
        "VariantName": "AllTraffic", "ModelName": endpoint, "InitialInstanceCount": 1,
        "InstanceType": "ml.m5.large",
    }  # fmt: skip
    client.create_endpoint_config(EndpointConfigName=endpoint, ProductionVariants=[variant])
    client.create_endpoint(EndpointName=endpoint, EndpointConfigName=endpoint)
    client.get_waiter("endpoint_in_service").wait(
        EndpointName=endpoint, WaiterConfig={"Delay": 1, "MaxAttempts": 600}
    )


def _penstock(base_url: str, *arguments: str) -> None:
    argv = [sys.executable, "-m", "penstock", *arguments, "--url", base_url]
    run = subprocess.run(argv, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise RuntimeError(run.stderr[-900:])


def _is_right(said: dict[str, Any], answer: bytes) -> bool:
    """Whether the library's own answers stand in the answer, in order, whatever is around them."""
    text = answer.decode()
    try:
        found = json.loads(text)
    except ValueError:
        found = [cell for line in text.split() for cell in line.split(",")]
    expected = said["expected"]
    return any(_equal(each, expected) for each in _lists(found, len(expected)))


def _equal(found: list[Any], expected: list[Any]) -> bool:
    if isinstance(expected[0], str):
        return [str(each) for each in found] == expected
    try:
        return bool(np.allclose(np.asarray(found, dtype=float), expected, rtol=1e-4, atol=1e-6))
    except (TypeError, ValueError):
        return False


def _lists(value: Any, length: int) -> list[list[Any]]:
    """Every run of plain values of that length in an answer."""
    flat = _flat(value)
    return [flat[at : at + length] for at in range(len(flat) - length + 1)]


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [each for one in value.values() for each in _flat(one)]
    if isinstance(value, list):
        return [each for one in value for each in _flat(one)]
    return [value]
