"""`core/endpoint/instance_room.py` as literal timelines: what is free, who waits, who is
refused.
"""

from __future__ import annotations

import pytest
from tests.kit.core_placement import (
    component,
    copy,
    decided,
    instance,
    instances,
    loads,
    need,
    resources,
)
from tests.kit.core_reconcile import failure

from penstock.core.deployment.capacity_spec import (
    PLACEMENT_STRATEGIES,
    WHOLE_INSTANCE,
    CopySpec,
)
from penstock.core.deployment.endpoint_state import (
    DRAINED,
    DRAINING,
    ENDING,
    LOADING,
    STARTING,
    UNLOADING,
    CopyObserved,
    RefuseCopy,
)
from penstock.core.endpoint.instance_room import InstanceRoom
from penstock.core.endpoint.placement import PlacementDecision


@pytest.mark.parametrize(
    ("wants", "full"),
    [
        (need(2.0), copy(9, "a", "y", wants=need(6.5))),
        (need(cores=2.0), copy(9, "a", "y", wants=need(cores=2.5))),
        (need(accelerators=1), copy(9, "a", "y", wants=need(accelerators=2))),
    ],
)
def test_memory_cores_and_accelerators_are_each_given_once(
    wants: CopySpec, full: CopyObserved
) -> None:
    where = [instance(name, at, accelerators=2) for at, name in enumerate("ab")]
    for strategy in PLACEMENT_STRATEGIES:
        desired = [component("x", 1, wants, strategy), component("y", 1)]
        assert decided(desired, where, full).loads == loads(("b", "x", 0))


def test_the_last_byte_may_be_given() -> None:
    desired = [component("x", 1, need(2.0, 2.0)), component("y", 1)]
    exactly = copy(9, "a", "y", wants=need(6.0, 2.0))
    assert decided(desired, instances(1), exactly).loads == loads(("a", "x", 0))


def test_what_is_measured_counts_where_it_is_more_than_what_was_set_aside() -> None:
    """One GiB was set aside, six are taken; the load beside it has not taken its two yet."""
    grown = [instance("a", taken_gib=6.0), instance("b", 1, taken_gib=0.5)]
    state = [copy(1, "a", "y"), copy(2, "b", "y", 1, wants=need(6.0))]
    desired = [component("y", 2), component("x", 1, need(2.5))]
    assert decided(desired, grown, *state).loads == ()
    assert decided([desired[0], component("x", 1, need(2.0))], grown, *state).loads == loads(
        ("a", "x", 0)
    )
    loading = copy(3, "a", "z", phase=LOADING, wants=need(2.0))
    desired = [component("y", 2), component("z", 1, need(2.0)), component("x", 1, need(0.5))]
    assert decided(desired, grown[:1], state[0], loading).loads == ()


def test_what_copies_have_outgrown_is_not_waited_for() -> None:
    grown = [instance("a", taken_gib=6.0)]
    desired = [component("y", 1), component("x", 1, need(2.5))]
    (refusal,) = decided(desired, grown, copy(1, "a", "y")).refusals
    assert (refusal.component, refusal.reason) == ("x", "memory-taken")
    assert "(at most 2.00 GiB of memory, 4 cores and 0 accelerators)" in refusal.failure


def test_a_copy_that_asks_for_nothing_finds_a_place_on_a_full_instance() -> None:
    full = copy(1, "a", "y", wants=need(9.0, 5.0))
    desired = [component("y", 1), component("x", 1, need())]
    assert decided(desired, instances(1), full).loads == loads(("a", "x", 0))


def test_two_copies_of_one_decision_are_not_given_the_same_room() -> None:
    desired = [component("x", 2, need(5.0)), component("y", 1, need(3.5))]
    assert decided(desired, instances(2)).loads == loads(("a", "x", 0), ("b", "x", 1))
    smaller = [component("x", 2, need(5.0)), component("y", 1, need(3.0))]
    assert decided(smaller, instances(2)).loads == loads(
        ("a", "x", 0), ("b", "x", 1), ("a", "y", 0)
    )


def test_a_copy_waits_while_instances_are_still_to_come() -> None:
    large = [component("x", 1, need(9.0))]
    assert decided(large, instances(1), desired=2) == PlacementDecision((), (), (), (), None)
    starting = [instance("a"), instance("b", 1, phase=STARTING)]
    assert decided(large, starting) == PlacementDecision((), (), (), (), None)
    assert decided(large, [], desired=0) == PlacementDecision((), (), (), (), None)


@pytest.mark.parametrize("phase", [DRAINING, DRAINED, UNLOADING, ENDING, LOADING])
def test_a_copy_waits_for_room_that_is_being_freed_and_for_loads_that_may_keep_less(
    phase: str,
) -> None:
    busy = copy(1, "a", "y", phase=phase, wants=need(7.0))
    desired = [component("y", 1, need(7.0)), component("x", 1, need(4.0))]
    decision = decided(desired, instances(1), busy)
    assert (decision.loads, decision.refusals) == ((), ())
    # It would not fit even then.
    desired = [component("y", 1, need(7.0)), component("x", 1, need(9.0))]
    assert [one.reason for one in decided(desired, instances(1), busy).refusals] == [
        "larger-than-instance"
    ]


def test_room_that_comes_back_on_one_instance_is_waited_for_though_another_is_full() -> None:
    state = [
        copy(1, "a", "y", wants=need(7.0)),
        copy(2, "b", "y", 1, phase=DRAINING, wants=need(7.0)),
    ]
    desired = [component("y", 1, need(7.0)), component("x", 1, need(4.0))]
    assert decided(desired, instances(2), *state).refusals == ()


def test_a_load_that_this_decision_begins_is_waited_for_too() -> None:
    desired = [component("x", 2, need(5.0))]
    assert decided(desired, instances(1)) == PlacementDecision(
        (), loads(("a", "x", 0)), (), (), None
    )
    ready = copy(1, "a", wants=need(5.0))
    assert decided(desired, instances(1), ready).refusals == (
        RefuseCopy(
            "blue",
            1,
            "x",
            1,
            "memory-taken",
            "CapacityError: a copy of x needs 5.00 GiB of memory, 0 cores and 0 accelerators, and"
            " none of the 1 running instances of variant blue has that free (at most 3.00 GiB of"
            " memory, 4 cores and 0 accelerators). Raise the instance count, or lower a number of"
            " copies.",
        ),
    )


@pytest.mark.parametrize(
    ("wants", "reason"),
    [
        (need(9.0), "larger-than-instance"),
        (need(cores=5.0), "larger-than-instance"),
        (need(accelerators=2), "larger-than-instance"),
        (need(5.0), "memory-taken"),
        (need(cores=3.0), "cores-taken"),
        (need(accelerators=1), "accelerators-taken"),
        (need(3.0, 2.0), "no-instance-has-all"),
        (WHOLE_INSTANCE, "instances-taken"),
    ],
)
def test_a_refusal_says_what_is_missing(wants: CopySpec, reason: str) -> None:
    where = [instance(name, at, accelerators=1) for at, name in enumerate("ab")]
    state = [
        copy(1, "a", "y", wants=need(4.0, 3.0, 1)),
        copy(2, "b", "y", 1, wants=need(6.0, 2.0, 1)),
    ]
    desired = [component("y", 2), component("x", 1, wants)]
    (refusal,) = decided(desired, where, *state).refusals
    assert (refusal.component, refusal.ordinal, refusal.reason) == ("x", 0, reason)
    assert refusal.failure.startswith("CapacityError: a copy of x needs ")


def test_only_the_lowest_slot_is_refused_and_the_others_wait_for_its_next_attempt() -> None:
    """A number of copies is a number that somebody wrote: a refusal each would never end."""
    desired = [component("x", 2**31 - 1, need(9.0))]
    (refusal,) = decided(desired, instances(1)).refusals
    assert refusal.ordinal == 0
    refused = failure(1, at=10.0, component="x", permanent=True)
    assert decided(desired, instances(1), failures=(refused,), now=10.4) == PlacementDecision(
        (), (), (), (), 10.5
    )
    (refusal,) = decided(desired, instances(1), failures=(refused,), now=10.5).refusals
    assert refusal.ordinal == 0


def test_what_does_not_fit_keeps_nobody_else_waiting() -> None:
    desired = [component("large", 1, need(9.0)), component("x", 1)]
    decision = decided(desired, instances(1))
    assert decision.loads == loads(("a", "x", 0))
    assert [one.component for one in decision.refusals] == ["large"]


def room(*copies: CopyObserved, taken_gib: float = 0.0) -> InstanceRoom:
    return InstanceRoom(instance("a", accelerators=4, taken_gib=taken_gib), copies)


def test_what_is_free_is_what_was_given_less_what_is_set_aside_for_all_copies() -> None:
    held = (
        copy(1, "a", wants=need(1.0, 1.0, 1)),
        copy(2, "a", phase=LOADING, wants=need(2.0, 0.5, 2)),
    )
    assert room().free() == resources(8.0, 4.0, 4)
    assert room(*held).free() == resources(5.0, 2.5, 1)
    # What is measured is of what is loaded: the load has not taken its own yet.
    assert room(*held, taken_gib=3.0).free() == resources(3.0, 2.5, 1)


def test_copies_are_counted_by_component_and_all_together() -> None:
    """Of which an instance has fewest is where the next one goes."""
    there = room(copy(1, "a"), copy(2, "a", ordinal=1), copy(3, "a", "y"))
    assert [there.spread_key(name)[:2] for name in "xyz"] == [(2, 3), (1, 3), (0, 3)]
    there.add(component("x", 3))
    there.add(component("z", 1))
    assert [there.spread_key(name)[:2] for name in "xyz"] == [(3, 5), (1, 5), (1, 5)]
    assert room(copy(1, "a")).spread_key("x")[:2] == (1, 1)


def test_what_is_given_to_one_copy_whole_has_no_room_for_another_of_the_same_decision() -> None:
    desired = [component("big", 1, WHOLE_INSTANCE), component("small", 1, need())]
    assert decided(desired, instances(1)) == PlacementDecision(
        (), loads(("a", "big", 0), reason="instance-running"), (), (), None
    )


def test_an_instance_to_itself_is_waited_for_while_all_that_is_there_leaves() -> None:
    leaves = [copy(1, "a", "y", phase=DRAINED), copy(2, "a", "y", 1, phase=UNLOADING)]
    desired = [component("y", 0), component("x", 1, WHOLE_INSTANCE)]
    assert decided(desired, instances(1), *leaves).refusals == ()
    stays = copy(3, "a", "z")
    desired = [component("z", 1), *desired]
    (refusal,) = decided(desired, instances(1), *leaves, stays).refusals
    assert (refusal.component, refusal.reason) == ("x", "instances-taken")


def test_what_one_instance_could_hold_is_taken_and_not_too_large() -> None:
    where = [instance("a", gib=4.0), instance("b", 1, gib=16.0)]
    desired = [component("y", 1), component("x", 1, need(8.0))]
    (refusal,) = decided(desired, where, copy(1, "b", "y", wants=need(12.0))).refusals
    assert refusal.reason == "memory-taken"


def test_what_is_just_enough_is_not_what_is_missing() -> None:
    desired = [component("y", 1), component("x", 1, need(3.0, 3.0))]
    (refusal,) = decided(desired, instances(1), copy(1, "a", "y", wants=need(5.0, 2.0))).refusals
    assert refusal.reason == "cores-taken"


def test_each_has_enough_of_something_and_none_of_all() -> None:
    where = [instance(name, at, accelerators=1) for at, name in enumerate("ab")]
    state = [
        copy(1, "a", "y", wants=need(accelerators=1)),
        copy(2, "b", "y", 1, wants=need(6.0)),
    ]
    desired = [component("y", 2), component("x", 1, need(5.0, 0.0, 1))]
    (refusal,) = decided(desired, where, *state).refusals
    assert refusal.reason == "no-instance-has-all"


def test_a_refusal_tells_nothing_as_nothing() -> None:
    desired = [component("y", 1), component("x", 1, need(cores=3.0))]
    grown = [instance("a", taken_gib=9.0)]
    (refusal,) = decided(desired, grown, copy(1, "a", "y", wants=need(cores=2.0))).refusals
    assert refusal.reason == "cores-taken", "no memory was asked for"
    assert "needs 0.00 GiB of memory, 3 cores and 0 accelerators" in refusal.failure
    assert "(at most 0.00 GiB of memory, 2 cores and 0 accelerators)" in refusal.failure
