"""`core/machine/room.py`: memory and accelerators are never promised twice."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.machine.room import (
    ESTIMATED,
    MEASURED,
    SPARE_BYTES,
    STARTING,
    InstanceNeed,
    PlacedInstance,
    RoomDecision,
    decide,
)
from penstock.core.resources import NO_RESOURCES, ComputeResources

GIB = 2**30
MACHINE = ComputeResources(cores=2.0, memory_bytes=8 * GIB, accelerators=1)
PLACED = RoomDecision(outcome="placed", reason="fits")


def asked(memory_bytes: int, accelerators: int = 0) -> ComputeResources:
    return ComputeResources(memory_bytes=memory_bytes, accelerators=accelerators)


def need(gib: float, accelerators: int = 0) -> InstanceNeed:
    """A promise, at its start."""
    return InstanceNeed(
        instance_type="ml.local.large", set_aside=asked(int(gib * GIB), accelerators)
    )


def model(gib: float, *, basis: str = ESTIMATED, **more: int) -> InstanceNeed:
    """A model on a type that is an upper bound, before it is loaded."""
    size = int(gib * GIB)
    return InstanceNeed(
        instance_type="ml.m5.xlarge",
        set_aside=asked(size),
        expected_bytes=size,
        promised=False,
        basis=basis,
        **more,
    )


def placed(
    name: str, gib: float, *, accelerators: int = 0, leaving: bool = False
) -> PlacedInstance:
    return PlacedInstance(
        instance_id=name,
        set_aside=asked(int(gib * GIB), accelerators),
        leaving=leaving,
    )


def serving(name: str, set_aside_gib: float, taken_gib: float = 0.0) -> PlacedInstance:
    size = int(set_aside_gib * GIB)
    return PlacedInstance(
        instance_id=name,
        set_aside=asked(size),
        expected_bytes=size,
        taken_bytes=int(taken_gib * GIB),
    )


def test_the_last_byte_may_be_taken() -> None:
    assert decide(MACHINE, [placed("a", 3.0)], need(5.0)) == PLACED


def test_cores_are_shared() -> None:
    """Eight instances on two cores are slow, not broken."""
    held = [placed(str(number), 0.5) for number in range(8)]
    assert decide(MACHINE, held, need(0.5)).outcome == "placed"


def test_without_room_the_message_says_what_is_asked_what_is_free_and_who_holds_it() -> None:
    assert decide(MACHINE, [placed("a", 2.0), placed("b", 4.0)], need(4.0)) == RoomDecision(
        outcome="no-room",
        reason="memory-taken",
        message=(
            "CapacityError: an instance of type ml.local.large asks for 4.00 GiB of memory; free on"
            " this machine: 2.00 GiB of 8.00 GiB, b holds 4.00 GiB, a holds 2.00 GiB. Choose a"
            " smaller instance type, lower an instance count, or delete an endpoint."
        ),
    )


def test_the_message_names_the_largest_holders_and_counts_the_others() -> None:
    held = [placed(name, 1.5) for name in "abcde"]
    assert (
        "free on this machine: 0.50 GiB of 8.00 GiB, a holds 1.50 GiB, b holds 1.50 GiB, c holds"
        " 1.50 GiB, 2 others 3.00 GiB." in decide(MACHINE, held, need(4.0)).message
    )


def test_what_an_ending_instance_holds_is_worth_waiting_for() -> None:
    held = [placed("old", 6.0, leaving=True), placed("other", 1.0)]
    assert decide(MACHINE, held, need(4.0)) == RoomDecision(
        outcome="wait", reason="room-being-freed"
    )
    assert decide(MACHINE, held, need(7.5)).outcome == "no-room"  # waiting would not help


def test_an_accelerator_belongs_to_one_instance() -> None:
    decision = decide(MACHINE, [placed("a", 1.0, accelerators=1)], need(1.0, accelerators=1))
    assert (decision.outcome, decision.reason) == ("no-room", "accelerators-taken")
    assert "0 of 1 accelerators" in decision.message
    bound = InstanceNeed(
        instance_type="ml.g5.xlarge", set_aside=asked(1, 1), promised=False, basis=STARTING
    )
    decision = decide(MACHINE, [placed("a", 1.0, accelerators=1)], bound)
    assert (decision.outcome, decision.reason) == ("no-room", "accelerators-taken")


def test_what_the_machine_never_had_is_told_as_such() -> None:
    assert decide(MACHINE, [], need(9.0)).reason == "larger-than-machine"
    assert decide(MACHINE, [], need(1.0, accelerators=2)).reason == "larger-than-machine"


def test_four_small_models_of_a_large_type_share_a_laptop() -> None:
    """Three endpoints of ml.m5.xlarge (16 GiB) on a laptop of 23 GiB: the third had no room."""
    laptop = ComputeResources(cores=8.0, memory_bytes=8 * GIB)
    held: list[PlacedInstance] = []
    for name in "abcd":
        assert decide(laptop, held, model(0.2), available_bytes=6 * GIB) == PLACED
        held.append(serving(name, 0.2, taken_gib=0.1))


def test_a_model_that_does_not_fit_is_refused_with_its_need_and_where_that_comes_from() -> None:
    held = [serving("shop-blue", 6.0, taken_gib=5.5)]
    assert decide(MACHINE, held, model(3.0), available_bytes=20 * GIB) == RoomDecision(
        outcome="no-room",
        reason="memory-taken",
        message=(
            "CapacityError: a model on an instance of type ml.m5.xlarge needs 3.00 GiB (estimated"
            " from its files) of memory; free on this machine: 2.00 GiB of 8.00 GiB, shop-blue"
            " holds 6.00 GiB. Choose a smaller model, lower an instance count, or delete an"
            " endpoint."
        ),
    )
    message = decide(MACHINE, held, model(3.0, basis=MEASURED)).message
    assert "needs 3.00 GiB (measured when it was loaded last) of memory" in message


def test_two_loads_at_once_are_counted_before_either_has_taken_a_byte() -> None:
    """10 GiB each on 16 GiB: what the first was granted is not free, though nothing is taken."""
    machine = ComputeResources(cores=8.0, memory_bytes=16 * GIB)
    assert decide(machine, [], model(10.0), available_bytes=16 * GIB) == PLACED
    first = replace(serving("first", 10.0), settling=True)
    assert decide(machine, [first], model(10.0), available_bytes=16 * GIB) == RoomDecision(
        outcome="wait", reason="loads-under-way"
    )
    # It kept what it was granted.
    first = serving("first", 10.0, taken_gib=9.0)
    assert decide(machine, [first], model(10.0), available_bytes=7 * GIB).outcome == "no-room"
    # It kept much less.
    first = serving("first", 4.5, taken_gib=4.0)
    assert decide(machine, [first], model(10.0), available_bytes=12 * GIB) == PLACED


def test_what_other_programs_take_is_not_free() -> None:
    """By account there are 7 GiB, and a browser has 5 of them."""
    held = [serving("a", 1.0, taken_gib=0.5)]
    decision = decide(MACHINE, held, model(2.0), available_bytes=2 * GIB)
    assert (decision.outcome, decision.reason) == ("no-room", "memory-short")
    assert (
        "free on this machine: 1.25 GiB of 8.00 GiB (the operating system has 2.00 GiB available),"
        " a holds 1.00 GiB." in decision.message
    )
    assert decide(MACHINE, held, model(1.25), available_bytes=2 * GIB) == PLACED


def test_memory_that_an_ending_instance_has_taken_comes_back() -> None:
    old = replace(serving("old", 5.0, taken_gib=4.0), leaving=True)
    assert decide(MACHINE, [old], model(4.0), available_bytes=1 * GIB).reason == "room-being-freed"
    assert decide(MACHINE, [old], model(7.0), available_bytes=1 * GIB).outcome == "no-room"


def test_a_promise_is_kept_from_those_who_come_without_one() -> None:
    """4 GiB were promised, 0.5 are taken: the rest is not for a type that is only a bound."""
    promise = PlacedInstance(
        instance_id="local", set_aside=asked(4 * GIB), expected_bytes=1 * GIB, taken_bytes=GIB // 2
    )
    available = 5 * GIB + SPARE_BYTES
    assert decide(MACHINE, [promise], model(1.5), available_bytes=available) == PLACED
    refused = decide(MACHINE, [promise], model(2.0), available_bytes=available)
    assert refused.reason == "memory-short"
    # One that has a promise of its own needs what its model takes, no more.
    granted = replace(model(2.0), set_aside=NO_RESOURCES, promised=True)
    assert decide(MACHINE, [promise], granted, available_bytes=available) == PLACED


def test_a_promise_that_was_set_aside_before_asks_only_for_what_is_really_free() -> None:
    granted = replace(model(2.0), set_aside=NO_RESOURCES, promised=True)
    full = [placed("a", 8.0)]
    assert decide(MACHINE, full, granted, available_bytes=4 * GIB) == PLACED
    assert decide(MACHINE, full, granted, available_bytes=2 * GIB).reason == "memory-short"


def test_instances_that_outgrew_the_machine_are_left_alone_and_nothing_is_added() -> None:
    """No outcome ends anything; what is refused says why, and fits again when there is room."""
    grown = [serving("a", 5.0, taken_gib=4.5), serving("b", 4.0, taken_gib=3.5)]
    decision = decide(MACHINE, grown, model(0.1), available_bytes=1 * GIB)
    assert (decision.outcome, decision.reason) == ("no-room", "memory-outgrown")
    assert (
        "free on this machine: 0.00 GiB of 8.00 GiB (what runs has outgrown it, and is left alone),"
        " a holds 5.00 GiB, b holds 4.00 GiB." in decision.message
    )
    assert decide(MACHINE, grown[:1], model(0.1), available_bytes=4 * GIB) == PLACED


def test_a_model_that_no_instance_of_the_type_can_hold_is_not_even_tried() -> None:
    larger = model(8.0, least_bytes=9 * GIB, bytes_max=8 * GIB)
    assert decide(MACHINE, [], larger, available_bytes=8 * GIB) == RoomDecision(
        outcome="no-room",
        reason="larger-than-type",
        message=(
            "CapacityError: a model on an instance of type ml.m5.xlarge needs at least 9.00 GiB of"
            " memory; such an instance may take 8.00 GiB on this machine. Choose a larger instance"
            " type, a larger machine, or a smaller model."
        ),
    )


def test_the_bound_of_a_type_is_what_a_model_may_just_reach_and_none_is_no_bound() -> None:
    for least_bytes, bytes_max, reason in (
        (3, 3, "fits"),
        (2, 1, "larger-than-type"),
        (2, 0, "fits"),
    ):
        asked = replace(model(0.1), least_bytes=least_bytes, bytes_max=bytes_max)
        assert decide(MACHINE, [], asked).reason == reason


def test_where_nothing_is_left_not_a_byte_is_given() -> None:
    one = InstanceNeed(instance_type="ml.local.large", set_aside=asked(1))
    assert decide(MACHINE, [placed("a", 8.0)], one).reason == "memory-taken"
    loaded = replace(one, set_aside=NO_RESOURCES, expected_bytes=1, basis=ESTIMATED)
    free = SPARE_BYTES
    assert decide(MACHINE, [], loaded, available_bytes=free).reason == "memory-short"
    assert decide(MACHINE, [], loaded, available_bytes=free + 1) == PLACED
    # Who has taken all of theirs is owed nothing.
    settled = serving("a", 2.0, taken_gib=2.0)
    assert decide(MACHINE, [settled], loaded, available_bytes=free + 1) == PLACED


def test_what_is_missing_is_memory_where_accelerators_are_just_enough() -> None:
    both = replace(model(2.0), set_aside=asked(2 * GIB, 1))
    assert decide(MACHINE, [], both, available_bytes=GIB) == RoomDecision(
        outcome="no-room",
        reason="memory-short",
        message=(
            "CapacityError: a model on an instance of type ml.m5.xlarge needs 2.00 GiB (estimated"
            " from its files) of memory and 1 accelerators; free on this machine: 0.75 GiB of 8.00"
            " GiB and 1 of 1 accelerators (the operating system has 1.00 GiB available), no"
            " instance holds any. Choose a smaller model, lower an instance count, or delete an"
            " endpoint."
        ),
    )


def test_what_leaves_while_it_loads_comes_back_once() -> None:
    both = replace(serving("old", 5.0, taken_gib=4.0), leaving=True, settling=True)
    assert decide(MACHINE, [both], model(7.0), available_bytes=1 * GIB).outcome == "no-room"


def test_what_is_not_told_is_nothing_and_a_type_is_a_promise() -> None:
    need = InstanceNeed(instance_type="ml.local.large", set_aside=asked(1))
    assert (need.expected_bytes, need.least_bytes, need.bytes_max) == (0, 0, 0)
    assert need.promised
    held = PlacedInstance(instance_id="a", set_aside=asked(1))
    assert (held.expected_bytes, held.taken_bytes) == (0, 0)
    assert (held.leaving, held.settling) == (False, False)


def test_an_instance_starts_where_its_process_fits() -> None:
    start = InstanceNeed(
        instance_type="ml.m5.xlarge", set_aside=asked(GIB // 16), promised=False, basis=STARTING
    )
    assert decide(MACHINE, [serving("a", 7.9)], start) == PLACED
    message = decide(MACHINE, [serving("a", 8.0)], start).message
    assert message.startswith(
        "CapacityError: an instance of type ml.m5.xlarge starts with 0.06 GiB of memory; free on"
    )


@given(st.lists(st.tuples(st.floats(0.1, 6.0), st.booleans(), st.booleans()), max_size=30))
def test_memory_is_never_oversubscribed(wishes: list[tuple[float, bool, bool]]) -> None:
    """However promises and bounds are mixed, and whatever is being loaded."""
    held: list[PlacedInstance] = []
    for number, (gib, is_promise, settling) in enumerate(wishes):
        wanted = need(gib) if is_promise else model(gib)
        if decide(MACHINE, held, wanted, available_bytes=16 * GIB).outcome == "placed":
            held.append(replace(serving(str(number), gib), settling=settling))
    assert sum(one.set_aside.memory_bytes for one in held) <= MACHINE.memory_bytes


@given(
    st.lists(st.tuples(st.floats(0.1, 3.0), st.floats(0.0, 1.0)), max_size=8),
    st.floats(0.1, 8.0),
    st.floats(0.0, 8.0),
)
def test_what_is_granted_is_there_even_if_everybody_takes_all_of_theirs(
    others: list[tuple[float, float]], gib: float, available_gib: float
) -> None:
    held = [serving(str(at), size, size * share) for at, (size, share) in enumerate(others)]
    available = int(available_gib * GIB)
    wanted = model(gib)
    if decide(MACHINE, held, wanted, available_bytes=available).outcome == "placed":
        still_to_take = sum(one.set_aside.memory_bytes - one.taken_bytes for one in held)
        assert wanted.expected_bytes + still_to_take <= available


# limits of types


def limited(limit: int | None, *held: PlacedInstance) -> RoomDecision:
    return decide(MACHINE, held, replace(need(1.0), type_limit=limit))


def of_type(name: str, kind: str = "ml.local.large", *, leaving: bool = False) -> PlacedInstance:
    return replace(placed(name, 1.0, leaving=leaving), instance_type=kind)


def test_of_a_type_there_are_no_more_than_its_limit_whatever_is_free() -> None:
    assert limited(None, of_type("a"), of_type("b")) == PLACED
    assert limited(2, of_type("a"), of_type("b", "ml.local.small")) == PLACED
    refused = limited(1, of_type("a"))
    assert (refused.outcome, refused.reason) == ("no-room", "type-limit")
    assert refused.message == (
        "CapacityError: there are 1 instances of type ml.local.large of at most 1"
        " (control.instance_limits). Raise the limit, lower an instance count, or choose another"
        " type."
    )


def test_one_that_ends_soon_gives_its_place_within_the_limit() -> None:
    waits = limited(1, of_type("a", leaving=True))
    assert (waits.outcome, waits.reason) == ("wait", "room-being-freed")


def test_a_limit_of_none_refuses_at_once() -> None:
    assert limited(0).reason == "type-limit"


def test_a_model_is_loaded_on_an_instance_that_counts_already() -> None:
    """Limits are of starts."""
    assert decide(MACHINE, (of_type("a", "ml.m5.xlarge"),), model(1.0)) == PLACED
