"""What a compiled model costs: time for a batch, and for the first batch of a new shape.

    python examples/query_intent/costs.py examples/query_intent/artifact/model.xml f32

Serves `export.py`. Every measurement runs in a fresh process, because OpenVINO keeps the kernels
made for a shape for the whole process; variants take turns, so that a busy moment of the machine
meets them all. Knows nothing of queries or labels.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import openvino as ov

ROUNDS = 3
BATCHES = ((1, 8), (1, 16), (32, 8), (32, 16))  #: (rows, tokens)
_NEW_SHAPES = tuple(
    (rows, width) for rows in (2, 3, 4, 5, 6, 7, 9, 11, 13, 17) for width in (8, 16)
)
_SECONDS = 0.3  #: of steady running for one figure


def compare(variants: Mapping[str, tuple[Path, str]]) -> dict[str, dict[str, float]]:
    """Figures in ms by variant; `variants` gives model file and inference precision of each.

    "32x16, 1 thread" is the median time of a batch of 32 rows of 16 tokens; "new shape" is what the
    first batch of a shape takes on top. Figures for two threads need two cores.
    """
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in variants}
    for _ in range(ROUNDS):
        for name, (path, precision) in variants.items():
            command = [sys.executable, str(Path(__file__)), str(path), precision]
            answer = subprocess.run(command, check=True, capture_output=True, text=True)
            rounds[name].append(json.loads(answer.stdout))
    return {
        name: {key: round(statistics.median(f[key] for f in figures), 3) for key in figures[0]}
        for name, figures in rounds.items()
    }


def measure(path: Path, precision: str) -> dict[str, float]:
    """The figures of one model in this process, in ms."""
    figures: dict[str, float] = {}
    for threads in (1, 2) if len(os.sched_getaffinity(0)) > 1 else (1,):
        request = _request(path, precision, threads)
        if threads == 1:
            _spent_ms(request, 1, 8)
            first = [_spent_ms(request, *shape) for shape in _NEW_SHAPES]
            again = [_spent_ms(request, *shape) for shape in _NEW_SHAPES]
            figures["new shape"] = statistics.mean(first) - statistics.mean(again)
        for rows, width in BATCHES:
            for _ in range(5):
                _spent_ms(request, rows, width)
            spent: list[float] = []
            while sum(spent) < _SECONDS * 1e3:
                spent.append(_spent_ms(request, rows, width))
            key = f"{rows}x{width}, {threads} thread{'s' if threads > 1 else ''}"
            figures[key] = statistics.median(spent)
    return {key: round(value, 3) for key, value in figures.items()}


def _request(path: Path, precision: str, threads: int) -> ov.InferRequest:
    settings = {
        "INFERENCE_PRECISION_HINT": precision,
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
    }
    return ov.Core().compile_model(path, "CPU", settings).create_infer_request()


def _spent_ms(request: ov.InferRequest, rows: int, width: int) -> float:
    ids = np.full((rows, width), 1000, dtype=np.int64) + np.arange(width)
    inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    begun = time.perf_counter()
    request.infer(inputs, share_inputs=True, share_outputs=True)
    return (time.perf_counter() - begun) * 1e3


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]), sys.argv[2])))
