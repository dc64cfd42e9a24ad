"""`core/endpoint/managed_instances.py` as literal timelines: how many instances the copies need."""

from __future__ import annotations

from dataclasses import replace

from tests.kit.core_placement import component, copy, instance, instances, need

from penstock.core.deployment.capacity_spec import BINPACK, ComponentCopiesSpec, VariantCapacitySpec
from penstock.core.deployment.deployment import CONSOLIDATION, ManagedScaling
from penstock.core.deployment.endpoint_state import (
    DRAINING,
    LOADING,
    STARTING,
    CopyObserved,
    EndpointObserved,
    InstanceObserved,
)
from penstock.core.endpoint.managed_instances import ManagedDecision, decide

MANAGED = ManagedScaling(instances_min=0, instances_max=4, cooldown_s=60.0)
PACKS = replace(MANAGED, strategy=CONSOLIDATION, step_max=1)
#: Two of them fill an instance of `tests.kit.core_placement`.
HALF = need(3.5)


def decided(
    components: list[ComponentCopiesSpec],
    alive: list[InstanceObserved],
    *copies: CopyObserved,
    managed: ManagedScaling = MANAGED,
    now: float = 1000.0,
    released: tuple[tuple[str, float], ...] = (),
    instances_min: int = 0,
) -> ManagedDecision:
    desired = VariantCapacitySpec(
        name="blue", generation=1, instances=0, components=tuple(components)
    )
    state = EndpointObserved(instances=tuple(alive), copies=copies, released=released)
    return decide(managed, desired, alive, state, now=now, instances_min=instances_min)


def on(
    where: str, number: int, name: str = "x", ordinal: int = 0, phase: str = "ready"
) -> CopyObserved:
    return copy(number, where, name, ordinal, wants=HALF, phase=phase)


def test_an_endpoint_without_copies_needs_no_instance_and_keeps_its_minimum() -> None:
    assert decided([], []) == ManagedDecision(0, "steady")
    two = replace(MANAGED, instances_min=2)
    assert decided([], [], managed=two) == ManagedDecision(2, "below-minimum")
    assert decided([], instances(2), managed=two) == ManagedDecision(2, "steady")


def test_the_first_copy_asks_for_one_instance_and_what_that_has_says_how_many_more() -> None:
    desired = [component("x", 6, HALF)]
    assert decided(desired, []) == ManagedDecision(1, "copies-need-more")
    starting = [instance("a", phase=STARTING)]
    assert decided(desired, starting) == ManagedDecision(3, "copies-need-more")
    # They are on their way: nothing is asked for twice, and nothing is idle.
    coming = [instance(name, at, phase=STARTING) for at, name in enumerate("abc")]
    assert decided(desired, coming) == ManagedDecision(3, "steady")


def test_out_goes_at_once_as_far_as_the_maximum_goes() -> None:
    full = [on("a", 1), on("a", 2, ordinal=1)]
    assert decided([component("x", 4, HALF)], instances(1), *full) == ManagedDecision(
        2, "copies-need-more"
    )
    assert decided([component("x", 40, HALF)], instances(1), *full) == ManagedDecision(
        4, "copies-need-more"
    )
    six = [on("abc"[at // 2], at, ordinal=at) for at in range(6)]
    assert decided([component("x", 7, HALF)], instances(3), *six) == ManagedDecision(
        4, "copies-need-more"
    )
    four = [on("abcd"[at // 2], at, ordinal=at) for at in range(8)]
    assert decided([component("x", 9, HALF)], instances(4), *four) == ManagedDecision(
        4, "at-maximum"
    )


def test_what_fits_on_no_instance_asks_for_none_beyond_the_one_that_shows_it() -> None:
    desired = [component("x", 1, need(9.0))]
    assert decided(desired, []) == ManagedDecision(1, "copies-need-more")
    assert decided(desired, instances(1), now=30.0).instances == 1
    beside = [component("y", 1, HALF), *desired]
    assert decided(beside, instances(1), on("a", 1, "y")) == ManagedDecision(1, "steady")
    # The process of an instance takes some of its memory: a copy can't have all of it.
    assert decided([component("x", 1, need(8.0))], instances(1), now=30.0).instances == 1


def test_idle_instances_go_once_the_cooldown_is_over() -> None:
    desired = [component("x", 1, HALF)]
    seen = instances(3)
    cooling = decided(desired, seen, on("a", 1), now=59.0)
    assert cooling == ManagedDecision(3, "scale-in-cooldown", 60.0)
    assert decided(desired, seen, on("a", 1), now=60.0) == ManagedDecision(1, "idle-release")
    bounded = replace(MANAGED, step_max=1)
    assert decided(desired, seen, on("a", 1), managed=bounded, now=60.0).instances == 2
    # Each that goes begins the cooldown anew.
    assert decided(
        desired, seen[:2], on("a", 1), managed=bounded, now=61.0, released=(("blue", 60.0),)
    ) == ManagedDecision(2, "scale-in-cooldown", 120.0)
    other = (("green", 60.0),)
    assert decided(desired, seen[:2], on("a", 1), now=61.0, released=other).instances == 1


def test_nothing_goes_while_an_instance_is_on_its_way() -> None:
    seen = [*instances(2), instance("c", 2, phase=STARTING)]
    assert decided([component("x", 1, HALF)], seen, on("a", 1)) == ManagedDecision(
        3, "scale-in-cooldown", 1060.0
    )


def test_an_instance_that_a_missing_copy_needs_is_not_idle() -> None:
    full = [on("a", 1), on("a", 2, ordinal=1)]
    assert decided([component("x", 3, HALF)], instances(2), *full) == ManagedDecision(2, "steady")
    assert decided([component("x", 3, HALF)], instances(3), *full) == ManagedDecision(
        2, "idle-release"
    )
    # ... nor is one with a copy that still drains, or loads.
    for phase in (DRAINING, LOADING):
        left = on("b", 3, "y", phase=phase)
        desired = [component("x", 2, HALF), component("y", int(phase == LOADING), HALF)]
        assert decided(desired, instances(2), *full, left) == ManagedDecision(2, "steady")


def test_a_copy_that_leaves_is_none_of_those_that_are_desired() -> None:
    left = [on("a", 1, phase=DRAINING), on("a", 2, "y")]
    desired = [component("x", 1, HALF), component("y", 1, HALF)]
    assert decided(desired, instances(1), *left) == ManagedDecision(2, "copies-need-more")


def test_all_copies_gone_all_instances_go_but_the_minimum() -> None:
    desired = [component("x", 0, HALF)]
    assert decided(desired, instances(3)) == ManagedDecision(0, "idle-release")
    kept = replace(MANAGED, instances_min=1)
    assert decided(desired, instances(3), managed=kept) == ManagedDecision(1, "idle-release")


def test_consolidation_takes_the_last_instance_when_its_copies_fit_on_the_others() -> None:
    desired = [component("x", 2, HALF, BINPACK)]
    apart = [on("a", 1), on("b", 2, ordinal=1)]
    assert decided(desired, instances(2), *apart) == ManagedDecision(2, "steady")
    assert decided(desired, instances(2), *apart, managed=PACKS) == ManagedDecision(
        1, "consolidation"
    )
    assert decided(desired, instances(2), *apart, managed=PACKS, now=9.0) == ManagedDecision(
        2, "scale-in-cooldown", 60.0
    )
    # While its copy is loaded on the other the decision stays.
    loading = on("a", 3, ordinal=2, phase=LOADING)
    assert decided(desired, instances(2), *apart, loading, managed=PACKS).instances == 1
    three = [component("x", 3, HALF, BINPACK)]
    full = [*apart, on("a", 3, ordinal=2)]
    assert decided(three, instances(2), *full, managed=PACKS) == ManagedDecision(2, "steady")


def test_consolidation_puts_no_two_copies_together_that_are_to_be_spread() -> None:
    apart = [on("a", 1), on("b", 2, ordinal=1)]
    assert decided([component("x", 2, HALF)], instances(2), *apart, managed=PACKS).instances == 2
    # One that is alone has nothing to be kept apart from.
    desired = [component("x", 1, HALF), component("y", 1, HALF)]
    alone = [on("a", 1), on("b", 2, "y")]
    assert decided(desired, instances(2), *alone, managed=PACKS) == ManagedDecision(
        1, "consolidation"
    )
    # Nor has it while it is loaded on the other: the decision stays.
    loading = on("a", 3, "y", phase=LOADING)
    assert decided(desired, instances(2), *alone, loading, managed=PACKS).instances == 1


def test_a_new_generation_begins_with_its_first_instances_and_those_that_its_copies_need() -> None:
    assert decided([], [], instances_min=2) == ManagedDecision(2, "below-minimum")
    assert decided([], [], instances_min=9) == ManagedDecision(4, "below-minimum")
    desired = [component("x", 6, HALF)]
    assert decided(desired, instances(1), instances_min=2) == ManagedDecision(3, "copies-need-more")
