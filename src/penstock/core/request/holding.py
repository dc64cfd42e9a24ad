"""Whether a request that comes when no copy can take it is held, or refused at once.

AWS refuses what comes at zero copies, and so does a model that says so (`REFUSE`). All others are
held until a copy is ready, in the order in which they came, within three bounds:

* how many are held at their endpoint, and how many bytes their bodies have;
* the request's own deadline: what the fastest start seen lately could not serve in time is told so
  at once. Where no start was seen yet nothing is known, and unknown is not too late.

Requests that come while others are held queue up behind them, even if a copy is ready by then: who
waited first is served first. What was given back by a copy is `retry.py`'s to judge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.core.deployment.deployment import ModelSource

HOLD: Final = "hold"
REFUSE: Final = "refuse"  #: as AWS does
ZERO_CAPACITY_MODES: Final = (HOLD, REFUSE)
#: Of a model's environment: what holds for its variants and components, whatever the server's
#: setting is.
ZERO_CAPACITY_VARIABLE: Final = "PENSTOCK_ZERO_CAPACITY"

#: The router's reasons that say that there is no copy, and not that the copies are full.
NO_CAPACITY: Final = ("no-copies", "no-healthy-copy")

_RETRY_AFTER_S_UNKNOWN: Final = 1.0  #: a small model is loaded in about this time


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldSpec:
    """Of one gateway process."""

    count_max: int  #: requests held of one endpoint
    bytes_max: int  #: of their bodies
    zero_capacity: str = HOLD  #: of models that say nothing


class HoldStep(NamedTuple):
    """What the driver does now."""

    do: str  #: hold | refuse
    #: no-capacity | others-wait | zero-capacity-refused | held-too-many | held-bytes-too-many |
    #: ready-too-late
    reason: str
    retry_after_s: float | None = None


#: The reason of those that are refused because their model, or the server, says so.
REFUSED: Final = "zero-capacity-refused"
_REFUSED = HoldStep(REFUSE, REFUSED)
_NO_CAPACITY = HoldStep(HOLD, "no-capacity")
_OTHERS_WAIT = HoldStep(HOLD, "others-wait")


def decide(
    spec: HoldSpec,
    *,
    zero_capacity: str,
    others_wait: bool,
    held_count: int,
    held_bytes: int,
    body_bytes: int,
    ready_in_s: float | None,
    deadline: float,
    now: float,
) -> HoldStep:
    """
    Args:
        zero_capacity: what the request's model says; empty = nothing.
        others_wait: it may be that copies are ready, but others came before.
        held_count, held_bytes: of its endpoint, without it.
        ready_in_s: when a copy can be ready at the earliest; None = not known.
    """
    if not others_wait and (zero_capacity or spec.zero_capacity) == REFUSE:
        return _REFUSED
    retry_after_s = _RETRY_AFTER_S_UNKNOWN if ready_in_s is None else ready_in_s
    if held_count >= spec.count_max:
        return HoldStep(REFUSE, "held-too-many", retry_after_s)
    if held_bytes + body_bytes > spec.bytes_max:
        return HoldStep(REFUSE, "held-bytes-too-many", retry_after_s)
    if others_wait:
        return _OTHERS_WAIT
    if ready_in_s is not None and now + ready_in_s >= deadline:
        return HoldStep(REFUSE, "ready-too-late", retry_after_s)
    return _NO_CAPACITY


def zero_capacity_of(model: ModelSource) -> str:
    """What a model's environment says; empty = nothing that is known here."""
    mode = dict(model.environment).get(ZERO_CAPACITY_VARIABLE, "")
    return mode if mode in ZERO_CAPACITY_MODES else ""
