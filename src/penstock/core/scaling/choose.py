"""Several policies on one target: one capacity of their wishes.

The largest wins out. To come in, every target-tracking policy that may scale in has to wish it, and
the largest of their wishes is taken; a step policy comes in by itself, as Application Auto Scaling
documents. A wish holds as long as its alarm goes on firing, not longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.core.scaling.spec import Policy, TrackingPolicy

#: Alarms fire again each period while they last; a wish not renewed by then has lapsed.
PERIODS_KEPT: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRequest:
    """What one policy asks for."""

    policy: str  #: name
    arn: str
    capacity: int | None  #: None: nothing follows from its alarm
    reason: str
    alarm: str  #: name
    state: str  #: the alarm's
    values: tuple[float, ...]  #: of the alarm, the newest last
    at: float  #: wall seconds
    until: float  #: lapses then, unless the alarm fires again


@dataclass(frozen=True, slots=True)
class CountChoice:
    capacity: int
    wish: PolicyRequest | None  #: the one that decided; None: nothing changes
    reason: str


def choose(
    policies: Sequence[Policy], wishes: Iterable[PolicyRequest], capacity: int, *, now: float
) -> CountChoice:
    """The capacity that all wishes together come to; the present one if none asks for another."""
    live = sorted(
        (one for one in wishes if now < one.until and one.capacity is not None),
        key=lambda one: (-(one.capacity or 0), one.policy),
    )
    if not live:
        return CountChoice(capacity, None, "no-wish")
    largest = live[0]
    assert largest.capacity is not None
    if largest.capacity >= capacity:
        return CountChoice(largest.capacity, largest, largest.reason)
    asked = {one.arn for one in live}
    tracking = {one.arn for one in policies if isinstance(one, TrackingPolicy)}
    missing = [
        one.name
        for one in policies
        if isinstance(one, TrackingPolicy) and not one.disable_scale_in and one.arn not in asked
    ]
    if missing and largest.arn in tracking:
        stepping = [one for one in live if one.arn not in tracking]
        if not stepping:
            return CountChoice(capacity, largest, "not-all-policies-agree")
    return CountChoice(largest.capacity, largest, largest.reason)
