"""When a batch runs on the thread that received its request, as timelines."""

from __future__ import annotations

import pytest

from penstock.core.batching.batcher import Batcher, BatchSpec, RunBatch
from penstock.core.batching.run_here import RunHere

RUN_S = 0.001
SPEC = BatchSpec(rows_max=4, run_here_s_max=0.0015, runs_measured=((1, 0, RUN_S),), batches_ahead=1)


def lone(ident: int, *, here: bool) -> RunBatch:
    return RunBatch(0, (ident,), 1, 0, 0.0, 0, "lane-free", here=here)


def quiet(batcher: Batcher) -> None:
    """Eight items, each long after the one before; the next at 10.0 may run here."""
    for number in range(8):
        batcher.add(100 + number, now=float(number))
        for _ in batcher.on_timer(now=float(number))[0]:
            batcher.lane_freed(0, now=number + RUN_S)


def test_a_lone_item_runs_here_after_eight_that_came_at_a_distance() -> None:
    batcher = Batcher(SPEC)
    quiet(batcher)
    batcher.add(1, now=10.0)
    assert batcher.on_timer(now=10.0)[0] == [lone(1, here=True)]
    batcher.lane_freed(0, now=10.001)
    batcher.add(2, now=10.0029)  # sooner than twice the longest run
    assert batcher.on_timer(now=10.0029)[0] == [lone(2, here=False)]
    batcher.lane_freed(0, now=10.0039)
    batcher.add(3, now=11.0)
    assert batcher.on_timer(now=11.0)[0] == [lone(3, here=False)]  # the count begins anew


def test_the_first_items_of_a_copy_do_not_run_here() -> None:
    batcher = Batcher(SPEC)
    for number in range(7):
        batcher.add(number, now=float(number))
        assert batcher.on_timer(now=float(number))[0] == [lone(number, here=False)]
        batcher.lane_freed(0, now=number + RUN_S)


def test_items_of_one_read_do_not_run_here() -> None:
    batcher = Batcher(SPEC)
    quiet(batcher)
    for ident in (1, 2):
        batcher.add(ident, now=10.0)
    assert batcher.on_timer(now=10.0)[0] == [RunBatch(0, (1, 2), 2, 0, 0.0, 0, "lane-free")]


def test_nothing_goes_ahead_of_a_run_here() -> None:
    """It would begin at once, on the lane's own thread."""
    batcher = Batcher(SPEC)
    quiet(batcher)
    batcher.add(1, now=10.0)
    assert batcher.on_timer(now=10.0)[0] == [lone(1, here=True)]
    for ident in range(2, 6):
        assert batcher.add(ident, now=10.0) == []
    batcher.check_invariants()
    freed = batcher.lane_freed(0, now=10.001)
    waited_s = pytest.approx(0.001)
    assert freed == [RunBatch(0, (2, 3, 4, 5), 4, 0, waited_s, 0, "batch-full")]
    batcher.add(6, now=10.002)
    batcher.lane_freed(0, now=10.003)
    batcher.check_invariants()


def test_not_while_another_lane_computes_and_not_without_a_known_time() -> None:
    spec = BatchSpec(lanes=2, run_here_s_max=0.0015, runs_measured=((1, 0, RUN_S),))
    batcher = Batcher(spec)
    for ident in range(8):
        batcher.add(ident, now=float(ident))
        batcher.lane_freed(0, now=ident + RUN_S)
    assert batcher.add(8, now=10.0) == [RunBatch(0, (8,), 1, 0, 0.0, 0, "single", here=True)]
    assert batcher.add(9, now=11.0) == [RunBatch(1, (9,), 1, 0, 0.0, 0, "single")]
    unknown = Batcher(BatchSpec(run_here_s_max=0.0015))
    for ident in range(9):
        unknown.add(ident, now=float(ident))
        unknown.lane_freed(0, now=float(ident), timed=False)
    assert unknown.add(9, now=10.0) == [RunBatch(0, (9,), 1, 0, 0.0, 0, "single")]


def test_only_runs_here_that_stall_send_the_next_to_the_lane() -> None:
    spec = BatchSpec(run_here_s_max=0.0015, runs_measured=((1, 0, RUN_S),))
    batcher = Batcher(spec)

    def stalls(ident: int, *, here: bool) -> None:
        now = float(ident)
        assert batcher.add(ident, now=now) == [
            RunBatch(0, (ident,), 1, 0, 0.0, 0, "single", here=here)
        ]
        batcher.lane_freed(0, now=now + 0.5, timed=False)

    for ident in range(1, 8):
        stalls(ident, here=False)  # on the lane: its own affair
    stalls(8, here=True)
    stalls(9, here=True)
    batcher.add(10, now=9.6)
    assert batcher.snapshot()["run_here"] == {"runs": 2, "paused_until": 10.5}


def idle() -> RunHere:
    """After requests at a distance."""
    here = RunHere(0.0015)
    for number in range(9):
        here.arrived(float(number))
    return here


def test_long_runs_belong_on_the_lane() -> None:
    here = idle()
    assert not here.allows(0.0016, now=1.0)
    assert here.allows(0.0015, now=1.0)


def test_the_eighth_request_at_twice_the_longest_run_after_the_one_before_is_the_first() -> None:
    here = RunHere(0.5)
    for number in range(9):
        assert not here.allows(0.25, now=float(number)), number
        here.arrived(0.0 if number == 0 else float(number - 1))  # the second comes at once
    assert not here.allows(0.25, now=7.0)  # seven since
    here.arrived(8.0)
    assert here.allows(0.25, now=8.0)
    assert here.snapshot() == {"runs": 1, "paused_until": None}


def test_a_pause_begins_with_the_second_stall_within_eight_runs() -> None:
    here = idle()
    here.ended(0.0061, now=10.0)
    assert here.allows(RUN_S, now=10.0)  # one proves nothing
    for _ in range(8):
        here.ended(0.006, now=10.0)  # the longest that is none
    here.ended(0.0061, now=10.0)
    assert here.allows(RUN_S, now=10.0)  # the first is forgotten
    for _ in range(7):
        here.ended(RUN_S, now=10.0)
    here.ended(0.0061, now=10.0)
    assert not here.allows(RUN_S, now=10.9)
    assert here.snapshot() == {"runs": 2, "paused_until": 11.0}
    assert here.allows(RUN_S, now=11.0)


def test_a_pause_doubles_when_stalls_come_again_soon() -> None:
    here = idle()

    def stall(now: float) -> None:
        here.ended(1.0, now=now)
        here.ended(1.0, now=now)

    stall(10.0)  # until 11
    stall(11.5)  # until 13.5
    stall(14.0)  # until 18
    assert not here.allows(RUN_S, now=17.9)
    assert here.allows(RUN_S, now=18.0)
    stall(26.0)  # as long afterwards as the next pause would be: until 34
    assert not here.allows(RUN_S, now=33.9)
    stall(50.1)  # longer: as at first
    assert here.allows(RUN_S, now=51.1)


def test_a_pause_takes_64_seconds_at_most() -> None:
    here, now = idle(), 10.0
    for pause_s in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 64.0):
        here.ended(1.0, now=now)
        here.ended(1.0, now=now)
        assert here.snapshot()["paused_until"] == now + pause_s
        now += pause_s
