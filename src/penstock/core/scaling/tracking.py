"""Target tracking: the capacity that brings a metric per copy to its target.

The metric is an average over the copies that answered. So their total load is metric times copies,
and that divided by the target is the needed capacity. Copies that are still starting were not
measured: counting them would add the same load again and again. To go out, the newest datapoint and
the fewest copies of its period are used; to come in, the highest datapoint and the most copies of
all periods. So the result never goes too far in either direction.
"""

from __future__ import annotations

import math
from typing import Final

from penstock.core.alarms.evaluate import EXTRA_PERIODS
from penstock.core.alarms.schedule import SETTLE_S
from penstock.core.alarms.spec import AlarmFired
from penstock.core.scaling.observed import LoadWindow
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
