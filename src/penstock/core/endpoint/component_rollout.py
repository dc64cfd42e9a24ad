"""How many copies of each of a component's revisions there should be now.

Without a batch size all copies of the new revision start beside the old ones, which serve until
every new one is ready. With a batch size, copies are replaced batch by batch: a batch of new copies
starts, the same number of old ones ends, and the next batch begins after a pause. Both need spare
room: no old copy ends before a new one is ready. An old copy that ends by itself in the meantime is
not replaced.

The two modes are those of SageMaker's UpdateInferenceComponent without and with
RollingUpdatePolicy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.core.deployment.capacity_spec import ComponentCopiesSpec
from penstock.core.deployment.component_spec import ComponentSpec, copies_name, copies_spec
from penstock.core.deployment.endpoint_state import (
    DELETING,
    FAILED,
    LOADING,
    LOST,
    READY,
    CopyObserved,
)

_THERE = (LOADING, READY, LOST)


@dataclass(frozen=True, slots=True)
class RolloutDecision:
    specs: tuple[ComponentCopiesSpec, ...]  #: one per revision, the old one first
    complete: bool  #: all copies of the newest revision that the spec has are ready, and settled
    next_deadline: float | None  #: when a pause between two batches is over


def decide(
    component: ComponentSpec, copies: Iterable[CopyObserved], *, now: float
) -> RolloutDecision:
    """`copies`: copies of the generation to decide about."""
    mine = [one for one in copies if one.variant == component.variant]
    newest = component.target or component.active
    named = copies_name(component.name, newest.number)
    ready = [one for one in mine if one.component == named and one.phase == READY]
    if component.status in (FAILED, DELETING):
        specs = tuple(copies_spec(component, one, 0) for one in component.revisions())
        return RolloutDecision(specs, complete=False, next_deadline=None)
    if component.target is None:
        desired = copies_spec(component, newest, component.copies)
        return RolloutDecision((desired,), len(ready) >= component.copies, None)
    former = copies_name(component.name, component.active.number)
    there = sum(one.component == former and one.phase in _THERE for one in mine)
    old, new, deadline = component.copies, component.copies, None
    if newest.batch:
        batches = len(ready) // newest.batch
        since = [now if one.since is None else one.since for one in ready]
        settled = max(since, default=now) + newest.batch_wait_s
        if batches and now < settled:
            deadline = settled
        else:
            batches += 1
        new = min(batches * newest.batch, component.copies)
        old = component.copies - (len(ready) // newest.batch) * newest.batch
    return RolloutDecision(
        (
            copies_spec(component, component.active, max(min(old, there), 0)),
            copies_spec(component, newest, new),
        ),
        complete=len(ready) >= component.copies and deadline is None,
        next_deadline=deadline,
    )
