"""The encoders of bench/bert.py: made once, compiled for each target, loaded by each peer.

Everything here is cached under .cache/bench/bert: a trained model until the program that makes it
changes, an artifact until the compiler does.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.environments import make

from bench.report import ROOT
from penstock.runtimes.processor import instruction_set_here

CACHE = ROOT / ".cache" / "bench" / "bert"
PEERS = Path(__file__).parent / "peers"
TARGETS = {"ours_f32": "cpu-fp32", "ours_bf16": "cpu-bf16", "ours_int8": "cpu-int8"}
NAMES = {"base": "BERT-base", "minilm": "MiniLM-L6"}


@dataclass(frozen=True, slots=True)
class Model:
    """One encoder with all that is measured of it."""

    size: str
    source: Path  #: the Hugging Face directory
    onnx: Path
    artifacts: dict[str, Path]  #: peer name -> what `penstock compile` made
    texts: tuple[str, ...]  #: of 16 tokens each
    facts: dict[str, Any]

    def report(self, name: str) -> dict[str, Any]:
        """The compile's own report of an artifact."""
        return dict(json.loads((self.artifacts[name] / "report.json").read_text()))


def digest(files: Sequence[Path]) -> str:
    """Changes with what is in the files."""
    found = hashlib.sha256()
    for path in files:
        found.update(path.read_bytes())
    return found.hexdigest()[:12]


def made(size: str) -> Model:
    """Trains (some minutes, once), exports and compiles. Raises CalledProcessError."""
    folder = CACHE / f"{size}-{digest([PEERS / 'bert_prepare.py'])}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TOKENIZERS_PARALLELISM": "false"}
    if not (folder / "facts.json").exists():
        print(f"training {NAMES[size]}'s shape for some minutes, once ...", flush=True)
        argv = [str(make("compile")), str(PEERS / "bert_prepare.py"), str(folder), size]
        subprocess.run(argv, check=True, env=environment)
    here = instruction_set_here().name  # INT8 is another file where there is no VNNI
    by = digest(sorted((ROOT / "src" / "penstock" / "compile").glob("*.py")))
    artifacts = {name: folder / f"{target}-{here}-{by}" for name, target in TARGETS.items()}
    for name, target in TARGETS.items():
        if artifacts[name].exists():
            continue
        print(f"compiling {NAMES[size]} for {target} ...", flush=True)
        argv = [
            *(str(make("compile")), "-m", "penstock", "compile", str(folder / "source")),
            *("-o", str(artifacts[name]), "--target", target, "--measure-s", "0"),
            *("--calibration", str(folder / "calibration.txt")),
        ]
        run = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise RuntimeError(f"compiling for {target} failed: {run.stderr[-1500:]}")
    return Model(
        size=size,
        source=folder / "source",
        onnx=folder / "model.onnx",
        artifacts=artifacts,
        texts=tuple(json.loads((folder / "texts.json").read_text())),
        facts=dict(json.loads((folder / "facts.json").read_text())),
    )


class Peer:
    """A process that holds one model in one engine, and runs the batches that it is told."""

    def __init__(self, name: str, argv: list[str], log: Path) -> None:
        self.name = name
        self._log = log.open("w")
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "TOKENIZERS_PARALLELISM": "false"},
        )  # fmt: skip

    def wait_ready(self) -> None:
        """Peers load side by side; this waits for one."""
        if self._line() != "ready\n":
            raise RuntimeError(f"{self.name} did not start: see {self._log.name}")

    def ask(self, ids: list[list[int]], seconds: float) -> dict[str, Any]:
        """{"s": time of each run, "logits": the last answer}."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"ids": ids, "seconds": seconds}) + "\n")
        self._process.stdin.flush()
        line = self._line()
        if not line:
            raise RuntimeError(f"{self.name} ended: see {self._log.name}")
        return dict(json.loads(line))

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._log.close()


@contextlib.contextmanager
def ours(name: str, artifact: Path) -> Iterator[Peer]:
    """The bare loop over an artifact, in a process of its own."""
    argv = [sys.executable, str(PEERS / "bert_ours.py"), str(artifact)]
    peer = Peer(name, argv, CACHE / f"{name}-lanes.log")
    try:
        peer.wait_ready()
        yield peer
    finally:
        peer.close()


def loaded(model: Model) -> list[Peer]:
    """All peers of one encoder, ready."""
    torch = [str(make("compile")), str(PEERS / "bert_torch.py"), str(model.source)]
    argvs = {
        "pytorch_f32": [*torch, "float32"],
        "pytorch_bf16": [*torch, "bfloat16"],
        "onnxruntime_f32": [
            sys.executable, str(PEERS / "bert_onnxruntime.py"), str(model.onnx),
        ],
    }  # fmt: skip
    for name, artifact in model.artifacts.items():
        argvs[name] = [sys.executable, str(PEERS / "bert_ours.py"), str(artifact)]
    found: list[Peer] = []
    try:
        for name, argv in argvs.items():
            found.append(Peer(name, argv, CACHE / f"{model.size}-{name}.log"))
            found[-1].wait_ready()  # one by one: loading takes memory beyond what is kept
    except BaseException:
        for peer in found:
            peer.close()
        raise
    return found
