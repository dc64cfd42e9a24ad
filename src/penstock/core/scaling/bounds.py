"""Bounds of a target that were moved, and the count that has to follow them."""

from __future__ import annotations

from typing import Final

from penstock.core.scaling import activity
from penstock.core.scaling.actions import SetCapacity
from penstock.core.scaling.spec import ScalableTargetSpec

#: Reasons of a count that was out of them.
REASONS: Final = ("minimum-capacity", "maximum-capacity")


def within(target: ScalableTargetSpec, capacity: int) -> SetCapacity | None:
    """What brings a count into bounds that were moved; None where it is."""
    to = target.bounded(capacity)
    if to == capacity:
        return None
    out = to > capacity
    return SetCapacity(
        was=capacity,
        to=to,
        reason=REASONS[0] if out else REASONS[1],
        cause=activity.bound_cause(out=out, bound=to),
        base=to,
    )
