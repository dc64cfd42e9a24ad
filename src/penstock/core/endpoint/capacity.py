"""Which instances a variant should have: those to keep, those to start, those to stop.

If there are too many, the least advanced are stopped first: serving ones stay, starting ones go. Of
equally advanced ones those of the least preferred pool go first, then those with the fewest
requests, whose drains end soonest. A drain is never taken back, so the choice holds however the
counts change. If there are too few, one slot at a time is filled, after the pause that its last
failure requires, from the pool that `instance_pools` chooses. The decider does not know which
copies should be where. Of the copies it sees only their phases and their numbers of requests.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from penstock.core.deployment.capacity_spec import VariantCapacitySpec
from penstock.core.deployment.endpoint_state import (
    DRAINED,
    DRAINING,
    ENDING,
    GONE,
    LOADING,
    LOST,
    READY,
    RUNNING,
    STARTING,
    UNLOADING,
    CopyObserved,
    DrainCopy,
    EndpointObserved,
    InstanceObserved,
    RefuseInstance,
    StartInstance,
    StopInstance,
)
from penstock.core.deployment.slot_retries import ReconcileSpec, earliest, free_slots
from penstock.core.endpoint import instance_pools
from penstock.core.endpoint.endings import retire_instance

_ALIVE = (STARTING, RUNNING)
_NO_REASONS: Mapping[str, str] = MappingProxyType({})
_LEAVING = (DRAINING, DRAINED, UNLOADING, ENDING)


@dataclass(frozen=True, slots=True)
class CapacityDecision:
    kept: tuple[InstanceObserved, ...]  #: as many as the spec has, the most advanced first
    starts: tuple[StartInstance, ...]
    next_deadline: float | None  #: when the pause of a slot, or of a pool, is over
    refusals: tuple[RefuseInstance, ...] = ()


def decide(
    desired: VariantCapacitySpec,
    observed: EndpointObserved,
    *,
    now: float,
    spec: ReconcileSpec,
    start_reason: str,
) -> CapacityDecision:
    """The instances of one variant. `start_reason`: for an instance that replaces none."""
    copies = observed.copies_by_instance()
    seen = _seen(desired, observed)
    kept = alive(desired, observed)[: desired.instances]
    # An instance whose death is about to be reported still holds its slot: its failure decides when
    # the next attempt is due.
    taken = {one.ordinal for one in kept}
    taken |= {one.ordinal for one in seen if one.phase in (GONE, ENDING)}
    failures = {
        failure.ordinal: failure
        for failure in observed.failures
        if not failure.component
        and failure.variant == desired.name
        and failure.generation == desired.generation
    }
    starts: list[StartInstance] = []
    refusals: list[RefuseInstance] = []
    deadline: float | None = None
    pool = instance_pools.choose(desired, observed.shortages, failures.values(), now=now, spec=spec)
    startable = spec.starting_max - _on_their_way(desired, kept, copies)
    for slot in free_slots(
        desired.instances, taken, failures, spec, missing=desired.instances - len(kept)
    ):
        # Limits the cost of deciding, and the processes that start before the machine is known to
        # be full: neither may grow with the count.
        if len(starts) >= startable:
            break
        if slot.due is not None and now < slot.due:
            deadline = earliest(deadline, slot.due)
            continue
        if pool.refusal:
            all_short = instance_pools.ALL_POOLS_SHORT
            refusals.append(
                RefuseInstance(
                    desired.name, desired.generation, slot.ordinal, all_short, pool.refusal
                )
            )
            break  # the slots behind it would get the same answer
        if pool.next_deadline is not None:
            deadline = earliest(deadline, pool.next_deadline)
            break
        reason = "replace-failed" if slot.failed else start_reason
        starts.append(
            StartInstance(
                desired.name, desired.generation, slot.ordinal, reason, pool.instance_type
            )
        )
    return CapacityDecision(tuple(kept), tuple(starts), deadline, tuple(refusals))


def alive(desired: VariantCapacitySpec, observed: EndpointObserved) -> list[InstanceObserved]:
    """Instances of a variant that may stay, those to keep first at the front."""
    copies = observed.copies_by_instance()
    found = [
        one for one in _seen(desired, observed) if _counts(one, copies.get(one.instance_id, ()))
    ]
    return sorted(found, key=lambda one: _advance(desired, one, copies.get(one.instance_id, ())))


def take_away(
    observed: EndpointObserved,
    kept: Collection[str],
    generations: Collection[int],
    reasons: Mapping[str, str] = _NO_REASONS,
) -> tuple[DrainCopy | StopInstance, ...]:
    """The next step for every instance that is not kept; to be carried out after routes without its
    copies are published. `generations`: those that the spec has now; `reasons`: by variant, where
    instances are managed."""
    copies = observed.copies_by_instance()
    actions: list[DrainCopy | StopInstance] = []
    for one in observed.instances:
        if one.instance_id not in kept and one.phase != GONE:
            reason = "old-generation"
            if one.generation in generations:
                reason = reasons.get(one.variant, "variant-count")
            actions += retire_instance(one, copies.get(one.instance_id, ()), reason)
    return tuple(actions)


def _seen(desired: VariantCapacitySpec, observed: EndpointObserved) -> list[InstanceObserved]:
    return [
        one
        for one in observed.instances
        if one.variant == desired.name and one.generation == desired.generation
    ]


def _counts(one: InstanceObserved, copies: Collection[CopyObserved]) -> bool:
    """Whether it counts. A leaving copy that has the instance to itself takes it along."""
    return (
        one.phase in _ALIVE
        and not one.leaving
        and not any(copy.need.whole_instance and copy.phase in _LEAVING for copy in copies)
    )


def _advance(
    desired: VariantCapacitySpec, one: InstanceObserved, copies: Collection[CopyObserved]
) -> tuple[int, int, int, int, int, int, int, str]:
    """Sort key, the most advanced first: serving, else nearest to serving; then in the most
    preferred pool; then with the most requests; then in the lowest slot."""
    phases = [copy.phase for copy in copies]
    return (
        -phases.count(READY),
        -phases.count(LOST),
        -phases.count(LOADING),
        _ALIVE[::-1].index(one.phase),
        instance_pools.rank(desired, one),
        -sum(copy.outstanding for copy in copies),
        one.ordinal,
        one.instance_id,
    )


def _on_their_way(
    desired: VariantCapacitySpec,
    kept: Collection[InstanceObserved],
    copies: dict[str, list[CopyObserved]],
) -> int:
    """Requested instances that are not connected yet. Where each is to have a copy of its own,
    instances without one count too."""
    each_has_one = any(one.need.whole_instance for one in desired.components)
    return sum(
        one.phase == STARTING or (each_has_one and one.instance_id not in copies) for one in kept
    )
