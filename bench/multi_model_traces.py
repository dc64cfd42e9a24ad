"""Which model is called when, in the traces of bench/multi_model.py: few, and the same for all."""

from __future__ import annotations

import random

from penstock.sim.model_cache import cyclic_calls, zipf_calls

TRACES = ("zipf", "zipf-shifting", "cyclic")
_SKEW = 0.9


def trace(
    kind: str, names: list[str], rate: float, seconds: float
) -> tuple[tuple[float, str], ...]:
    """(s, model), ascending. One kind and one length give one trace."""
    rng = random.Random(f"multi-model {kind}")
    if kind == "cyclic":
        return cyclic_calls(names, rng, gap_s=1 / rate, length_s=seconds)
    shift_s = seconds / 4 if kind == "zipf-shifting" else 0.0
    return zipf_calls(names, rng, rate=rate, length_s=seconds, skew=_SKEW, shift_s=shift_s)
