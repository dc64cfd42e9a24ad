"""Which part of the machine's capacity an instance takes, and when there is none left.

Two kinds of instance types, two ways to count memory:

* A *promise* (`ml.local.*`; every type under `control.capacity = "strict"`) is set aside whole,
  from the start to the end of its instance: the memory of its type must really be there.
* Any other name is an *upper bound*. What is set aside is what the model needs: an estimate until
  it has run, then what the operating system measures, with headroom (`core/models/memory_need.py`).

Memory is checked twice. At the start of an instance, by account: what is set aside never exceeds
what the machine has for instances. Before a model is loaded, when its need is known, by account and
by what the operating system has free: memory that other instances were granted and have not taken
yet is not free. So two loads at once are counted before either has taken a byte, and other programs
count too.

What an ending instance still holds is not free yet, but worth waiting for; the same holds for what
a load was granted, until its final size is known. Accelerators are never promised twice. Cores may
be shared: on a laptop several small instances on the same cores are slower, never broken.

Instances may grow after they were placed. Where together they have outgrown the machine, Penstock
ends nothing that serves: it only refuses new placements, until there is room again. An instance
that outgrows its own type ends by itself (`instance/memory/use.py`). If memory runs out before
that, the operating system ends an instance sooner than the server, and that instance is placed
anew, by these rules.

A guest does offline work. It starts and loads only in free capacity, and not while another instance
waits for room. It waits rather than being refused, unless it is larger than the machine. What it
holds never makes another instance wait or be refused: as many guests as needed are ended at once,
and start again when there is room. Their work under way is repeated later, so as few as possible
are ended: one guest where one is enough, the smallest such; else the largest first, and so on with
the rest.

An instance type may have a limit on its instances, as an AWS account has, whatever else is free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from penstock.core.resources import ACCELERATORS, MEMORY, NO_RESOURCES, ComputeResources

#: SageMaker's first word of such a FailureReason; clients look for it.
CAPACITY_ERROR = "CapacityError:"

PLACED = "placed"
WAIT = "wait"
NO_ROOM = "no-room"

#: Where the figure of a need comes from.
NOMINAL = "nominal"
STARTING = "starting"  #: of the process alone: the model's need is not known yet
ESTIMATED = "estimated"
MEASURED = "measured"

#: Memory that stays available: below it Linux begins to take pages from running programs.
SPARE_BYTES = 256 * 2**20

#: Instances that a message names, the largest first; FailureReason has a bound.
_HOLDERS_TOLD_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceNeed:
    """What an instance needs, at its start or before its model is loaded."""

    instance_type: str
    set_aside: ComputeResources  #: from now on; 0 memory where a promise was set aside before
    expected_bytes: int = 0  #: memory that it will really take soon; 0 = not known yet
    least_bytes: int = 0  #: no instance with less can hold the model; 0 = not known
    bytes_max: int = 0  #: the most memory that an instance of the type may take; 0 = no bound
    promised: bool = True  #: memory is reserved for the type, whatever its model takes
    basis: str = NOMINAL  #: nominal | starting | estimated | measured
    guest: bool = False  #: it takes only what is free
    #: instances of its type that may exist, this one included; None = no limit
    type_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedInstance:
    """An instance that holds capacity now."""

    instance_id: str
    set_aside: ComputeResources
    expected_bytes: int = 0  #: memory that its model is expected to take
    taken_bytes: int = 0  #: memory that it has taken, as the operating system measures
    leaving: bool = False  #: draining, broken or being stopped: its capacity comes back soon
    settling: bool = False  #: its model is being loaded: its final size is not known yet
    guest: bool = False  #: it is ended where another instance needs what it holds
    instance_type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomDecision:
    """Whether an instance may start, or its model be loaded.

    `outcome` is `placed` (go on), `wait` (ask again when an instance has ended or a load is done)
    or `no-room`. `reason` is one of fits | room-being-freed | guests-give-room | loads-under-way |
    guest-waits | others-wait-first | larger-than-machine | larger-than-type | type-limit |
    memory-taken | memory-outgrown | memory-short | accelerators-taken.
    """

    outcome: str
    reason: str
    message: str = ""  #: for people; begins with `CapacityError:` when there is no room
    stops: tuple[str, ...] = ()  #: instances of guests to end now, to make this room


def decide(
    machine: ComputeResources,
    placed: Iterable[PlacedInstance],
    need: InstanceNeed,
    *,
    available_bytes: int | None = None,
    others_wait: bool = False,
) -> RoomDecision:
    """Places by memory and accelerators alone; cores are shared, so nobody asks for them here.

    `machine` is what it has for instances, `placed` are the other instances. `available_bytes` is
    what the operating system has free for programs now, at most what a container may still take;
    None = not known. `others_wait`: instances that are no guests wait for room.
    """
    held = tuple(placed)
    view = _View(machine, held, available_bytes)
    if 0 < need.bytes_max < need.least_bytes:
        return _refused("larger-than-type", view, need)
    if need.guest and others_wait:
        return RoomDecision(outcome=WAIT, reason="others-wait-first")
    if view.fits(need):
        return RoomDecision(outcome=PLACED, reason="fits")
    if not _View(machine, (), None).fits(need):
        none = need.type_limit is not None and need.type_limit < 1
        return _refused("type-limit" if none else "larger-than-machine", view, need)
    if need.guest:
        return RoomDecision(outcome=WAIT, reason="guest-waits")
    staying = view.without(tuple(one for one in held if one.leaving))
    if staying.fits(need):
        return RoomDecision(outcome=WAIT, reason="room-being-freed")
    guests = tuple(one for one in staying.held if one.guest)
    if staying.without(guests).fits(need):
        stops = least_stops(guests, lambda stopped: staying.without(stopped).fits(need))
        return RoomDecision(outcome=WAIT, reason="guests-give-room", stops=stops)
    if staying.without(tuple(one for one in held if one.settling or one.guest)).fits(need):
        return RoomDecision(outcome=WAIT, reason="loads-under-way")
    return _refused(view.shortage(need), view, need)


def least_stops(
    guests: Sequence[PlacedInstance], enough: Callable[[tuple[PlacedInstance, ...]], bool]
) -> tuple[str, ...]:
    """The guests to end, by instance id. `enough` says whether ending some guests makes the room;
    ending all of them does."""
    left = sorted(guests, key=lambda one: (one.set_aside.memory_bytes, one.instance_id))
    stopped: tuple[PlacedInstance, ...] = ()
    while not enough(stopped):
        one = next((each for each in left if enough((*stopped, each))), left[-1])
        left.remove(one)
        stopped = (*stopped, one)
    return tuple(one.instance_id for one in stopped)


@dataclass(frozen=True, slots=True)
class _View:
    """The machine with some of its instances."""

    machine: ComputeResources
    held: tuple[PlacedInstance, ...]
    available_bytes: int | None

    def without(self, released: tuple[PlacedInstance, ...]) -> _View:
        """The view after these instances have ended and returned the memory that they had taken."""
        available = self.available_bytes
        if available is not None:
            available += sum(one.taken_bytes for one in released if one in self.held)
        return _View(
            self.machine, tuple(one for one in self.held if one not in released), available
        )

    def fits(self, need: InstanceNeed) -> bool:
        return (
            need.set_aside.fits(self.free())
            and need.expected_bytes <= max(self.really_free(need), 0)
            and self.within_limit(need)
        )

    def within_limit(self, need: InstanceNeed) -> bool:
        if need.type_limit is None:
            return True
        return self.of_type(need) < need.type_limit

    def of_type(self, need: InstanceNeed) -> int:
        return sum(one.instance_type == need.instance_type for one in self.held)

    def free(self) -> ComputeResources:
        """Capacity that is not set aside; negative where instances have outgrown the machine."""
        return self.machine - sum((one.set_aside for one in self.held), NO_RESOURCES)

    def really_free(self, need: InstanceNeed) -> int:
        """What the operating system has free, less what others were granted and will still take.

        For a need without a promise, other instances' promises count in full: it could not return
        memory that it has taken. For a promise, only the expected use of the others counts: the
        account has checked the promises.
        """
        if self.available_bytes is None:
            return max(self.machine.memory_bytes, need.expected_bytes)
        owed = sum(
            max(
                (one.expected_bytes if need.promised else one.set_aside.memory_bytes)
                - one.taken_bytes,
                0,
            )
            for one in self.held
        )
        return self.available_bytes - SPARE_BYTES - owed

    def shortage(self, need: InstanceNeed) -> str:
        """The reason of a refusal: which of the missing resources it names."""
        if not self.within_limit(need):
            return "type-limit"
        free = self.free()
        missing = need.set_aside.missing(free)
        if MEMORY in missing:
            return "memory-outgrown" if free.memory_bytes < 0 else "memory-taken"
        return "accelerators-taken" if ACCELERATORS in missing else "memory-short"


def _refused(reason: str, view: _View, need: InstanceNeed) -> RoomDecision:
    if reason == "type-limit":
        message = (
            f"{CAPACITY_ERROR} there are {view.of_type(need)} instances of type"
            f" {need.instance_type} of at most {need.type_limit} (control.instance_limits)."
            " Raise the limit, lower an instance count, or choose another type."
        )
        return RoomDecision(outcome=NO_ROOM, reason=reason, message=message)
    asked = _asked(reason, need)
    message = f"{CAPACITY_ERROR} {asked}; {_free(reason, view, need)} {_hint(reason, need)}"
    return RoomDecision(outcome=NO_ROOM, reason=reason, message=message)


def _asked(reason: str, need: InstanceNeed) -> str:
    if reason == "larger-than-type":
        asked = (
            f"a model on an instance of type {need.instance_type} needs at least"
            f" {_gib(need.least_bytes)}"
        )
    elif need.basis in (NOMINAL, STARTING):
        verb = "asks for" if need.basis == NOMINAL else "starts with"
        size = _gib(need.set_aside.memory_bytes)
        asked = f"an instance of type {need.instance_type} {verb} {size}"
    else:
        how = {ESTIMATED: "estimated from its files", MEASURED: "measured when it was loaded last"}
        asked = (
            f"a model on an instance of type {need.instance_type} needs {_gib(need.expected_bytes)}"
            f" ({how[need.basis]})"
        )
    boards = need.set_aside.accelerators
    return f"{asked} of memory" + (f" and {boards} accelerators" if boards else "")


def _free(reason: str, view: _View, need: InstanceNeed) -> str:
    if reason == "larger-than-type":
        return f"such an instance may take {_gib(need.bytes_max)} on this machine."
    left = view.free()
    free_bytes = min(left.memory_bytes, view.really_free(need))
    free = f"free on this machine: {_gib(free_bytes)} of {_gib(view.machine.memory_bytes)}"
    if need.set_aside.accelerators:
        free += f" and {left.accelerators} of {view.machine.accelerators} accelerators"
    if reason == "memory-short" and view.available_bytes is not None:
        free += f" (the operating system has {_gib(view.available_bytes)} available)"
    if reason == "memory-outgrown":
        free += " (what runs has outgrown it, and is left alone)"
    return f"{free}, {_holders(view.held)}."


def _holders(held: tuple[PlacedInstance, ...]) -> str:
    if not held:
        return "no instance holds any"
    sizes = sorted((-one.set_aside.memory_bytes, one.instance_id) for one in held)
    told = [f"{name} holds {_gib(-size)}" for size, name in sizes[:_HOLDERS_TOLD_MAX]]
    others = sizes[_HOLDERS_TOLD_MAX:]
    if others:
        told.append(f"{len(others)} others {_gib(-sum(size for size, _ in others))}")
    return ", ".join(told)


def _hint(reason: str, need: InstanceNeed) -> str:
    if reason == "larger-than-type":
        return "Choose a larger instance type, a larger machine, or a smaller model."
    if need.basis == NOMINAL:
        return "Choose a smaller instance type, lower an instance count, or delete an endpoint."
    return "Choose a smaller model, lower an instance count, or delete an endpoint."


def _gib(size_bytes: int) -> str:
    return f"{max(size_bytes, 0) / 2**30:.2f} GiB"
