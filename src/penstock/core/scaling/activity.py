"""Scaling activities: their texts, and the reason when one did not scale. The words are AWS's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.core.scaling.spec import words_of

IN_PROGRESS: Final = "InProgress"
SUCCESSFUL: Final = "Successful"
OVERRIDDEN: Final = "Overridden"
UNFULFILLED: Final = "Unfulfilled"
FAILED: Final = "Failed"

# NotScaledReason codes
FLAPPING: Final = "AutoScalingAnticipatedFlapping"
UNSCALABLE: Final = "TargetServicePutResourceAsUnscalable"
AT_MAX: Final = "AlreadyAtMaxCapacity"
AT_MIN: Final = "AlreadyAtMinCapacity"
AT_DESIRED: Final = "AlreadyAtDesiredCapacity"

#: Our reasons -> NotScaledReason code.
_CODES: Final = {
    "at-max-capacity": AT_MAX,
    "at-min-capacity": AT_MIN,
    "at-desired-capacity": AT_DESIRED,
    "capacity-is-coming": AT_DESIRED,
    "update-in-progress": UNSCALABLE,
    "resource-missing": UNSCALABLE,
    "capacity-out-of-reach": UNSCALABLE,
}

#: Reasons that alarms have every period in ordinary times: no activity is made for them.
UNTOLD: Final = frozenset(
    {
        *("no-wish", "scale-in-cooldown", "scale-out-cooldown", "scale-in-disabled"),
        *("scale-in-suspended", "scale-out-suspended", "change-under-way"),
        *("tracking-never-leaves-zero", "no-step", "no-datapoints", "not-watched-long-enough"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotScaled:
    """Why an alarm changed nothing."""

    code: str  #: NotScaledReason
    capacity_min: int
    capacity_max: int
    capacity: int


def code_of(reason: str) -> str:
    """The code of a reason. A scale-in that may soon have to be undone is anticipated flapping."""
    return _CODES.get(reason, FLAPPING)


def description(dimension: str, capacity: int) -> str:
    return f"Setting {words_of(dimension)} to {capacity}."


NOT_SCALED_DESCRIPTION: Final = "Attempting to scale due to alarm triggered"


def in_progress(dimension: str, capacity: int) -> str:
    return (
        f"Successfully set {words_of(dimension)} to {capacity}. Waiting for change to be fulfilled"
        " by sagemaker."
    )


def not_scaled_message(why: NotScaled, reason: str) -> str:
    return (
        f"Capacity stays at {why.capacity}, within {why.capacity_min} and {why.capacity_max}:"
        f" {reason}"
    )


def succeeded(dimension: str, capacity: int) -> str:
    return (
        f"Successfully set {words_of(dimension)} to {capacity}. Change successfully fulfilled by"
        " sagemaker."
    )


def failed(dimension: str, capacity: int, why: str) -> str:
    return f"Failed to set {words_of(dimension)} to {capacity}. Reason: {why}"


def overridden(dimension: str, capacity: int, present: int) -> str:
    return (
        f"The {words_of(dimension)} of {capacity} was replaced by {present} before it was reached."
    )


def alarm_cause(alarm: str, state: str, policy: str) -> str:
    return f"monitor alarm {alarm} in state {state} triggered policy {policy}"


def fast_cause(policy: str, in_flight: int, ready: int) -> str:
    copies = "copy" if ready == 1 else "copies"
    return f"{in_flight} requests in flight on {ready} {copies} triggered policy {policy}"


HELD_CAUSE: Final = "requests are held while capacity is zero"


def bounds_description(capacity_min: int | None, capacity_max: int | None) -> str:
    told = []
    if capacity_min is not None:
        told.append(f"min capacity to {capacity_min}")
    if capacity_max is not None:
        told.append(f"max capacity to {capacity_max}")
    return f"Setting {' and '.join(told)}"


def bounds_message(capacity_min: int | None, capacity_max: int | None, *, crossed: bool) -> str:
    done = bounds_description(capacity_min, capacity_max).removeprefix("Setting ")
    if crossed:
        return f"Failed to set {done}. Reason: the minimum would be above the maximum"
    return f"Successfully set {done}"


def schedule_cause(name: str) -> str:
    return f"scheduled action name {name} was triggered"


def bound_cause(*, out: bool, bound: int) -> str:
    return f"{'minimum' if out else 'maximum'} capacity was set to {bound}"


def stays(wish_reason: str, choice_reason: str) -> str:
    """The reason of a policy that asks for the present count, as a not-scaled reason."""
    if choice_reason == "not-all-policies-agree":
        return choice_reason
    return {
        "target-tracking": "at-desired-capacity",
        "step-scaling": "at-desired-capacity",
    }.get(wish_reason, wish_reason)
