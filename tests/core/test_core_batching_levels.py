"""Policies of priority levels: timelines of the batcher alone."""

from __future__ import annotations

from penstock.core.batching.batcher import (
    Action,
    Batcher,
    BatchSpec,
    Expire,
    LevelPolicy,
    RefuseItem,
    RunBatch,
)


def busy(*levels: LevelPolicy) -> Batcher:
    """One row at a time, and the lane computes item 99 from 0.0 on."""
    batcher = Batcher(BatchSpec(priorities=len(levels), levels=levels))
    assert order(batcher.add(99, now=0.0)) == [99]
    return batcher


def order(actions: list[Action]) -> list[int]:
    return [ident for action in actions if isinstance(action, RunBatch) for ident in action.ids]


def run_out(batcher: Batcher, now: float) -> list[int]:
    """The order in which the waiting items run from now on."""
    ran: list[int] = []
    actions = batcher.lane_freed(0, now=now) + batcher.on_timer(now=now)[0]
    while actions:
        ran += order(actions)
        batcher.check_invariants()
        actions = batcher.lane_freed(0, now=now) + batcher.on_timer(now=now)[0]
    return ran


def test_a_delayed_item_runs_behind_its_level_and_before_the_next_one() -> None:
    batcher = busy(LevelPolicy(wait_s_max=1.0, delays=True), LevelPolicy())
    batcher.add(1, now=0.0)
    batcher.add(2, priority=1, now=0.1)
    batcher.add(3, now=0.5)
    assert batcher.next_deadline() == 1.0
    assert batcher.on_timer(now=1.0)[0] == []
    assert batcher.next_deadline() == 1.5, "item 3 is delayed then"
    assert run_out(batcher, now=1.2) == [3, 1, 2]


def test_delayed_items_keep_the_order_in_which_they_came() -> None:
    """Their waits end at once, or the later one's own wait before the earlier one's."""
    batcher = busy(LevelPolicy(wait_s_max=1.0, delays=True))
    batcher.add(1, now=0.0)
    batcher.add(2, deadline=9.0, now=0.0)
    batcher.on_timer(now=1.0)
    batcher.check_invariants()
    assert run_out(batcher, now=1.2) == [1, 2]
    batcher = busy(LevelPolicy(wait_s_max=1.0, delays=True))
    batcher.add(1, now=0.0)
    batcher.add(2, wait_s_max=0.2, now=0.1)
    for now in (0.3, 1.0):
        batcher.on_timer(now=now)
        batcher.check_invariants()
    assert run_out(batcher, now=1.2) == [1, 2]


def test_an_item_expires_by_the_policy_of_its_own_level() -> None:
    batcher = busy(LevelPolicy(), LevelPolicy(wait_s_max=0.5), LevelPolicy(wait_s_max=0.2))
    for ident in (0, 1, 2):
        batcher.add(ident, priority=ident, now=0.0)
    assert batcher.next_deadline() == 0.2
    assert batcher.on_timer(now=0.2)[0] == [Expire(2, "queue-timeout")]
    assert batcher.on_timer(now=0.5)[0] == [Expire(1, "queue-timeout")]
    assert run_out(batcher, now=9.0) == [0]


def test_a_level_is_full_by_its_own_bound() -> None:
    batcher = busy(LevelPolicy(), LevelPolicy(rows_max=1, wait_s_max=0.5))
    assert batcher.add(1, priority=1, now=0.0) == []
    assert batcher.add(2, priority=1, now=0.1) == [RefuseItem(2, "queue-full")]
    assert batcher.add(3, now=0.1) == []
    assert batcher.add(4, priority=1, now=0.6) == [Expire(1, "queue-timeout")], "it makes room"
    assert run_out(batcher, now=0.7) == [3, 4]


def test_a_cancelled_item_leaves_room_in_its_level() -> None:
    batcher = busy(LevelPolicy(rows_max=1, wait_s_max=5.0, delays=True))
    batcher.add(1, now=0.0)
    assert batcher.cancel(1, now=0.1)
    assert batcher.add(2, now=0.2) == []
    assert batcher.on_timer(now=5.2)[0] == [], "it is delayed, and nothing goes before it"
    assert batcher.add(3, now=5.3) == [RefuseItem(3, "queue-full")], "delayed items count as well"
    assert run_out(batcher, now=6.0) == [2]


def test_a_delayed_item_keeps_its_deadline() -> None:
    batcher = busy(LevelPolicy(wait_s_max=1.0, delays=True))
    batcher.add(1, deadline=3.0, now=0.0)
    batcher.on_timer(now=1.0)
    assert batcher.next_deadline() == 3.0
    assert batcher.on_timer(now=3.0)[0] == [Expire(1, "deadline-passed")]
    assert batcher.queue_rows == 0


def test_an_items_own_wait_replaces_that_of_its_level_where_it_is_less() -> None:
    batcher = busy(LevelPolicy(wait_s_max=1.0, delays=True))
    batcher.add(1, wait_s_max=0.5, now=0.0)
    batcher.add(2, wait_s_max=9.0, now=0.1)
    batcher.add(3, now=0.2)
    assert batcher.next_deadline() == 0.5
    assert batcher.on_timer(now=0.5)[0] == []
    assert batcher.next_deadline() == 1.1
    assert run_out(batcher, now=0.6) == [2, 3, 1]


def test_items_that_run_leave_room_in_their_level_for_as_many_rows() -> None:
    policies = (LevelPolicy(rows_max=4), LevelPolicy(rows_max=4, wait_s_max=9.0))
    batcher = Batcher(BatchSpec(rows_max=4, priorities=2, levels=policies))
    batcher.add(99, rows=4, now=0.0)
    assert batcher.add(1, rows=3, priority=1, now=0.0) == []
    assert batcher.add(2, rows=2, priority=1, now=0.0) == [RefuseItem(2, "queue-full")]
    assert batcher.add(3, rows=1, priority=1, now=0.0) == [], "just as many as there may be"
    assert order(batcher.lane_freed(0, now=1.0)) == [1, 3]
    assert batcher.add(4, rows=3, priority=1, now=1.0) == []
    assert batcher.cancel(4, now=1.0)
    assert batcher.add(5, rows=4, priority=1, now=1.0) == [], "those that ran count no more"
    assert batcher.add(6, rows=1, priority=1, now=1.0) == [RefuseItem(6, "queue-full")]


def test_a_wait_that_is_over_says_nothing_of_an_item_that_runs_or_has_left() -> None:
    batcher = busy(LevelPolicy(wait_s_max=1.0))
    for ident in (1, 2, 3):
        batcher.add(ident, now=0.0)
    assert order(batcher.lane_freed(0, now=0.5)) == [1]
    assert batcher.cancel(2, now=0.5)
    assert batcher.on_timer(now=1.0) == ([Expire(3, "queue-timeout")], None)


def test_the_waits_of_those_that_left_are_forgotten_and_no_others() -> None:
    """A long wait is watched beside a hundred that ended early; then the next is due first."""
    batcher = busy(LevelPolicy(wait_s_max=50.0))
    batcher.add(1, wait_s_max=40.0, now=0.0)
    for ident in range(100, 300):
        batcher.add(ident, wait_s_max=1.0, now=0.0)
        assert batcher.cancel(ident, now=0.0)
    batcher.add(2, wait_s_max=30.0, now=0.0)
    assert len(batcher._timeouts) < 100
    assert batcher.on_timer(now=1.0)[0] == []
    assert batcher.next_deadline() == 30.0
    assert batcher.on_timer(now=30.0)[0] == [Expire(2, "queue-timeout")]
    assert batcher.on_timer(now=40.0)[0] == [Expire(1, "queue-timeout")]


def test_an_item_to_run_alone_that_was_given_back_is_forgotten() -> None:
    batcher = Batcher(BatchSpec(rows_max=4))
    batcher.add(99, rows=4, now=0.0)
    batcher.add(1, alone=True, now=0.0)
    assert batcher.give_back(now=0.0) == (1,)
    batcher.check_invariants()
    batcher.add(1, rows=3, now=0.0)
    (action,) = batcher.lane_freed(0, now=1.0, timed=False)
    assert isinstance(action, RunBatch)
    assert action.rows == 3


def test_an_item_to_run_alone_that_was_refused_is_not_remembered() -> None:
    batcher = Batcher(BatchSpec(rows_max=4, queue_rows_max=4))
    batcher.add(99, rows=4, now=0.0)
    batcher.add(1, now=0.0)
    assert batcher.add(2, alone=True, now=0.0) == [RefuseItem(2, "queue-full")]
    batcher.check_invariants()
