"""What a variant's RoutingStrategy is made of: a picker, and for PREFIX_AWARE a scorer before it.

`endpoint.py` filters (healthy, not draining, not failed before). For all strategies but
PREFIX_AWARE one pass over the copies then filters those with room, scores and picks at once: it
happens for every request.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

from penstock.core.deployment import PREFIX_AWARE, RANDOM, ROUND_ROBIN, VariantRoutes
from penstock.core.routing.copies import CopyState
from penstock.core.routing.pickers import least_outstanding, least_recent, uniform
from penstock.core.routing.prefix_aware import PrefixAware

Picker = Callable[[Sequence[CopyState]], CopyState | None]


class Strategy:
    """How one variant's copies are chosen from."""

    __slots__ = ("name", "pick", "prefixes", "reason")

    def __init__(
        self, name: str, pick: Picker, reason: str, prefixes: PrefixAware | None = None
    ) -> None:
        self.name = name
        self.pick = pick  #: where no prefix decides
        self.reason = reason  #: of what `pick` returns
        self.prefixes = prefixes


def strategy_of(routes: VariantRoutes, rng: random.Random, before: Strategy | None) -> Strategy:
    """`before` served this variant so far: what it learned is kept if it still applies."""
    if routes.strategy == RANDOM:
        return Strategy(RANDOM, partial(uniform, rng=rng), "random")
    if routes.strategy == ROUND_ROBIN:
        return Strategy(ROUND_ROBIN, least_recent, "round-robin")
    if routes.strategy != PREFIX_AWARE:
        return Strategy(routes.strategy, least_outstanding, "least-outstanding")
    wanted = {
        "prefix_length_max": routes.prefix_length_max,
        "concurrency_threshold": routes.concurrency_threshold,
    }
    prefixes = before.prefixes if before is not None else None
    if prefixes is None or not prefixes.serves(**wanted):
        prefixes = PrefixAware(**wanted)
    return Strategy(PREFIX_AWARE, least_outstanding, "least-outstanding", prefixes)
