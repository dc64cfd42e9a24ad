"""The batcher, as timelines: what goes in at which second, and every action that comes out."""

from __future__ import annotations

import pytest

from penstock.core.batching.batcher import Batcher, BatchSpec, Expire, RefuseItem, RunBatch
from penstock.errors import CallerError


def run_batch(lane: int, ids: tuple[int, ...], reason: str, **fields: float) -> RunBatch:
    """A batch of one-row items without buckets that had not waited, unless said otherwise."""
    values = {"rows": len(ids), "bucket": 0, "waited_s": 0.0, "queue_rows": 0} | fields
    return RunBatch(lane=lane, ids=ids, reason=reason, **values)  # type: ignore[arg-type]


# when a batch leaves


def test_an_item_that_is_to_run_alone_has_no_batch_mates_before_or_behind() -> None:
    batcher = Batcher(BatchSpec(rows_max=4))
    assert batcher.add(1, alone=True, now=0.0) == [RunBatch(0, (1,), 1, 0, 0.0, 0, "batch-full")]
    assert batcher.add(2, now=0.1) == []
    assert batcher.add(3, alone=True, now=0.2) == []
    assert batcher.add(4, now=0.3) == []
    assert batcher.queue_rows == 6  # it keeps the room of a whole batch
    assert batcher.lane_freed(0, now=1.0) == [RunBatch(0, (2,), 1, 0, 0.9, 5, "batch-full")]
    assert batcher.lane_freed(0, now=2.0) == [RunBatch(0, (3,), 1, 0, 1.8, 1, "batch-full")]
    assert batcher.lane_freed(0, now=3.0) == [RunBatch(0, (4,), 1, 0, 2.7, 0, "lane-free")]


def test_a_busy_lane_takes_one_full_batch_ahead_and_before_a_run_was_timed_nothing_less() -> None:
    """A full batch gains nothing by waiting for the lane; one that is not full may still grow."""
    batcher = Batcher(BatchSpec(rows_max=2, batches_ahead=1))
    batcher.add(1, now=0.0)
    assert batcher.on_timer(now=0.0)[0] == [RunBatch(0, (1,), 1, 0, 0.0, 0, "lane-free")]
    assert batcher.add(2, now=0.1) == []
    assert batcher.next_deadline() is None
    assert batcher.add(3, now=0.2) == [RunBatch(0, (2, 3), 2, 0, 0.1, 0, "batch-full")]
    assert batcher.add(4, now=0.3) == []
    assert batcher.add(5, now=0.3) == []  # one ahead is all that a lane holds
    assert batcher.snapshot()["ahead"] == 1
    freed = batcher.lane_freed(0, now=1.0)
    assert freed == [RunBatch(0, (4, 5), 2, 0, 0.7, 0, "batch-full")]
    assert batcher.lane_freed(0, now=2.0) == []
    assert batcher.running == 1
    assert batcher.lane_freed(0, now=3.0) == []
    assert batcher.running == 0


def test_a_batch_that_is_due_goes_ahead_2_ms_before_the_lane_is_expected_to_be_free() -> None:
    batcher = Batcher(BatchSpec(rows_max=4, batches_ahead=1, runs_measured=((1, 0, 0.5),)))
    batcher.add(1, now=0.0)
    assert batcher.on_timer(now=0.0)[0] == [RunBatch(0, (1,), 1, 0, 0.0, 0, "lane-free")]
    assert batcher.add(2, now=0.25) == []
    assert batcher.next_deadline() == 0.498
    assert batcher.on_timer(now=0.375)[0] == []
    assert batcher.add(3, now=0.4375) == []
    assert batcher.on_timer(now=0.5)[0] == [RunBatch(0, (2, 3), 2, 0, 0.25, 0, "lane-free")]
    assert batcher.add(4, now=0.5) == []
    assert batcher.next_deadline() is None  # one ahead is all that a lane holds
    assert batcher.lane_freed(0, now=0.5) == []
    assert batcher.add(5, now=0.5) == []
    assert batcher.next_deadline() == 1.498  # two rows are taken to run twice as long as one


def test_a_batch_goes_ahead_of_a_short_run_after_a_quarter_of_it() -> None:
    batcher = Batcher(BatchSpec(rows_max=4, batches_ahead=1, runs_measured=((1, 0, 0.001),)))
    batcher.add(1, now=0.0)
    batcher.on_timer(now=0.0)[0]
    batcher.add(2, now=0.0)
    assert batcher.next_deadline() == 0.00025
    assert batcher.on_timer(now=0.00025)[0] == [RunBatch(0, (2,), 1, 0, 0.00025, 0, "lane-free")]


def test_a_batch_goes_ahead_to_the_lane_that_began_its_run_first() -> None:
    batcher = Batcher(BatchSpec(lanes=2, batches_ahead=1))
    assert batcher.add(1, now=0.0) == [run_batch(0, (1,), "single")]
    assert batcher.add(2, now=0.25) == [run_batch(1, (2,), "single")]
    assert batcher.add(3, now=0.5) == [run_batch(0, (3,), "single")]
    assert batcher.add(4, now=0.5) == [run_batch(1, (4,), "single")]
    assert batcher.lane_freed(1, now=1.0) == []  # lane 1 now runs 4, lane 0 still holds 3
    assert batcher.lane_freed(0, now=1.25) == []
    assert batcher.add(5, now=1.5) == [run_batch(1, (5,), "single")]
    assert batcher.add(6, now=1.5) == [run_batch(0, (6,), "single")]


def test_what_would_be_late_behind_the_present_run_does_not_go_ahead() -> None:
    """Its run of 1 ms would begin at 1.0 ms, not now, and end 0.1 ms too late."""
    measured = ((1, 0, 0.001), (2, 0, 0.001))
    batcher = Batcher(BatchSpec(rows_max=2, batches_ahead=1, runs_measured=measured))
    batcher.add(1, now=0.0)
    batcher.on_timer(now=0.0)[0]
    assert batcher.add(2, deadline=0.0019, now=0.0) == []
    assert batcher.on_timer(now=0.00025)[0] == [Expire(2, "deadline-cannot-be-met")]


def test_behind_a_run_whose_end_is_unknown_nothing_is_forecast() -> None:
    """Its worker was replaced: the batch ahead may begin at once, for all that is known."""
    batcher = Batcher(BatchSpec(batches_ahead=1, runs_measured=((1, 0, 1.0),)))
    batcher.add(1, now=0.0)
    assert batcher.give_back(now=0.5) == ()
    assert batcher.add(2, deadline=9.0, now=0.5) == [run_batch(0, (2,), "single")]


def test_a_lane_that_stood_idle_holds_one_batch_ahead_as_before() -> None:
    batcher = Batcher(BatchSpec(batches_ahead=1))
    batcher.add(1, now=0.0)
    assert batcher.lane_freed(0, now=1.0) == []
    assert batcher.add(2, now=2.0) == [run_batch(0, (2,), "single")]
    assert batcher.add(3, now=2.0) == [run_batch(0, (3,), "single")]
    assert batcher.add(4, now=2.0) == []


def test_a_batch_that_is_not_due_does_not_go_ahead() -> None:
    spec = BatchSpec(rows_max=4, wait_s_max=1.0, batches_ahead=1, runs_measured=((4, 0, 0.5),))
    batcher = Batcher(spec)
    for number in (1, 2, 3, 4):
        batcher.add(number, now=0.0)
    assert batcher.add(5, now=0.25) == []
    assert batcher.next_deadline() == 1.25
    assert batcher.on_timer(now=0.5)[0] == []


def test_of_several_buckets_the_first_whose_wait_is_over_goes_ahead() -> None:
    spec = BatchSpec(
        rows_max=4, wait_s_max=1.0, batches_ahead=1, buckets=(16, 64), runs_measured=((4, 64, 0.5),)
    )
    batcher = Batcher(spec)
    batcher.add(1, rows=4, length=64, now=0.0)
    batcher.add(2, length=64, now=0.5)
    assert batcher.next_deadline() == 1.5
    batcher.add(3, length=16, now=0.25)
    assert batcher.next_deadline() == 1.25
    assert batcher.on_timer(now=1.25)[0] == [
        run_batch(0, (3,), "waited-enough", bucket=16, waited_s=1.0, queue_rows=1)
    ]


def test_the_run_of_a_batch_ahead_is_timed_from_the_end_of_the_one_before() -> None:
    batcher = Batcher(BatchSpec(rows_max=1, batches_ahead=1))
    assert len(batcher.add(1, now=0.0)) == 1
    assert len(batcher.add(2, now=0.0)) == 1
    batcher.lane_freed(0, now=1.0)
    batcher.lane_freed(0, now=2.0)
    # Two runs of one second each were learned, not one of one and one of two.
    assert batcher.add(3, deadline=3.5, now=2.0) == [RunBatch(0, (3,), 1, 0, 0.0, 0, "single")]
    # Ahead of it one more would end at 4.0.
    assert batcher.add(4, deadline=3.9, now=2.0) == [Expire(4, "deadline-cannot-be-met")]


def test_a_lone_item_leaves_once_it_has_waited_enough() -> None:
    batcher = Batcher(BatchSpec(rows_max=4, wait_s_max=0.5))
    assert batcher.add(1, now=10.0) == []
    assert batcher.next_deadline() == 10.5
    assert batcher.on_timer(now=10.25)[0] == []
    assert batcher.on_timer(now=10.5)[0] == [run_batch(0, (1,), "waited-enough", waited_s=0.5)]
    assert batcher.next_deadline() is None


def test_a_full_batch_leaves_with_the_item_that_fills_it() -> None:
    batcher = Batcher(BatchSpec(rows_max=3, wait_s_max=0.5))
    assert batcher.add(1, now=10.0) == []
    assert batcher.add(2, now=10.25) == []
    assert batcher.add(3, now=10.25) == [run_batch(0, (1, 2, 3), "batch-full", waited_s=0.25)]
    assert batcher.next_deadline() is None


def test_without_batching_each_item_runs_alone_at_once() -> None:
    batcher = Batcher(BatchSpec())
    assert batcher.add(1, now=10.0) == [run_batch(0, (1,), "single")]
    assert batcher.add(2, now=10.25) == []
    assert batcher.next_deadline() is None  # the lane is busy and nothing has a deadline
    assert batcher.lane_freed(0, now=10.5) == [run_batch(0, (2,), "single", waited_s=0.25)]


def test_without_a_wait_the_items_of_one_read_leave_together_at_the_timer() -> None:
    """The driver adds all frames of one socket read, then calls the timer that is already due."""
    batcher = Batcher(BatchSpec(rows_max=8, wait_s_max=0.0))
    assert batcher.add(1, now=10.0) == []
    assert batcher.add(2, now=10.0) == []
    assert batcher.next_deadline() == 10.0
    assert batcher.on_timer(now=10.0)[0] == [run_batch(0, (1, 2), "lane-free")]


def test_what_arrives_while_all_lanes_are_busy_leaves_as_one_batch_when_one_is_free() -> None:
    batcher = Batcher(BatchSpec(rows_max=8, wait_s_max=0.0))
    batcher.add(1, now=10.0)
    assert batcher.on_timer(now=10.0)[0] == [run_batch(0, (1,), "lane-free")]
    for ident in (2, 3, 4):
        assert batcher.add(ident, now=10.25) == []
    assert batcher.next_deadline() is None
    assert batcher.lane_freed(0, now=11.0) == [run_batch(0, (2, 3, 4), "lane-free", waited_s=0.75)]


def test_a_freed_lane_does_not_cut_short_the_wait_for_company() -> None:
    batcher = Batcher(BatchSpec(rows_max=2, wait_s_max=1.0))
    batcher.add(1, now=10.0)
    assert batcher.add(2, now=10.0) == [run_batch(0, (1, 2), "batch-full")]
    batcher.add(3, now=10.5)
    assert batcher.lane_freed(0, now=11.0) == []
    assert batcher.next_deadline() == 11.5
    assert batcher.on_timer(now=11.5)[0] == [run_batch(0, (3,), "waited-enough", waited_s=1.0)]


def test_lanes_run_at_once_and_the_last_used_lane_is_used_first() -> None:
    batcher = Batcher(BatchSpec(lanes=3))
    assert batcher.add(1, now=0.0) == [run_batch(0, (1,), "single")]
    assert batcher.add(2, now=0.0) == [run_batch(1, (2,), "single")]
    assert batcher.running == 2
    assert batcher.lane_freed(0, now=1.0) == []
    assert batcher.add(3, now=1.0) == [run_batch(0, (3,), "single")]
    assert batcher.add(4, now=1.0) == [run_batch(2, (4,), "single")]
    assert batcher.add(5, now=1.0) == []
    assert (batcher.running, batcher.queue_rows) == (3, 1)


def test_each_freed_lane_takes_what_fits_in_order_of_arrival() -> None:
    batcher = Batcher(BatchSpec(rows_max=2, wait_s_max=1.0, lanes=2))
    batcher.add(1, rows=2, now=0.0)
    batcher.add(2, rows=2, now=0.0)
    batcher.add(3, now=0.5)
    batcher.add(4, rows=2, now=0.5)
    batcher.add(5, now=0.5)
    # 3 leaves alone, "full" because 4 does not fit beside it and 5 may not overtake 4.
    assert batcher.lane_freed(1, now=1.0) == [
        run_batch(1, (3,), "batch-full", waited_s=0.5, queue_rows=3)
    ]
    assert batcher.lane_freed(0, now=1.0) == [
        run_batch(0, (4,), "batch-full", rows=2, waited_s=0.5, queue_rows=1)
    ]


# rows


def test_items_of_several_rows_are_never_split_and_never_overtaken() -> None:
    batcher = Batcher(BatchSpec(rows_max=4, wait_s_max=1.0, lanes=2))
    batcher.add(1, rows=3, now=0.0)
    assert batcher.add(2, rows=4, now=0.25) == [
        run_batch(0, (1,), "batch-full", rows=3, waited_s=0.25, queue_rows=4),
        run_batch(1, (2,), "batch-full", rows=4),
    ]


def test_an_item_larger_than_a_batch_is_refused() -> None:
    batcher = Batcher(BatchSpec(rows_max=4))
    assert batcher.add(1, rows=5, now=0.0) == [RefuseItem(1, "too-many-rows")]


def test_the_queue_is_bounded_in_rows() -> None:
    batcher = Batcher(BatchSpec(rows_max=4, wait_s_max=1.0, queue_rows_max=4))
    batcher.add(1, rows=4, now=0.0)
    batcher.add(2, rows=3, now=0.0)
    assert batcher.add(3, rows=2, now=0.0) == [RefuseItem(3, "queue-full")]
    assert batcher.add(4, rows=1, now=0.0) == []
    assert batcher.queue_rows == 4


# preferred sizes


def test_a_preferred_size_leaves_without_waiting() -> None:
    batcher = Batcher(BatchSpec(rows_max=8, wait_s_max=1.0, rows_preferred=(2, 4)))
    assert batcher.add(1, now=0.0) == []
    assert batcher.add(2, now=0.5) == [run_batch(0, (1, 2), "preferred-size", waited_s=0.5)]


def test_a_freed_lane_takes_the_largest_preferred_size_and_leaves_the_rest() -> None:
    batcher = Batcher(BatchSpec(rows_max=8, wait_s_max=1.0, rows_preferred=(2, 4)))
    batcher.add(1, rows=2, now=0.0)
    for ident in range(2, 8):
        batcher.add(ident, now=0.0)
    # No item has waited long enough, yet a preferred size is there.
    assert batcher.lane_freed(0, now=0.5) == [
        run_batch(0, (2, 3, 4, 5), "preferred-size", waited_s=0.5, queue_rows=2)
    ]


def test_items_whose_wait_is_over_leave_in_preferred_sizes_first() -> None:
    batcher = Batcher(BatchSpec(rows_max=8, wait_s_max=1.0, rows_preferred=(2,), lanes=2))
    batcher.add(1, rows=2, now=0.0)
    batcher.add(2, rows=2, now=0.0)
    for ident in (3, 4, 5):
        batcher.add(ident, now=0.0)
    assert batcher.lane_freed(0, now=1.0) == [
        run_batch(0, (3, 4), "preferred-size", waited_s=1.0, queue_rows=1)
    ]
    assert batcher.lane_freed(1, now=1.0) == [run_batch(1, (5,), "lane-free", waited_s=1.0)]


def test_a_preferred_size_that_whole_items_cannot_make_is_not_forced() -> None:
    batcher = Batcher(BatchSpec(rows_max=8, wait_s_max=1.0, rows_preferred=(4,)))
    batcher.add(1, rows=3, now=0.0)
    batcher.add(2, rows=3, now=0.0)
    assert batcher.on_timer(now=1.0)[0] == [
        run_batch(0, (1, 2), "waited-enough", rows=6, waited_s=1.0)
    ]


def test_a_full_batch_counts_as_preferred() -> None:
    batcher = Batcher(BatchSpec(rows_max=4, wait_s_max=1.0, rows_preferred=(3,)))
    batcher.add(1, rows=3, now=0.0)
    batcher.add(2, rows=3, now=0.0)
    batcher.add(3, rows=1, now=0.0)
    batcher.add(4, rows=1, now=0.0)
    assert batcher.lane_freed(0, now=0.5) == [
        run_batch(0, (2, 3), "batch-full", rows=4, waited_s=0.5, queue_rows=1)
    ]


def test_a_preferred_size_skips_over_cancelled_items() -> None:
    """Three were queued and two are left: no preferred size until another comes."""
    batcher = Batcher(BatchSpec(rows_max=8, wait_s_max=1.0, rows_preferred=(3,)))
    batcher.add(1, rows=3, now=0.0)
    for ident in (2, 3, 4):
        batcher.add(ident, now=0.0)
    assert batcher.cancel(3, now=0.0)
    assert batcher.lane_freed(0, now=0.5) == []
    assert batcher.add(5, now=0.75) == [run_batch(0, (2, 4, 5), "preferred-size", waited_s=0.75)]


def test_a_preferred_size_is_made_of_those_that_were_not_cancelled() -> None:
    batcher = Batcher(BatchSpec(rows_max=8, wait_s_max=1.0, rows_preferred=(3,)))
    batcher.add(9, rows=8, now=0.0)
    for ident in (11, 12, 13, 14, 15):
        batcher.add(ident, now=0.0)
    assert batcher.cancel(12, now=0.0)
    assert batcher.lane_freed(0, now=0.5) == [
        run_batch(0, (11, 13, 14), "preferred-size", waited_s=0.5, queue_rows=1)
    ]


def test_no_item_counts_twice_toward_a_preferred_size() -> None:
    batcher = Batcher(BatchSpec(rows_max=8, wait_s_max=1.0, rows_preferred=(2,), priorities=2))
    assert batcher.add(1, now=0.0) == []
    assert batcher.on_timer(now=0.5)[0] == []


def test_a_lower_priority_may_make_the_preferred_size_that_the_higher_cannot() -> None:
    """The second item does not fit beside the first, and nobody overtakes it in its own line."""
    batcher = Batcher(BatchSpec(rows_max=8, wait_s_max=1.0, rows_preferred=(4,), priorities=2))
    batcher.add(9, rows=8, now=0.0)
    batcher.add(1, rows=3, now=0.0)
    batcher.add(2, rows=8, now=0.0)
    batcher.add(3, rows=1, priority=1, now=0.0)
    assert batcher.lane_freed(0, now=0.5) == [
        run_batch(0, (1, 3), "preferred-size", rows=4, waited_s=0.5, queue_rows=8)
    ]


# deadlines and timeouts


def test_an_item_whose_deadline_has_passed_is_refused() -> None:
    batcher = Batcher(BatchSpec())
    assert batcher.add(1, deadline=10.0, now=10.0) == [RefuseItem(1, "deadline-passed")]


def test_the_dead_are_never_computed() -> None:
    batcher = Batcher(BatchSpec(rows_max=2))
    batcher.add(1, rows=2, now=0.0)
    batcher.add(2, deadline=2.0, now=0.0)
    batcher.add(3, deadline=1.0, now=0.0)
    batcher.add(4, now=0.0)
    assert batcher.next_deadline() == 1.0
    assert batcher.on_timer(now=1.0)[0] == [Expire(3, "deadline-passed")]
    assert batcher.next_deadline() == 2.0
    assert batcher.lane_freed(0, now=2.5) == [
        Expire(2, "deadline-passed"),
        run_batch(0, (4,), "lane-free", waited_s=2.5),
    ]


def test_the_dead_make_room_in_a_full_queue() -> None:
    batcher = Batcher(BatchSpec(rows_max=2, queue_rows_max=2))
    batcher.add(1, rows=2, now=0.0)
    batcher.add(2, deadline=1.0, now=0.0)
    batcher.add(3, now=0.0)
    assert batcher.add(4, now=1.0) == [Expire(2, "deadline-passed")]
    assert batcher.queue_rows == 2


def test_while_there_is_room_the_dead_are_left_to_the_timer() -> None:
    """Nobody looks for them where an item fills the queue to the last row, or no batch."""
    batcher = Batcher(BatchSpec(rows_max=2, queue_rows_max=2))
    batcher.add(1, rows=2, now=0.0)
    batcher.add(2, deadline=1.0, now=0.0)
    assert batcher.add(3, now=1.0) == []
    assert batcher.on_timer(now=1.0)[0] == [Expire(2, "deadline-passed")]
    batcher = Batcher(BatchSpec(rows_max=3, wait_s_max=5.0))
    batcher.add(1, deadline=1.0, now=0.0)
    assert batcher.add(2, now=1.0) == []
    assert batcher.on_timer(now=1.0)[0] == [Expire(1, "deadline-passed")]


def test_a_late_timer_does_not_let_a_dead_item_fill_a_batch() -> None:
    batcher = Batcher(BatchSpec(rows_max=2, wait_s_max=5.0))
    batcher.add(1, deadline=1.0, now=0.0)
    assert batcher.add(2, now=1.5) == [Expire(1, "deadline-passed")]
    assert batcher.queue_rows == 1


def test_an_item_expires_when_it_has_queued_too_long() -> None:
    batcher = Batcher(BatchSpec(queue_wait_s_max=2.0))
    batcher.add(1, now=0.0)
    batcher.add(2, now=0.5)
    batcher.add(3, deadline=1.5, now=0.5)
    assert batcher.next_deadline() == 1.5
    assert batcher.on_timer(now=1.5)[0] == [Expire(3, "deadline-passed")]
    assert batcher.next_deadline() == 2.5
    assert batcher.on_timer(now=2.5)[0] == [Expire(2, "queue-timeout")]
    assert batcher.next_deadline() is None


def test_the_first_of_several_timeouts_wakes_the_driver() -> None:
    batcher = Batcher(BatchSpec(rows_max=2, queue_wait_s_max=2.0, priorities=2))
    batcher.add(1, rows=2, now=0.0)
    batcher.add(2, priority=1, now=0.25)
    batcher.add(3, priority=0, now=0.5)
    assert batcher.next_deadline() == 2.25


def test_a_batch_leaves_early_if_measured_runs_say_that_waiting_would_miss_a_deadline() -> None:
    """One run of 0.5 s: its 99th percentile is taken to be 0.75 s, for fewer rows as well."""
    batcher = Batcher(BatchSpec(rows_max=4, wait_s_max=10.0))
    batcher.add(1, rows=4, now=0.0)
    batcher.lane_freed(0, now=0.5)
    batcher.add(2, now=1.0)
    batcher.add(3, deadline=4.0, now=1.0)
    assert batcher.next_deadline() == 3.25
    assert batcher.on_timer(now=3.0)[0] == []
    assert batcher.on_timer(now=3.25)[0] == [run_batch(0, (2, 3), "deadline-near", waited_s=2.25)]


def test_nothing_leaves_early_before_a_run_was_measured() -> None:
    batcher = Batcher(BatchSpec(rows_max=4, wait_s_max=10.0))
    batcher.add(1, deadline=4.0, now=1.0)
    assert batcher.next_deadline() == 4.0
    assert batcher.on_timer(now=4.0)[0] == [Expire(1, "deadline-passed")]


def test_what_cannot_be_answered_in_time_is_refused_at_once() -> None:
    batcher = Batcher(BatchSpec())
    batcher.add(1, now=0.0)
    batcher.lane_freed(0, now=0.5)
    assert batcher.add(2, deadline=1.25, now=1.0) == [RefuseItem(2, "deadline-cannot-be-met")]
    assert batcher.add(3, deadline=1.5, now=1.0) == [run_batch(0, (3,), "single")]


def test_deadlines_count_as_much_for_the_hundredth_item_as_for_the_first() -> None:
    spec = BatchSpec(rows_max=4, wait_s_max=5.0, buckets=(32, 64), runs_measured=((4, 64, 1.0),))
    batcher = Batcher(spec)
    for ident in range(1, 100):
        batcher.add(ident, now=0.0)
        assert batcher.cancel(ident, now=0.0)
    batcher.add(100, length=64, deadline=4.0, now=0.0)
    assert batcher.next_deadline() == 2.5
    assert batcher.on_timer(now=3.25)[0] == [Expire(100, "deadline-cannot-be-met")]
    batcher.add(101, rows=4, now=4.0)
    batcher.add(102, length=32, deadline=9.0, now=4.0)
    batcher.add(103, length=64, deadline=8.0, now=4.0)
    assert batcher.next_deadline() == 8.0


def test_what_would_be_late_is_dropped_before_its_batch_leaves() -> None:
    """A run takes 1 s; while the lane was busy, time ran out for 3 and not for 2 and 4."""
    batcher = Batcher(BatchSpec(rows_max=4))
    batcher.add(1, rows=4, now=0.0)
    batcher.lane_freed(0, now=1.0)
    batcher.add(5, rows=4, now=1.0)
    batcher.add(2, deadline=4.0, now=1.0)
    batcher.add(3, deadline=2.75, now=1.0)
    batcher.add(4, deadline=3.0, now=1.0)
    assert batcher.lane_freed(0, now=2.0) == [
        Expire(3, "deadline-cannot-be-met"),
        run_batch(0, (2, 4), "lane-free", waited_s=1.0),
    ]


def test_a_full_batch_is_judged_by_its_own_run_time() -> None:
    """1 row takes 1 s and 4 rows 2 s: with four waiting, 1.5 s are too few; with three enough."""
    measured = ((1, 0, 1.0), (2, 0, 1.25), (4, 0, 2.0))
    batcher = Batcher(BatchSpec(rows_max=4, runs_measured=measured))
    batcher.add(1, rows=4, now=0.0)
    for ident in (2, 3, 4):
        batcher.add(ident, now=1.0)
    batcher.add(5, deadline=3.5, now=1.0)
    assert batcher.lane_freed(0, now=2.0) == [
        Expire(5, "deadline-cannot-be-met"),
        run_batch(0, (2, 3, 4), "lane-free", waited_s=1.0),
    ]


def test_a_forecast_is_never_its_own_proof() -> None:
    """After 15 items were given up in a row, one runs anyhow, so that the estimate can improve."""
    batcher = Batcher(BatchSpec())
    batcher.add(0, now=0.0)
    batcher.lane_freed(0, now=1.0)
    for ident in range(1, 16):
        assert batcher.add(ident, deadline=1.5, now=1.0) == [
            RefuseItem(ident, "deadline-cannot-be-met")
        ]
    assert batcher.add(16, deadline=1.5, now=1.0) == [run_batch(0, (16,), "single")]
    batcher.lane_freed(0, now=1.25)  # it was a warm-up that took so long
    assert batcher.add(17, deadline=1.5, now=1.25) == [run_batch(0, (17,), "single")]


def test_of_those_that_wait_fifteen_in_a_row_may_be_given_up_as_well() -> None:
    batcher = Batcher(BatchSpec(runs_measured=((1, 0, 1.0),)))
    batcher.add(0, now=1.0)
    for ident in range(1, 18):
        assert batcher.add(ident, deadline=2.5, now=1.0) == []
    assert batcher.lane_freed(0, now=2.0) == [
        *(Expire(ident, "deadline-cannot-be-met") for ident in range(1, 16)),
        run_batch(0, (16,), "single", waited_s=1.0, queue_rows=1),
    ]


def test_a_late_deadline_of_an_item_that_left_gives_up_nobody() -> None:
    batcher = Batcher(BatchSpec(rows_max=2, runs_measured=((1, 0, 1.0), (2, 0, 1.0))))
    batcher.add(0, rows=2, now=1.0)
    batcher.add(1, deadline=2.5, now=1.0)
    batcher.add(2, deadline=9.0, now=1.0)
    assert batcher.cancel(1, now=1.0)
    assert batcher.lane_freed(0, now=2.0) == [run_batch(0, (2,), "lane-free", waited_s=1.0)]


def test_after_the_one_that_runs_anyhow_the_forecast_counts_again() -> None:
    """It took as long as was forecast: fifteen more are given up before the next is tried."""
    batcher = Batcher(BatchSpec())
    batcher.add(0, now=0.0)
    batcher.lane_freed(0, now=1.0)
    for ident in range(1, 16):
        batcher.add(ident, deadline=1.5, now=1.0)
    assert batcher.add(16, deadline=1.5, now=1.0) == [run_batch(0, (16,), "single")]
    batcher.lane_freed(0, now=2.0)
    for ident in range(17, 32):
        assert batcher.add(ident, deadline=2.5, now=2.0) == [
            RefuseItem(ident, "deadline-cannot-be-met")
        ]
    assert batcher.add(32, deadline=2.5, now=2.0) == [run_batch(0, (32,), "single")]


def test_a_deadline_behind_the_end_of_the_wait_hurries_a_batch_too() -> None:
    """The wait ends at 12.0 s and the deadline is 12.75 s, but a run may take 1.5 s."""
    spec = BatchSpec(rows_max=4, wait_s_max=2.0, runs_measured=((1, 0, 1.0),))
    batcher = Batcher(spec)
    assert batcher.add(1, deadline=12.75, now=10.0) == []
    assert batcher.next_deadline() == 11.25
    assert batcher.on_timer(now=11.0)[0] == []
    assert batcher.on_timer(now=11.25)[0] == [run_batch(0, (1,), "deadline-near", waited_s=1.25)]


def test_a_run_whose_worker_was_replaced_is_not_timed() -> None:
    batcher = Batcher(BatchSpec(lanes=2))
    batcher.add(1, now=0.0)
    batcher.add(2, now=0.0)
    assert batcher.lane_freed(1, now=60.0, timed=False) == []
    batcher.give_back(now=60.0)
    assert batcher.lane_freed(0, now=90.0) == []
    assert batcher.snapshot()["run_times"] == []


def test_what_ran_ahead_of_a_replaced_worker_is_not_timed_either() -> None:
    """When its run began is not known: the lane was not computing all the while."""
    batcher = Batcher(BatchSpec(batches_ahead=1))
    batcher.add(1, now=0.0)
    assert batcher.add(2, now=0.0) == [run_batch(0, (2,), "single")]
    assert batcher.lane_freed(0, now=60.0, timed=False) == []
    assert batcher.lane_freed(0, now=61.0) == []
    batcher.add(3, now=100.0)
    batcher.add(4, now=100.0)
    batcher.give_back(now=101.0)
    assert batcher.lane_freed(0, now=160.0) == []
    assert batcher.lane_freed(0, now=161.0) == []
    assert batcher.snapshot()["run_times"] == []


def test_the_deadline_of_an_item_that_left_only_moves_the_timer() -> None:
    batcher = Batcher(BatchSpec(rows_max=4, wait_s_max=10.0))
    batcher.add(1, deadline=2.0, now=0.0)
    batcher.add(2, deadline=9.0, now=0.0)
    assert batcher.cancel(1, now=0.0)
    assert batcher.next_deadline() == 2.0
    assert batcher.on_timer(now=2.0)[0] == []
    assert batcher.next_deadline() == 9.0


def test_once_nothing_waits_no_deadline_of_before_wakes_the_driver() -> None:
    batcher = Batcher(BatchSpec(rows_max=2))
    batcher.add(1, deadline=50.0, now=0.0)
    assert batcher.on_timer(now=0.0)[0] == [run_batch(0, (1,), "lane-free")]
    batcher.add(2, now=1.0)
    assert batcher.next_deadline() is None
    batcher.add(3, deadline=60.0, now=1.0)
    assert batcher.cancel(3, now=1.0)
    assert batcher.cancel(2, now=1.0)
    batcher.add(4, now=1.0)
    assert batcher.next_deadline() is None


def test_a_near_deadline_of_an_item_that_left_only_moves_the_timer() -> None:
    batcher = Batcher(BatchSpec(rows_max=4, wait_s_max=10.0))
    batcher.add(1, rows=4, now=0.0)
    batcher.lane_freed(0, now=1.0)  # from now on 1.5 s early
    batcher.add(2, deadline=6.0, now=1.0)
    batcher.add(3, deadline=8.0, now=1.0)
    assert batcher.cancel(2, now=1.0)
    assert batcher.next_deadline() == 4.5
    assert batcher.on_timer(now=4.5)[0] == []
    assert batcher.next_deadline() == 6.5


# priorities


def test_higher_priorities_leave_first_and_each_in_order_of_arrival() -> None:
    batcher = Batcher(BatchSpec(rows_max=3, priorities=3))
    batcher.add(1, rows=3, now=0.0)
    batcher.add(2, priority=2, now=0.25)
    batcher.add(3, priority=0, now=0.5)
    batcher.add(4, priority=7, now=0.5)  # beyond the last level: counts as the last
    batcher.add(5, priority=0, now=0.75)
    assert batcher.lane_freed(0, now=1.0) == [
        run_batch(0, (3, 5, 2), "batch-full", waited_s=0.75, queue_rows=1)
    ]


def test_an_item_without_a_priority_is_served_first() -> None:
    batcher = Batcher(BatchSpec(priorities=2))
    batcher.add(1, now=0.0)
    batcher.add(2, priority=1, now=0.25)
    batcher.add(3, now=0.5)
    assert batcher.lane_freed(0, now=1.0) == [
        run_batch(0, (3,), "single", waited_s=0.5, queue_rows=1)
    ]


def test_a_full_batch_of_a_low_priority_leaves_at_once() -> None:
    batcher = Batcher(BatchSpec(rows_max=2, wait_s_max=1.0, priorities=2))
    assert batcher.add(1, priority=1, now=0.0) == []
    assert batcher.add(2, priority=1, now=0.0) == [run_batch(0, (1, 2), "batch-full")]


@pytest.mark.parametrize(("first", "second", "ids"), [(0, 1, (1, 2)), (1, 0, (2, 1))])
def test_the_wait_begins_with_the_oldest_item_of_any_priority(
    first: int, second: int, ids: tuple[int, ...]
) -> None:
    batcher = Batcher(BatchSpec(rows_max=4, wait_s_max=1.0, priorities=2))
    batcher.add(1, priority=first, now=10.0)
    batcher.add(2, priority=second, now=10.5)
    assert batcher.next_deadline() == 11.0
    assert batcher.on_timer(now=11.0)[0] == [run_batch(0, ids, "waited-enough", waited_s=1.0)]


def test_a_lower_priority_may_fill_rows_that_the_higher_cannot_use() -> None:
    batcher = Batcher(BatchSpec(rows_max=3, priorities=2))
    batcher.add(1, rows=3, now=0.0)
    batcher.add(2, rows=2, priority=0, now=0.5)
    batcher.add(3, rows=2, priority=0, now=0.5)
    batcher.add(4, rows=2, priority=1, now=0.5)
    batcher.add(5, rows=1, priority=1, now=0.5)
    assert batcher.lane_freed(0, now=1.0) == [
        run_batch(0, (2,), "batch-full", rows=2, waited_s=0.5, queue_rows=5)
    ]
    assert batcher.cancel(4, now=1.0)
    assert batcher.lane_freed(0, now=1.5) == [
        run_batch(0, (3, 5), "batch-full", rows=3, waited_s=1.0)
    ]


def test_a_batch_has_waited_as_long_as_the_oldest_item_that_is_in_it() -> None:
    """The item of the lower priority has waited longer, but does not fit."""
    batcher = Batcher(BatchSpec(rows_max=3, priorities=2))
    batcher.add(9, rows=3, now=0.0)
    batcher.add(1, rows=2, priority=1, now=0.25)
    batcher.add(2, rows=2, priority=0, now=0.5)
    assert batcher.lane_freed(0, now=1.0) == [
        run_batch(0, (2,), "batch-full", rows=2, waited_s=0.5, queue_rows=2)
    ]


def test_no_priority_starves() -> None:
    """Seven batches may pass over a longer-waiting item; the eighth is led by it."""
    batcher = Batcher(BatchSpec(rows_max=1, priorities=2))
    batcher.add(0, now=0.0)
    batcher.add(100, priority=1, now=0.0)
    for ident in range(1, 10):
        batcher.add(ident, priority=0, now=0.0)
    order = [batcher.lane_freed(0, now=0.0)[0] for _ in range(10)]
    assert [batch.ids for batch in order if isinstance(batch, RunBatch)] == [
        (1,), (2,), (3,), (4,), (5,), (6,), (7,), (100,), (8,), (9,)
    ]  # fmt: skip


def test_each_that_waits_long_is_passed_over_seven_times_anew() -> None:
    batcher = Batcher(BatchSpec(rows_max=1, priorities=2))
    batcher.add(0, now=0.0)
    batcher.add(100, priority=1, now=0.0)
    batcher.add(101, priority=1, now=0.0)
    for ident in range(1, 17):
        batcher.add(ident, priority=0, now=0.0)
    order = [batcher.lane_freed(0, now=0.0)[0] for _ in range(18)]
    assert [batch.ids for batch in order if isinstance(batch, RunBatch)] == [
        (1,), (2,), (3,), (4,), (5,), (6,), (7,), (100,),
        (8,), (9,), (10,), (11,), (12,), (13,), (14,), (101,), (15,), (16,)
    ]  # fmt: skip


def test_no_priority_starves_in_a_bucket_of_its_own() -> None:
    """The eighth batch is led by the longest-waiting item of all ready buckets."""
    batcher = Batcher(BatchSpec(rows_max=1, priorities=2, buckets=(16, 64)))
    batcher.add(0, length=16, now=0.0)
    batcher.add(100, length=64, priority=1, now=0.0)
    for ident in range(1, 10):
        batcher.add(ident, length=16, priority=0, now=0.0)
    order = [batcher.lane_freed(0, now=0.0)[0] for _ in range(10)]
    assert [batch.ids for batch in order if isinstance(batch, RunBatch)] == [
        (1,), (2,), (3,), (4,), (5,), (6,), (7,), (100,), (8,), (9,)
    ]  # fmt: skip


def test_a_queue_that_was_empty_owes_nobody_a_turn() -> None:
    """Five were passed over by; then the queue emptied, and the seven are counted from there."""
    batcher = Batcher(BatchSpec(rows_max=1, priorities=2))
    batcher.add(0, now=0.0)
    batcher.add(100, priority=1, now=0.0)
    for ident in range(1, 6):
        batcher.add(ident, priority=0, now=0.0)
        batcher.lane_freed(0, now=0.0)
    assert batcher.cancel(100, now=0.0)
    batcher.add(101, priority=1, now=0.0)
    for ident in range(6, 15):
        batcher.add(ident, priority=0, now=0.0)
    order = [batcher.lane_freed(0, now=0.0)[0] for _ in range(10)]
    assert [batch.ids for batch in order if isinstance(batch, RunBatch)] == [
        (6,), (7,), (8,), (9,), (10,), (11,), (12,), (101,), (13,), (14,)
    ]  # fmt: skip


# buckets


def test_items_are_batched_with_their_own_bucket() -> None:
    batcher = Batcher(BatchSpec(rows_max=2, wait_s_max=1.0, lanes=2, buckets=(16, 64)))
    assert batcher.add(1, length=16, now=0.0) == []
    assert batcher.add(2, length=17, now=0.25) == []
    assert batcher.add(3, length=0, now=0.5) == [
        run_batch(0, (1, 3), "batch-full", bucket=16, waited_s=0.5, queue_rows=1)
    ]
    assert batcher.on_timer(now=1.25)[0] == [
        run_batch(1, (2,), "waited-enough", bucket=64, waited_s=1.0)
    ]


def test_items_longer_than_the_last_bucket_belong_to_the_last() -> None:
    batcher = Batcher(BatchSpec(rows_max=2, buckets=(16, 64)))
    batcher.add(1, length=64, now=0.0)
    assert batcher.add(2, length=1000, now=0.0) == [run_batch(0, (1, 2), "batch-full", bucket=64)]


def test_an_item_that_fills_a_batch_alone_leaves_at_once_in_its_bucket() -> None:
    batcher = Batcher(BatchSpec(rows_max=2, wait_s_max=1.0, buckets=(16, 64)))
    assert batcher.add(1, rows=2, length=17, now=0.0) == [
        run_batch(0, (1,), "batch-full", rows=2, bucket=64)
    ]


def test_among_ready_buckets_the_longest_waiting_leads() -> None:
    batcher = Batcher(BatchSpec(rows_max=4, buckets=(16, 64)))
    batcher.add(1, rows=4, now=0.0)
    batcher.add(2, length=64, now=0.25)
    batcher.add(3, length=16, now=0.5)
    assert batcher.lane_freed(0, now=1.0) == [
        run_batch(0, (2,), "lane-free", bucket=64, waited_s=0.75, queue_rows=1)
    ]


def test_shorter_items_ride_along_if_padding_at_most_doubles_them() -> None:
    """24 would be padded to more than twice its length; 32 to twice."""
    batcher = Batcher(BatchSpec(rows_max=4, buckets=(24, 32, 64)))
    batcher.add(1, rows=4, now=0.0)
    batcher.add(2, length=64, now=0.25)
    batcher.add(3, length=24, now=0.5)
    batcher.add(4, length=32, now=0.5)
    batcher.add(5, length=32, rows=3, now=0.5)
    assert batcher.lane_freed(0, now=1.0) == [
        run_batch(0, (2, 4), "lane-free", bucket=64, waited_s=0.75, queue_rows=4)
    ]
    assert batcher.snapshot()["queue_rows_by_bucket"] == [
        {"bucket": 24, "rows": 1}, {"bucket": 32, "rows": 3}, {"bucket": 64, "rows": 0}
    ]  # fmt: skip


def test_riders_come_from_every_bucket_that_is_long_enough_until_the_batch_is_full() -> None:
    batcher = Batcher(BatchSpec(rows_max=4, buckets=(32, 48, 64)))
    batcher.add(1, rows=4, now=0.0)
    batcher.add(2, length=64, now=0.25)
    batcher.add(3, length=48, now=0.5)
    batcher.add(4, length=32, rows=2, now=0.5)
    assert batcher.lane_freed(0, now=1.0) == [
        run_batch(0, (2, 3, 4), "lane-free", rows=4, bucket=64, waited_s=0.75)
    ]


def test_no_item_rides_with_a_bucket_that_is_shorter_than_itself() -> None:
    batcher = Batcher(BatchSpec(rows_max=4, buckets=(16, 32, 64)))
    batcher.add(1, rows=4, now=0.0)
    batcher.add(2, length=32, now=0.25)
    batcher.add(3, length=64, now=0.5)
    assert batcher.lane_freed(0, now=1.0) == [
        run_batch(0, (2,), "lane-free", bucket=32, waited_s=0.75, queue_rows=1)
    ]


def test_a_rider_may_have_waited_longest() -> None:
    batcher = Batcher(BatchSpec(rows_max=4, buckets=(32, 64), priorities=2))
    batcher.add(1, rows=4, now=0.0)
    batcher.add(2, length=32, priority=1, now=0.25)
    batcher.add(3, length=64, priority=0, now=0.5)
    assert batcher.lane_freed(0, now=1.0) == [
        run_batch(0, (3, 2), "lane-free", bucket=64, waited_s=0.75)
    ]


def test_nobody_rides_along_while_another_lane_is_free() -> None:
    batcher = Batcher(BatchSpec(rows_max=4, lanes=2, buckets=(32, 64)))
    batcher.add(1, length=64, now=0.0)
    batcher.add(2, length=32, now=0.0)
    assert batcher.on_timer(now=0.0)[0] == [
        run_batch(0, (1,), "lane-free", bucket=64, queue_rows=1),
        run_batch(1, (2,), "lane-free", bucket=32),
    ]


@pytest.mark.parametrize("level_s", [None, 100.0])
def test_nobody_rides_along_before_his_own_wait_is_over(level_s: float | None) -> None:
    """Nor where a service level is set, which leaves a wait that is set as it is."""
    spec = BatchSpec(rows_max=4, wait_s_max=1.0, buckets=(32, 64), latency_s_p99_max=level_s)
    batcher = Batcher(spec)
    batcher.add(1, length=64, now=10.0)
    batcher.add(2, length=32, now=10.5)
    assert batcher.on_timer(now=11.0)[0] == [
        run_batch(0, (1,), "waited-enough", bucket=64, waited_s=1.0, queue_rows=1)
    ]
    batcher = Batcher(spec)
    batcher.add(1, length=64, now=10.0)
    batcher.add(2, length=32, now=10.0)
    assert batcher.on_timer(now=11.0)[0] == [
        run_batch(0, (1, 2), "waited-enough", bucket=64, waited_s=1.0)
    ]


def test_a_near_deadline_hurries_its_own_bucket_only() -> None:
    batcher = Batcher(BatchSpec(rows_max=4, wait_s_max=10.0, lanes=2, buckets=(32, 64)))
    batcher.add(1, rows=4, now=0.0)
    batcher.lane_freed(0, now=1.0)  # from now on 3 s early
    batcher.add(2, length=32, now=1.0)
    batcher.add(3, length=64, deadline=5.0, now=1.0)
    assert batcher.on_timer(now=2.0)[0] == [
        run_batch(0, (3,), "deadline-near", bucket=64, waited_s=1.0, queue_rows=1)
    ]


# cancel, drain, give back


def test_a_queued_item_can_be_cancelled_a_running_one_cannot() -> None:
    batcher = Batcher(BatchSpec())
    batcher.add(1, now=0.0)
    batcher.add(2, now=0.0)
    assert batcher.cancel(2, now=0.5) is True
    assert batcher.cancel(2, now=0.5) is False
    assert batcher.cancel(1, now=0.5) is False
    assert batcher.lane_freed(0, now=1.0) == []


def test_an_item_may_come_again_after_its_cancellation() -> None:
    batcher = Batcher(BatchSpec(rows_max=2))
    batcher.add(9, rows=2, now=0.0)
    batcher.add(1, now=0.0)
    batcher.add(2, now=0.0)
    batcher.cancel(2, now=0.0)
    batcher.add(2, now=0.5)
    batcher.check_invariants()
    assert batcher.lane_freed(0, now=1.0) == [run_batch(0, (1, 2), "batch-full", waited_s=1.0)]
    batcher.check_invariants()


def test_cancelling_most_of_a_long_queue_keeps_the_rest_in_order() -> None:
    batcher = Batcher(BatchSpec(rows_max=200, queue_rows_max=200))
    batcher.add(0, rows=200, now=0.0)
    for ident in range(1001, 1201):
        batcher.add(ident, deadline=50.0, now=0.0)
    for ident in range(1002, 1200):
        assert batcher.cancel(ident, now=0.5)
        batcher.check_invariants()
    freed = batcher.lane_freed(0, now=1.0)
    assert freed == [run_batch(0, (1001, 1200), "lane-free", waited_s=1.0)]


def test_a_crowd_that_expires_at_once_leaves_nothing_behind() -> None:
    batcher = Batcher(BatchSpec(queue_wait_s_max=2.0, queue_rows_max=300, priorities=2))
    batcher.add(0, now=0.0)
    for ident in range(1, 201):
        batcher.add(ident, now=0.0, priority=ident % 2)
    batcher.add(300, now=1.0)
    expired = batcher.on_timer(now=2.0)[0]
    assert sorted(action.id for action in expired if isinstance(action, Expire)) == list(
        range(1, 201)
    )
    batcher.check_invariants()
    assert batcher.lane_freed(0, now=2.5) == [run_batch(0, (300,), "single", waited_s=1.5)]


def test_many_deadlines_of_items_that_left_are_swept() -> None:
    """A queue that is never empty, as under overload: deadlines of those gone are forgotten."""
    batcher = Batcher(BatchSpec(rows_max=2))
    batcher.add(0, rows=2, deadline=70.0, now=0.0)
    batcher.add(1, deadline=70.0, now=0.0)
    for ident in range(2, 402, 2):
        batcher.add(ident, deadline=80.0, now=0.0)
        batcher.add(ident + 1, deadline=90.0, now=0.0)
        assert batcher.lane_freed(0, now=0.0) == [
            run_batch(0, (ident - 1, ident), "batch-full", queue_rows=1)
        ]
        batcher.check_invariants()
    assert batcher.on_timer(now=80.0)[0] == []
    assert batcher.next_deadline() == 90.0
    assert batcher.on_timer(now=90.0)[0] == [Expire(401, "deadline-passed")]


def test_a_sweep_forgets_the_deadlines_of_those_that_left_and_of_no_other() -> None:
    """On a busy lane the timer shows it: it is set to the first deadline that is watched."""
    batcher = Batcher(BatchSpec(rows_max=8, queue_rows_max=80))
    batcher.add(0, rows=8, now=0.0)
    batcher.add(100, deadline=10.0, now=0.0)
    batcher.add(1, deadline=90.0, now=0.0)
    batcher.add(2, deadline=80.0, now=0.0)
    assert batcher.cancel(100, now=0.0)
    for ident in range(101, 166):
        batcher.add(ident, deadline=95.0, now=0.0)
        assert batcher.cancel(ident, now=0.0)
    assert batcher.next_deadline() == 10.0  # 64 of those that left, and two for each that waits
    batcher.add(3, deadline=99.0, now=0.0)
    assert batcher.next_deadline() == 80.0
    batcher.check_invariants()
    assert batcher.on_timer(now=80.0)[0] == [Expire(2, "deadline-passed")]
    assert batcher.next_deadline() == 90.0
    assert batcher.on_timer(now=99.0)[0] == [
        Expire(1, "deadline-passed"),
        Expire(3, "deadline-passed"),
    ]


def test_draining_refuses_the_new_and_runs_the_old_without_delay() -> None:
    batcher = Batcher(BatchSpec(rows_max=2, wait_s_max=10.0, lanes=1))
    batcher.add(1, rows=2, now=0.0)
    batcher.add(2, now=0.0)
    assert batcher.drain(now=1.0) == []
    assert batcher.add(3, now=1.0) == [RefuseItem(3, "draining")]
    assert batcher.lane_freed(0, now=2.0) == [run_batch(0, (2,), "draining", waited_s=2.0)]
    assert batcher.lane_freed(0, now=3.0) == []
    assert batcher.drain(now=4.0) == []


def test_draining_starts_a_waiting_batch_at_once() -> None:
    batcher = Batcher(BatchSpec(rows_max=2, wait_s_max=10.0))
    batcher.add(1, now=0.0)
    assert batcher.drain(now=1.0) == [run_batch(0, (1,), "draining", waited_s=1.0)]


def test_draining_runs_nothing_that_is_dead() -> None:
    batcher = Batcher(BatchSpec(rows_max=2, wait_s_max=10.0))
    batcher.add(1, deadline=1.0, now=0.0)
    assert batcher.drain(now=1.0) == [Expire(1, "deadline-passed")]


def test_what_was_given_back_no_longer_wakes_the_driver() -> None:
    batcher = Batcher(BatchSpec())
    batcher.add(1, now=0.0)
    batcher.add(2, deadline=5.0, now=0.0)
    assert batcher.give_back(now=1.0) == (2,)
    batcher.add(3, deadline=9.0, now=1.0)
    assert batcher.next_deadline() == 9.0


def test_giving_back_empties_the_queue_oldest_first() -> None:
    """The worker died: the gateway sends these to another copy."""
    batcher = Batcher(BatchSpec(rows_max=2, priorities=2))
    batcher.add(1, rows=2, now=0.0)
    batcher.add(2, priority=1, deadline=9.0, now=0.0)
    batcher.add(3, priority=0, now=0.0)
    assert batcher.give_back(now=1.0) == (2, 3)
    assert (batcher.queue_rows, batcher.running) == (0, 1)
    assert batcher.next_deadline() is None
    batcher.check_invariants()
    assert batcher.give_back(now=1.0) == ()


def test_a_snapshot_explains_what_waits() -> None:
    batcher = Batcher(BatchSpec(rows_max=4, wait_s_max=0.5, lanes=2, buckets=(16, 64)))
    batcher.add(1, rows=4, length=64, now=1.0)
    batcher.add(2, rows=3, length=64, now=2.0)
    batcher.add(3, rows=1, length=16, now=3.0)
    assert batcher.snapshot() == {
        "queue_items": 2,
        "queue_rows": 4,
        "queue_rows_by_bucket": [{"bucket": 16, "rows": 1}, {"bucket": 64, "rows": 3}],
        "run_here": None,
        "oldest_arrived": 2.0,
        "lanes": 2,
        "running": 1,
        "ahead": 0,
        "draining": False,
        "run_times": [],
        "next_deadline": 2.5,
    }
    idle = Batcher(BatchSpec()).snapshot()
    assert (idle["oldest_arrived"], idle["queue_rows_by_bucket"]) == (
        None,
        [{"bucket": 0, "rows": 0}],
    )


# what is our own fault


def test_freeing_an_idle_lane_is_a_bug_of_the_driver() -> None:
    with pytest.raises(AssertionError, match="nothing runs on lane 0"):
        Batcher(BatchSpec()).lane_freed(0, now=0.0)


def test_queueing_an_item_twice_is_a_bug_of_the_driver() -> None:
    batcher = Batcher(BatchSpec(rows_max=2))
    batcher.add(1, now=0.0)
    with pytest.raises(AssertionError, match="item 1 is queued already"):
        batcher.add(1, now=0.0)


# settings


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"rows_max": 0}, "rows_max"),
        ({"wait_s_max": -0.5}, "wait_s_max"),
        ({"wait_s_max": float("inf")}, "wait_s_max"),
        ({"lanes": 0}, "lanes"),
        ({"rows_max": 8, "queue_rows_max": 7}, "queue_rows_max"),
        ({"wait_s_max": 1.0, "queue_wait_s_max": 1.0}, "queue_wait_s_max"),
        ({"rows_max": 8, "rows_preferred": (4, 9)}, "rows_preferred"),
        ({"rows_max": 8, "rows_preferred": (0, 4)}, "rows_preferred"),
        ({"buckets": (16, 16)}, "buckets"),
        ({"buckets": (0, 16)}, "buckets"),
        ({"priorities": 0}, "priorities"),
        ({"latency_s_p99_max": 0.0}, "latency_s_p99_max"),
        ({"latency_s_p99_max": float("inf")}, "latency_s_p99_max"),
        ({"runs_measured": ((2, 0, 0.5),)}, "runs_measured"),
        ({"runs_measured": ((0, 0, 0.5),)}, "runs_measured"),
        ({"runs_measured": ((1, 0, 0.0),)}, "runs_measured"),
        ({"runs_measured": ((1, 0, float("inf")),)}, "runs_measured"),
    ],
)
def test_wrong_settings_name_their_key(settings: dict[str, object], key: str) -> None:
    with pytest.raises(CallerError) as caught:
        BatchSpec(**settings)  # type: ignore[arg-type]
    assert caught.value.code == "invalid-batching"
    assert caught.value.message.startswith(f"batching.{key} is {settings[key]!r}; allowed: ")


def test_a_preferred_size_may_be_the_largest_and_a_bucket_the_shortest() -> None:
    spec = BatchSpec(rows_max=8, rows_preferred=(1, 8), buckets=(1,))
    assert (spec.rows_preferred, spec.buckets) == ((1, 8), (1,))


def test_unless_said_otherwise_2048_rows_may_wait() -> None:
    batcher = Batcher(BatchSpec())
    batcher.add(0, now=0.0)
    assert [batcher.add(ident, now=0.0) for ident in range(1, 2049)] == [[]] * 2048
    assert batcher.add(2049, now=0.0) == [RefuseItem(2049, "queue-full")]


def test_unless_said_otherwise_all_items_are_of_one_priority() -> None:
    batcher = Batcher(BatchSpec())
    batcher.add(0, now=0.0)
    batcher.add(1, priority=1, now=0.0)
    batcher.add(2, priority=0, now=0.0)
    assert batcher.lane_freed(0, now=1.0) == [
        run_batch(0, (1,), "single", waited_s=1.0, queue_rows=1)
    ]
