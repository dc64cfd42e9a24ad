"""The life of an inference component: which status follows from its observed copies.

    Creating   as many copies as the spec has are ready -> InService; the spec has none: at once
               a failure that a retry cannot help, or `attempts_max` of one slot -> Failed
    Updating   (specification) the new revision's copies are ready -> InService with it; if one
               fails, the former revision serves on: InService, with the error as FailureReason
    Updating   (count) reached -> InService; out of reach -> InService as well: the copies that
               have room serve, the rest is retried, and FailureReason says what is missing
    InService  what dies is replaced; the status stays
    Failed     its copies are stopped; only DeleteInferenceComponent is possible
    Deleting   its copies drain and are unloaded, then it is forgotten

A spec with more copies than have room stays recorded, unlike an endpoint's: room that a neighbour
frees, or that a new instance brings, is then used without a new request.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.core.deployment.component_spec import ComponentSpec, component_of, copies_name
from penstock.core.deployment.endpoint_state import (
    CREATING,
    DELETING,
    FAILED,
    IN_SERVICE,
    LOADING,
    LOST,
    READY,
    UPDATING,
    CopyObserved,
    EndpointObserved,
    ForgetComponent,
    SetComponent,
    SlotFailure,
)
from penstock.core.deployment.slot_retries import ReconcileSpec, is_final
from penstock.core.endpoint import adapters
from penstock.core.endpoint.component_rollout import RolloutDecision

#: SageMaker's bound for FailureReason.
_FAILURE_REASON_CHARS_MAX = 1024
_THERE = (LOADING, READY, LOST)


def decide(
    component: ComponentSpec,
    rollout: RolloutDecision,
    observed: EndpointObserved,
    *,
    generation: int,
    spec: ReconcileSpec,
    others: Iterable[ComponentSpec] = (),
) -> tuple[SetComponent | ForgetComponent, ...]:
    """The change of its record that the observed state requires; at most one action.

    `generation`: the endpoint's generation that serves. `others`: its components, with adapters.
    """
    name = component.name
    if component.status == DELETING:
        left = any(component_of(copy.component) == name for copy in observed.copies)
        return () if left else (ForgetComponent(name, "nothing-left"),)
    if component.status not in (CREATING, UPDATING):
        return ()
    newest = component.target or component.active
    if rollout.complete:
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
        failure = adapters.final_failure(
            component, others, copies, observed.failures, generation=generation, spec=spec
        )
    if failure is None:
        return ()
    if component.status == CREATING:
        told = _bounded(failure.message)
        return (
            SetComponent(name, FAILED, component.copies, "component-failed", told, newest.number),
        )
    if component.target is not None:
        told = failure.message
        if not told.startswith("CapacityError:"):
            told = f"the update failed, the former specification serves on: {told}"
        number = component.active.number
        return (
            SetComponent(
                name, IN_SERVICE, component.copies, "revision-failed", _bounded(told), number
            ),
        )
    told = _bounded(failure.message)
    return (
        SetComponent(
            name, IN_SERVICE, component.copies, "counts-out-of-reach", told, newest.number
        ),
    )


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
    there = {copy.ordinal for copy in copies if copy.phase in _THERE}
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


def _bounded(text: str) -> str:
    return text[:_FAILURE_REASON_CHARS_MAX]
