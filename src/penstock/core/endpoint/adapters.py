"""Which copies of a base have which adapters: those to load, to keep, to unload.

An adapter (LoRA) has no number of copies and takes nothing of an instance: it is loaded into each
serving copy of its base, and this presence is called a copy of the adapter. The number of the base
copy is its slot, so a new copy of the base is a new slot. An adapter is

    loaded            into each serving copy of the base, in each of its current revisions
    replaced          on all copies of its base at once, or with RollingUpdatePolicy on some after
                      others: these count as a component's own copies do (`component_life.roll_out`)
    unloaded first    before a copy of its base that leaves is unloaded: its streams end as well
    gone at once      with a copy of its base that is gone
    not tried again   on the same copy once it is known not to fit

A base with a new specification is replaced only when its adapters are on the new copies too: until
then a new copy does not count as ready.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.core.deployment.capacity_spec import ComponentSpec, component_of, copies_name
from penstock.core.deployment.endpoint_state import (
    DELETING,
    ENDING,
    FAILED,
    LOADING,
    LOST,
    READY,
    THERE,
    UNLOADING,
    CopyObserved,
    DrainCopy,
    LoadCopy,
    SlotFailure,
    UnloadCopy,
)
from penstock.core.deployment.slot_retries import ReconcileSpec, earliest
from penstock.core.endpoint.component_life import RolloutDecision, roll_out
from penstock.core.endpoint.endings import retire_copy
from penstock.core.rollout.agreement import AgreementCounts

_SERVES = (READY, LOST)


@dataclass(frozen=True, slots=True)
class AdapterDecision:
    kept: tuple[CopyObserved, ...]
    loads: tuple[LoadCopy, ...]
    #: to be carried out after routes without these copies are published
    retires: tuple[DrainCopy | UnloadCopy, ...]
    rollout: RolloutDecision
    #: a copy of the base that serves or will serve lacks it, or the revision that it should have
    missing: bool


def decide(
    adapter: ComponentSpec,
    bases: Collection[CopyObserved],
    copies: Iterable[CopyObserved],
    failures: Iterable[SlotFailure],
    *,
    generation: int,
    now: float,
    spec: ReconcileSpec,
    agreement: AgreementCounts | None = None,
) -> AdapterDecision:
    """One adapter on the copies of its base.

    Args:
        adapter: the specification.
        bases: copies of its base, of this generation, that stay, in any phase.
        copies: copies of the adapter, of this generation, on instances that stay.
        failures: failures of slots.
        generation: the generation to decide about.
        now: seconds.
        spec: times and bounds.
        agreement: what comparisons of the answers of both of its revisions found so far.
    """
    hosts = {one.copy: one for one in bases if one.phase in _SERVES}
    there = {(one.component, one.base_copy): one for one in copies}
    failed = {(one.component, one.ordinal): one for one in failures if one.generation == generation}
    on_hosts = [one for one in there.values() if one.base_copy in hosts]
    rollout = roll_out(replace(adapter, copies=len(hosts)), on_hosts, now=now, agreement=agreement)
    places = _places(adapter, rollout, sorted(hosts), there)
    kept = [
        one
        for (name, base), one in there.items()
        if base in places.get(name, ()) and one.phase in THERE
    ]
    staying = {one.copy for one in kept}
    wanted = [
        (name, hosts[number])
        for name, numbers in places.items()
        for number in numbers
        if (name, number) not in there and hosts[number].phase == READY
    ]
    loads, due = _loads(wanted, failed, now=now, spec=spec)
    known = {one.copy for one in bases}
    comes = bool(bases) and not hosts  # its base has no serving copy yet
    return AdapterDecision(
        tuple(kept),
        loads,
        tuple(
            action
            for one in there.values()
            if one.copy not in staying
            for action in retire_copy(
                one, "adapter-leaves" if one.base_copy in known else "base-leaves"
            )
        ),
        replace(
            rollout,
            complete=rollout.complete and not comes,
            next_deadline=earliest(rollout.next_deadline, due),
        ),
        comes or _is_missing(places, hosts, there),
    )


def _loads(
    wanted: Iterable[tuple[str, CopyObserved]],
    failed: Mapping[tuple[str, int], SlotFailure],
    *,
    now: float,
    spec: ReconcileSpec,
) -> tuple[tuple[LoadCopy, ...], float | None]:
    """What is loaded now of (name, copy of the base), and when to look again: after a failure there
    is a pause. `failed`: by name and number of the base's copy."""
    loads: list[LoadCopy] = []
    deadline: float | None = None
    for name, host in wanted:
        failure = failed.get((name, host.copy))
        if failure is not None and failure.permanent:
            continue
        due = None if failure is None else failure.at + spec.backoff.pause_s(failure.count)
        if due is not None and now < due:
            deadline = earliest(deadline, due)
            continue
        reason = "base-ready" if failure is None else "replace-failed"
        loads.append(
            LoadCopy(host.instance_id, name, host.generation, host.copy, reason, host.copy)
        )
    return tuple(loads), deadline


def _places(
    adapter: ComponentSpec,
    rollout: RolloutDecision,
    hosts: Sequence[int],
    there: Mapping[tuple[str, int], CopyObserved],
) -> dict[str, tuple[int, ...]]:
    """Name of each revision's copies -> the copies of the base that should have it, in order.

    The newest one stays where it is. The former one leaves first where the newest one is ready, so
    that each copy of the base has one that answers.

    Args:
        adapter: the specification.
        rollout: how many there should be of each.
        hosts: serving copies of its base, in order.
        there: (name, copy of the base) -> a copy of the adapter.
    """
    if adapter.status in (FAILED, DELETING):
        return {}
    *former, newest = rollout.specs

    def phase(number: int) -> str:
        found = there.get((newest.name, number))
        return "" if found is None else found.phase

    new = sorted(hosts, key=lambda number: phase(number) not in THERE)[: newest.copies]
    places = {newest.name: tuple(sorted(new))}
    for one in former:
        last = sorted(hosts, key=lambda number: (number in new, phase(number) == READY))
        places = {one.name: tuple(sorted(last[: one.copies])), **places}
    return places


def _is_missing(
    places: Mapping[str, Sequence[int]],
    hosts: Collection[int],
    there: Mapping[tuple[str, int], CopyObserved],
) -> bool:
    """Whether the newest revision does not answer where it should, or on some copy of the base none
    does. A rollout that waits misses nothing.

    Args:
        places: as `_places` says, the newest revision last.
        hosts: serving copies of the base.
        there: (name, copy of the base) -> a copy of the adapter.
    """
    ready = {one for one, copy in there.items() if copy.phase == READY and one[0] in places}
    wanted = {(name, number) for name in list(places)[-1:] for number in places[name]}
    return not wanted <= ready or not {*hosts} <= {number for _, number in ready}


def without_base(
    copies: Iterable[CopyObserved], bases: Mapping[int, CopyObserved]
) -> tuple[UnloadCopy, ...]:
    """Unloads copies of adapters whose base copy is gone or being unloaded: they are lost too.

    `bases`: all existing base copies, by number.
    """
    gone: list[UnloadCopy] = []
    for one in copies:
        base = bases.get(one.base_copy)
        if one.phase not in (UNLOADING, ENDING) and (
            base is None or base.phase in (UNLOADING, ENDING)
        ):
            gone.append(UnloadCopy(one.instance_id, one.copy, "base-gone"))
    return tuple(gone)


def held_back(
    retires: Iterable[DrainCopy | UnloadCopy], adapters: Iterable[CopyObserved]
) -> list[DrainCopy | UnloadCopy]:
    """Leaves out the unloading of base copies that still have adapters."""
    ridden = {one.base_copy for one in adapters}
    return [one for one in retires if not (isinstance(one, UnloadCopy) and one.copy in ridden)]


def as_ready(
    base: ComponentSpec,
    adapters: Iterable[ComponentSpec],
    copies: Iterable[CopyObserved],
) -> list[CopyObserved]:
    """The copies for a rollout of the base: a new one without its adapters counts as loading."""
    seen = list(copies)
    if base.target is None:
        return seen
    new = copies_name(base.name, base.target.number)
    there = {
        (component_of(one.component), one.base_copy)
        for one in seen
        if one.base_copy and one.phase == READY
    }
    wanted = [
        one.name
        for one in adapters
        if one.base == base.name and one.status not in (FAILED, DELETING)
    ]
    return [
        replace(one, phase=LOADING)
        if one.component == new
        and one.phase == READY
        and any((name, one.copy) not in there for name in wanted)
        else one
        for one in seen
    ]
