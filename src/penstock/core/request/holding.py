"""Whether a request that comes when no copy can take it is held, or refused at once.

AWS refuses requests at zero copies, and so does a model that says so (`REFUSE`). All other requests
are held until a copy is ready, in the order in which they came, within two kinds of bounds:

* how many are held at their endpoint, and how many bytes their bodies have;
* the request's own deadline: if even the fastest recent start would be too late, it is refused at
  once. Where no start was seen yet, the time is unknown, and unknown is not too late.

Requests that come while others are held queue behind them, even if a copy is ready by then: first
come, first served. For a request that a copy gave back, `retry.py` decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.core.deployment.deployment import ModelSource

HOLD: Final = "hold"
REFUSE: Final = "refuse"  #: refuse, as AWS does
ZERO_CAPACITY_MODES: Final = (HOLD, REFUSE)
#: Variable in a model's environment that overrides the server's setting for its variants and
#: components.
ZERO_CAPACITY_VARIABLE: Final = "PENSTOCK_ZERO_CAPACITY"

#: The router's reasons that mean that there is no copy, not that copies are full.
NO_CAPACITY: Final = ("no-copies", "no-healthy-copy")

_RETRY_AFTER_S_UNKNOWN: Final = 1.0  #: s; a small model is loaded in about this time


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldSpec:
    """Bounds of one gateway process."""

    count_max: int  #: requests held per endpoint
    bytes_max: int  #: bytes of their bodies
    zero_capacity: str = HOLD  #: hold | refuse, for models without a setting of their own


class HoldStep(NamedTuple):
    """What the driver does now."""

    do: str  #: hold | refuse
    #: no-capacity | others-wait | zero-capacity-refused | held-too-many | held-bytes-too-many |
    #: ready-too-late
    reason: str
    retry_after_s: float | None = None


#: The reason of requests refused because of a model's or the server's setting.
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
        zero_capacity: the setting of the request's model; empty = none.
        others_wait: earlier requests are held; copies may be ready already.
        held_count, held_bytes: of its endpoint, without this request.
        ready_in_s: earliest time until a copy can be ready; None = not known.
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
    """The setting in a model's environment; empty = none, or an unknown value."""
    mode = dict(model.environment).get(ZERO_CAPACITY_VARIABLE, "")
    return mode if mode in ZERO_CAPACITY_MODES else ""
