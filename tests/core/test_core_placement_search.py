"""Properties of `core/endpoint/placement.py`: nothing is promised twice, and what can be placed is
placed.

Copies that are loaded stay where they are; the question is where those go that are missing.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.core_placement import (
    component,
    copy,
    decided,
    instance,
    instances,
    loads,
    need,
)
from tests.kit.core_reconcile import failure

from penstock.core.deployment.capacity_spec import BINPACK, SPREAD, ComponentCopiesSpec, CopySpec
from penstock.core.deployment.endpoint_state import CopyObserved, InstanceObserved, LoadCopy
from penstock.core.endpoint.placement import PlacementDecision

NEEDS = st.builds(
    need, gib=st.sampled_from([0.0, 1.0, 2.0, 3.0, 5.0]), cores=st.sampled_from([0.0, 1.0, 2.0]),
    accelerators=st.sampled_from([0, 0, 1]),
)  # fmt: skip


@st.composite
def variants(
    draw: st.DrawFn,
) -> tuple[list[ComponentCopiesSpec], list[InstanceObserved], list[CopyObserved]]:
    """Up to three components of up to three copies on up to three instances, some loaded."""
    where = [
        instance(
            name, at, gib=draw(st.sampled_from([4.0, 8.0])), accelerators=draw(st.integers(0, 2))
        )
        for at, name in enumerate("abc"[: draw(st.integers(1, 3))])
    ]  # fmt: skip
    specs: list[ComponentCopiesSpec] = []
    there: list[CopyObserved] = []
    for name in "xyz"[: draw(st.integers(1, 3))]:
        wants = draw(NEEDS)
        copies = draw(st.integers(0, 3))
        specs.append(component(name, copies, wants, draw(st.sampled_from([SPREAD, BINPACK]))))
        for ordinal in range(draw(st.integers(0, copies))):
            place = draw(st.sampled_from(where))
            one = copy(len(there) + 1, place.instance_id, name, ordinal, wants=wants)
            if not overcommitted(where, [*there, one], []):
                there.append(one)
    return specs, where, there


def overcommitted(
    where: list[InstanceObserved],
    there: list[CopyObserved],
    more: list[tuple[str, CopySpec]],
) -> bool:
    """Whether an instance would give more of anything than it has."""
    for one in where:
        needs = [held.need.resources for held in there if held.instance_id == one.instance_id]
        needs += [wants.resources for name, wants in more if name == one.instance_id]
        if (
            sum(n.memory_bytes for n in needs) > one.resources.memory_bytes
            or sum(n.cores for n in needs) > one.resources.cores
            or sum(n.accelerators for n in needs) > one.resources.accelerators
        ):
            return True
    return False


def placed(
    decision: PlacementDecision, specs: list[ComponentCopiesSpec]
) -> list[tuple[str, CopySpec]]:
    wants = {one.name: one.need for one in specs}
    return [(load.instance_id, wants[load.component]) for load in decision.loads]


@settings(max_examples=300, deadline=None)
@given(variants())
def test_no_requirement_is_ever_overcommitted(
    case: tuple[list[ComponentCopiesSpec], list[InstanceObserved], list[CopyObserved]],
) -> None:
    specs, where, there = case
    decision = decided(specs, where, *there)
    assert not overcommitted(where, there, placed(decision, specs))


@settings(max_examples=300, deadline=None)
@given(variants())
def test_all_copies_are_placed_wherever_brute_force_finds_places_for_all(
    case: tuple[list[ComponentCopiesSpec], list[InstanceObserved], list[CopyObserved]],
) -> None:
    specs, where, there = case
    missing = [
        one.need
        for one in specs
        for _ in range(one.copies - sum(held.component == one.name for held in there))
    ]
    names = [one.instance_id for one in where]
    possible = any(
        not overcommitted(where, there, list(zip(places, missing, strict=True)))
        for places in itertools.product(names, repeat=len(missing))
    )
    decision = decided(specs, where, *there)
    if possible:
        assert len(decision.loads) == len(missing)
        assert decision.refusals == ()
    else:
        assert len(decision.loads) < len(missing)


def test_copies_are_rearranged_where_spreading_them_would_leave_one_without_a_place() -> None:
    """Spread one by one, the small ones would take 1 GiB of each instance and leave no 8."""
    small = component("small", 2, need(1.0))
    large = component("large", 1, need(8.0))
    assert decided([small, large], instances(2)).loads == loads(
        ("b", "small", 0), ("b", "small", 1), ("a", "large", 0)
    )
    # What is loaded is never moved: then the large one is refused, and said to be.
    there = (copy(1, "a", "small"), copy(2, "b", "small", 1))
    decision = decided([small, large], instances(2), *there)
    (refusal,) = decision.refusals
    assert (decision.loads, refusal.component, refusal.reason) == ((), "large", "memory-taken")


def test_one_that_fits_nowhere_keeps_the_others_from_nothing() -> None:
    small, large = component("small", 2, need(1.0)), component("large", 1, need(8.0))
    huge = component("huge", 1, need(9.0))
    decision = decided([small, huge, large], instances(2))
    assert set(decision.loads) == set(
        loads(("b", "small", 0), ("b", "small", 1), ("a", "large", 0))
    )
    (refusal,) = decision.refusals
    assert (refusal.component, refusal.reason) == ("huge", "larger-than-instance")
    assert "needs 9.00 GiB of memory, 0 cores and 0 accelerators" in refusal.failure


def test_of_a_refused_copy_it_is_said_which_requirement_is_short_where() -> None:
    where = [instance("a", cores=2.0), instance("b", 1, cores=2.0)]
    desired = [component("x", 3, need(1.0, cores=2.0))]
    there = (copy(1, "a", wants=desired[0].need), copy(2, "b", ordinal=1, wants=desired[0].need))
    (refusal,) = decided(desired, where, *there).refusals
    assert (refusal.ordinal, refusal.reason) == (2, "cores-taken")
    assert refusal.failure == (
        "CapacityError: a copy of x needs 1.00 GiB of memory, 2 cores and 0 accelerators, and none"
        " of the 2 running instances of variant blue has that free (at most 7.00 GiB of memory,"
        " 0 cores and 0 accelerators). Raise the instance count, or lower a number of copies."
    )


def test_a_refused_copy_is_loaded_as_soon_as_there_is_room_and_not_after_its_pause() -> None:
    refused = replace(failure(9, at=10.0, component="x", permanent=True), refused=True)
    full = copy(1, "a", "y", wants=need(8.0))
    desired = [component("x", 1), component("y", 1, need(8.0))]
    still = decided(desired, instances(1), full, failures=(refused,), now=11.0)
    assert (still.loads, still.refusals, still.next_deadline) == ((), (), 40.0)
    assert decided([desired[0]], instances(1), failures=(refused,), now=11.0).loads == (
        LoadCopy("a", "x", 1, 0, "copy-count"),
    )
