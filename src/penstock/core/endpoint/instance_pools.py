"""From which of its pools a variant's next instance comes.

A variant may use instances of several types, each with a priority (SageMaker's InstancePools). The
first available pool is used. A pool that has just had no capacity is skipped for the same pause as
after a slot's failure, longer each time in a row. So instances come from the next pool at once, and
later ones are tried in the preferred pool again. Running instances are not moved. Where all pools
lack capacity, the instance is refused with what each of them lacks; or it waits, where capacity is
being freed.

It does not know why a type is not available: the machine is full, a fleet has none, a limit is
reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from penstock.core.deployment.capacity_spec import VariantCapacitySpec
from penstock.core.deployment.endpoint_state import InstanceObserved, PoolShortage, SlotFailure
from penstock.core.deployment.slot_retries import ReconcileSpec, earliest
from penstock.core.machine.room import CAPACITY_ERROR, NO_ROOM, WAIT, RoomDecision

ALL_POOLS_SHORT = "all-pools-short"

#: Codes that say only that a type is not available, and nothing else is wrong.
SHORTAGES = frozenset(
    {
        "no-node-with-room",  # from a fleet
        "larger-than-machine",
        "larger-than-type",
        "type-limit",
        "memory-taken",
        "memory-outgrown",
        "memory-short",
        "accelerators-taken",
    }
)
#: Room that will be free within a moment is waited for, even if another pool has some.
_SOON = "guests-give-room"
#: s until capacity that is being freed is requested again.
_FREED_S = 2.0


@dataclass(frozen=True, slots=True)
class InstancePoolChoice:
    """One of the three is set, or none where a variant has only one type."""

    instance_type: str = ""  #: start one of these
    next_deadline: float | None = None  #: ask again then
    refusal: str = ""  #: for people: what each pool lacks


def choose(
    desired: VariantCapacitySpec,
    shortages: Iterable[PoolShortage],
    failures: Iterable[SlotFailure],
    *,
    now: float,
    spec: ReconcileSpec,
) -> InstancePoolChoice:
    """The pool of a variant's next instance.

    Args:
        desired: the variant's spec.
        shortages: shortages of any variants.
        failures: failures of the variant's slots: the same refusal is not repeated.
        now: seconds.
        spec: the pauses of slots, which hold for pools too.
    """
    if not desired.pools:
        return InstancePoolChoice()
    short = {
        one.instance_type: one
        for one in shortages
        if (one.variant, one.generation) == (desired.name, desired.generation)
    }
    pauses: list[float] = []
    for instance_type in desired.pools:
        last = short.get(instance_type)
        at = pause_end(last, spec) if last is not None else None
        if at is None or now >= at:
            return InstancePoolChoice(instance_type=instance_type)
        pauses.append(at)
    found = [short[one] for one in desired.pools]
    refused = [one.at for one in failures if one.reason == ALL_POOLS_SHORT]
    known = bool(refused) and max(refused) >= max(one.at for one in found)
    if known or any(one.waits for one in found):
        return InstancePoolChoice(next_deadline=earliest(*pauses))
    stale = [one for one in found if now >= one.at + spec.backoff.pause_s_first]
    if stale:  # it may have room by now: an old answer is no reason to refuse
        return InstancePoolChoice(instance_type=stale[0].instance_type)
    return InstancePoolChoice(refusal=_refusal(desired, found))


def pause_end(shortage: PoolShortage, spec: ReconcileSpec) -> float:
    """When a pool without capacity is tried again."""
    pause_s = spec.backoff.pause_s(shortage.count)
    return shortage.at + (min(pause_s, _FREED_S) if shortage.waits else pause_s)


def passes_over(decision: RoomDecision) -> bool:
    """Whether a variant with several pools tries another one."""
    return decision.outcome == NO_ROOM or (decision.outcome == WAIT and decision.reason != _SOON)


def shortage_of(
    former: PoolShortage | None, found: PoolShortage, *, spec: ReconcileSpec
) -> PoolShortage:
    """The shortage to remember for a pool; attempts at the same time count as one."""
    if former is None:
        return found
    again = found.at >= pause_end(former, spec)
    return replace(found, count=former.count + again)


def rank(desired: VariantCapacitySpec, instance: InstanceObserved) -> int:
    """Rank of an instance's pool: lower is preferred; of too many the highest is stopped first."""
    pools = desired.pools
    if instance.instance_type in pools:
        return pools.index(instance.instance_type)
    return len(pools)


def _refusal(desired: VariantCapacitySpec, found: Sequence[PoolShortage]) -> str:
    told = "; ".join(
        f"{one.instance_type}: {one.message.removeprefix(CAPACITY_ERROR).strip()}" for one in found
    )
    return f"{CAPACITY_ERROR} no instance pool of variant {desired.name} has room. {told}"
