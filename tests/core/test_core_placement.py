"""`core/endpoint/placement.py` as literal timelines: which copies go onto which instance."""

from __future__ import annotations

from dataclasses import replace

from tests.kit.core_placement import (
    component,
    copy,
    decided,
    instance,
    instances,
    kept_on,
    loads,
    need,
)
from tests.kit.core_reconcile import failure

from penstock.core.deployment.capacity_spec import (
    BINPACK,
    PLACEMENT_STRATEGIES,
    WHOLE_INSTANCE,
)
from penstock.core.deployment.endpoint_state import (
    DRAINED,
    DRAINING,
    ENDING,
    LOADING,
    LOST,
    STARTING,
    UNLOADING,
    DrainCopy,
    UnloadCopy,
)
from penstock.core.endpoint.placement import PlacementDecision


def test_a_single_model_has_a_copy_on_each_instance_as_they_come() -> None:
    alone = [component("blue", 2, WHOLE_INSTANCE)]
    coming = [instance("a", phase=STARTING), instance("b", 1)]
    assert decided(alone, coming) == PlacementDecision(
        (), loads(("b", "blue", 0), reason="instance-running"), (), (), None
    )
    on_b = copy(1, "b", "blue", phase=LOADING, wants=WHOLE_INSTANCE)
    assert decided(alone, coming, on_b) == PlacementDecision((on_b,), (), (), (), None)
    assert decided(alone, instances(2), on_b).loads == loads(
        ("a", "blue", 1), reason="instance-running"
    )


def test_a_copy_that_has_its_instance_to_itself_shares_with_nobody() -> None:
    whole = copy(1, "a", "big", wants=WHOLE_INSTANCE)
    small = component("small", 1, need())
    both = [component("big", 1, WHOLE_INSTANCE), small]
    assert decided(both, instances(2), whole).loads == loads(("b", "small", 0))
    assert decided([small], instances(1), whole).loads == ()
    # ... and wants an instance that is empty, not one with room.
    assert decided(both, instances(2), copy(2, "a", "small")).loads == loads(
        ("b", "big", 0), reason="instance-running"
    )


def test_a_copy_with_an_instance_to_itself_takes_the_lowest_slot_however_large_others_are() -> None:
    where = [instance("a", 2, gib=16.0), instance("b", 1, gib=4.0), instance("c", 3, gib=2.0)]
    for strategy in PLACEMENT_STRATEGIES:
        desired = [component("x", 1, WHOLE_INSTANCE, strategy)]
        assert decided(desired, where).loads == loads(("b", "x", 0), reason="instance-running")


def test_a_component_of_no_copies_keeps_none() -> None:
    decision = decided([component("x", 0)], instances(1), copy(1, "a"))
    assert (decision.kept, decision.retires) == ((), (DrainCopy("a", 1, "copy-count"),))


def test_spread_goes_where_fewest_copies_of_the_component_are_then_fewest_of_any() -> None:
    assert decided([component("x", 5)], instances(3)).loads == loads(
        ("a", "x", 0), ("b", "x", 1), ("c", "x", 2), ("a", "x", 3), ("b", "x", 4)
    )
    # b has two copies of another component, a one of this: the component counts first.
    state = [copy(1, "a", "x"), copy(2, "b", "y"), copy(3, "b", "y", 1)]
    desired = [component("x", 2), component("y", 2)]
    assert decided(desired, instances(2), *state).loads == loads(("b", "x", 1))
    # Alike for the component, c has fewest copies of any.
    state = [copy(1, "a", "y", wants=need()), copy(2, "b", "z", wants=need())]
    desired = [component("y", 1), component("z", 1), component("x", 1)]
    assert decided(desired, instances(3), *state).loads == loads(("c", "x", 0))


def test_spread_prefers_the_instance_with_more_room_among_those_alike() -> None:
    where = [instance("a", 0, gib=8.0), instance("b", 1, gib=16.0), instance("c", 2, gib=16.0)]
    assert decided([component("x", 1)], where).loads == loads(("b", "x", 0))


def test_binpack_fills_what_is_begun_before_it_touches_an_empty_instance() -> None:
    pack = component("x", 4, need(3.0), BINPACK)
    assert decided([pack], instances(3)).loads == loads(
        ("a", "x", 0), ("a", "x", 1), ("b", "x", 2), ("b", "x", 3)
    )
    # Of those begun, the one with least left.
    state = [copy(1, "b", "y", wants=need(4.0)), copy(2, "c", "y", 1, wants=need(2.0))]
    desired = [component("y", 2, need(2.0)), component("x", 1, need(3.0), BINPACK)]
    assert decided(desired, instances(3), *state).loads == loads(("b", "x", 0))


def test_binpack_leaves_a_small_empty_instance_for_a_large_one_that_is_in_use() -> None:
    where = [instance("a", 0, gib=4.0), instance("b", 1, gib=16.0)]
    desired = [component("y", 1), component("x", 1, strategy=BINPACK)]
    assert decided(desired, where, copy(1, "b", "y")).loads == loads(("b", "x", 0))


def test_ties_break_on_the_slot_and_then_on_the_identifier() -> None:
    where = [instance("z", 1), instance("b", 0), instance("a", 0)]
    for strategy in PLACEMENT_STRATEGIES:
        desired = [component("x", 1, strategy=strategy)]
        assert decided(desired, where).loads == loads(("a", "x", 0))


def test_a_slot_whose_load_failed_pauses_and_the_others_go_on() -> None:
    desired = [component("x", 2)]
    failed = (failure(2, at=10.0, component="x"),)
    assert decided(desired, instances(1), failures=failed, now=10.9) == PlacementDecision(
        (), loads(("a", "x", 1)), (), (), 11.0
    )
    second = copy(1, "a", ordinal=1)
    assert decided(desired, instances(1), second, failures=failed, now=11.0).loads == loads(
        ("a", "x", 0), reason="replace-failed"
    )


def test_the_next_deadline_is_the_first_pause_that_is_over() -> None:
    failed = (failure(3, at=10.0, component="x"), failure(1, at=10.0, ordinal=1, component="x"))
    assert decided([component("x", 2)], instances(1), failures=failed, now=10.0).next_deadline == (
        10.5
    )


def test_failures_of_others_pause_no_copy() -> None:
    """Of the instance in the same slot, of another component, generation or variant."""
    others = (
        failure(9, at=10.0),
        failure(9, at=10.0, component="y"),
        failure(9, at=10.0, component="x", generation=2),
        replace(failure(9, at=10.0, component="x"), variant="green"),
    )
    assert decided([component("x", 1)], instances(1), failures=others, now=10.0).loads == loads(
        ("a", "x", 0)
    )


def test_a_copy_that_is_ended_by_this_decision_holds_its_slot_until_its_failure_is_known() -> None:
    ending = copy(1, "a", phase=ENDING)
    assert decided([component("x", 1)], instances(1), ending).loads == ()
    unloading = copy(1, "a", phase=UNLOADING)
    assert decided([component("x", 1)], instances(1), unloading).loads == loads(("a", "x", 0))


def test_of_too_many_copies_the_least_advanced_go_first() -> None:
    state = [
        copy(1, "a", ordinal=0, phase=LOADING),
        copy(2, "b", ordinal=1, phase=LOST),
        copy(3, "c", ordinal=2),
    ]
    decision = decided([component("x", 2)], instances(3), *state)
    assert kept_on(decision) == [(3, "c"), (2, "b")]
    assert decision.retires == (UnloadCopy("a", 1, "copy-count"),)
    decision = decided([component("x", 1)], instances(3), *state)
    assert kept_on(decision) == [(3, "c")]
    assert decision.retires == (
        UnloadCopy("a", 1, "copy-count"),
        DrainCopy("b", 2, "copy-count"),
    )


def test_spread_takes_copies_from_where_most_of_the_component_are() -> None:
    state = [copy(1, "b"), copy(2, "b", ordinal=1), copy(3, "a", ordinal=2), copy(4, "c", "y")]
    desired = [component("x", 2), component("y", 1)]
    assert decided(desired, instances(3), *state).retires == (DrainCopy("b", 2, "copy-count"),)
    # Alike: the highest slot.
    desired = [component("x", 1), component("y", 1)]
    assert decided(desired, instances(3), *state).retires == (
        DrainCopy("a", 3, "copy-count"),
        DrainCopy("b", 2, "copy-count"),
    )


def test_of_copies_alike_those_with_the_least_left_to_do_go_first() -> None:
    """Where the strategy has no opinion: it says first on which instance one goes."""
    busy, idle = copy(1, "a", ordinal=1, outstanding=4), copy(2, "b", ordinal=0)
    decision = decided([component("x", 1)], instances(2), busy, idle)
    assert decision.retires == (DrainCopy("b", 2, "copy-count"),)
    crowd = copy(3, "b", ordinal=2, outstanding=9)
    decision = decided([component("x", 2)], instances(2), busy, idle, crowd)
    assert decision.retires == (DrainCopy("b", 2, "copy-count"),)
    packed = [component("x", 2, strategy=BINPACK)]
    decision = decided(packed, instances(2), busy, idle, crowd)
    assert decision.retires == (DrainCopy("a", 1, "copy-count"),)


def test_binpack_empties_the_instance_with_fewest_copies() -> None:
    state = [copy(1, "a"), copy(2, "b", ordinal=1), copy(3, "b", ordinal=2)]
    desired = [component("x", 2, strategy=BINPACK)]
    assert decided(desired, instances(2), *state).retires == (DrainCopy("a", 1, "copy-count"),)


def test_a_copy_in_excess_drains_is_unloaded_and_is_gone() -> None:
    desired = [component("x", 1)]
    stays, goes = copy(1, "a"), copy(2, "a", ordinal=1)
    assert decided(desired, instances(1), stays, goes) == PlacementDecision(
        (stays,), (), (), (DrainCopy("a", 2, "copy-count"),), None
    )
    draining = replace(goes, phase=DRAINING)
    assert decided(desired, instances(1), stays, draining) == PlacementDecision(
        (stays,), (), (), (), None
    )
    drained = replace(goes, phase=DRAINED)
    assert decided(desired, instances(1), stays, drained).retires == (
        UnloadCopy("a", 2, "drained"),
    )
    unloading = replace(goes, phase=UNLOADING)
    assert decided(desired, instances(1), stays, unloading).retires == ()


def test_a_component_that_is_no_longer_desired_leaves_like_an_old_generation() -> None:
    old = replace(copy(2, "a"), generation=0)
    state = [copy(1, "a", "gone"), old, copy(3, "a", ordinal=0)]
    decision = decided([component("x", 1)], instances(1), *state)
    assert kept_on(decision) == [(3, "a")]
    assert decision.retires == (
        DrainCopy("a", 1, "old-generation"),
        DrainCopy("a", 2, "old-generation"),
    )


def test_copies_on_instances_that_are_not_kept_do_not_count() -> None:
    """They go with their instance; what they leave undone is loaded on one that stays."""
    elsewhere = copy(1, "old")
    assert decided([component("x", 1)], instances(1), elsewhere) == PlacementDecision(
        (), loads(("a", "x", 0)), (), (), None
    )


def test_many_components_on_many_instances_come_up_fail_shrink_and_pack() -> None:
    """Three models on two instances, through a day: each step is what the one before led to."""
    small, large = need(1.0, 1.0), need(5.0, 2.0)
    where = instances(2)
    desired = [component("large", 1, large), component("x", 2, small), component("y", 1, small)]
    assert decided(desired, where).loads == loads(
        ("a", "large", 0), ("b", "x", 0), ("a", "x", 1), ("b", "y", 0)
    )
    up = [
        copy(1, "a", "large", wants=large),
        copy(2, "b", "x", wants=small),
        copy(3, "a", "x", 1, wants=small),
        copy(4, "b", "y", wants=small),
    ]
    settled = decided(desired, where, *up)
    assert (settled.loads, settled.retires, len(settled.kept)) == ((), (), 4)
    # The copy of x on a failed: after its pause it comes back, there being one of x on b.
    failed = (failure(1, at=10.0, component="x", ordinal=1),)
    rest = [up[0], up[1], up[3]]
    assert decided(desired, where, *rest, failures=failed, now=10.0) == PlacementDecision(
        tuple(rest), (), (), (), 10.5
    )
    assert decided(desired, where, *rest, failures=failed, now=10.5).loads == loads(
        ("a", "x", 1), reason="replace-failed"
    )
    # A second copy of the large one goes to b; for a third there is no room anywhere.
    desired[0] = component("large", 3, large)
    assert decided(desired, where, *up).loads == loads(("b", "large", 1))
    two = copy(5, "b", "large", 1, wants=large)
    (refusal,) = decided(desired, where, *up, two).refusals
    assert (refusal.component, refusal.ordinal, refusal.reason) == ("large", 2, "memory-taken")
    # Instance b dies: y and x have room on a, the second large one waits for a new instance.
    desired[0] = component("large", 2, large)
    left = decided(desired, where[:1], *up, two, desired=2)
    assert kept_on(left) == [(1, "a"), (3, "a")]
    assert left.loads == loads(("a", "x", 0))
    assert left.refusals == ()
