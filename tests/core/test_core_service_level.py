"""A latency instead of knobs: when batches leave and how large they are, as timelines.

The copy is known to take 1 s and half a second per row, 99th percentile one and a half times as
long; the level is 10 s, of which 9 s are the batcher's.
"""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.batching.batcher import Batcher, BatchSpec, RunBatch

RUNS = ((1, 0, 1.5), (2, 0, 2.0), (4, 0, 3.0), (8, 0, 5.0), (16, 0, 9.0))


def batcher(**spec: object) -> Batcher:
    settings = {"rows_max": 16, "latency_s_p99_max": 10.0, "runs_measured": RUNS} | spec
    return Batcher(BatchSpec(**settings))  # type: ignore[arg-type]


def test_a_lone_item_on_an_idle_copy_leaves_at_once() -> None:
    alone = batcher()
    alone.add(1, now=0.0)
    assert alone.next_deadline() == 0.0
    assert alone.on_timer(now=0.0)[0] == [RunBatch(0, (1,), 1, 0, 0.0, 0, "lane-free")]


def test_beside_its_actions_the_timer_says_when_to_call_again() -> None:
    """Nothing waits after a lone item has left; a second one waits for the lane alone."""
    alone = batcher()
    alone.add(1, now=0.0)
    assert alone.on_timer(now=0.0)[1] is None
    alone.add(2, deadline=20.0, now=0.5)
    assert alone.on_timer(now=0.5) == ([], 20.0)
    knob = batcher(wait_s_max=0.5)
    knob.add(1, now=0.0)
    assert knob.on_timer(now=0.25) == ([], 0.5)


def test_while_items_come_often_a_batch_waits_for_what_joining_saves() -> None:
    """Gaps of 0.1 s: two rows may wait half a second more, to save the 1 s of a run of its own."""
    waiting = batcher()
    for ident in range(60):
        waiting.add(ident, now=ident * 0.1)
        waiting.cancel(ident, now=ident * 0.1)
    waiting.add(60, now=6.0)
    waiting.add(61, now=6.1)
    due = waiting.next_deadline()
    assert due is not None
    assert round(due, 6) == 6.6
    assert waiting.on_timer(now=6.5)[0] == []
    (action,) = waiting.on_timer(now=due)[0]
    assert isinstance(action, RunBatch)
    assert (action.ids, action.reason) == ((60, 61), "waited-enough")


def test_whatever_pays_the_oldest_is_not_kept_beyond_the_level() -> None:
    """Saving 90 s pays for a long wait, but a run of 2 rows may take 150 s of the 180."""
    runs = ((1, 0, 95.0), (2, 0, 100.0), (16, 0, 170.0))
    slow = batcher(latency_s_p99_max=200.0, runs_measured=runs)
    for ident in range(60):
        slow.add(ident, now=ident * 0.5)
        slow.cancel(ident, now=ident * 0.5)
    slow.add(60, now=30.0)
    slow.add(61, now=30.5)
    assert slow.next_deadline() == 60.0
    assert slow.on_timer(now=59.0)[0] == []
    assert slow.on_timer(now=60.0)[0] == [RunBatch(0, (60, 61), 2, 0, 30.0, 0, "service-level")]


def test_a_batch_takes_what_ends_within_the_budget_of_its_oldest() -> None:
    """12 rows wait; the oldest has 6 s left, which 10 rows are expected to need."""
    behind = batcher()
    behind.add(0, rows=16, now=100.0)
    for ident in range(101, 113):
        behind.add(ident, now=100.0)
    (action,) = behind.lane_freed(0, now=103.0, timed=False)
    assert isinstance(action, RunBatch)
    assert (action.rows, action.queue_rows, action.reason) == (10, 2, "service-level")


def test_where_the_oldest_is_late_anyway_rate_is_what_helps() -> None:
    behind = batcher()
    behind.add(0, rows=16, now=0.0)
    for ident in range(1, 13):
        behind.add(ident, now=0.0)
    (action,) = behind.lane_freed(0, now=9.0, timed=False)
    assert isinstance(action, RunBatch)
    assert (action.rows, action.reason) == (12, "lane-free")


def test_a_size_that_would_cost_rate_is_not_cut() -> None:
    """2.5 s are left: 3 rows are expected to fit, at little more than half the rate of 12."""
    behind = batcher()
    behind.add(0, rows=16, now=0.0)
    for ident in range(1, 13):
        behind.add(ident, now=0.0)
    (action,) = behind.lane_freed(0, now=6.5, timed=False)
    assert isinstance(action, RunBatch)
    assert action.rows == 12


def test_a_size_that_keeps_just_four_fifths_of_the_rate_is_cut() -> None:
    """4 of 10 rows fit into the 3.25 s that are left: 4 in 3 s, and 10 would be done in 6 s."""
    behind = batcher()
    behind.add(0, rows=16, now=0.0)
    for ident in range(1, 11):
        behind.add(ident, now=0.0)
    (action,) = behind.lane_freed(0, now=5.75, timed=False)
    assert isinstance(action, RunBatch)
    assert (action.rows, action.queue_rows, action.reason) == (4, 6, "service-level")


def test_a_single_row_may_be_all_that_ends_in_time() -> None:
    behind = batcher(rows_max=2, runs_measured=((1, 0, 1.0), (2, 0, 2.0)))
    behind.add(0, rows=2, now=0.0)
    behind.add(1, now=0.0)
    behind.add(2, now=0.0)
    assert behind.lane_freed(0, now=7.5, timed=False) == [
        RunBatch(0, (1,), 1, 0, 7.5, 1, "service-level")
    ]


def test_without_batching_what_is_late_runs_as_it_came() -> None:
    late = batcher(rows_max=1, runs_measured=((1, 0, 1.5),))
    late.add(0, now=0.0)
    late.add(1, now=0.0)
    assert late.lane_freed(0, now=9.0, timed=False) == [RunBatch(0, (1,), 1, 0, 9.0, 0, "single")]


def test_a_rate_is_believed_once_two_dozen_items_have_come_at_it() -> None:
    """Two rows wait for a third where one is expected within half a second."""
    for ident in range(2, 30):
        waiting = batcher()
        for earlier in range(ident):
            waiting.add(earlier, now=0.125 * earlier)
            waiting.cancel(earlier, now=0.125 * earlier)
        waiting.add(100, now=0.125 * ident)
        waiting.add(101, now=0.125 * ident + 0.125)
        wait_s = 0.5 if ident >= 23 else 0.0
        assert waiting.next_deadline() == 0.125 * ident + 0.125 + wait_s, ident


def test_no_batch_waits_for_an_item_that_comes_later_than_it_pays() -> None:
    """One in 0.75 s: a single row may wait for it, and two may not, for they wait twice."""
    waiting = batcher()
    for ident in range(60):
        waiting.add(ident, now=ident * 0.75)
        waiting.cancel(ident, now=ident * 0.75)
    waiting.add(60, now=45.0)
    assert waiting.next_deadline() == 46.0
    waiting.add(61, now=45.75)
    assert waiting.next_deadline() == 45.75


def test_a_batch_whose_last_moment_is_now_and_which_gains_nothing_leaves_for_the_lane() -> None:
    """The driver is late: the oldest has 3 s left, which two rows may take, and nobody comes."""
    late = batcher()
    late.add(1, now=0.0)
    late.add(2, now=6.0)
    assert late.on_timer(now=6.0)[0] == [RunBatch(0, (1, 2), 2, 0, 6.0, 0, "lane-free")]


def test_a_wait_that_was_set_stands() -> None:
    knob = batcher(wait_s_max=0.5)
    knob.add(1, now=0.0)
    assert knob.next_deadline() == 0.5
    assert knob.on_timer(now=0.5)[0] == [RunBatch(0, (1,), 1, 0, 0.5, 0, "waited-enough")]


def test_without_any_run_known_nothing_waits_and_nothing_is_cut() -> None:
    unknown = batcher(runs_measured=())
    for ident in range(1, 4):
        unknown.add(ident, now=0.0)
    assert unknown.on_timer(now=0.0)[0] == [RunBatch(0, (1, 2, 3), 3, 0, 0.0, 0, "lane-free")]


def test_an_item_that_fills_a_batch_by_itself_is_not_cut() -> None:
    """Its 16 rows take 9 s and the budget is 7.2 s: there is nothing that could be left behind."""
    full = batcher(latency_s_p99_max=8.0)
    assert full.add(1, rows=16, now=0.0) == [RunBatch(0, (1,), 16, 0, 0.0, 0, "batch-full")]


def in_step(**spec: object) -> Batcher:
    """Eight callers whose requests ran in one batch, for 5 s; it ended at 5.0."""
    served = batcher(**spec)
    assert ask(served, 8, now=0.0).rows == 8, "how long their way back takes is not known yet"
    assert served.lane_freed(0, now=5.0) == []
    return served


def ask(served: Batcher, callers: int, *, now: float, **item: Any) -> RunBatch:
    """Each asks for a row; the batch that leaves then."""
    first = int(now * 100)
    for ident in range(first, first + callers):
        served.add(ident, now=now, **item)
    (batch,) = served.on_timer(now=now)[0]
    assert isinstance(batch, RunBatch)
    return batch


def test_half_of_callers_in_step_runs_while_the_others_are_answered() -> None:
    """The lane was idle for 2 s, until all had come back. Two halves take 6 s; one batch takes 5,
    and 2 s of idleness follow. From then on one half's way back is the other half's run."""
    served = in_step(batches_ahead=1)
    half = ask(served, 8, now=7.0)
    assert half == RunBatch(0, (700, 701, 702, 703), 4, 0, 0.0, 4, "half-of-callers")
    ahead = served.next_deadline()
    assert ahead == pytest.approx(9.998), "just before the first half ends"
    (other,) = served.on_timer(now=ahead)[0]
    assert isinstance(other, RunBatch)
    assert other.ids == (704, 705, 706, 707)
    assert served.lane_freed(0, now=10.0) == []
    assert served.lane_freed(0, now=13.0) == []
    assert ask(served, 4, now=14.0).rows == 4, "no half of a half: there were eight of late"


def test_callers_that_come_back_at_once_run_together() -> None:
    """Two halves would take a second more than one batch and its half a second of idleness."""
    assert ask(in_step(), 8, now=5.5).rows == 8


def test_a_burst_after_a_long_pause_is_not_halved() -> None:
    """11 s are more than two runs: the lane did not wait for these callers' way back."""
    assert ask(in_step(), 8, now=16.0).rows == 8


def test_fewer_rows_than_there_were_of_late_are_not_halved() -> None:
    """Six of eight: the other two may come at any time, so these are no callers in step."""
    assert ask(in_step(), 6, now=7.0).rows == 6


def rows_back(callers: int, **spec: object) -> int:
    """Rows of the batch of callers whose first requests ran in one, and who came back 2 s later."""
    served = batcher(**spec)
    ask(served, callers, now=0.0)
    served.lane_freed(0, now=4.0)
    return ask(served, callers, now=6.0).rows


def test_so_few_rows_cost_as_much_as_a_batch_does_and_are_not_halved() -> None:
    assert rows_back(3) == 3
    assert rows_back(4) == 2


def test_where_sizes_are_preferred_none_is_halved() -> None:
    assert rows_back(5) == 3
    assert rows_back(5, rows_preferred=(8,)) == 5


def test_a_draining_copy_halves_nothing() -> None:
    served = in_step()
    for ident in range(10, 18):
        served.add(ident, now=7.0)
    (batch,) = served.drain(now=7.0)
    assert isinstance(batch, RunBatch)
    assert batch.rows == 8


def test_while_another_lane_runs_none_is_halved() -> None:
    """One row runs, so these eight are not all that there are, though nearly."""
    served = in_step(lanes=2)
    assert ask(served, 1, now=6.9).rows == 1
    assert ask(served, 8, now=7.0).rows == 8


def test_beside_rows_of_another_length_none_is_halved() -> None:
    """They are the second part already."""
    lengths = tuple((rows, length, run_s) for rows, _, run_s in RUNS for length in (8, 16))
    served = in_step(buckets=(8, 16), runs_measured=lengths)
    for ident in range(10, 18):
        served.add(ident, length=8, now=7.0)
    assert ask(served, 1, length=16, now=7.0).rows == 8


def test_a_request_with_most_of_the_rows_is_not_halved() -> None:
    """Its six rows fit into no half of seven, and leave with the one beside them."""
    served = in_step()
    served.add(10, rows=6, now=7.0)
    batch = ask(served, 1, now=7.0)
    assert (batch.ids, batch.reason) == ((10, 700), "lane-free")
