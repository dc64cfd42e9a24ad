"""How sure one may be of a share that is looked at again and again while it is counted.

A test that is looked at after each observation, and ends when it likes what it sees, is wrong far
more often than its level says. So the evidence here is an e-value: a bet on each observation whose
fortune is expected not to grow while the hypothesis is true. By Ville's inequality it ever reaches
1/a with probability at most a, however often one looks; so its inverse is an always-valid p-value.

The bet is a likelihood ratio of a share inside the alternative against the bound, averaged over a
grid of such shares, since the true one is not known.

Sources: Johari, Koomen, Pekelis and Walsh, "Always Valid Inference" (Operations Research 70, 2022),
for mixtures and always-valid p-values; Waudby-Smith and Ramdas, "Estimating means of bounded random
variables by betting" (JRSS B 86, 2024), for one-sided bets.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

#: Parts of the way from the bound to 0 or to 1 at which the grid has a share: close ones find small
#: differences, far ones find large differences soon.
_GRID: Final = (0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97, 0.999)


def evidence_above(hits: int, trials: int, bound: float) -> float:
    """The e-value against "the share of hits is at most `bound`", 0 < bound < 1."""
    return _mixture(hits, trials, bound, (bound + (1.0 - bound) * part for part in _GRID))


def evidence_below(hits: int, trials: int, bound: float) -> float:
    """The e-value against "the share of hits is at least `bound`", 0 < bound < 1."""
    return _mixture(hits, trials, bound, (bound - bound * part for part in _GRID))


def _mixture(hits: int, trials: int, bound: float, shares: Iterable[float]) -> float:
    misses = trials - hits
    logs = [
        hits * math.log(share / bound) + misses * math.log((1.0 - share) / (1.0 - bound))
        for share in shares
    ]
    top = max(logs)
    if top > 600.0:  # beyond the numbers that a float has, and beyond any doubt
        return math.inf
    return math.exp(top) * sum(math.exp(each - top) for each in logs) / len(logs)
