"""What spare processes take is not given to others a second time."""

from __future__ import annotations

from penstock.control.instances.room import Room
from penstock.core.machine.room import NO_ROOM, PLACED, ComputeResources
from penstock.fleet.base import InstanceType, SpareObserved

GIB = 2**30
MACHINE = ComputeResources(cores=2.0, memory_bytes=8 * GIB)
PROMISED = InstanceType(
    name="ml.local.large", resources=ComputeResources(cores=2.0, memory_bytes=7 * GIB)
)


def spare(pid: int, gib: float, *, ready: bool = True) -> SpareObserved:
    return SpareObserved(pid, int(gib * GIB), ready)


def outcome(*spares: SpareObserved) -> str:
    room = Room(MACHINE, lambda: (), lambda: None, lambda: spares)
    return room.for_start(PROMISED).outcome


def test_what_spares_take_counts_on_the_machine() -> None:
    assert outcome() == PLACED
    assert outcome(spare(1, 0.5), spare(2, 0.5)) == PLACED
    assert outcome(spare(1, 0.5), spare(2, 4.0)) == NO_ROOM


def test_the_spare_that_becomes_the_instance_counts_once() -> None:
    """It takes the place that the instance is given."""
    assert outcome(spare(1, 4.0)) == PLACED
    assert outcome(spare(1, 4.0, ready=False)) == NO_ROOM
