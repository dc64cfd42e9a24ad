"""Times of one batch before and after compiling, on the same inputs, alternating.

Figures of one machine at one moment: what counts is their ratio, and, for a service level, how time
grows with rows and tokens.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

import numpy as np

from penstock.compile.contract import Timing
from penstock.compile.graphs.graph import Arrays

#: Rows and tokens of a lone short query, of small and large batches of them, and of long texts.
SHAPES = ((1, 16), (8, 16), (32, 16), (1, 128), (8, 128))
_RUNS_MIN = 3
_RUNS_MAX = 200

Run = Callable[[Arrays], object]


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def measured(
    before: Run,
    after: Run,
    batches: Sequence[tuple[int, int, Arrays]],
    *,
    seconds: float,
) -> tuple[Timing, ...]:
    """One Timing for each (rows, tokens, inputs); each side gets about `seconds`."""
    found = []
    for rows, tokens, inputs in batches:
        times: tuple[list[float], list[float]] = ([], [])
        sides = (before, after)
        for run in sides:
            run(inputs)  # kernels of this shape are made, and caches filled
        for run, taken in zip(sides, times, strict=True):
            _sample(run, inputs, seconds / 2, taken)
        for run, taken in zip(sides, times, strict=True):
            _sample(run, inputs, seconds / 2, taken)
        found.append(
            Timing(
                rows=rows,
                tokens=tokens,
                before_s=float(np.median(times[0])),
                after_s=float(np.median(times[1])),
                after_s_p99=float(np.quantile(times[1], 0.99)),
            )
        )
    return tuple(found)


def shapes_for(rows_max: int, tokens_max: int) -> tuple[tuple[int, int], ...]:
    """The shapes that the model can take."""
    fitting = [shape for shape in SHAPES if shape[0] <= rows_max and shape[1] <= tokens_max]
    return tuple(fitting) or ((1, tokens_max),)


def _sample(run: Run, inputs: Arrays, seconds: float, taken: list[float]) -> None:
    until = time.perf_counter() + seconds
    for count in range(_RUNS_MAX):
        start = time.perf_counter()
        if count >= _RUNS_MIN and start > until:
            return
        run(inputs)
        taken.append(time.perf_counter() - start)
