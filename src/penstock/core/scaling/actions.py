"""What the machine of a target answers: actions to carry out, and decisions to tell of."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.scaling.activity import NotScaled
from penstock.core.scaling.choose import PolicyRequest
from penstock.core.scaling.observed import LoadObserved


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCapacity:
    """Write a new count and the activity that tells of it, in one transaction, if the count is
    still `was`; then tell the machine what came of it."""

    was: int
    to: int
    reason: str  #: target-tracking | load-above-target | load-grows | requests-held | …
    cause: str
    policy: str = ""  #: name; empty: bounds, schedules, held requests
    cooldown_s: float = 0.0
    base: int = 0  #: what steps are relative to while it cools


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleActivity:
    """The end of an activity."""

    activity_id: str
    status: str
    message: str
    reason: str  #: capacity-reached | capacity-out-of-reach | capacity-changed


@dataclass(frozen=True, slots=True, kw_only=True)
class TellNotScaled:
    """An alarm that changed nothing, told once until something else comes of the policy."""

    reason: str
    cause: str
    not_scaled: NotScaled


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSchedule:
    """Move a target's bounds, its count with them, and the schedule's next time, all at once."""

    name: str
    reason: str  #: schedule-due | schedule-suspended | bounds-cross
    next_due: float | None  #: None: it has run for the last time
    capacity_min: int | None = None  #: None: stays
    capacity_max: int | None = None
    scale: SetCapacity | None = None  #: the count was out of the new bounds


Action = SetCapacity | SettleActivity | TellNotScaled | RunSchedule


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingDecision:
    """One decision, with all that it was made from."""

    at: float  #: wall seconds
    trigger: str  #: the alarm, schedule or look that it was made for
    was: int
    to: int
    reason: str
    observed: LoadObserved | None
    wishes: tuple[PolicyRequest, ...] = ()
