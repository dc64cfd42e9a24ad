"""Which copies of a base have which adapters: those to load, to keep, to take away.

An adapter (LoRA) has no copies by number and takes nothing of an instance: each copy of its base
that serves has it, and what is called a copy of the adapter is its presence there. Its slot is the
base copy's number, so a new copy of the base is a new slot.

    on a copy of the base that serves, each revision of the adapter that is wished
    taken away first, before a copy of its base that leaves is unloaded: its streams end as well
    gone at once with a copy of its base that is gone
    never tried again on the same copy once it is known not to fit

A base that is given another specification is replaced only when its adapters are on the new copies
too: until then a new copy does not count as ready.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.core.deployment.component_spec import ComponentSpec, component_of, copies_name
from penstock.core.deployment.endpoint_state import (
    DELETING,
    ENDING,
    FAILED,
    LOADING,
    LOST,
    READY,
    UNLOADING,
    CopyObserved,
    DrainCopy,
    LoadCopy,
    SlotFailure,
    UnloadCopy,
)
from penstock.core.deployment.slot_retries import ReconcileSpec, earliest, is_final
from penstock.core.endpoint.component_rollout import RolloutDecision
from penstock.core.endpoint.endings import retire_copy

_THERE = (LOADING, READY, LOST)
_SERVES = (READY, LOST)


@dataclass(frozen=True, slots=True)
class AdapterDecision:
    kept: tuple[CopyObserved, ...]
    loads: tuple[LoadCopy, ...]
    #: to be begun once routes without these copies are published
    retires: tuple[DrainCopy | UnloadCopy, ...]
    rollout: RolloutDecision


def decide(
    adapter: ComponentSpec,
    bases: Collection[CopyObserved],
    copies: Iterable[CopyObserved],
    failures: Iterable[SlotFailure],
    *,
    generation: int,
    now: float,
    spec: ReconcileSpec,
) -> AdapterDecision:
    """One adapter on the copies of its base.

    Args:
        adapter: what is wished.
        bases: copies of its base, of this generation, that are to stay, in any phase.
        copies: of the adapter, of this generation, on instances that stay.
        failures: of slots.
        generation: that is decided about.
        now: seconds.
        spec: times and bounds.
    """
    ends = adapter.status in (FAILED, DELETING)
    names = [] if ends else [copies_name(adapter.name, one.number) for one in adapter.revisions()]
    hosts = {one.copy: one for one in bases if one.phase in _SERVES}
    there = {(one.component, one.base_copy): one for one in copies}
    failed = {(one.component, one.ordinal): one for one in failures if one.generation == generation}
    kept = [
        one
        for (name, base), one in there.items()
        if name in names and base in hosts and one.phase in _THERE
    ]
    staying = {one.copy for one in kept}
    loads: list[LoadCopy] = []
    deadline: float | None = None
    for name in names:
        for number, host in sorted(hosts.items()):
            if (name, number) in there or host.phase != READY:
                continue
            failure = failed.get((name, number))
            if failure is not None and failure.permanent:
                continue
            due = None if failure is None else failure.at + spec.backoff.pause_s(failure.count)
            if due is not None and now < due:
                deadline = earliest(deadline, due)
                continue
            reason = "base-ready" if failure is None else "replace-failed"
            loads.append(LoadCopy(host.instance_id, name, generation, number, reason, number))
    known = {one.copy: one for one in bases}
    return AdapterDecision(
        tuple(kept),
        tuple(loads),
        tuple(
            action
            for one in there.values()
            if one.copy not in staying
            for action in _retire(one, known.get(one.base_copy))
        ),
        RolloutDecision((), _is_everywhere(names, bases, hosts, there), deadline),
    )


def _is_everywhere(
    names: Sequence[str],
    bases: Collection[CopyObserved],
    hosts: Mapping[int, CopyObserved],
    there: Mapping[tuple[str, int], CopyObserved],
) -> bool:
    """The newest revision answers wherever its base does; where that has no copy, it would."""
    if not names or (bases and not hosts):
        return False
    found = (there.get((names[-1], number)) for number in hosts)
    return all(one is not None and one.phase == READY for one in found)


def _retire(one: CopyObserved, base: CopyObserved | None) -> list[DrainCopy | UnloadCopy]:
    return retire_copy(one, "base-leaves" if base is None else "adapter-leaves")


def without_base(
    copies: Iterable[CopyObserved], bases: Mapping[int, CopyObserved]
) -> tuple[UnloadCopy, ...]:
    """Copies of adapters whose base's copy is gone, or is being unloaded: nothing of them is left.

    `bases`: every copy that is there, by its number.
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
    """Without the unloading of copies that adapters are still on."""
    ridden = {one.base_copy for one in adapters}
    return [one for one in retires if not (isinstance(one, UnloadCopy) and one.copy in ridden)]


def as_ready(
    base: ComponentSpec,
    adapters: Iterable[ComponentSpec],
    copies: Iterable[CopyObserved],
) -> list[CopyObserved]:
    """The copies as a rollout of the base is to see them: a new one without its adapters is still
    being loaded."""
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


def final_failure(
    base: ComponentSpec,
    adapters: Iterable[ComponentSpec],
    copies: Collection[CopyObserved],
    failures: Iterable[SlotFailure],
    *,
    generation: int,
    spec: ReconcileSpec,
) -> SlotFailure | None:
    """An adapter that does not come onto a new copy of its base ends the base's update.

    `copies`: of the base's new revision.
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
