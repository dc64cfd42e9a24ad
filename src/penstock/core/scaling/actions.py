"""Results of a target's machine: actions to carry out, and decisions to show.

`ScalingStory` has the last decisions for a target, each with all that it was made from, to show why
it scaled.

Bounds of a target that were changed are here too, with the count that must follow them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from penstock.core.scaling import activity
from penstock.core.scaling.activity import NotScaled
from penstock.core.scaling.choose import PolicyRequest, Scaled
from penstock.core.scaling.observed import LoadObserved
from penstock.core.scaling.spec import ScalableTargetSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCapacity:
    """Write a new count and its activity, in one transaction, if the count is still `was`; then
    report the result to the machine."""

    was: int
    to: int
    reason: str  #: target-tracking | load-above-target | load-grows | requests-held | …
    cause: str
    policy: str = ""  #: name of the policy; empty: bounds, schedules or held requests decided
    cooldown_s: float = 0.0
    base: int = 0  #: the count that steps are relative to during the cooldown


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleActivity:
    """Record the end of an activity."""

    activity_id: str
    status: str
    message: str
    reason: str  #: capacity-reached | capacity-out-of-reach | capacity-changed


#: The machine has no room for the count: it is not requested again at once.
OUT_OF_REACH: Final = "capacity-out-of-reach"


def settled(
    activity_id: str, last: Scaled, observed: LoadObserved, dimension: str
) -> SettleActivity | None:
    """How the last change ended: its count was reached, given up, or overruled by another one. None
    while it goes on."""
    failed = activity.failed(dimension, last.to, observed.failure)
    status, message, reason = activity.FAILED, failed, OUT_OF_REACH
    if observed.capacity == last.to:
        if observed.ready >= last.to if last.out else observed.ready <= last.to:
            message = activity.succeeded(dimension, last.to)
            status, reason = activity.SUCCESSFUL, "capacity-reached"
        elif observed.out_of_reach:
            status = activity.UNFULFILLED
        else:
            return None
    elif not (observed.failure and observed.settled):
        message = activity.overridden(dimension, last.to, observed.capacity)
        status, reason = activity.OVERRIDDEN, "capacity-changed"
    return SettleActivity(activity_id=activity_id, status=status, message=message, reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class TellNotScaled:
    """An alarm changed nothing; reported once until the policy's result changes."""

    reason: str
    cause: str
    not_scaled: NotScaled


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSchedule:
    """Change a target's bounds, its count if needed, and the schedule's next time, all at once."""

    name: str
    reason: str  #: schedule-due | schedule-suspended | bounds-cross
    next_due: float | None  #: None: this was its last run
    capacity_min: int | None = None  #: None: unchanged
    capacity_max: int | None = None
    scale: SetCapacity | None = None  #: set where the count was out of the new bounds


Action = SetCapacity | SettleActivity | TellNotScaled | RunSchedule


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingDecision:
    """One decision, with all that it was made from."""

    at: float  #: wall s
    trigger: str  #: the alarm, schedule or observation that caused it
    was: int
    to: int
    reason: str
    observed: LoadObserved | None
    wishes: tuple[PolicyRequest, ...] = ()


DECISIONS_KEPT: Final = 1_000


class ScalingStory:
    """The last decisions of one target; one that goes on is listed once, from its beginning."""

    def __init__(self) -> None:
        self._decisions: deque[ScalingDecision] = deque(maxlen=DECISIONS_KEPT)

    def tell(
        self,
        observed: LoadObserved,
        to: int,
        reason: str,
        trigger: str,
        wishes: tuple[PolicyRequest, ...],
    ) -> None:
        """`to`: the decided count; the present one, where nothing changes."""
        if to == observed.capacity and self._decisions:
            last = self._decisions[-1]
            same = (last.to, last.reason) == (to, reason) and last.was == last.to
            if same and _asks(last.wishes) == _asks(wishes):
                return
        self._decisions.append(
            ScalingDecision(
                at=observed.at,
                trigger=trigger,
                was=observed.capacity,
                to=to,
                reason=reason,
                observed=observed,
                wishes=wishes,
            )
        )

    def decisions(self) -> list[ScalingDecision]:
        """Oldest first."""
        return list(self._decisions)


def _asks(wishes: Iterable[PolicyRequest]) -> list[tuple[str, int | None, str]]:
    return [(one.policy, one.capacity, one.reason) for one in wishes]


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
