"""The life of an inference component: which copies it should have, and which status follows.

    Creating   as many copies as the spec has are ready -> InService; the spec has none: at once
               a failure that a retry cannot help, or `attempts_max` of one slot -> Failed
    Updating   (specification) the new revision's copies are ready -> InService with it; if one
               fails, the former revision serves on: InService, with the error as FailureReason
               An alarm that is in ALARM meanwhile, or the end of its time, makes the former one
               replace it in turn, in batches of its own -> InService, with that as FailureReason
    Updating   (count) reached -> InService; out of reach -> InService as well: the copies that
               have room serve, the rest is retried, and FailureReason says what is missing
    InService  what dies is replaced; the status stays
    Failed     its copies are stopped; only DeleteInferenceComponent is possible
    Deleting   its copies drain and are unloaded, then it is forgotten

A spec with more copies than have room stays recorded, unlike an endpoint's: room that a neighbour
frees, or that a new instance brings, is then used without a new request.

How many copies of each revision there should be (`roll_out`): without a batch size all copies of
the new revision start beside the old ones, which serve until every new one is ready. With a batch
size, copies are replaced batch by batch: a batch of new copies starts, the same number of old ones
ends, and the next batch begins after a pause. Both need spare room: no old copy ends before a new
one is ready. An old copy that ends by itself in the meantime is not replaced. The two modes are
those of SageMaker's UpdateInferenceComponent without and with RollingUpdatePolicy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from penstock.core.deployment.capacity_spec import (
    ComponentCopiesSpec,
    ComponentSpec,
    component_of,
    copies_name,
    copies_spec,
)
from penstock.core.deployment.endpoint_state import (
    CREATING,
    DELETING,
    FAILED,
    FAILURE_REASON_CHARS_MAX,
    IN_SERVICE,
    READY,
    THERE,
    UPDATING,
    CopyObserved,
    EndpointObserved,
    ForgetComponent,
    SetComponent,
    SlotFailure,
)
from penstock.core.deployment.slot_retries import ReconcileSpec, is_final
from penstock.core.rollout.machine import ringing


@dataclass(frozen=True, slots=True)
class RolloutDecision:
    specs: tuple[ComponentCopiesSpec, ...]  #: one per revision, the old one first
    complete: bool  #: all copies of the newest revision that the spec has are ready, and settled
    next_deadline: float | None  #: when a pause between two batches is over


def roll_out(
    component: ComponentSpec, copies: Iterable[CopyObserved], *, now: float
) -> RolloutDecision:
    """How many copies of each revision there should be now.

    `copies`: copies of the generation to decide about.
    """
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
    there = sum(one.component == former and one.phase in THERE for one in mine)
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


def decide(
    component: ComponentSpec,
    rollout: RolloutDecision,
    observed: EndpointObserved,
    *,
    generation: int,
    spec: ReconcileSpec,
    others: Iterable[ComponentSpec] = (),
    wall: float = 0.0,
) -> tuple[SetComponent | ForgetComponent, ...]:
    """The change of its record that the observed state requires; at most one action.

    `generation`: the endpoint's generation that serves. `others`: its components, with adapters.
    `wall`: s by the wall clock.
    """
    name = component.name
    if component.status == DELETING:
        left = any(component_of(copy.component) == name for copy in observed.copies)
        return () if left else (ForgetComponent(name, "nothing-left"),)
    if component.status not in (CREATING, UPDATING):
        return ()
    newest = component.target or component.active
    back = _why_back(component, observed, wall)
    if back:
        story = back[:FAILURE_REASON_CHARS_MAX]
        if not newest.batch:  # the former one has all its copies, and all traffic
            number = component.active.number
            return (SetComponent(name, IN_SERVICE, component.copies, "back", story, number),)
        return (
            SetComponent(name, UPDATING, component.copies, "goes-back", story, goes_back=story),
        )
    if rollout.complete:
        if newest.goes_back:
            story = newest.goes_back
            return (SetComponent(name, IN_SERVICE, component.copies, "back", story, newest.number),)
        reason = "copies-ready" if component.status == CREATING else "counts-reached"
        if component.target is not None:
            reason = "revision-ready"
        return (SetComponent(name, IN_SERVICE, component.copies, reason, "", newest.number),)
    copies = [
        one
        for one in observed.copies
        if one.generation == generation
        and one.variant == component.variant
        and one.component == copies_name(name, newest.number)
    ]
    failure = _final_failure(component, copies, observed.failures, generation, spec)
    if failure is None and component.target is not None:
        failure = _adapter_failure(
            component, others, copies, observed.failures, generation=generation, spec=spec
        )
    if failure is None:
        return ()
    status, reason, number = IN_SERVICE, "counts-out-of-reach", newest.number
    message = failure.message
    if component.status == CREATING:
        status, reason = FAILED, "component-failed"
    elif component.target is not None:
        reason, number = "revision-failed", component.active.number
        if not message.startswith("CapacityError:"):
            serves = "new one" if newest.goes_back else "former specification"
            message = f"the update failed, the {serves} serves on: {message}"
    story = message[:FAILURE_REASON_CHARS_MAX]
    return (SetComponent(name, status, component.copies, reason, story, number),)


def _why_back(component: ComponentSpec, observed: EndpointObserved, wall: float) -> str:
    """Why the revision that is rolled out has to go back; "" = nothing asks for it."""
    target = component.target
    if target is None or target.goes_back:
        return ""
    if rings := ringing(target.alarms, observed.alarms):
        return f"the update went back: {rings}"
    if target.expires and wall >= target.expires:
        return "the update went back: it was not done within MaximumExecutionTimeoutInSeconds"
    return ""


def _final_failure(
    component: ComponentSpec,
    copies: Iterable[CopyObserved],
    failures: Iterable[SlotFailure],
    generation: int,
    spec: ReconcileSpec,
) -> SlotFailure | None:
    """The earliest failure that prevents a copy: its own, else that of an instance for it."""
    newest = component.target or component.active
    named = copies_name(component.name, newest.number)
    there = {copy.ordinal for copy in copies if copy.phase in THERE}
    ready = {copy.ordinal for copy in copies if copy.phase == READY}
    own: list[SlotFailure] = []
    others: list[SlotFailure] = []
    for failure in failures:
        if (
            failure.generation != generation
            or failure.variant != component.variant
            or not is_final(failure, spec)
        ):
            continue
        if failure.component == named and failure.ordinal not in ready:
            own.append(failure)
        elif not failure.component and len(there) < component.copies:
            others.append(failure)
    return min(own or others, key=lambda one: (one.at, one.ordinal), default=None)


def _adapter_failure(
    base: ComponentSpec,
    adapters: Iterable[ComponentSpec],
    copies: Collection[CopyObserved],
    failures: Iterable[SlotFailure],
    *,
    generation: int,
    spec: ReconcileSpec,
) -> SlotFailure | None:
    """The failure of an adapter on a new copy of its base, which ends the base's update.

    `copies`: copies of the base's new revision.
    """
    numbers = {one.copy for one in copies}
    names = {
        copies_name(one.name, revision.number)
        for one in adapters
        if one.base == base.name and one.status not in (FAILED, DELETING)
        for revision in one.revisions()
    }
    found = [
        one
        for one in failures
        if one.generation == generation
        and one.component in names
        and one.ordinal in numbers
        and is_final(one, spec)
    ]
    return min(found, key=lambda one: (one.at, one.component, one.ordinal), default=None)
