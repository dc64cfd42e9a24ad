"""Properties of pools: whatever types have room when, every instance that is desired comes.

The world of `test_core_reconcile_properties`, on a machine that has few instances of each type, and
not always as many.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.test_core_reconcile_properties import COUNTS, EVENTS, SPEC, World

from penstock.core.deployment.deployment import DeploymentSpec, PoolSpec
from penstock.core.deployment.endpoint_state import (
    FAILED,
    IN_SERVICE,
    STOPPING,
    Action,
    EndpointObserved,
    EndpointSpec,
    PoolShortage,
    RefuseInstance,
    SlotFailure,
    StartInstance,
)
from penstock.core.endpoint.instance_pools import shortage_of

TYPES = ("ml.big", "ml.middle", "ml.small")


def pooled(spec: DeploymentSpec | None) -> DeploymentSpec | None:
    if spec is None:
        return None
    pools = tuple(PoolSpec(instance_type=kind) for kind in TYPES)
    return replace(spec, variants=tuple(replace(one, pools=pools) for one in spec.variants))


class Pools(World):
    """`room`: instances of each type that there may be now."""

    def __init__(self, counts: tuple[int, ...], room: tuple[int, ...]) -> None:
        self.shortages: dict[tuple[str, int, str], PoolShortage] = {}
        self.room = dict(zip(TYPES, room, strict=True))
        super().__init__(counts)
        assert self.desired is not None
        self.make_spec(self.desired)

    def make_spec(self, desired: EndpointSpec) -> None:
        made = replace(
            desired,
            active=pooled(desired.active),
            target=pooled(desired.target),
            previous=pooled(desired.previous),
        )
        self.shortages.clear()
        super().make_spec(made)

    def observed(self) -> EndpointObserved:
        return replace(super().observed(), shortages=tuple(self.shortages.values()))

    def of_type(self, kind: str) -> int:
        return sum(one.instance_type == kind for one in self.instances.values())

    def apply(self, action: Action) -> None:
        if isinstance(action, RefuseInstance):
            assert all(self.of_type(kind) >= self.room[kind] for kind in TYPES), "there is room"
            slot = (action.generation, action.variant, action.ordinal)
            before = self.failures.get(slot)
            self.failures[slot] = SlotFailure(
                variant=action.variant,
                generation=action.generation,
                ordinal=action.ordinal,
                count=1 if before is None else before.count + 1,
                at=self.now,
                message=action.failure,
                permanent=True,
                reason=action.reason,
            )
        elif not isinstance(action, StartInstance):
            super().apply(action)
        elif self.of_type(action.instance_type) >= self.room[action.instance_type]:
            key = action.variant, action.generation, action.instance_type
            leaving = any(
                one.instance_type == action.instance_type and one.phase == STOPPING
                for one in self.instances.values()
            )
            found = PoolShortage(
                variant=action.variant,
                generation=action.generation,
                instance_type=action.instance_type,
                count=1,
                at=self.now,
                reason="type-limit",
                message="CapacityError: full.",
                waits=leaving,
            )
            self.shortages[key] = shortage_of(self.shortages.get(key), found, spec=SPEC)
        else:
            super().apply(action)
            name = f"i{self.number}"
            one = self.instances[name]
            self.instances[name] = replace(one, instance_type=action.instance_type)

    def restart(self) -> None:
        super().restart()
        self.shortages.clear()


ROOMS = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))


@settings(max_examples=200, deadline=None)
@given(COUNTS, ROOMS, st.lists(st.tuples(EVENTS, st.none() | ROOMS), max_size=40))
def test_it_converges_whatever_has_room_when(
    counts: tuple[int, ...],
    room: tuple[int, ...],
    events: list[tuple[tuple[str, int, object], tuple[int, ...] | None]],
) -> None:
    world = Pools(counts, room)
    world.settle()
    for (what, which, detail), more in events:
        if more is not None:
            world.room = dict(zip(TYPES, more, strict=True))
        world.happen(what, which, detail)
    world.room = dict.fromkeys(TYPES, 100)
    world.heal()
    desired = world.desired
    if desired is None or desired.status == FAILED:
        assert not world.instances
        return
    assert (desired.status, desired.target) == (IN_SERVICE, None)
    assert desired.active is not None
    there = Counter(one.variant for one in world.instances.values())
    assert there == {one.name: one.instance_count for one in desired.active.variants}
