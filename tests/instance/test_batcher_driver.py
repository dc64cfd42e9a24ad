"""The driver feeds the batcher, carries out its actions and wakes it: under a manual clock."""

from __future__ import annotations

from typing import Any

from tests.kit.timers import ManualTimers

from penstock.clock import ManualClock
from penstock.core.batching.batcher import Batcher, BatchSpec, RunBatch
from penstock.instance.batcher_driver import BatcherDriver


class BatcherRig:
    def __init__(self, **spec: Any) -> None:
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.ran: list[tuple[float, str, list[str]]] = []
        self.dropped: list[tuple[float, str, str]] = []
        self.driver: BatcherDriver[str] = BatcherDriver(
            Batcher(BatchSpec(**spec)),
            clock=self.clock,
            call_at=self.timers.call_at,
            run=self._run,
            drop=lambda item, reason: self.dropped.append((self.clock.monotonic(), item, reason)),
        )

    def _run(self, action: RunBatch, items: list[str]) -> None:
        self.ran.append((self.clock.monotonic(), action.reason, items))

    def read(self, *items: str, deadline: float | None = None) -> list[int]:
        """As one socket read: all items are fed, then the driver has its turn."""
        now = self.clock.monotonic()
        idents = [self.driver.add(item, now=now, deadline=deadline) for item in items]
        self.driver.turn(now)
        return idents


def test_the_items_of_one_read_leave_as_one_batch() -> None:
    rig = BatcherRig(rows_max=8)
    rig.read("a", "b", "c")
    assert rig.ran == [(0.0, "lane-free", ["a", "b", "c"])]


def test_a_lone_item_waits_for_its_time_and_no_longer() -> None:
    rig = BatcherRig(rows_max=8, wait_s_max=0.5)
    rig.read("a")
    rig.timers.move_to(0.25)
    rig.read("b")
    assert rig.ran == []
    rig.timers.move_to(0.5)
    assert rig.ran == [(0.5, "waited-enough", ["a", "b"])]


def test_what_arrives_while_the_lane_is_busy_leaves_when_it_is_free() -> None:
    rig = BatcherRig(rows_max=4)
    rig.read("a")
    rig.read("b")
    rig.read("c")
    rig.timers.move_to(1.0)
    rig.driver.lane_freed(0)
    assert rig.ran == [(0.0, "lane-free", ["a"]), (1.0, "lane-free", ["b", "c"])]


def test_deadlines_fire_while_the_lane_is_busy() -> None:
    rig = BatcherRig(rows_max=1)
    rig.read("a")
    rig.read("b", deadline=2.0)
    rig.timers.move_to(5.0)
    assert rig.dropped == [(2.0, "b", "deadline-passed")]


def test_a_cancelled_item_is_never_run() -> None:
    rig = BatcherRig(rows_max=1)
    (first, second) = rig.read("a", "b")
    assert rig.driver.cancel(second)
    assert not rig.driver.cancel(first)  # it runs
    rig.driver.lane_freed(0)
    assert rig.ran == [(0.0, "single", ["a"])]


def test_a_drained_driver_runs_what_waits_and_takes_no_more() -> None:
    rig = BatcherRig(rows_max=8, wait_s_max=10.0)
    rig.read("a")
    rig.driver.drain()
    rig.read("b")
    assert rig.ran == [(0.0, "draining", ["a"])]
    assert rig.dropped == [(0.0, "b", "draining")]


def test_what_is_given_back_is_gone_from_the_queue() -> None:
    rig = BatcherRig(rows_max=1)
    rig.read("a", "b", "c")
    assert rig.driver.give_back() == ["b", "c"]
    rig.driver.lane_freed(0)
    assert [items for _, _, items in rig.ran] == [["a"]]


def test_an_idle_driver_sets_no_timer() -> None:
    rig = BatcherRig(rows_max=1)
    rig.read("a")
    rig.driver.lane_freed(0)
    assert rig.timers.set == []
