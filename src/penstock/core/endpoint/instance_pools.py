"""From which of its pools a variant's next instance comes.

A variant may be on instances of several types, each with a priority (SageMaker's InstancePools).
The first pool that may be had is filled: one that was just found short is passed over, for the
pause that a slot's failure asks for, longer each time in a row. So the rest comes from the next
pool at once, and whatever is started later is tried where it is wanted most. What runs is not
moved. Where all pools are short the instance is refused with what each of them lacks, or waited
for where something is being freed.

It does not know why a type can't be had: the machine is full, a fleet has none, a limit is reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from penstock.core.deployment.endpoint_state import InstanceObserved, PoolShortage, SlotFailure
from penstock.core.deployment.slot_retries import ReconcileSpec, earliest
from penstock.core.deployment.wish import VariantCapacitySpec
from penstock.core.machine.room import CAPACITY_ERROR, NO_ROOM, WAIT, RoomDecision

ALL_POOLS_SHORT = "all-pools-short"

#: Codes that say that a type can't be had, whatever is wrong with nothing else.
SHORTAGES = frozenset(
    {
        "no-node-with-room",  # a fleet's
        "larger-than-machine",
        "larger-than-type",
        "type-limit",
        "memory-taken",
        "memory-outgrown",
        "memory-short",
        "accelerators-taken",
    }
)
#: Room that is there within a moment is waited for, though another pool has some.
_SOON = "guests-give-room"
#: How soon what is being freed is asked for again, s.
_FREED_S = 2.0


@dataclass(frozen=True, slots=True)
class InstancePoolChoice:
    """Exactly one of the three is given."""

    instance_type: str = ""  #: start one of these
    next_deadline: float | None = None  #: ask again then
    refusal: str = ""  #: for people: what each pool lacks


def choose(
    wish: VariantCapacitySpec,
    shortages: Iterable[PoolShortage],
    failures: Iterable[SlotFailure],
    *,
    now: float,
    spec: ReconcileSpec,
) -> InstancePoolChoice:
    """The pool of a variant's next instance.

    Args:
        wish: of the variant.
        shortages: of any variants.
        failures: of the variant's slots: what was refused once is not refused again.
        now: seconds.
        spec: its pauses are those of slots.
    """
    short = {
        one.instance_type: one
        for one in shortages
        if (one.variant, one.generation) == (wish.name, wish.generation)
    }
    pauses: list[float] = []
    for instance_type in wish.pools:
        last = short.get(instance_type)
        at = pause_end(last, spec) if last is not None else None
        if at is None or now >= at:
            return InstancePoolChoice(instance_type=instance_type)
        pauses.append(at)
    found = [short[one] for one in wish.pools]
    refused = [one.at for one in failures if one.reason == ALL_POOLS_SHORT]
    known = bool(refused) and max(refused) >= max(one.at for one in found)
    if known or any(one.waits for one in found):
        return InstancePoolChoice(next_deadline=earliest(*pauses))
    stale = [one for one in found if now >= one.at + spec.backoff.pause_s_first]
    if stale:  # it may have room by now: nobody is refused for an old answer
        return InstancePoolChoice(instance_type=stale[0].instance_type)
    return InstancePoolChoice(refusal=_refusal(wish, found))


def pause_end(shortage: PoolShortage, spec: ReconcileSpec) -> float:
    """When a pool that was short is tried again."""
    pause_s = spec.backoff.pause_s(shortage.count)
    return shortage.at + (min(pause_s, _FREED_S) if shortage.waits else pause_s)


def passes_over(decision: RoomDecision) -> bool:
    """Whether another pool is asked, of a variant that has several."""
    return decision.outcome == NO_ROOM or (decision.outcome == WAIT and decision.reason != _SOON)


def shortage_of(
    former: PoolShortage | None, found: PoolShortage, *, spec: ReconcileSpec
) -> PoolShortage:
    """What to remember of a pool that was found short: tries at one time are one try."""
    if former is None:
        return found
    again = found.at >= pause_end(former, spec)
    return replace(found, count=former.count + again)


def rank(wish: VariantCapacitySpec, instance: InstanceObserved) -> int:
    """Smaller is wanted more; of too many the highest goes first."""
    pools = wish.pools
    if instance.instance_type in pools:
        return pools.index(instance.instance_type)
    return len(pools)


def _refusal(wish: VariantCapacitySpec, found: Sequence[PoolShortage]) -> str:
    told = "; ".join(
        f"{one.instance_type}: {one.message.removeprefix(CAPACITY_ERROR).strip()}" for one in found
    )
    return f"{CAPACITY_ERROR} no instance pool of variant {wish.name} has room. {told}"
