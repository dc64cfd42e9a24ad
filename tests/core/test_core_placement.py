"""`core/placement.py`: memory and accelerators are never promised twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.placement import (
    InstanceNeed,
    MachineCapacity,
    PlacedInstance,
    PlacementDecision,
    decide,
)

GIB = 2**30
MACHINE = MachineCapacity(cores=2.0, memory_bytes=8 * GIB, accelerators=1)


def need(gib: float, accelerators: int = 0) -> InstanceNeed:
    return InstanceNeed(
        instance_type="ml.m5.large", memory_bytes=int(gib * GIB), accelerators=accelerators
    )


def placed(
    name: str, gib: float, *, accelerators: int = 0, leaving: bool = False
) -> PlacedInstance:
    return PlacedInstance(
        instance_id=name,
        memory_bytes=int(gib * GIB),
        accelerators=accelerators,
        leaving=leaving,
    )


def test_the_last_byte_may_be_taken() -> None:
    assert decide(MACHINE, [placed("a", 3.0)], need(5.0)) == PlacementDecision(
        outcome="placed", reason="fits"
    )


def test_cores_are_shared() -> None:
    """Eight instances on two cores are slow, not broken."""
    held = [placed(str(number), 0.5) for number in range(8)]
    assert decide(MACHINE, held, need(0.5)).outcome == "placed"


def test_without_room_the_message_says_what_is_asked_and_what_is_free() -> None:
    assert decide(MACHINE, [placed("a", 6.0)], need(4.0)) == PlacementDecision(
        outcome="no-room",
        reason="memory-taken",
        message=(
            "CapacityError: an instance of type ml.m5.large asks for 4.00 GiB of memory; free on"
            " this machine: 2.00 GiB of 8.00 GiB, 1 instances hold the rest. Choose a smaller"
            " instance type, lower an instance count, or delete an endpoint."
        ),
    )


def test_what_an_ending_instance_holds_is_worth_waiting_for() -> None:
    held = [placed("old", 6.0, leaving=True), placed("other", 1.0)]
    assert decide(MACHINE, held, need(4.0)) == PlacementDecision(
        outcome="wait", reason="room-being-freed"
    )
    assert decide(MACHINE, held, need(7.5)).outcome == "no-room"  # waiting would not help


def test_an_accelerator_belongs_to_one_instance() -> None:
    decision = decide(MACHINE, [placed("a", 1.0, accelerators=1)], need(1.0, accelerators=1))
    assert (decision.outcome, decision.reason) == ("no-room", "accelerators-taken")
    assert "0 of 1 accelerators" in decision.message


def test_what_the_machine_never_had_is_told_as_such() -> None:
    assert decide(MACHINE, [], need(9.0)).reason == "larger-than-machine"
    assert decide(MACHINE, [], need(1.0, accelerators=2)).reason == "larger-than-machine"


@given(st.lists(st.floats(0.1, 6.0), max_size=30))
def test_memory_is_never_oversubscribed(asked: list[float]) -> None:
    held: list[PlacedInstance] = []
    for number, gib in enumerate(asked):
        if decide(MACHINE, held, need(gib)).outcome == "placed":
            held.append(placed(str(number), gib))
    assert sum(one.memory_bytes for one in held) <= MACHINE.memory_bytes
