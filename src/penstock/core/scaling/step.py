"""Step scaling: the distance of the metric from the alarm's threshold determines the change.

Application Auto Scaling's rules (PutScalingPolicy, StepAdjustment): above the threshold a step
includes its lower bound and not its upper bound; below it is the reverse. Percentages are rounded
toward zero, but change at least one: 0.67 is 1, 12.7 is 12, -0.67 is -1, -6.67 is -6.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from penstock.core.alarms.spec import AlarmFired
from penstock.core.scaling.spec import (
    CHANGE,
    EXACT,
    MAXIMUM,
    MINIMUM,
    PERCENT,
    StepAdjustment,
    StepPolicy,
)


def wished(policy: StepPolicy, fired: AlarmFired, base: int) -> int | None:
    """The capacity that a fired alarm asks for; None where no step holds its value.

    Args:
        base: the capacity that adjustments are relative to: the present one, or during a cooldown
            the one before the activity that is still to take effect.
    """
    threshold = fired.alarm.threshold
    # Missing datapoints that count as breaching have no value: they are taken to be at the
    # threshold.
    value = aggregated(policy.aggregation, fired.values) if fired.values else threshold
    difference = value - threshold
    above = difference > 0 or (difference == 0 and fired.alarm.comparison.startswith("Greater"))
    step = step_of(policy.steps, difference, above=above)
    return None if step is None else adjusted(policy, step, base)


def aggregated(how: str, values: Sequence[float]) -> float:
    """MetricAggregationType over the alarm's datapoints, at least one."""
    if how == MINIMUM:
        return min(values)
    if how == MAXIMUM:
        return max(values)
    return math.fsum(values) / len(values)


def step_of(
    steps: Sequence[StepAdjustment], difference: float, *, above: bool
) -> StepAdjustment | None:
    """The step that contains metric - threshold. `above`: bounds include their lower end."""
    for step in steps:
        lower = -math.inf if step.lower is None else step.lower
        upper = math.inf if step.upper is None else step.upper
        inside = lower <= difference < upper if above else lower < difference <= upper
        if inside:
            return step
    return None


def adjusted(policy: StepPolicy, step: StepAdjustment, base: int) -> int:
    """`base` after the step's adjustment, at least 0."""
    amount = step.adjustment
    if policy.adjustment_type == EXACT:
        return max(amount, 0)
    if policy.adjustment_type == CHANGE:
        return max(base + amount, 0)
    assert policy.adjustment_type == PERCENT, policy.adjustment_type
    change = math.trunc(base * amount / 100)
    if change == 0 and base and amount:
        change = 1 if amount > 0 else -1
    if amount and abs(change) < policy.magnitude_min:
        change = policy.magnitude_min if amount > 0 else -policy.magnitude_min
    return max(base + change, 0)


def fault_of(steps: Sequence[StepAdjustment]) -> str:
    """What is wrong with the ranges of steps, by AWS's four rules; empty where nothing is."""
    if not steps:
        return "At least one step adjustment is required."
    ordered = sorted(steps, key=lambda one: -math.inf if one.lower is None else one.lower)
    for step in ordered:
        if step.lower is None and step.upper is None and len(steps) > 1:
            return "The upper and lower bound can't both be null in the same step adjustment."
        if step.lower is not None and step.upper is not None and step.upper <= step.lower:
            return "The upper bound of a step adjustment must be greater than its lower bound."
    if sum(one.lower is None for one in steps) > 1 or sum(one.upper is None for one in steps) > 1:
        return "At most one step adjustment can have a null lower, or upper, bound."
    if (
        any(one.lower is not None and one.lower < 0 for one in steps)
        and ordered[0].lower is not None
    ):
        return "A negative lower bound needs a step adjustment with a null lower bound."
    if (
        any(one.upper is not None and one.upper > 0 for one in steps)
        and ordered[-1].upper is not None
    ):
        return "A positive upper bound needs a step adjustment with a null upper bound."
    for before, after in pairwise(ordered):
        if before.upper != after.lower:
            return "The ranges of step adjustments can't overlap or have a gap."
    return ""
