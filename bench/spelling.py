"""The spelling corrector over HTTP, against the same model through PyTorch's `generate`.

Two servers of ours side by side: one serves the committed artifact, the other runs `generate` of
transformers on the very same weights (see peers/spelling_source.py) in the python runtime, two
workers of one thread each. Rounds alternate; while one is asked, the other idles. First their
answers are compared. Each is asked as fast as it answers (closed loop), then at 60 % of that rate
with Poisson arrivals. The load generator runs on the same cores.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import wrk
from bench.open_loop import open_loop
from bench.processes import free_port, peer_python, post, running, wait_answer
from bench.report import ROOT, finish, spread, versions

EXAMPLE = ROOT / "examples" / "spelling"
CACHE = ROOT / ".cache" / "bench-spelling"
LOAD = 0.6  #: of the closed loop's rate, for the latencies
AGREEMENT_MIN = 0.98  #: of answers; both compute in FP32, in another order
LANES, THREADS = 2, 1  #: of the peer: two workers answer more than one with two threads
DESCRIPTION = f"""\
schema: 1
name: spelling-pytorch
runtime: python
task: payload
file: code/inference.py
lanes: {LANES}
environment: {{OMP_NUM_THREADS: "{THREADS}"}}
"""


@dataclass
class Served:
    """One endpoint and what was seen of it; a value per round."""

    name: str
    url: str
    rps: list[float] = field(default_factory=list)
    p50_ms: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)


def queries() -> list[str]:
    """Typed by hand, with and without errors."""
    lines = (EXAMPLE / "handwritten.tsv").read_text(encoding="utf-8").splitlines()
    return [line.split("\t")[0] for line in lines if line]


def bodies() -> list[bytes]:
    return [json.dumps({"inputs": query}).encode() for query in queries()]


def prepare_peer() -> tuple[Path, Path]:
    """(interpreter, model folder) of PyTorch's server."""
    python = peer_python("compile", "-e", f"{ROOT}[compile]")
    folder = CACHE / "pytorch"
    CACHE.mkdir(parents=True, exist_ok=True)
    script = Path(__file__).parent / "peers" / "spelling_source.py"
    subprocess.run(
        [str(python), str(script), str(EXAMPLE / "artifact"), str(EXAMPLE / "config.json"),
         str(folder)],
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    (folder / "model.yaml").write_text(DESCRIPTION, encoding="utf-8")
    return python, folder


@contextlib.contextmanager
def served(name: str, python: Path | str, folder: Path) -> Iterator[Served]:
    """`penstock up` under an interpreter, with one model deployed; in service when it yields."""
    port = free_port()
    with tempfile.TemporaryDirectory() as state:
        argv = [
            *(str(python), "-m", "penstock", "up", "--host", "127.0.0.1", "--port", str(port)),
            *("--grpc-port", str(free_port()), "--state-dir", state),
            *("--deploy", f"{name}={folder}", "--log-level", "warning"),
        ]
        with running(argv, env={"PYTHONPATH": str(ROOT / "src")}):
            url = f"http://127.0.0.1:{port}/endpoints/{name}/invocations"
            wait_answer(url, bodies()[0], timeout_s=120.0)
            yield Served(name, url)


def agreement(ours: Served, theirs: Served) -> float:
    """Share of equal answers; raises RuntimeError where the two are not one model."""
    same = [
        json.loads(post(ours.url, body)) == json.loads(post(theirs.url, body)) for body in bodies()
    ]
    share = sum(same) / len(same)
    if share < AGREEMENT_MIN:
        raise RuntimeError(f"only {share:.3f} of the answers agree: not the same model")
    return share


def one_round(server: Served, options: argparse.Namespace, seed: int) -> None:
    asked = bodies()
    warm_up_s = options.seconds / 2  # the peer takes seconds for a first answer to everybody
    wrk.closed_loop(server.url, *asked, connections=options.connections, seconds=warm_up_s)
    load = wrk.closed_loop(
        server.url, *asked, connections=options.connections, seconds=options.seconds
    )
    seen = open_loop(
        server.url,
        [body.decode() for body in asked],
        rate=LOAD * load.rps,
        seconds=max(options.seconds, 300 / (LOAD * load.rps)),
        seed=seed,
    )
    if load.failed or seen.failed or seen.refused:
        raise RuntimeError(f"{server.name}: {load.failed} and {seen.failed} requests failed")
    server.rps.append(load.rps)
    server.p50_ms.append(seen.p50_ms)
    server.p99_ms.append(seen.p99_ms)
    print(
        f"{server.name:17} {load.rps:8.1f} rps   at {LOAD:.0%}: p50 {seen.p50_ms:7.2f} ms,"
        f" p99 {seen.p99_ms:7.2f} ms",
        flush=True,
    )


def figures(ours: Served, theirs: Served) -> dict[str, Any]:
    ratios = [one / other for one, other in zip(ours.rps, theirs.rps, strict=True)]
    return {
        "sustained_rps": round(statistics.median(ours.rps), 1),
        "p99_ms": round(statistics.median(ours.p99_ms), 2),
        "p50_ms": round(statistics.median(ours.p50_ms), 2),
        "vs_pytorch": round(statistics.median(ratios), 2),
        "p99_ms_pytorch": round(statistics.median(theirs.p99_ms), 2),
        "sustained_rps_pytorch": round(statistics.median(theirs.rps), 1),
        "rounds": {
            "rps": spread(ours.rps),
            "p99_ms": spread(ours.p99_ms),
            "rps_pytorch": spread(theirs.rps),
            "p99_ms_pytorch": spread(theirs.p99_ms),
            "vs_pytorch": spread(ratios),
        },
    }


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench spelling")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--connections", type=int, default=32)
    options = parser.parse_args(arguments)
    wrk.require_wrk()
    python, folder = prepare_peer()
    with (
        served("spelling", sys.executable, EXAMPLE / "artifact") as ours,
        served("spelling-pytorch", python, folder) as theirs,
    ):
        share = agreement(ours, theirs)
        print(f"{share:.1%} of {len(queries())} answers agree", flush=True)
        for turn in range(options.rounds):
            for server in (ours, theirs):
                time.sleep(0.5)  # the threads of the one before may still spin
                one_round(server, options, seed=turn)
    metrics = json.loads((EXAMPLE / "metrics.json").read_text(encoding="utf-8"))
    finish(
        "spelling",
        figures(ours, theirs),
        answers_agree=round(share, 4),
        exact_match_held_out={
            way: figures["held_out"]["exact"] for way, figures in metrics["results"].items()
        },
        load=LOAD,
        connections=options.connections,
        peer={"lanes": LANES, "threads_per_lane": THREADS, "precision": "f32"},
        seed=0,
        versions=versions("penstock", "openvino", "tokenizers", "numpy"),
    )
