"""`core/machine/room.py`: a guest has what others leave."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.machine.room import (
    InstanceNeed,
    PlacedInstance,
    RoomDecision,
    decide,
    least_stops,
)
from penstock.core.resources import ComputeResources

GIB = 2**30
MACHINE = ComputeResources(cores=2.0, memory_bytes=8 * GIB, accelerators=1)
FITS = RoomDecision(outcome="placed", reason="fits")


def need(gib: float, *, guest: bool = False, accelerators: int = 0) -> InstanceNeed:
    size = int(gib * GIB)
    return InstanceNeed(
        instance_type="ml.m5.xlarge",
        set_aside=ComputeResources(memory_bytes=size, accelerators=accelerators),
        expected_bytes=size,
        promised=False,
        guest=guest,
    )


def holds(name: str, gib: float, *, guest: bool = False, accelerators: int = 0) -> PlacedInstance:
    size = int(gib * GIB)
    return PlacedInstance(
        instance_id=name,
        set_aside=ComputeResources(memory_bytes=size, accelerators=accelerators),
        expected_bytes=size,
        taken_bytes=size,
        guest=guest,
    )


def waits(reason: str, *stops: str) -> RoomDecision:
    return RoomDecision(outcome="wait", reason=reason, stops=stops)


def test_an_endpoint_takes_the_room_of_a_guest_and_the_guest_comes_again() -> None:
    """The life of 8 GiB, one decision after another."""
    shop, job = holds("shop", 3.0), holds("job", 4.0, guest=True)
    assert decide(MACHINE, [shop], need(4.0, guest=True)) == FITS
    # A second endpoint fits beside both, and a third one does not.
    assert decide(MACHINE, [shop, job], need(1.0)) == FITS
    assert decide(MACHINE, [shop, job], need(3.0)) == waits("guests-give-room", "job")
    # The guest is being ended; nobody else is.
    job = replace(job, leaving=True)
    assert decide(MACHINE, [shop, job], need(3.0)) == waits("room-being-freed")
    # Its slot asks for a place again, but the endpoint was first.
    again = need(4.0, guest=True)
    assert decide(MACHINE, [shop], again, others_wait=True) == waits("others-wait-first")
    assert decide(MACHINE, [shop], need(3.0)) == FITS
    third = holds("third", 3.0)
    assert decide(MACHINE, [shop, third], again) == waits("guest-waits")
    # The endpoint is deleted.
    assert decide(MACHINE, [shop], again) == FITS


def test_guests_are_not_ended_where_that_would_not_help() -> None:
    shop, job = holds("shop", 5.0), holds("job", 2.0, guest=True)
    decision = decide(MACHINE, [shop, job], need(4.0))
    assert (decision.outcome, decision.reason, decision.stops) == ("no-room", "memory-taken", ())


def test_guests_are_ended_before_the_end_of_somebody_elses_load_is_awaited() -> None:
    """Who loads may keep less than was set aside, some time; a guest gives room now."""
    loading = replace(holds("loads", 4.0), settling=True)
    job = holds("job", 3.0, guest=True)
    assert decide(MACHINE, [loading, job], need(4.0)) == waits("guests-give-room", "job")
    # Both together would make room: the load first, for the guest might be ended for nothing.
    assert decide(MACHINE, [loading, job], need(6.0)) == waits("loads-under-way")


def test_a_guest_waits_for_what_the_machine_has_and_is_refused_what_it_has_not() -> None:
    shop = holds("shop", 7.0)
    assert decide(MACHINE, [shop], need(4.0, guest=True)) == waits("guest-waits")
    decision = decide(MACHINE, [], need(9.0, guest=True))
    assert (decision.outcome, decision.reason) == ("no-room", "larger-than-machine")


def test_a_guest_ends_no_other_guest() -> None:
    job = holds("job", 5.0, guest=True)
    assert decide(MACHINE, [job], need(4.0, guest=True)) == waits("guest-waits")


def test_what_the_operating_system_has_free_counts_a_guests_memory_as_given_back() -> None:
    job = holds("job", 4.0, guest=True)
    free = 1 * GIB
    assert decide(MACHINE, [job], need(3.0), available_bytes=free) == waits(
        "guests-give-room", "job"
    )
    # Programs that are not ours have taken the rest: it would not help.
    decision = decide(MACHINE, [job], need(5.0), available_bytes=GIB // 4)
    assert (decision.outcome, decision.stops) == ("no-room", ())


def test_a_guest_gives_back_an_accelerator() -> None:
    job = holds("job", 1.0, guest=True, accelerators=1)
    assert decide(MACHINE, [job], need(1.0, accelerators=1)) == waits("guests-give-room", "job")


def test_the_smallest_guest_that_is_enough_is_ended() -> None:
    held = [holds(name, gib, guest=True) for name, gib in (("a", 3.0), ("b", 1.0), ("c", 2.0))]
    assert decide(MACHINE, held, need(3.0)).stops == ("b",)  # 2 GiB are free
    assert decide(MACHINE, held, need(4.0)).stops == ("c",)
    assert decide(MACHINE, held, need(5.0)).stops == ("a",)
    assert decide(MACHINE, held, need(5.5)).stops == ("a", "b")
    assert decide(MACHINE, held, need(7.5)).stops == ("a", "c", "b")


@given(
    st.lists(st.integers(1, 8), min_size=1, max_size=6),
    st.integers(1, 48),
)
def test_every_guest_that_is_ended_is_needed_in_the_end(sizes: list[int], wanted: int) -> None:
    """Ending all of them makes the room, or nobody asks; what is chosen makes it too."""
    guests = [holds(f"g{at}", gib, guest=True) for at, gib in enumerate(sizes)]
    asked = min(wanted, sum(sizes)) * GIB

    def enough(stopped: tuple[PlacedInstance, ...]) -> bool:
        return sum(one.set_aside.memory_bytes for one in stopped) >= asked

    chosen = least_stops(guests, enough)
    by_name = {one.instance_id: one for one in guests}
    stopped = tuple(by_name[name] for name in chosen)
    assert enough(stopped)
    assert not enough(stopped[:-1])
    assert len(set(chosen)) == len(chosen)
