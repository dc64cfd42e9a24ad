"""The peers of bench/transform.py: processes that are asked to run over rows of a file."""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tools.environments import make

from bench.bert_models import digest
from bench.transform_data import CACHE, pairs_file

PEERS = Path(__file__).parent / "peers"
CORES = len(os.sched_getaffinity(0))
#: Rows of a run: enough for some seconds.
SWEPT_ROWS, TORCH_ROWS, RAY_ROWS = 4_000, 6_000, (10_000, 40_000)
ROUNDS = 3
#: Largest difference of a probability: INT8 beside FP32.
INT8_DIFFERENCE_MAX = 0.1

#: of each row, of each head its numbers
Answers = list[list[list[float]]]


class Peer:
    """A process that runs what it is asked to (`peers/transform_loop.py`)."""

    def __init__(self, name: str, argv: list[str], *, parallel: bool = False) -> None:
        self._log = CACHE / f"{name}.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                env={**os.environ, "TOKENIZERS_PARALLELISM": "true" if parallel else "false"},
            )  # fmt: skip
        if self._line() != "ready\n":
            raise RuntimeError(f"{name} did not start: see {self._log}")

    def ask(self, **asked: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        line = self._line()
        if not line:
            raise RuntimeError(f"a peer ended: see {self._log}")
        return dict(json.loads(line))

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


@contextlib.contextmanager
def peer(name: str, argv: list[str], *, parallel: bool = False) -> Iterator[Peer]:
    started = Peer(name, argv, parallel=parallel)
    try:
        yield started
    finally:
        started.close()


def made_model() -> Path:
    folder = CACHE / f"model-{digest([PEERS / 'transform_prepare.py'])}"
    if not (folder / "facts.json").exists():
        print("making the pair model, once ...", flush=True)
        argv = [str(make("compile")), str(PEERS / "transform_prepare.py"), str(folder)]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return folder


def swept(name: str, running: Peer, file: Path, settings: list[dict[str, Any]]) -> dict[str, Any]:
    """The fastest of the settings, each tried twice."""
    rates: dict[int, float] = {}
    for _ in range(2):
        for at, setting in enumerate(settings):
            taken = running.ask(file=str(file), skip=0, count=SWEPT_ROWS, **setting)["s"]
            rates[at] = max(rates.get(at, 0.0), SWEPT_ROWS / taken)
    for at, setting in enumerate(settings):
        print(f"{name:8} {setting} {rates[at]:9.0f} rows/s", flush=True)
    return settings[max(rates, key=rates.__getitem__)]


def bare_settings() -> list[dict[str, Any]]:
    return [
        {"streams": streams, "threads": CORES // streams, "rows": rows, "models": models}
        for streams, models in sorted({(1, 1), (CORES, 1), (CORES, CORES)})
        for rows in (8, 16, 32, 64, 128)
    ]


def compared_with_torch(
    model: Path, file: Path, answers: Answers
) -> tuple[list[float], dict[str, Any]]:
    """Rows/s of its runs, and the setting that was the fastest."""
    argv = [str(make("compile")), str(PEERS / "transform_torch.py"), str(model)]
    settings = [
        {"threads": threads, "rows": rows, "dtype": dtype}
        for dtype in ("float32", "bfloat16")
        for threads in sorted({1, CORES})
        for rows in (16, 64, 128)
    ]
    with peer("torch", argv, parallel=True) as running:
        best = swept("PyTorch", running, file, settings)
        exact = running.ask(file=str(file), skip=0, count=1000, **best | {"dtype": "float32"})
        check("PyTorch in FP32 and INT8", exact["answers"], answers, INT8_DIFFERENCE_MAX)
        rates = [
            TORCH_ROWS / running.ask(file=str(file), skip=0, count=TORCH_ROWS, **best)["s"]
            for _ in range(ROUNDS)
        ]
    return rates, best


def compared_with_ray(model: Path) -> tuple[list[float], dict[str, Any]]:
    small, large = (pairs_file(rows) for rows in RAY_ROWS)
    argv = [str(make("ray")), str(PEERS / "transform_ray.py"), str(model / "artifact")]
    with peer("ray", argv) as running:
        rates: dict[int, list[float]] = {}
        for rows in (32, 128, 512):
            found = [running.ask(file=str(file), rows=rows) for file in (small, large)]
            for answer, wanted in zip(found, RAY_ROWS, strict=True):
                if answer["written"] != wanted:
                    raise RuntimeError(f"Ray Data wrote {answer['written']} of {wanted} answers")
            seconds = found[1]["s"] - found[0]["s"]
            rates[rows] = [(RAY_ROWS[1] - RAY_ROWS[0]) / seconds]
            print(f"Ray Data batches of {rows:4} {rates[rows][0]:9.0f} rows/s", flush=True)
        best = max(rates, key=lambda rows: rates[rows][0])
        for _ in range(ROUNDS - 1):
            found = [running.ask(file=str(file), rows=best) for file in (small, large)]
            rates[best].append((RAY_ROWS[1] - RAY_ROWS[0]) / (found[1]["s"] - found[0]["s"]))
    return rates[best], {"rows": best}


def check(what: str, given: Answers, wanted: Answers, most: float) -> float:
    """Largest difference of a probability or number. Raises RuntimeError above `most`."""
    worst = 0.0
    for one, other in zip(given, wanted, strict=True):
        for mine, theirs in zip(one, other, strict=True):
            pairs = zip(shares(mine), shares(theirs), strict=True)
            worst = max(worst, *(abs(a - b) for a, b in pairs))
    print(f"{what} differ by {worst:.2g} at most", flush=True)
    if worst > most:
        raise RuntimeError(f"the answers of {what} differ by {worst}: they are not of one model")
    return worst


def shares(logits: Sequence[float]) -> Sequence[float]:
    """Probabilities; a single number is what it is."""
    if len(logits) == 1:
        return logits
    powers = [math.exp(each - max(logits)) for each in logits]
    return [each / sum(powers) for each in powers]
