"""BERT over HTTP: the compiled artifact and stock PyTorch, each behind the same server.

Stock PyTorch is what one gets from transformers' own pages: a text per request, FP32, no batching,
all cores for one model. It runs as a Python model of the same server, so HTTP costs both the same.
Both are measured with the machine to themselves and as many requests as keep them busy.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import boto3
import yaml

from bench import wrk
from bench.bert_models import PEERS, Model
from bench.processes import penstock_up, post, wait_answer

#: Whole machine: cores and memory alike, for each of them in turn.
INSTANCE_TYPE = "ml.local.machine"
STOCK_CONNECTIONS = 8  #: one computes, the rest wait: more only wait longer


@dataclass(frozen=True, slots=True)
class Served:
    """One run of load."""

    rps: float
    p50_ms: float
    p99_ms: float
    rows: float  #: mean rows of the batch that a request was answered in
    failed: int


class Endpoint:
    """A deployed model, and the load for it."""

    def __init__(self, base_url: str, name: str, connections: int, texts: tuple[str, ...]) -> None:
        self._base_url = base_url
        self._url = f"{base_url}/endpoints/{name}/invocations"
        self._connections = connections
        self._bodies = [json.dumps({"inputs": text}).encode() for text in texts]

    def labels(self) -> list[str]:
        """The best label of each text, asked one by one."""
        wait_answer(self._url, self._bodies[0], timeout_s=60)
        answers = [json.loads(post(self._url, body)) for body in self._bodies]
        return [answer[0]["label"] for answer in answers]

    def load(self, seconds: float) -> Served:
        before = _batch_counts(self._base_url)
        run = wrk.closed_loop(
            self._url, *self._bodies, connections=self._connections, seconds=seconds
        )
        after = _batch_counts(self._base_url)
        rows = (after[0] - before[0]) / max(1.0, after[1] - before[1])
        return Served(run.rps, run.p50_ms, run.p99_ms, rows, run.failed)


@contextlib.contextmanager
def endpoint(
    name: str, folder: Path, texts: tuple[str, ...], *, connections: int
) -> Iterator[Endpoint]:
    """`folder` on a server of its own with all of the machine."""
    with penstock_up() as base_url:
        keys = {"aws_access_key_id": "none", "aws_secret_access_key": "none"}
        client = boto3.client("sagemaker", endpoint_url=base_url, region_name="us-east-1", **keys)
        client.create_model(ModelName=name, PrimaryContainer={"ModelDataUrl": folder.as_uri()})
        client.create_endpoint_config(
            EndpointConfigName=name,
            ProductionVariants=[
                {
                    "VariantName": "all",
                    "ModelName": name,
                    "InstanceType": INSTANCE_TYPE,
                    "InitialInstanceCount": 1,
                }
            ],
        )
        client.create_endpoint(EndpointName=name, EndpointConfigName=name)
        waiter = client.get_waiter("endpoint_in_service")
        waiter.wait(EndpointName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 120})
        yield Endpoint(base_url, name, connections, texts)


@contextlib.contextmanager
def stock(model: Model) -> Iterator[Path]:
    """The artifact of stock PyTorch: code and settings; the weights stay where they are."""
    packages = next((compiler().parents[1] / "lib").glob("python3*")) / "site-packages"
    description = {
        "schema": 1,
        "runtime": "python",
        "task": "payload",
        "file": "code/inference.py",
        "batching": {"rows_max": 1},
        "environment": {
            "PYTHONPATH": str(packages),
            "BERT_SOURCE": str(model.source),
            "TOKENIZERS_PARALLELISM": "false",
        },
    }
    with tempfile.TemporaryDirectory() as folder:
        code = Path(folder, "code")
        code.mkdir()
        shutil.copy(PEERS / "bert_stock.py", code / "inference.py")
        Path(folder, "model.yaml").write_text(yaml.safe_dump(description))
        yield Path(folder)


@contextlib.contextmanager
def with_a_lane_per_core(artifact: Path) -> Iterator[Path]:
    """The artifact set for throughput, as `penstock tune` would: a lane with one thread per core.

    One lane with a thread per core answers sooner and waits, at each layer, for its slower thread,
    which shares a core with the server and the load.
    """
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent, artifact.name)
        shutil.copytree(artifact, folder)
        description = yaml.safe_load((folder / "model.yaml").read_text())
        description["lanes"] = len(os.sched_getaffinity(0))
        (folder / "model.yaml").write_text(yaml.safe_dump(description))
        yield folder


def _batch_counts(base_url: str) -> tuple[float, float]:
    """Sum and count of penstock_batch_rows, over requests."""
    with urllib.request.urlopen(f"{base_url}/metrics") as answer:
        text = answer.read().decode()
    values = {"_sum": 0.0, "_count": 0.0}
    for line in text.splitlines():
        for suffix in values:
            if line.startswith(f"penstock_batch_rows{suffix}"):
                values[suffix] += float(line.rsplit(" ", 1)[1])
    return values["_sum"], values["_count"]
