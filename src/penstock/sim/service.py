"""How long a batch runs: by a formula or by measurements, with noise of mean 1.

    run = (base_s + rows * (row_s + bucket * token_s)) * noise

`base_s` alone gives a constant service time; with `sigma` the noise is lognormal. `measured`
replaces the formula: it takes the runs of the next longer bucket, interpolates between its sizes,
and beyond the largest one uses that one's time per row. `noise` replaces `sigma`: it holds ratios
of single runs to their mean, from which it draws.
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSpec:
    base_s: float = 0.0
    row_s: float = 0.0
    token_s: float = 0.0  #: per row and token of the bucket that the batch is padded to
    sigma: float = 0.0  #: standard deviation of the logarithm of the noise; 0 = no noise
    measured: tuple[tuple[int, int, float], ...] = ()  #: (rows, bucket, mean run s)
    noise: tuple[float, ...] = ()  #: run time over mean, one per measured run


class ServiceTimes:
    """Draws one run time per batch, in the order in which batches start."""

    def __init__(self, spec: ServiceSpec, seed: object) -> None:
        self._spec = spec
        self._known_s: dict[tuple[int, int], float] = {}  #: (rows, bucket) -> mean
        self._sigma = spec.sigma
        self._mu = -spec.sigma * spec.sigma / 2  # makes the mean of the noise 1
        self._ratios = spec.noise
        self._noise = random.Random(f"{seed}/service")

    def run_s(self, rows: int, bucket: int) -> float:
        key = (rows, bucket)
        run_s = self._known_s.get(key)
        if run_s is None:
            run_s = self._known_s[key] = self._mean_s(rows, bucket)
        if self._ratios:
            return run_s * self._ratios[int(self._noise.random() * len(self._ratios))]
        if self._sigma:
            return run_s * self._noise.lognormvariate(self._mu, self._sigma)
        return run_s

    def _mean_s(self, rows: int, bucket: int) -> float:
        spec = self._spec
        if not spec.measured:
            return spec.base_s + rows * (spec.row_s + bucket * spec.token_s)
        lengths = sorted({length for _, length, _ in spec.measured})
        length = next((each for each in lengths if each >= bucket), lengths[-1])
        before_rows, before_s = 0, 0.0
        for size, _, run_s in sorted(entry for entry in spec.measured if entry[1] == length):
            if rows <= size:
                if not before_rows:
                    return run_s
                share = (rows - before_rows) / (size - before_rows)
                return before_s + (run_s - before_s) * share
            before_rows, before_s = size, run_s
        return before_s * rows / before_rows
