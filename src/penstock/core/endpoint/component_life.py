"""The life of an inference component: which copies it should have, and which status follows.

    Creating   as many copies as the spec has are ready -> InService; the spec has none: at once
               a failure that a retry cannot help, or `attempts_max` of one slot -> Failed
    Updating   (specification) the new revision's copies are ready -> InService with it; if one
               fails, the former revision serves on: InService, with the error as FailureReason
               An alarm that is in ALARM meanwhile, answers that are surely worse, an operator, or
               the end of its time make the former one replace it in turn, in batches of its own
               -> InService, with that as FailureReason. An alarm that rang before there was a new
               copy says nothing of it, and counts once it has been quiet
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
one is ready. An old copy that ends by itself in the meantime is not replaced, unless it is an
adapter's, which takes no room. The two modes are those of SageMaker's UpdateInferenceComponent
without and with RollingUpdatePolicy.

A revision that is held to an agreement (`core/rollout/agreement.py`) needs the former one beside it
until its answers are surely as good: the last batch waits until then, or, where there is only one,
its old copies do. An old copy that ends meanwhile is replaced, also after a kill of the server: the
rollout goes on with both. Once it is sure, what is left follows without pauses.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.core.deployment.capacity_spec import (
    ComponentCopiesSpec,
    ComponentRevision,
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
from penstock.core.rollout.agreement import (
    AS_GOOD,
    WORSE,
    AgreementCounts,
    AgreementVerdict,
    judge,
)
from penstock.core.rollout.machine import in_alarm, ringing
from penstock.core.rollout.policy import ABORT, PAUSE, PROMOTE


@dataclass(frozen=True, slots=True)
class RolloutDecision:
    specs: tuple[ComponentCopiesSpec, ...]  #: one per revision, the old one first
    complete: bool  #: all copies of the newest revision that the spec has are ready, and settled
    next_deadline: float | None  #: when a pause between two batches is over
    verdict: AgreementVerdict | None = None  #: of its agreement; None: answers are not compared


class _Batches(NamedTuple):
    """How far a rollout in batches should be."""

    old: int  #: copies
    new: int
    settled: bool  #: it is over, if all new copies are ready
    next_deadline: float | None


def roll_out(
    component: ComponentSpec,
    copies: Iterable[CopyObserved],
    *,
    now: float,
    agreement: AgreementCounts | None = None,
) -> RolloutDecision:
    """How many copies of each revision there should be now.

    `copies`: copies of the generation to decide about. `agreement`: what comparisons of the answers
    of both revisions found so far.
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
    part = _Batches(component.copies, component.copies, True, None)
    verdict = None
    if newest.batch:
        compared = component.compared
        if compared is not None and compared.agreement is not None:
            verdict = judge(compared.agreement, agreement or AgreementCounts())
        begun = sum(one.component == named and one.phase in THERE for one in mine)
        since = sorted(now if one.since is None else one.since for one in ready)
        part = _batches(newest, component.copies, begun, since, verdict, now)
    free = bool(component.base) and not newest.goes_back
    replaced = free or _needs_former(newest, verdict)
    old = part.old if replaced else min(part.old, there)
    return RolloutDecision(
        (
            copies_spec(component, component.active, max(old, 0)),
            copies_spec(component, newest, part.new),
        ),
        complete=len(ready) >= component.copies and part.settled,
        next_deadline=part.next_deadline,
        verdict=verdict,
    )


def _batches(
    newest: ComponentRevision,
    copies: int,
    begun: int,
    since: Sequence[float],
    verdict: AgreementVerdict | None,
    now: float,
) -> _Batches:
    """
    Args:
        newest: the revision that is rolled out.
        copies: that the component should have.
        begun: copies of `newest` that are ready or will be by themselves.
        since: when each of its ready copies was ready, in order.
        verdict: of its agreement; None: answers are not compared.
        now: s.
    """
    size = max(min(newest.batch, copies), 1)
    done, last = len(since) // size, max(math.ceil(copies / size), 1)
    # Copies of the batch that is under way begin no pause; that of the last one is over all.
    of_done = since if len(since) >= copies else since[: done * size]
    settled = max(of_done, default=now) + newest.batch_wait_s
    agreed = newest.order == PROMOTE or (verdict is not None and verdict.verdict == AS_GOOD)
    waits = done > 0 and now < settled and not agreed
    stands = newest.order in (PAUSE, ABORT)
    unsure = _needs_former(newest, verdict)
    batches = done if waits else done + 1
    if stands:
        batches = max(math.ceil(begun / size), done)
    if unsure:
        batches, done = min(batches, max(last - 1, 1)), min(done, last - 1)
    return _Batches(
        old=copies - done * size,
        new=min(batches * size, copies),
        settled=not (waits or stands or unsure),
        next_deadline=settled if waits and not stands else None,
    )


def _needs_former(newest: ComponentRevision, verdict: AgreementVerdict | None) -> bool:
    """Whether former copies have to serve beside it: to be compared with, or to go back to."""
    if verdict is None or verdict.verdict == AS_GOOD:
        return False
    return verdict.verdict == WORSE or newest.order != PROMOTE


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
    copies = [
        one
        for one in observed.copies
        if one.generation == generation
        and one.variant == component.variant
        and one.component == copies_name(name, newest.number)
    ]
    rang = _rang(newest, copies, observed.alarms)
    back = _why_back(component, rollout, observed.alarms, rang, wall)
    if back:
        story = back[:FAILURE_REASON_CHARS_MAX]
        if not newest.batch:  # the former one has all its copies, and all traffic
            number = component.active.number
            return (SetComponent(name, IN_SERVICE, component.copies, "back", story, number),)
        return (
            SetComponent(name, UPDATING, component.copies, "goes-back", story, goes_back=story),
        )
    if rollout.complete:
        reason, why, story = "copies-ready", "", ""
        if component.target is not None:
            reason, why = _why_over(component.target, rollout.verdict)
            story = component.target.goes_back
        elif component.status == UPDATING:
            reason = "counts-reached"
        return (
            SetComponent(name, IN_SERVICE, component.copies, reason, story, newest.number, why=why),
        )
    failure = _final_failure(component, copies, observed.failures, generation, spec)
    if failure is None and component.target is not None:
        failure = _adapter_failure(
            component, others, copies, observed.failures, generation=generation, spec=spec
        )
    if failure is None:
        if rang == newest.rang or component.target is None or newest.goes_back:
            return ()
        reason = "alarms-watched" if newest.rang is None else "alarms-quiet"
        why = f"in ALARM since before it: {', '.join(rang)}" if rang else ""
        return (SetComponent(name, UPDATING, component.copies, reason, why=why, rang=rang),)
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


def _why_over(target: ComponentRevision, verdict: AgreementVerdict | None) -> tuple[str, str]:
    """(reason, the same in words) for which a revision has replaced the one before."""
    if target.goes_back:
        return "back", ""
    words = verdict.why if verdict is not None else ""
    if target.order == PROMOTE:
        return "promoted", words
    return ("agreed", words) if verdict is not None else ("revision-ready", "")


def _rang(
    newest: ComponentRevision, copies: Iterable[CopyObserved], states: Mapping[str, str]
) -> tuple[str, ...] | None:
    """Its alarms that say nothing of it; None: nothing can, as none of its copies was ready yet."""
    if newest.rang is not None:
        return in_alarm(newest.rang, states)
    if not newest.alarms or all(one.phase != READY for one in copies):
        return None
    return in_alarm(newest.alarms, states)


def _why_back(
    component: ComponentSpec,
    rollout: RolloutDecision,
    states: Mapping[str, str],
    rang: tuple[str, ...] | None,
    wall: float,
) -> str:
    """Why the revision that is rolled out has to go back; "" = nothing asks for it.

    Args:
        states: of alarms.
        rang: as `_rang` has it.
    """
    target, verdict = component.target, rollout.verdict
    if target is None or target.goes_back:
        return ""
    if target.order == ABORT:
        return "the update went back: an operator ordered it"
    if verdict is not None and verdict.verdict == WORSE:
        return f"the update went back: {verdict.why}"
    heard = [] if rang is None else [one for one in target.alarms if one not in rang]
    if rings := ringing(heard, states):
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
