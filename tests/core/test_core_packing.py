"""Places for several copies at once, against every arrangement there is."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.core_placement import resources

from penstock.core.endpoint.instance_room import ITEMS_MAX, assign, rooms_needed
from penstock.core.resources import ComputeResources

#: Few different sizes, so that much is alike and much is tight.
NEEDS = st.builds(
    resources,
    gib=st.sampled_from([0.0, 1.0, 2.0, 3.0, 5.0]),
    cores=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    accelerators=st.sampled_from([0, 0, 1, 2]),
)  # fmt: skip
ROOMS = st.one_of(
    st.none(),
    st.builds(
        resources,
        gib=st.sampled_from([-1.0, 2.0, 4.0, 6.0, 8.0]),
        cores=st.sampled_from([0.5, 2.0, 3.0]),
        accelerators=st.sampled_from([0, 1, 2]),
    ),
)  # fmt: skip


def holds(
    needs: list[ComputeResources], rooms: list[ComputeResources | None], places: tuple[int, ...]
) -> bool:
    """Whether no room gives more of anything than it has; what is not asked for is shared."""
    for at, room in enumerate(rooms):
        mine = [one for one, place in zip(needs, places, strict=True) if place == at]
        if room is None:
            if mine:
                return False
            continue
        for asked, free in (
            ([one.memory_bytes for one in mine], room.memory_bytes),
            ([one.cores for one in mine], room.cores),
            ([one.accelerators for one in mine], room.accelerators),
        ):
            if any(asked) and sum(asked) > free:
                return False
    return True


@settings(max_examples=400, deadline=None)
@given(st.lists(NEEDS, max_size=5), st.lists(ROOMS, min_size=1, max_size=4))
def test_an_arrangement_is_found_if_and_only_if_brute_force_finds_one(
    needs: list[ComputeResources], rooms: list[ComputeResources | None]
) -> None:
    every = itertools.product(range(len(rooms)), repeat=len(needs))
    possible = any(holds(needs, rooms, places) for places in every)
    found = assign(needs, rooms)
    assert (found is not None) == possible
    assert found is None or holds(needs, rooms, tuple(found))


def test_where_the_largest_first_is_wrong_every_order_is_tried() -> None:
    """4, 3 and 3 fill a room, twice; the largest first would put 4 and 4 together."""
    needs = [resources(float(gib)) for gib in (3, 4, 3, 3, 4, 3)]
    rooms: list[ComputeResources | None] = [None, resources(10.0), resources(10.0)]
    found = assign(needs, rooms)
    assert found is not None
    assert holds(needs, rooms, tuple(found))
    assert assign([*needs, resources(1.0)], rooms) is None
    # Of accelerators and cores alike.
    for kind in ("accelerators", "cores"):
        wide = [resources(0.0, **{kind: at}) for at in (3, 4, 3, 3, 4, 3)]
        two = [resources(0.0, **{kind: 10}), resources(0.0, **{kind: 10})]
        places = assign(wide, two)
        assert places is not None
        assert holds(wide, two, tuple(places))


def test_a_search_that_would_take_for_ever_ends_with_nothing() -> None:
    """Twelve of different sizes for eleven rooms of different sizes, each of which holds one."""
    needs = [resources(3.0 + at / 16) for at in range(ITEMS_MAX)]
    rooms = [resources(5.0 + at / 16) for at in range(ITEMS_MAX - 1)]
    assert assign(needs, rooms) is None
    found = assign(needs, [*rooms, resources(5.75)])
    assert found is not None
    assert sorted(found) == list(range(ITEMS_MAX))


def test_more_copies_than_are_searched_for_are_placed_largest_first() -> None:
    needs = [resources(1.0), *[resources(2.0)] * ITEMS_MAX, resources(1.0)]
    found = assign(needs, [resources(13.0), resources(13.0)])
    assert found is not None
    assert holds(needs, [resources(13.0), resources(13.0)], tuple(found))


def test_as_few_rooms_are_added_as_are_needed() -> None:
    half, whole = resources(4.0), resources(8.0)
    assert rooms_needed([half] * 4, [], whole, more_max=9) == 2
    assert rooms_needed([half] * 4, [half], whole, more_max=9) == 2
    assert rooms_needed([half] * 3, [half], whole, more_max=9) == 1
    assert rooms_needed([], [], whole, more_max=9) == 0


def test_no_more_rooms_are_added_than_may_be_and_none_for_what_fits_in_none() -> None:
    half, whole = resources(4.0), resources(8.0)
    assert rooms_needed([half] * 9, [], whole, more_max=2) == 2
    assert rooms_needed([resources(9.0)], [], whole, more_max=9) == 0
    assert rooms_needed([resources(9.0), half], [], whole, more_max=9) == 1


def test_tenths_of_a_core_fill_a_whole_one() -> None:
    tenths = [resources(cores=0.1)] * 10
    assert assign(tenths, [resources(cores=1.0)]) == [0] * 10
    assert assign([*tenths, resources(cores=0.1)], [resources(cores=1.0)]) is None
