"""How many instances a variant should have where they follow the copies on them.

SageMaker's ManagedInstanceScaling. Out: as many at once as the copies without room need, up to the
maximum. In: after a cooldown, and never below the minimum,

    IDLE_RELEASE   instances without a copy are stopped
    CONSOLIDATION  and then, one at a time, the instance that would go first, if its copies have
                   room on the others; they are loaded there before it is stopped

A copy that SPREAD keeps apart from others of its component is not moved. Instances that are
starting count, so nothing is requested twice. What an instance of the type has is known once one
has been observed; until then only one is requested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.core.deployment.capacity_spec import SPREAD, VariantCapacitySpec
from penstock.core.deployment.deployment import CONSOLIDATION, ManagedScaling
from penstock.core.deployment.endpoint_state import (
    CONSOLIDATED,
    RELEASED_IDLE,
    RUNNING,
    THERE,
    CopyObserved,
    EndpointObserved,
    InstanceObserved,
)
from penstock.core.endpoint.instance_room import InstanceRoom, assign, empty_room, rooms_needed
from penstock.core.models.memory_need import START_BYTES
from penstock.core.resources import ComputeResources

#: Reasons other than those for stopping instances.
COPIES_NEED_MORE = "copies-need-more"
AT_MAXIMUM = "at-maximum"
BELOW_MINIMUM = "below-minimum"
STEADY = "steady"
COOLDOWN = "scale-in-cooldown"

#: Missing copies considered in one decision; the others follow in the next.
_MISSING_MAX = 64


@dataclass(frozen=True, slots=True)
class ManagedDecision:
    instances: int
    reason: str
    next_deadline: float | None = None  #: when the cooldown is over


def decide(
    managed: ManagedScaling,
    desired: VariantCapacitySpec,
    alive: Sequence[InstanceObserved],
    observed: EndpointObserved,
    *,
    now: float,
    instances_min: int = 0,
) -> ManagedDecision:
    """The number of instances that `capacity` should reach.

    Args:
        managed: the bounds.
        desired: the spec with its copies; its count of instances is not used.
        alive: instances of the variant that are not leaving, those to keep first at the front.
        observed: the snapshot.
        now: seconds.
        instances_min: a lower bound in any case, such as for a new generation's first instances.
    """
    least = min(max(managed.instances_min, instances_min), managed.instances_max)
    variant = _Variant(desired, alive, observed)
    count = len(alive)
    more = variant.more(managed.instances_max - count)
    if count + more < least:
        return ManagedDecision(least, BELOW_MINIMUM)
    if more:
        return ManagedDecision(count + more, COPIES_NEED_MORE)
    if count >= managed.instances_max and variant.lack_room():
        return ManagedDecision(managed.instances_max, AT_MAXIMUM)
    fewer, reason = _fewer(managed, variant, count - least)
    if not fewer:
        return ManagedDecision(count, STEADY)
    due = _due(managed, desired, alive, observed, now)
    if now < due:
        return ManagedDecision(count, COOLDOWN, due)
    return ManagedDecision(count - fewer, reason)


def _fewer(managed: ManagedScaling, variant: _Variant, most: int) -> tuple[int, str]:
    """How many instances may be stopped, and the reason."""
    idle = min(variant.idle(), most)
    if idle > 0:
        return (min(idle, managed.step_max) if managed.step_max else idle), RELEASED_IDLE
    if managed.strategy == CONSOLIDATION and most > 0 and variant.last_can_move():
        return 1, CONSOLIDATED
    return 0, STEADY


def _due(
    managed: ManagedScaling,
    desired: VariantCapacitySpec,
    alive: Sequence[InstanceObserved],
    observed: EndpointObserved,
    now: float,
) -> float:
    """When the cooldown ends; it begins anew with every instance that starts or stops."""
    changes = [at for name, at in observed.released if name == desired.name]
    changes += [
        one.since if one.phase == RUNNING and one.since is not None else now for one in alive
    ]
    return max(changes, default=now) + managed.cooldown_s


class _Variant:
    """The rooms of a variant's instances, and the missing copies."""

    def __init__(
        self,
        desired: VariantCapacitySpec,
        alive: Sequence[InstanceObserved],
        observed: EndpointObserved,
    ) -> None:
        copies = observed.copies_by_instance()
        self._desired = desired
        self._alive = alive
        self._rooms = [InstanceRoom(one, copies.get(one.instance_id, ())) for one in alive]
        self._missing = self._missing_on(self._rooms)

    def more(self, more_max: int) -> int:
        """Further instances that the missing copies need."""
        if not self._missing or more_max <= 0:
            return 0
        if not self._rooms:
            return 1
        empty = empty_room(self._rooms[0].instance, own_bytes=START_BYTES).free()
        rooms = [room.free_to_share() for room in self._rooms]
        return rooms_needed(self._missing, rooms, empty, more_max=more_max)

    def lack_room(self) -> bool:
        return assign(self._missing, [room.free_to_share() for room in self._rooms]) is None

    def idle(self) -> int:
        """Number of instances without a copy that the missing copies do not need either."""
        busy = [room for room in self._rooms if room.count]
        empty = len(self._rooms) - len(busy)
        if not self._missing or not empty:
            return empty
        first = next(room for room in self._rooms if not room.count)
        rooms = [room.free_to_share() for room in busy]
        return empty - rooms_needed(self._missing, rooms, first.free(), more_max=empty)

    def last_can_move(self) -> bool:
        """Whether the last instance's copies fit on the others, all of which run."""
        if len(self._rooms) < 2 or any(one.phase != RUNNING for one in self._alive):
            return False
        *others, last = self._rooms
        # By what is asked for: the one that is being loaded elsewhere does not count
        spread = {
            one.name
            for one in self._desired.components
            if one.strategy == SPREAD and one.copies > 1
        }
        if any(copy.component in spread for copy in last.copies):
            return False
        return (
            assign(self._missing_on(others), [room.free_to_share() for room in others]) is not None
        )

    def _missing_on(self, rooms: Sequence[InstanceRoom]) -> list[ComputeResources]:
        there: Counter[str] = Counter(
            copy.component for room in rooms for copy in room.copies if self._counts(copy)
        )
        missing: list[ComputeResources] = []
        for component in self._desired.components:
            lacks = component.copies - there[component.name]
            missing += [component.need.resources] * min(max(lacks, 0), _MISSING_MAX - len(missing))
        return missing

    def _counts(self, copy: CopyObserved) -> bool:
        return copy.phase in THERE and copy.generation == self._desired.generation
