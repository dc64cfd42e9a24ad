"""How long a batch runs: affine in its rows and padded tokens, with lognormal noise.

    run = (base_s + rows * (row_s + bucket * token_s)) * noise        noise has mean 1

`base_s` alone is a constant service time; with `sigma` it is lognormal of that mean.
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSpec:
    base_s: float = 0.0
    row_s: float = 0.0
    token_s: float = 0.0  #: per row and token of the bucket that the batch is padded to
    sigma: float = 0.0  #: of the logarithm of the noise; 0 = none


class ServiceTimes:
    """Draws one run time per batch, in the order in which batches start."""

    __slots__ = ("_base_s", "_mu", "_noise", "_row_s", "_sigma", "_token_s")

    def __init__(self, spec: ServiceSpec, seed: object) -> None:
        self._base_s = spec.base_s
        self._row_s = spec.row_s
        self._token_s = spec.token_s
        self._sigma = spec.sigma
        self._mu = -spec.sigma * spec.sigma / 2  # makes the mean of the noise 1
        self._noise = random.Random(f"{seed}/service")

    def run_s(self, rows: int, bucket: int) -> float:
        run_s = self._base_s + rows * (self._row_s + bucket * self._token_s)
        if self._sigma:
            run_s *= self._noise.lognormvariate(self._mu, self._sigma)
        return run_s
