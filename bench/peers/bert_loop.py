"""The loop of every peer of bench/bert.py: a JSON line asks for a batch, one JSON line answers.

A batch is run for as long as was asked, after as many runs as a peer needs to make its kernels for
a shape and to fill its caches. A peer with several lanes runs it on all of them side by side.
"""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

#: From token ids and attention mask, both [rows, tokens] of INT64, to logits.
Run = Callable[[np.ndarray, np.ndarray], np.ndarray]

WARM_UP_RUNS = 2
RUNS_MIN = 3


def serve(*lanes: Run) -> None:
    """Answers until standard input ends: seconds per batch, of all lanes together."""
    print("ready", flush=True)
    with ThreadPoolExecutor(len(lanes)) as threads:
        for line in sys.stdin:
            asked = json.loads(line)
            ids = np.array(asked["ids"], dtype=np.int64)
            timed = functools.partial(_timed, ids=ids, seconds=asked["seconds"])
            times, logits = zip(*threads.map(timed, lanes), strict=True)
            seconds = [each / len(lanes) for of_lane in times for each in of_lane]
            print(json.dumps({"s": seconds, "logits": logits[0].tolist()}), flush=True)


def _timed(run: Run, *, ids: np.ndarray, seconds: float) -> tuple[list[float], np.ndarray]:
    mask = np.ones_like(ids)
    for _ in range(WARM_UP_RUNS):
        logits = run(ids, mask)
    times: list[float] = []
    until = time.perf_counter() + seconds
    while len(times) < RUNS_MIN or time.perf_counter() < until:
        started = time.perf_counter()
        run(ids, mask)
        times.append(time.perf_counter() - started)
    return times, logits
