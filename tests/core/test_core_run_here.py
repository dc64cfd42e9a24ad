"""When a batch runs on the thread that received its request, as timelines."""

from __future__ import annotations

import pytest

from penstock.core.batching.batcher import Batcher, BatchSpec, RunBatch
from penstock.core.batching.run_here import RunHere

RUN_S = 0.001
SPEC = BatchSpec(rows_max=4, run_here_s_max=0.0015, runs_measured=((1, 0, RUN_S),), batches_ahead=1)


def lone(ident: int, *, here: bool) -> RunBatch:
    return RunBatch(0, (ident,), 1, 0, 0.0, 0, "lane-free", here)


def test_a_lone_item_runs_here_and_one_that_follows_sooner_than_a_run_does_not() -> None:
    batcher = Batcher(SPEC)
    batcher.add(1, now=1.0)
    assert batcher.on_timer(now=1.0)[0] == [lone(1, here=True)]
    batcher.lane_freed(0, now=1.0005, timed=False)
    batcher.add(2, now=1.0005)
    assert batcher.on_timer(now=1.0005)[0] == [lone(2, here=False)]
    batcher.lane_freed(0, now=1.0015)
    batcher.add(3, now=2.0)
    assert batcher.on_timer(now=2.0)[0] == [lone(3, here=True)]


def test_items_of_one_read_do_not_run_here() -> None:
    batcher = Batcher(SPEC)
    for ident in (1, 2):
        batcher.add(ident, now=1.0)
    assert batcher.on_timer(now=1.0)[0] == [RunBatch(0, (1, 2), 2, 0, 0.0, 0, "lane-free", False)]


def test_nothing_goes_ahead_of_a_run_here() -> None:
    """It would begin at once, on the lane's own thread."""
    batcher = Batcher(SPEC)
    batcher.add(1, now=1.0)
    batcher.on_timer(now=1.0)
    for ident in range(2, 6):
        assert batcher.add(ident, now=1.0) == []
    batcher.check_invariants()
    freed = batcher.lane_freed(0, now=1.001)
    assert freed == [RunBatch(0, (2, 3, 4, 5), 4, 0, pytest.approx(0.001), 0, "batch-full")]
    batcher.add(6, now=1.002)
    batcher.lane_freed(0, now=1.003)
    batcher.check_invariants()


def test_not_while_another_lane_computes_and_not_without_a_known_time() -> None:
    single = BatchSpec(lanes=2, run_here_s_max=0.0015, runs_measured=((1, 0, RUN_S),))
    batcher = Batcher(single)
    assert batcher.add(1, now=1.0)[0].here  # type: ignore[union-attr]
    assert not batcher.add(2, now=2.0)[0].here  # type: ignore[union-attr]
    unknown = Batcher(BatchSpec(run_here_s_max=0.0015))
    assert not unknown.add(1, now=1.0)[0].here  # type: ignore[union-attr]


def test_long_runs_belong_on_the_lane() -> None:
    here = RunHere(0.0015)
    here.arrived(1.0)
    assert not here.allows(0.0016, now=1.0)
    assert here.allows(0.0015, now=1.0)


def test_a_pause_begins_with_the_second_stall_within_eight_runs() -> None:
    here = RunHere(0.0015)
    here.arrived(10.0)
    here.ended(0.0061, now=10.0)
    assert here.allows(RUN_S, now=10.0)  # one proves nothing
    for _ in range(8):
        here.ended(RUN_S, now=10.0)
    here.ended(0.0061, now=10.0)
    assert here.allows(RUN_S, now=10.0)  # the first is forgotten
    here.ended(0.0061, now=10.0)
    assert not here.allows(RUN_S, now=10.9)
    assert here.allows(RUN_S, now=11.0)


def test_a_pause_doubles_when_stalls_come_again_soon() -> None:
    here = RunHere(0.0015)
    here.arrived(10.0)

    def stall(now: float) -> None:
        here.ended(1.0, now=now)
        here.ended(1.0, now=now)

    stall(10.0)  # until 11
    stall(11.5)  # until 13.5
    assert not here.allows(RUN_S, now=13.4)
    assert here.allows(RUN_S, now=13.5)
    stall(20.0)  # more than four seconds after the last: as at first
    assert here.allows(RUN_S, now=21.0)
