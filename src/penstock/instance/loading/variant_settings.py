"""What a variant's environment says about serving its copies, rather than to the model's code."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from penstock.artifacts.description.description import Batching
from penstock.errors import CallerError

LATENCY_P99_MS = "PENSTOCK_LATENCY_P99_MS"


def served_with(batching: Batching, environment: Mapping[str, str]) -> Batching:
    """`batching` with the service level that the environment names, if it names one.

    Raises CallerError (`environment-invalid`) for what is no number of milliseconds above 0.
    """
    text = environment.get(LATENCY_P99_MS)
    if text is None:
        return batching
    try:
        latency_ms = float(text)
    except ValueError:
        latency_ms = math.nan
    if not 0 < latency_ms < math.inf:
        raise CallerError(
            "environment-invalid",
            f"{LATENCY_P99_MS} is {text!r}",
            hint="Give a number of milliseconds above 0, as in 10 or 2.5.",
        )
    return dataclasses.replace(batching, latency_s_p99_max=latency_ms / 1000)
