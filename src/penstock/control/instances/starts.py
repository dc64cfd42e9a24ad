"""How soon a copy can be ready, from the starts that are under way."""

from __future__ import annotations

from penstock.control.instances.entries import CopyEntry
from penstock.control.instances.ledger import EndpointLedger
from penstock.core.deployment.component_spec import component_of
from penstock.core.deployment.endpoint_state import LOADING, LOST, READY, STARTING


def ready_in_s(
    ledger: EndpointLedger, variant: str, component: str, fastest_s: float, now: float
) -> float | None:
    """When a copy can be ready at the earliest, in s from now; None: not known.

    It is not known for a copy that its instance is restarting, or that the gateway can't reach for
    a moment: no new start is under way for it.

    Args:
        fastest_s: duration of the fastest of the last starts.
    """
    copies = [
        one
        for one in ledger.copies.values()
        if (one.variant, component_of(one.component.name)) == (variant, component)
    ]
    if any(one.phase in (READY, LOST) for one in copies):
        return None
    asked_at = [_asked_at(one) for one in copies if one.phase == LOADING]
    asked_at += [
        one.asked_at
        for one in ledger.instances.values()
        if one.variant == variant and one.phase == STARTING
    ]
    return max(0.0, min(asked_at, default=now) + fastest_s - now)


def _asked_at(copy: CopyEntry) -> float:
    """When the copy was requested, or its instance if that was started for it."""
    return copy.asked_at if copy.came_with is None else copy.came_with.asked_at
