"""The servers of bench/spelling.py: the committed artifact, and PyTorch with several settings.

Both are ours, so HTTP costs them the same. PyTorch's holds the very same weights (see
`peers/spelling_source.py`) as a Python model that gets whole batches.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tools.environments import make
from tools.free_port import free_port

from bench.processes import post, running, wait_answer
from bench.report import ROOT

EXAMPLE = ROOT / "examples" / "spelling"
CACHE = ROOT / ".cache" / "bench-spelling"
PEERS = Path(__file__).parent / "peers"
ASKING = 32  #: requests on their way where many answers are wanted
PATIENCE_S = 120.0  #: for an answer that is not timed
OUR_ROWS = 16  #: of the example's decode batch


@dataclass(frozen=True, slots=True)
class PyTorchSetting:
    """How PyTorch is run: `lanes` workers of `threads` each, batches of `rows` at most."""

    dtype: str
    rows: int
    lanes: int
    threads: int

    @property
    def cores(self) -> int:
        return self.lanes * self.threads

    @property
    def name(self) -> str:
        return f"{self.dtype}, batch {self.rows}, {self.lanes} x {self.threads} threads"

    @property
    def connections(self) -> int:
        """A batch in work and one waiting for each lane."""
        return max(8, 2 * self.rows * self.lanes)


def settings() -> tuple[PyTorchSetting, ...]:
    """In FP32: on one core, and on all of them as one lane or a lane each."""
    cores = len(os.sched_getaffinity(0))
    lanes = dict.fromkeys(((1, 1), (1, cores), (cores, 1)))
    return tuple(
        PyTorchSetting("float32", rows, count, threads)
        for rows in (1, 8, 32)
        for count, threads in lanes
    )


class Server:
    """One endpoint, and how it is asked."""

    def __init__(self, url: str, *, connections: int, rows: int) -> None:
        self.url = url
        self.connections = connections  #: that keep it busy
        self.rows = rows  #: of all its batches together

    def body(self, text: str) -> bytes:
        return json.dumps({"inputs": text}).encode()

    def read(self, answer: bytes) -> str:
        return str(json.loads(answer)[0]["generated_text"])

    def answers(self, texts: Sequence[str]) -> list[str]:
        """In the order of the texts, which are asked many at a time."""
        with ThreadPoolExecutor(ASKING) as threads:
            return list(threads.map(self._answer, texts))

    def _answer(self, text: str) -> str:
        return self.read(post(self.url, self.body(text), timeout_s=PATIENCE_S))


class TensorServer(Server):
    """The same at the door of the Open Inference Protocol."""

    def body(self, text: str) -> bytes:
        tensor = {"name": "text", "shape": [1, 1], "datatype": "BYTES", "data": [text]}
        return json.dumps({"inputs": [tensor]}).encode()

    def read(self, answer: bytes) -> str:
        return str(json.loads(answer)["outputs"][0]["data"][0])


@contextlib.contextmanager
def ours(*, connections: int) -> Iterator[Server]:
    with _up(sys.executable, "spelling", EXAMPLE / "artifact") as base_url:
        url = f"{base_url}/endpoints/spelling/invocations"
        server = Server(url, connections=connections, rows=OUR_ROWS)
        wait_answer(server.url, server.body("a"), timeout_s=120.0)
        yield server


def prepared_source() -> Path:
    """The weights in PyTorch's form."""
    folder = CACHE / "pytorch"
    CACHE.mkdir(parents=True, exist_ok=True)
    argv = [str(make("compile")), str(PEERS / "spelling_source.py")]
    argv += [str(EXAMPLE / "artifact"), str(EXAMPLE / "config.json"), str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run(argv, check=True, env=environment, stdout=subprocess.DEVNULL)
    return folder / "source"


@contextlib.contextmanager
def pytorch(source: Path, setting: PyTorchSetting) -> Iterator[Server]:
    description: dict[str, Any] = {
        "schema": 1,
        "runtime": "python",
        "triton_python": True,
        "file": "1/model.py",
        "inputs": [{"name": "text", "dtype": "BYTES", "shape": [-1, 1]}],
        "outputs": [{"name": "generated_text", "dtype": "BYTES", "shape": [-1, 1]}],
        "batching": {"rows_max": setting.rows},
        "lanes": setting.lanes,
        "environment": {
            "OMP_NUM_THREADS": str(setting.threads),
            "SPELLING_DTYPE": setting.dtype,
            "SPELLING_THREADS": str(setting.threads),
        },
    }
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        # A model reads nothing outside of its own folder; links cost no second copy.
        shutil.copytree(source, Path(folder, "source"), copy_function=os.link)
        code = Path(folder, "1")
        code.mkdir()
        shutil.copy(PEERS / "spelling_torch.py", code / "model.py")
        Path(folder, "model.yaml").write_text(yaml.safe_dump(description), encoding="utf-8")
        with _up(make("compile"), "pytorch", Path(folder)) as base_url:
            url = f"{base_url}/v2/models/pytorch/infer"
            rows = setting.rows * setting.lanes
            server = TensorServer(url, connections=setting.connections, rows=rows)
            wait_answer(server.url, server.body("a"), timeout_s=120.0)
            yield server


@contextlib.contextmanager
def _up(python: Path | str, name: str, folder: Path) -> Iterator[str]:
    """`penstock up` under an interpreter, with one model deployed."""
    port = free_port()
    with tempfile.TemporaryDirectory() as state:
        argv = [
            *(str(python), "-m", "penstock", "up", "--host", "127.0.0.1", "--port", str(port)),
            *("--grpc-port", str(free_port()), "--state-dir", state),
            *("--deploy", f"{name}={folder}", "--log-level", "warning"),
        ]
        with running(argv, env={"PYTHONPATH": str(ROOT / "src")}):
            yield f"http://127.0.0.1:{port}"
