"""The fast path: asks for capacity from the load itself, each second, before a queue is there.

Its target is that of a policy on requests in flight per copy. It looks ahead by the time that a
copy takes to be ready: what grew in every second that it looks at is taken to go on growing at the
slowest of these rates. A step has no growth after its first second, so it is answered with what it
is; a ramp is met by copies that are ready when it gets there. It only ever asks for more: coming in
is left to the policy's alarm, so that a constant load has one capacity and keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from penstock.core.scaling.observed import LoadWindow
from penstock.core.scaling.spec import TrackingPolicy
from penstock.core.scaling.tracking import needed

#: Looks above the target before it acts: a single one may be a burst that is over already.
LOOKS: Final = 3
_LOOKED_AT_S: Final = 5.0  #: within which they have to lie
#: Nobody can tell what a load will be minutes ahead; beyond it the alarms see what came of it.
AHEAD_S_MAX: Final = 30.0
#: Of what is there: growth that was seen for seconds is not believed to do more than double it.
GROWTH_MAX: Final = 2.0


@dataclass(frozen=True, slots=True)
class FastWish:
    capacity: int  #: what is needed; may be below the present one, and then nothing follows
    in_flight: int
    expected: float  #: requests in flight when a copy asked for now is ready
    reason: str


def wished(policy: TrackingPolicy, window: LoadWindow) -> FastWish | None:
    """What the last looks ask for; None while there are too few to tell."""
    latest = window.latest()
    if latest is None:
        return None
    seen = window.since(latest.at - _LOOKED_AT_S)[-LOOKS:]
    if len(seen) < LOOKS or seen[0].at < latest.at - _LOOKED_AT_S:
        return None
    loads = [one.in_flight for one in seen]
    ahead_s = min(max(latest.time_to_ready_s or 0.0, 0.0), AHEAD_S_MAX)
    lasting = min(loads)
    expected = min(lasting + growth_per_s(seen_at_loads(window)) * ahead_s, GROWTH_MAX * lasting)
    reason = "load-above-target" if expected <= lasting else "load-grows"
    return FastWish(
        needed(max(expected, lasting), policy.target_value), latest.in_flight, expected, reason
    )


def seen_at_loads(window: LoadWindow) -> list[tuple[float, int]]:
    """(wall seconds, requests in flight) of the looks that growth is judged by."""
    latest = window.latest()
    if latest is None:
        return []
    return [(one.at, one.in_flight) for one in window.since(latest.at - _LOOKED_AT_S)][-LOOKS - 1 :]


def growth_per_s(loads: Sequence[tuple[float, int]]) -> float:
    """The slowest growth between two looks; 0 where it did not grow between all of them."""
    if len(loads) <= LOOKS:
        return 0.0
    rates = [
        (load - before) / (at - earlier) if at > earlier else 0.0
        for (earlier, before), (at, load) in pairwise(loads)
    ]
    return max(min(rates), 0.0)
