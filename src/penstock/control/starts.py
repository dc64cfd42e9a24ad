"""How soon a copy can be there: when copies and their instances were asked for, and what they took.

A copy that was asked for as soon as its instance ran has taken the instance's start as well; one
that found an instance waiting for it has not.
"""

from __future__ import annotations

from typing import Final

from penstock.control.entries import CopyEntry, InstanceEntry
from penstock.control.ledger import EndpointLedger
from penstock.core.components.spec import component_of
from penstock.core.endpoint_state import LOADING, LOST, READY, STARTING

#: An instance that ran for longer before a copy was asked for was not started for it.
_IDLE_S_MAX: Final = 1.0


def note_ready(ledger: EndpointLedger, entry: InstanceEntry, copy: CopyEntry, now: float) -> None:
    """The copy is ready: what its start took is known."""
    ledger.start_times.note(_key(copy), now - _asked_at(entry, copy))


def ready_in_s(ledger: EndpointLedger, variant: str, component: str, now: float) -> float | None:
    """When a copy can be ready at the earliest, in s from now; None: not known.

    One that is being brought back by its instance, or that the gateway can't reach for a moment, is
    not started anew: how long that takes is not known.
    """
    copies = [one for one in ledger.copies.values() if _key(one) == (variant, component)]
    if any(one.phase in (READY, LOST) for one in copies):
        return None
    asked_at = [
        _asked_at(ledger.instances[one.instance_id], one) for one in copies if one.phase == LOADING
    ]
    asked_at += [
        one.asked_at
        for one in ledger.instances.values()
        if one.variant == variant and one.phase == STARTING
    ]
    return ledger.start_times.ready_in_s((variant, component), asked_at=asked_at, now=now)


def _key(copy: CopyEntry) -> tuple[str, str]:
    return copy.variant, component_of(copy.component.name)


def _asked_at(entry: InstanceEntry, copy: CopyEntry) -> float:
    with_instance = copy.asked_at - entry.running_at <= _IDLE_S_MAX
    return entry.asked_at if with_instance else copy.asked_at
