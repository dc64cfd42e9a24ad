"""When an alarm is evaluated next, and which range of time is then evaluated.

Periods are whole multiples of their length since the epoch, and only complete ones count. As in
CloudWatch, an alarm is evaluated more often than its period is long: datapoints may come late.
"""

from __future__ import annotations

import math
from typing import Final

from penstock.core.alarms.evaluate import EXTRA_PERIODS
from penstock.core.alarms.spec import AlarmSpec

#: s after a period's end. A window of ten seconds is published within 1 s of its end; 1 s more is
#: for delivery.
SETTLE_S: Final = 2.0
#: The same for periods of one second, which are there as soon as they have ended.
SETTLE_FAST_S: Final = 0.5
_HIGH_RESOLUTION_S: Final = 10
_STANDARD_S: Final = 60
_SELDOM_S: Final = 3600
_DAY_S: Final = 86_400

_SCALING: Final = (":autoscaling:", ":application-autoscaling:")


def interval_s(spec: AlarmSpec) -> int:
    """s between evaluations: 60; 10 for periods below a minute; 3,600 for those above a day."""
    if spec.period_s < _HIGH_RESOLUTION_S:
        return spec.period_s
    if spec.period_s < _STANDARD_S:
        return _HIGH_RESOLUTION_S
    return _SELDOM_S if spec.period_s * spec.evaluation_periods > _DAY_S else _STANDARD_S


def next_look(spec: AlarmSpec, *, now: float) -> float:
    """The first moment after `now` (wall s) at which to evaluate."""
    interval, settle = interval_s(spec), _settle_s(spec)
    return (math.floor((now - settle) / interval) + 1) * interval + settle


def evaluation_range(spec: AlarmSpec, *, now: float) -> tuple[int, int]:
    """[start, end) in wall seconds: N periods and the extra ones, up to the last complete one."""
    end = math.floor((now - _settle_s(spec)) / spec.period_s) * spec.period_s
    return end - (spec.evaluation_periods + EXTRA_PERIODS) * spec.period_s, end


def repeats(action: str) -> bool:
    """Whether an action repeats while its state lasts.

    Actions of scaling policies do, so that a step policy acts again after its cooldown.
    """
    return (
        action.startswith("arn:")
        and ":scalingPolicy:" in action
        and any(service in action for service in _SCALING)
    )


def next_repeat(spec: AlarmSpec, *, acted_at: float) -> float:
    """When a repeated action is due again: each period, and each minute of longer ones."""
    return acted_at + min(spec.period_s, _STANDARD_S)


def _settle_s(spec: AlarmSpec) -> float:
    return SETTLE_S if spec.period_s >= _HIGH_RESOLUTION_S else SETTLE_FAST_S
