"""Which of the machine's capacity an instance takes, and when there is none left.

Memory and accelerators are never promised twice: a model that was told it has 4 GiB must find them,
or the operating system ends a neighbour. Cores may be shared: on a laptop several small instances
on the same cores are slower, never broken. What an instance that is about to end still holds is not
free yet, but worth waiting for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

#: Clients match FailureReasons that begin with this word (SageMaker's own).
CAPACITY_ERROR = "CapacityError:"

PLACED = "placed"
WAIT = "wait"
NO_ROOM = "no-room"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCapacity:
    """What a machine has for instances."""

    cores: float
    memory_bytes: int
    accelerators: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceNeed:
    """What an instance of some type asks for."""

    instance_type: str
    memory_bytes: int
    accelerators: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedInstance:
    """An instance that holds capacity now."""

    instance_id: str
    memory_bytes: int
    accelerators: int = 0
    leaving: bool = False  #: draining or being stopped: its capacity comes back soon


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementDecision:
    """Whether an instance may start.

    `outcome` is `placed` (start it), `wait` (ask again when an instance has ended) or `no-room`.
    """

    outcome: str
    reason: (
        str  #: fits | room-being-freed | larger-than-machine | memory-taken | accelerators-taken
    )
    message: str = ""  #: for people; begins with `CapacityError:` when there is no room


def decide(
    machine: MachineCapacity, placed: Iterable[PlacedInstance], need: InstanceNeed
) -> PlacementDecision:
    """Places by memory and accelerators alone; cores are shared."""
    held = tuple(placed)
    if _fits(machine, held, need):
        return PlacementDecision(outcome=PLACED, reason="fits")
    if not _fits(machine, (), need):
        return PlacementDecision(
            outcome=NO_ROOM, reason="larger-than-machine", message=_story(machine, held, need)
        )
    if _fits(machine, tuple(one for one in held if not one.leaving), need):
        return PlacementDecision(outcome=WAIT, reason="room-being-freed")
    memory_free = machine.memory_bytes - sum(one.memory_bytes for one in held)
    reason = "memory-taken" if need.memory_bytes > memory_free else "accelerators-taken"
    return PlacementDecision(outcome=NO_ROOM, reason=reason, message=_story(machine, held, need))


def _fits(machine: MachineCapacity, held: tuple[PlacedInstance, ...], need: InstanceNeed) -> bool:
    memory_bytes = need.memory_bytes + sum(one.memory_bytes for one in held)
    accelerators = need.accelerators + sum(one.accelerators for one in held)
    return memory_bytes <= machine.memory_bytes and accelerators <= machine.accelerators


def _story(machine: MachineCapacity, held: tuple[PlacedInstance, ...], need: InstanceNeed) -> str:
    memory_free = machine.memory_bytes - sum(one.memory_bytes for one in held)
    accelerators_free = machine.accelerators - sum(one.accelerators for one in held)
    asked = f"{_gib(need.memory_bytes)} of memory"
    free = f"{_gib(memory_free)} of {_gib(machine.memory_bytes)}"
    if need.accelerators:
        asked += f" and {need.accelerators} accelerators"
        free += f" and {accelerators_free} of {machine.accelerators} accelerators"
    return (
        f"{CAPACITY_ERROR} an instance of type {need.instance_type} asks for {asked}; free on this"
        f" machine: {free}, {len(held)} instances hold the rest. Choose a smaller instance type,"
        f" lower an instance count, or delete an endpoint."
    )


def _gib(size_bytes: int) -> str:
    return f"{max(size_bytes, 0) / 2**30:.2f} GiB"
