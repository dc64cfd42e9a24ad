"""BERT over HTTP: compiled artifacts and PyTorch, each behind the same server.

PyTorch runs as a Python model of the same server, so HTTP costs all the same, and at its best: in
batches, FP32 and BF16, with as many lanes and threads and as large batches as answer most
(`PYTORCH_SETTINGS`, swept). `STOCK` is what one gets from transformers' own pages: a text per
request, FP32, all cores for one model. Each is measured with the machine to itself and as many
requests on their way as keep it busy.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import yaml
from tools.environments import make

from bench import wrk
from bench.batches import batch_counts, mean_rows
from bench.bert_models import CACHE, PEERS, Model
from bench.deployment import deploy
from bench.processes import penstock_up, post, wait_answer

#: Whole machine: cores and memory alike, for each of them in turn.
INSTANCE_TYPE = "ml.local.machine"

PATIENCE_S = 120.0  #: for an answer that is not timed


@dataclass(frozen=True, slots=True)
class PyTorchSetting:
    """How PyTorch is run as a Python model."""

    dtype: str
    rows: int  #: of the largest batch
    lanes: int
    threads: int  #: of each lane

    @property
    def name(self) -> str:
        return f"{self.dtype}, batch {self.rows}, {self.lanes} x {self.threads} threads"

    @property
    def connections(self) -> int:
        """A batch in work and one waiting for each lane."""
        return max(8, 2 * self.rows * self.lanes)


def _lanes() -> tuple[tuple[int, int], ...]:
    """One lane with all cores, and a lane per core."""
    cores = len(os.sched_getaffinity(0))
    return tuple(dict.fromkeys(((1, cores), (cores, 1))))


STOCK = PyTorchSetting("float32", 1, *_lanes()[0])
PYTORCH_SETTINGS = tuple(
    PyTorchSetting(dtype, rows, lanes, threads)
    for dtype in ("float32", "bfloat16")
    for rows in (1, 8, 32)
    for lanes, threads in _lanes()
)


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
        return [self._label(json.loads(self._post(body))) for body in self._bodies]

    def _post(self, body: bytes) -> bytes:
        return post(self._url, body, timeout_s=PATIENCE_S)

    def _label(self, answer: object) -> str:
        assert isinstance(answer, list)
        return str(answer[0]["label"])

    def warm_up(self) -> None:
        """Waits for answers to as many texts at once as it will be asked, however long it takes."""
        wait_answer(self._url, self._bodies[0], timeout_s=60)
        wanted = (self._bodies * self._connections)[: self._connections]
        with ThreadPoolExecutor(self._connections) as threads:
            list(threads.map(self._post, wanted))

    def load(self, seconds: float) -> Served:
        before = batch_counts(self._base_url)
        run = wrk.closed_loop(
            self._url, *self._bodies, connections=self._connections, seconds=seconds
        )
        rows = mean_rows(before, batch_counts(self._base_url))
        return Served(run.rps, run.p50_ms, run.p99_ms, rows, run.failed)


class TensorEndpoint(Endpoint):
    """The same at the door of the Open Inference Protocol, which PyTorch's model answers."""

    def __init__(self, base_url: str, name: str, connections: int, texts: tuple[str, ...]) -> None:
        super().__init__(base_url, name, connections, texts)
        self._url = f"{base_url}/v2/models/{name}/infer"
        tensor = {"name": "text", "shape": [1, 1], "datatype": "BYTES"}
        self._bodies = [
            json.dumps({"inputs": [tensor | {"data": [text]}]}).encode() for text in texts
        ]

    def _label(self, answer: object) -> str:
        assert isinstance(answer, dict)
        return str(answer["outputs"][0]["data"][0])


@contextlib.contextmanager
def endpoint(
    name: str, folder: Path, texts: tuple[str, ...], *, connections: int, tensors: bool = False
) -> Iterator[Endpoint]:
    """`folder` on a server of its own with all of the machine; PyTorch's under the interpreter
    that has it (`tensors`)."""
    with penstock_up(make("compile") if tensors else sys.executable) as base_url:
        deploy(base_url, name, folder, instance_type=INSTANCE_TYPE)
        yield (TensorEndpoint if tensors else Endpoint)(base_url, name, connections, texts)


@contextlib.contextmanager
def pytorch(model: Model, setting: PyTorchSetting) -> Iterator[Path]:
    """The artifact of PyTorch. A model reads nothing outside of its own folder, so the weights are
    linked into it, which costs no second copy."""
    description: Mapping[str, object] = {
        "schema": 1,
        "runtime": "python",
        "triton_python": True,
        "file": "1/model.py",
        "inputs": [{"name": "text", "dtype": "BYTES", "shape": [-1, 1]}],
        "outputs": [{"name": "label", "dtype": "BYTES", "shape": [-1, 1]}],
        "batching": {"rows_max": setting.rows},
        "lanes": setting.lanes,
        "environment": {
            "BERT_DTYPE": setting.dtype,
            "BERT_THREADS": str(setting.threads),
            "OMP_NUM_THREADS": str(setting.threads),
            "TOKENIZERS_PARALLELISM": "false",
        },
    }
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        shutil.copytree(model.source, Path(folder, "source"), copy_function=os.link)
        code = Path(folder, "1")
        code.mkdir()
        shutil.copy(PEERS / "bert_torch_served.py", code / "model.py")
        Path(folder, "model.yaml").write_text(yaml.safe_dump(dict(description)))
        yield Path(folder)


@contextlib.contextmanager
def pytorch_endpoint(model: Model, setting: PyTorchSetting) -> Iterator[Endpoint]:
    with (
        pytorch(model, setting) as folder,
        endpoint(
            "pytorch", folder, model.texts, connections=setting.connections, tensors=True
        ) as found,
    ):
        yield found


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
