"""How an activity ended: its count was reached, given up, or overruled by another one."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.core.scaling import activity
from penstock.core.scaling.choose import Scaled
from penstock.core.scaling.observed import LoadObserved

#: The machine has no room for the count: it is not requested again at once.
OUT_OF_REACH: Final = "capacity-out-of-reach"


class End(NamedTuple):
    """The end of the activity that was under way."""

    status: str
    reason: str  #: capacity-reached | capacity-out-of-reach | capacity-changed
    message: str  #: for people


def end_of(last: Scaled, observed: LoadObserved, dimension: str) -> End | None:
    """The observed end of the last change; None while it goes on."""
    if observed.capacity == last.to:
        reached = observed.ready >= last.to if last.out else observed.ready <= last.to
        if reached:
            message = activity.succeeded(dimension, last.to)
            return End(activity.SUCCESSFUL, "capacity-reached", message)
        if not observed.out_of_reach:
            return None
        message = activity.failed(dimension, last.to, observed.failure)
        return End(activity.UNFULFILLED, OUT_OF_REACH, message)
    if observed.failure and observed.settled:
        message = activity.failed(dimension, last.to, observed.failure)
        return End(activity.FAILED, OUT_OF_REACH, message)
    message = activity.overridden(dimension, last.to, observed.capacity)
    return End(activity.OVERRIDDEN, "capacity-changed", message)
