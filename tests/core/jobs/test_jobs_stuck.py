"""What waits for a disk or a store: when it is tried again, and for how long."""

from __future__ import annotations

from penstock.core.jobs.progress import Stuck


def test_pauses_double_up_to_half_a_minute() -> None:
    stuck = Stuck()
    pauses = []
    now = 0.0
    for _ in range(9):
        due = stuck.failed("a", "no room", full=True, now=now)
        assert due is not None
        pauses.append(due - now)
        now = due
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def test_a_day_is_what_it_is_waited_for_from_the_first_time() -> None:
    stuck = Stuck()
    stuck.failed("a", "no room", full=True, now=10.0)
    assert stuck.failed("a", "no room", full=True, now=86_409.9) == 86_410.9
    assert stuck.failed("a", "no room", full=True, now=86_410.0) is None
    assert (stuck.message, stuck.full) == ("", False)


def test_what_was_done_between_begins_anew() -> None:
    stuck = Stuck()
    stuck.failed("a", "no room", full=True, now=10.0)
    stuck.over("a")
    stuck.over("a")  # harmless
    assert stuck.failed("a", "no room", full=True, now=86_410.0) == 86_410.5


def test_it_tells_of_what_has_waited_longest_and_whether_room_is_what_is_missing() -> None:
    stuck = Stuck()
    assert (stuck.message, stuck.full) == ("", False)
    stuck.failed("a", "the store is away", full=False, now=0.0)
    stuck.failed("b", "no room", full=True, now=1.0)
    assert (stuck.message, stuck.full) == ("the store is away", True)
    stuck.over("a")
    assert (stuck.message, stuck.full) == ("no room", True)
