"""Room: what runs at once, and what the queue works off before a push from far away arrives."""

from __future__ import annotations

import pytest

from penstock.core.traffic.push_room import CopyRoom, overfull, room_of, slots_of


def copy(outstanding: int = 0, *, most: int = 1000, at_once: int = 8, rps: float = 0.0) -> CopyRoom:
    return CopyRoom(outstanding, most, at_once, rps)


@pytest.mark.parametrize(
    ("rps", "slots"),
    [
        (0.0, 16),  # nothing seen yet: a second batch behind the first
        (1000.0, 8 + 150),
        (7.0, 8 + 1),
        (0.8, 8),  # tokens for seconds: only what begins at once
    ],
)
def test_a_copy_takes_a_batch_and_what_it_works_off_on_the_way(rps: float, slots: int) -> None:
    assert slots_of(copy(rps=rps)) == slots


@pytest.mark.parametrize("rps", [0.0, 7.0])
@pytest.mark.parametrize(("sequences", "slots"), [(1, 1), (8, 8), (256, 256)])
def test_an_engine_has_room_for_its_sequences_and_none_waits_behind_whole_answers(
    rps: float, sequences: int, slots: int
) -> None:
    assert slots_of(CopyRoom(0, 1000, sequences, rps, generates=True)) == slots


def test_slots_that_were_set_by_hand_come_before_what_is_worked_out() -> None:
    assert slots_of(CopyRoom(0, 1000, 8, 1000.0, slots=3)) == 3
    assert slots_of(CopyRoom(0, 2, 8, generates=True, slots=3)) == 2


def test_never_more_than_a_copy_may_hold() -> None:
    assert slots_of(copy(most=10, rps=1000.0)) == 10


def test_room_is_what_each_copy_has_left() -> None:
    """A copy with too many takes nothing from the room of the others."""
    assert room_of([copy(5, rps=0.1), copy(11, rps=0.1)], waiting=0, holds=True) == 3


def test_what_a_copy_has_beyond_its_slots_takes_the_next_that_fall_free_there() -> None:
    assert overfull([copy(8, rps=0.1), copy(11, rps=0.1), copy(2, rps=0.1)]) == 3
    assert overfull([]) == 0


def test_while_anything_waits_there_is_no_room() -> None:
    assert room_of([copy()], waiting=1, holds=True) == 0


@pytest.mark.parametrize(("holds", "room"), [(True, 1), (False, 0)])
def test_an_endpoint_without_copies_takes_the_one_that_wakes_it(holds: bool, room: int) -> None:
    assert room_of([], waiting=0, holds=holds) == room
    assert room_of([], waiting=1, holds=holds) == 0
