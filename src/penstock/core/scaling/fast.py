"""The fast path: scales out by the load itself, each second, before a queue forms.

Its target is that of a policy on requests in flight per copy. It looks ahead by the time that a
copy takes to be ready: if the load grew in every second that it looks at, it is assumed to go on
growing at the slowest of these rates. So for a ramp the copies are ready when the load gets there.

After a step of load, requests pile up for as long as one takes, and then no further: this growth
ends by itself. So growth is trusted up to the number in flight that the present arrivals would lead
to if requests took as long as before, and half as long again, for those that share a copy are
slower (Little's law: in flight is arrivals times duration). The fast path only scales out: coming
in is left to the policy's alarm, so that a constant load has one capacity and keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from penstock.core.scaling.observed import LoadWindow
from penstock.core.scaling.spec import TrackingPolicy
from penstock.core.scaling.tracking import needed

#: Observations above the target before it acts: a single one may be a burst that is over already.
LOOKS: Final = 3
_LOOKED_AT_S: Final = 5.0  #: s within which these observations must lie
#: s. A load can't be predicted minutes ahead; beyond this, alarms follow.
AHEAD_S_MAX: Final = 30.0
#: Largest factor of growth: a few seconds of growth are not expected to do more than double the
#: load.
GROWTH_MAX: Final = 2.0
#: s of earlier observations for the duration of requests, and the number of requests needed to
#: trust it.
_BEFORE_S: Final = 60.0
_ARRIVALS_MIN: Final = 10
#: Largest slowdown of requests that share a copy: 1.4 times for five on the paced engine.
_SLOWER_MAX: Final = 1.5


@dataclass(frozen=True, slots=True)
class FastScaling:
    capacity: int  #: the capacity needed; may be below the present one, and then nothing happens
    in_flight: int
    expected: float  #: requests in flight when a copy requested now is ready
    reason: str


def wished(policy: TrackingPolicy, window: LoadWindow) -> FastScaling | None:
    """The capacity that the last observations need; None while there are too few to tell."""
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
    settles = settles_at(window)
    if settles is not None:
        expected = min(expected, max(settles, lasting))
    reason = "load-above-target" if expected <= lasting else "load-grows"
    return FastScaling(
        needed(max(expected, lasting), policy.target_value), latest.in_flight, expected, reason
    )


def settles_at(window: LoadWindow) -> float | None:
    """Requests in flight that the recent arrivals lead to in the end; None where too few requests
    came before them to tell how long one takes."""
    latest = window.latest()
    if latest is None:
        return None
    seen = window.since(latest.at - _BEFORE_S)
    now = [one for one in seen if one.at >= latest.at - _LOOKED_AT_S][-LOOKS - 1 :]
    before = seen[: len(seen) - len(now) + 1]
    came = window.arrivals(before[0].at) - window.arrivals(now[0].at)
    if came < _ARRIVALS_MIN or latest.at <= now[0].at:
        return None
    together_s = sum(
        earlier.in_flight * (later.at - earlier.at) for earlier, later in pairwise(before)
    )
    per_s = window.arrivals(now[0].at) / (latest.at - now[0].at)
    return per_s * (together_s / came) * _SLOWER_MAX


def seen_at_loads(window: LoadWindow) -> list[tuple[float, int]]:
    """(wall s, requests in flight) of the observations that growth is measured by."""
    latest = window.latest()
    if latest is None:
        return []
    return [(one.at, one.in_flight) for one in window.since(latest.at - _LOOKED_AT_S)][-LOOKS - 1 :]


def growth_per_s(loads: Sequence[tuple[float, int]]) -> float:
    """The slowest growth between two observations; 0 where it did not grow between all of them."""
    if len(loads) <= LOOKS:
        return 0.0
    rates = [
        (load - before) / (at - earlier) if at > earlier else 0.0
        for (earlier, before), (at, load) in pairwise(loads)
    ]
    return max(min(rates), 0.0)
