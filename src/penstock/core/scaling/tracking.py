"""Target tracking: the capacity that brings a metric per copy to its target.

The metric is an average over the copies that answered. So their total load is metric times copies,
and that divided by the target is the needed capacity. Copies that are still starting were not
measured: counting them would add the same load again and again. To go out, the newest datapoint and
the fewest copies of its period are used; to come in, the highest datapoint and the most copies of
all periods. So the result never goes too far in either direction.

The fast path (`wished_fast`) scales out by the load itself, each second, before a queue forms. Its
target is that of a policy on requests in flight per copy. It looks ahead by the time that a copy
takes to be ready: if the load grew in every second that it looks at, it is assumed to go on growing
at the slowest of these rates. So for a ramp the copies are ready when the load gets there.

After a step of load, requests pile up for as long as one takes, and then no further: this growth
ends by itself. So growth is trusted up to the number in flight that the present arrivals would lead
to if requests took as long as before, and half as long again, for those that share a copy are
slower (Little's law: in flight is arrivals times duration). The fast path only scales out: coming
in is left to the policy's alarm, so that a constant load has one capacity and keeps it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from penstock.core.alarms.evaluate import EXTRA_PERIODS, SETTLE_S
from penstock.core.alarms.spec import AlarmFired
from penstock.core.scaling.observed import LoadObserved, LoadWindow
from penstock.core.scaling.spec import TrackingPolicy

#: Relative rounding error of floats: 3 * (10 / 3) / 5 is 2, not 3.
_EPSILON: Final = 1e-9
#: Above any bound of a target.
CAPACITY_MAX: Final = 10**6


def wished(
    policy: TrackingPolicy, fired: AlarmFired, capacity: int, window: LoadWindow
) -> tuple[int | None, str]:
    """The capacity that a fired alarm asks for, and the reason; None: no change."""
    if capacity == 0:
        return None, "tracking-never-leaves-zero"
    if fired.alarm.comparison.startswith("Greater"):
        return _out(policy, fired, capacity, window)
    return _in(policy, fired, capacity, window)


def needed(load: float, target_value: float) -> int:
    """Copies for a load, so that none has more than the target; 0 for no load."""
    copies = load / target_value
    if not copies < CAPACITY_MAX:  # also for NaN
        return CAPACITY_MAX
    return max(math.ceil(copies * (1.0 - _EPSILON) - _EPSILON), 0)


def looked_at_s(fired: AlarmFired) -> float:
    """s that a fired alarm's datapoints cover."""
    return fired.alarm.period_s * (fired.alarm.evaluation_periods + EXTRA_PERIODS) + SETTLE_S


def _out(
    policy: TrackingPolicy, fired: AlarmFired, capacity: int, window: LoadWindow
) -> tuple[int | None, str]:
    if not fired.values or not math.isfinite(fired.values[-1]):
        return None, "no-datapoints"
    # the period may have ended as long ago
    measured_since = fired.at - 2 * fired.alarm.period_s - SETTLE_S
    copies = max(window.ready_min(measured_since), 1)
    wanted = needed(fired.values[-1] * copies, policy.target_value)
    if wanted <= capacity:  # the copies that are starting are enough
        return capacity, "capacity-is-coming"
    return wanted, "target-tracking"


def _in(
    policy: TrackingPolicy, fired: AlarmFired, capacity: int, window: LoadWindow
) -> tuple[int | None, str]:
    if policy.disable_scale_in:
        return None, "scale-in-disabled"
    since = fired.at - looked_at_s(fired)
    value = 0.0
    if fired.values:
        value = max(fired.values)
        if not math.isfinite(value):
            return None, "no-datapoints"
    elif not window.covers(since):
        # without observations it is unknown, which is not idle
        return None, "not-watched-long-enough"
    elif window.arrivals(since) or any(one.in_flight for one in window.since(since)):
        return None, "no-datapoints"
    copies = max(window.ready_max(since), capacity)
    wanted = needed(max(value, 0.0) * copies, policy.target_value)
    if wanted >= capacity:
        return capacity, "would-exceed-target"
    return wanted, "target-tracking"


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


def wished_fast(policy: TrackingPolicy, window: LoadWindow) -> tuple[int, str] | None:
    """The capacity that the last observations need, which may be below the present one, and the
    reason; None while there are too few observations to tell."""
    latest = window.latest()
    if latest is None:
        return None
    recent = window.since(latest.at - _LOOKED_AT_S)
    seen = recent[-LOOKS:]
    if len(seen) < LOOKS or seen[0].at < latest.at - _LOOKED_AT_S:
        return None
    ahead_s = min(max(latest.time_to_ready_s or 0.0, 0.0), AHEAD_S_MAX)
    lasting = min(one.in_flight for one in seen)
    growth = growth_per_s([(one.at, one.in_flight) for one in recent[-LOOKS - 1 :]])
    expected = min(lasting + growth * ahead_s, GROWTH_MAX * lasting)
    settles = _settles_at(window, latest)
    if settles is not None:
        expected = min(expected, max(settles, lasting))
    reason = "load-above-target" if expected <= lasting else "load-grows"
    return needed(max(expected, lasting), policy.target_value), reason


def _settles_at(window: LoadWindow, latest: LoadObserved) -> float | None:
    """Requests in flight that the recent arrivals lead to in the end; None where too few requests
    came before them to tell how long one takes."""
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


def growth_per_s(loads: Sequence[tuple[float, int]]) -> float:
    """The slowest growth between two observations; 0 where it did not grow between all of them."""
    if len(loads) <= LOOKS:
        return 0.0
    rates = [
        (load - before) / (at - earlier) if at > earlier else 0.0
        for (earlier, before), (at, load) in pairwise(loads)
    ]
    return max(min(rates), 0.0)
