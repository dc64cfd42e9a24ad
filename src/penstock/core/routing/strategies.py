"""How a variant's RoutingStrategy is built: a picker, and for PREFIX_AWARE a scorer before it.

`endpoint.py` filters (healthy, not draining, not failed before). For all strategies but
PREFIX_AWARE one pass over the copies then filters those with room, scores and picks at once, as it
happens for every request.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

from penstock.core.deployment.deployment import PREFIX_AWARE, RANDOM, ROUND_ROBIN, VariantRoutes
from penstock.core.routing.copies import CopyState
from penstock.core.routing.pickers import (
    least_outstanding,
    least_recent,
    least_together,
    least_wait,
    uniform,
)
from penstock.core.routing.prefix_aware import PrefixAware
from penstock.core.routing.speeds import KindSpeeds

Picker = Callable[[Sequence[CopyState]], CopyState | None]


class Strategy:
    """How one of a variant's copies is chosen."""

    __slots__ = ("name", "pick", "prefixes", "reason", "speeds")

    def __init__(
        self,
        name: str,
        pick: Picker,
        reason: str,
        prefixes: PrefixAware | None = None,
        speeds: KindSpeeds | None = None,
    ) -> None:
        self.name = name
        self.pick = pick  #: used where no prefix decides
        self.reason = reason  #: reason of what `pick` returns
        self.prefixes = prefixes
        #: for copies on several kinds of instances: weighs their counts; None: all are one kind
        self.speeds = speeds
        self.weigh()

    def weigh(self) -> None:
        """Call after speeds have changed: equal kinds need no weights."""
        if self.speeds is not None:
            self.pick = least_outstanding if self.speeds.equal else least_wait
            self.reason = "least-outstanding" if self.speeds.equal else "least-wait"


def strategy_of(
    routes: VariantRoutes, rng: random.Random, before: Strategy | None, *, shares: bool = False
) -> Strategy:
    """`before` served this variant so far: what it learned is kept if it still applies. `shares`:
    copies of other pools share queues with this one's."""
    least = least_together if shares else least_outstanding
    if routes.strategy == RANDOM:
        return Strategy(RANDOM, partial(uniform, rng=rng), "random")
    if routes.strategy == ROUND_ROBIN:
        return Strategy(ROUND_ROBIN, least_recent, "round-robin")
    speeds = None if shares else _speeds(routes, before)
    if routes.strategy != PREFIX_AWARE:
        return Strategy(routes.strategy, least, "least-outstanding", speeds=speeds)
    wanted = {
        "prefix_length_max": routes.prefix_length_max,
        "concurrency_threshold": routes.concurrency_threshold,
    }
    prefixes = before.prefixes if before is not None else None
    if prefixes is None or not prefixes.serves(**wanted):
        prefixes = PrefixAware(**wanted)
    return Strategy(PREFIX_AWARE, least, "least-outstanding", prefixes, speeds)


def _speeds(routes: VariantRoutes, before: Strategy | None) -> KindSpeeds | None:
    """None where all copies are of one kind, and for hosts: their loaded models decide."""
    kinds = {route.kind for route in routes.copies}
    if len(kinds) < 2 or routes.multi_model:
        return None
    speeds = before.speeds if before is not None else None
    return speeds if speeds is not None and speeds.serves(kinds) else KindSpeeds(kinds)
