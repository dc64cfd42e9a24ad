"""Bounds of a target that were changed, and the count that must follow them."""

from __future__ import annotations

from typing import Final

from penstock.core.scaling import activity
from penstock.core.scaling.actions import SetCapacity
from penstock.core.scaling.spec import ScalableTargetSpec

#: Reasons where a count was out of its bounds.
REASONS: Final = ("minimum-capacity", "maximum-capacity")


def within(target: ScalableTargetSpec, capacity: int) -> SetCapacity | None:
    """The action that brings the count within changed bounds; None where it is already."""
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
