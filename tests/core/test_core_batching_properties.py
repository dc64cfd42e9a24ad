"""What holds for the batcher whatever comes in, found by random sequences of inputs."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.core.batching.batcher import (
    Action,
    Batcher,
    BatchSpec,
    Expire,
    LevelPolicy,
    RefuseItem,
    RunBatch,
)

BUCKETS = (16, 32, 64)

levels = st.builds(
    LevelPolicy,
    rows_max=st.sampled_from([0, 9]),
    wait_s_max=st.sampled_from([None, 0.2, 1.0]),
    delays=st.booleans(),
)
specs = (
    st.builds(
        BatchSpec,
        rows_max=st.sampled_from([1, 2, 5, 8]),
        wait_s_max=st.sampled_from([0.0, 0.1, 0.7]),
        lanes=st.integers(1, 3),
        queue_rows_max=st.sampled_from([8, 12, 40]),
        queue_wait_s_max=st.sampled_from([None, 0.9, 3.0]),
        rows_preferred=st.just(()),
        buckets=st.sampled_from([(), BUCKETS]),
        batches_ahead=st.integers(0, 1),
        priorities=st.integers(1, 3),
        run_here_s_max=st.sampled_from([0.0, 0.2]),
    )
    | st.builds(
        BatchSpec,
        rows_max=st.just(8),
        wait_s_max=st.sampled_from([0.0, 0.3]),
        lanes=st.integers(1, 2),
        rows_preferred=st.sampled_from([(3,), (2, 4), (1, 5)]),
        priorities=st.integers(1, 2),
    )
    | st.builds(
        BatchSpec,
        rows_max=st.sampled_from([4, 5, 8]),
        wait_s_max=st.sampled_from([0.0, 0.0, 0.3]),
        lanes=st.integers(1, 3),
        rows_preferred=st.sampled_from([(), (), (1,)]),
        buckets=st.sampled_from([(), BUCKETS]),
        priorities=st.integers(1, 2),
        batches_ahead=st.integers(0, 1),
        latency_s_p99_max=st.sampled_from([0.05, 0.5, 2.0]),
        runs_measured=st.sampled_from([(), ((1, 16, 0.1),), ((1, 0, 0.05), (4, 64, 0.3))]),
        run_here_s_max=st.sampled_from([0.0, 0.2]),
    )
    | st.builds(
        BatchSpec,
        rows_max=st.sampled_from([1, 4, 8]),
        wait_s_max=st.sampled_from([0.0, 0.3]),
        lanes=st.integers(1, 2),
        buckets=st.sampled_from([(), BUCKETS]),
        priorities=st.just(2),
        levels=st.tuples(levels, levels),
    )
)


class BatcherMachine(RuleBasedStateMachine):
    """A driver that keeps its own account of every item: queued, running, or answered once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.items: dict[int, tuple[int, int, int, float | None]] = {}  #: rows, level, length, dead
        self.queued: list[int] = []  #: in order of arrival
        self.alone: set[int] = set()  #: items that no other may run beside
        self.lanes: dict[int, list[tuple[int, ...]]] = {}  #: what runs, then what is ahead
        self.answered: set[int] = set()
        self.drains = False

    @initialize(spec=specs)
    def start(self, spec: BatchSpec) -> None:
        self.spec = spec
        self.batcher = Batcher(spec)

    def bucket_of(self, ident: int) -> int:
        length = self.items[ident][2]
        buckets = self.spec.buckets
        return next((bucket for bucket in buckets if bucket >= length), max(buckets, default=0))

    def carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, RunBatch):
                self.start_batch(action)
            elif isinstance(action, Expire):
                self.queued.remove(action.id)
                self.answer(action.id)
                dead = self.items[action.id][3]
                if action.reason == "deadline-passed":
                    assert dead is not None
                    assert self.now >= dead
                elif action.reason == "deadline-cannot-be-met":
                    assert dead is not None
                    assert self.batcher.snapshot()["run_times"], "forecast without a run"
            else:
                self.answer(action.id)

    def start_batch(self, batch: RunBatch) -> None:
        held = self.lanes.get(batch.lane, [])
        assert len(held) <= self.spec.batches_ahead
        if held:
            assert len(self.lanes) == self.spec.lanes, "ahead of a run, and a lane was free"
            # A batch that is cut to a preferred size goes ahead as a full one, if enough waited.
            mates = (one for one in self.queued if self.bucket_of(one) == batch.bucket)
            full = sum(map(self.rows_queued, mates)) >= self.spec.rows_max
            full = full or batch.reason in {"batch-full", "single", "service-level"}
            assert full or self.batcher.snapshot()["run_times"], "ahead without a forecast"
        if batch.here:
            assert not self.lanes, "here, while a lane computes"
            assert len(self.queued) == len(batch.ids), "here, while others wait"
        assert batch.ids
        assert len(batch.ids) == 1 or not self.alone & set(batch.ids), "one to run alone was not"
        assert batch.rows == sum(self.items[ident][0] for ident in batch.ids)
        assert batch.rows <= self.spec.rows_max
        left_behind = [ident for ident in self.queued if ident not in batch.ids]
        assert batch.bucket == max(self.bucket_of(ident) for ident in batch.ids)
        for ident in batch.ids:
            _, level, _, dead = self.items[ident]
            assert dead is None or self.now < dead, "a dead item was computed"
            older = self.queued[: self.queued.index(ident)]
            kind = (level, self.bucket_of(ident))
            same = {o for o in older if (self.items[o][1], self.bucket_of(o)) == kind}
            delays = self.spec.levels and self.spec.levels[level].delays
            fair = delays or not same & set(left_behind)
            assert fair, "an item overtook an older one of its kind"
        for ident in batch.ids:
            self.queued.remove(ident)
        assert batch.queue_rows == sum(map(self.rows_queued, self.queued))
        self.lanes.setdefault(batch.lane, []).append(batch.ids)

    def rows_queued(self, ident: int) -> int:
        return self.spec.rows_max if ident in self.alone else self.items[ident][0]

    def answer(self, ident: int) -> None:
        assert ident not in self.answered, "answered twice"
        self.answered.add(ident)

    @rule(
        rows=st.sampled_from([1, 1, 1, 2, 3, 4, 9]),
        length=st.integers(0, 80),
        priority=st.integers(0, 4),
        life_s=st.sampled_from([None, -0.1, 0.0, 0.2, 0.5, 2.0, 60.0]),
        alone=st.sampled_from([False, False, False, True]),
    )
    def add(self, rows: int, length: int, priority: int, life_s: float | None, alone: bool) -> None:
        ident = len(self.items)
        if alone:
            self.alone.add(ident)
        level = min(priority, self.spec.priorities - 1)
        deadline = None if life_s is None else self.now + life_s
        self.items[ident] = (rows, level, length, deadline)
        self.queued.append(ident)
        actions = self.batcher.add(
            ident, rows=rows, length=length, priority=priority, deadline=deadline, alone=alone,
            now=self.now,
        )  # fmt: skip
        refusals = [action for action in actions if isinstance(action, RefuseItem)]
        for refusal in refusals:
            assert refusal.id == ident
            self.queued.remove(ident)
        if self.drains:
            assert len(refusals) == 1
        self.carry_out(actions)

    @rule(seconds=st.sampled_from([0.01, 0.1, 0.25, 1.0]))
    def time_passes_and_the_driver_is_late(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def time_passes_to_the_deadline(self) -> None:
        """At `next_deadline()` the timer acts or moves the deadline: the driver cannot spin."""
        due = self.batcher.next_deadline()
        if due is None:
            return
        self.now = max(self.now, due)
        actions = self.batcher.on_timer(now=self.now)[0]
        after = self.batcher.next_deadline()
        assert actions or after != due, "woken for nothing"
        assert after is None or after > self.now, "woken, to be woken again at once"
        self.carry_out(actions)

    @precondition(lambda self: self.lanes)
    @rule(data=st.data())
    def lane_freed(self, data: st.DataObject) -> None:
        lane = data.draw(st.sampled_from(sorted(self.lanes)))
        self.free(lane)

    def free(self, lane: int) -> None:
        for ident in self.lanes[lane].pop(0):
            self.answer(ident)
        if not self.lanes[lane]:
            del self.lanes[lane]
        self.carry_out(self.batcher.lane_freed(lane, now=self.now))

    @precondition(lambda self: self.items)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        ident = data.draw(st.sampled_from(sorted(self.items)))
        assert self.batcher.cancel(ident, now=self.now) == (ident in self.queued)
        if ident in self.queued:
            self.queued.remove(ident)
            self.answer(ident)

    @precondition(lambda self: self.queued and not self.drains and len(self.items) < 80)
    @rule(life_s=st.sampled_from([0.5, 60.0]))
    def a_crowd_comes_and_goes(self, life_s: float) -> None:
        """More than a sweep tolerates: what stays must be what was queued before."""
        for _ in range(75):
            self.add(rows=1, length=0, priority=0, life_s=life_s, alone=False)
            newest = len(self.items) - 1
            if newest in self.queued:
                assert self.batcher.cancel(newest, now=self.now)
                self.queued.remove(newest)
                self.answer(newest)

    @precondition(lambda self: len(self.items) >= 8)
    @rule()
    def give_back(self) -> None:
        assert self.batcher.give_back(now=self.now) == tuple(self.queued)
        for ident in self.queued:
            self.answer(ident)
        self.queued.clear()

    @precondition(lambda self: len(self.items) >= 20)  # nothing much happens afterwards
    @rule()
    def drain(self) -> None:
        self.drains = True
        self.carry_out(self.batcher.drain(now=self.now))

    @invariant()
    def nothing_is_lost(self) -> None:
        self.batcher.check_invariants()
        assert self.batcher.queue_rows == sum(map(self.rows_queued, self.queued))
        assert self.batcher.running == len(self.lanes)
        running = {ident for held in self.lanes.values() for ids in held for ident in ids}
        assert not running & self.answered
        assert set(self.items) == set(self.queued) | running | self.answered

    @invariant()
    def an_idle_lane_and_an_item_whose_wait_is_over_meet_at_the_timer(self) -> None:
        due = self.batcher.next_deadline()
        if self.queued and len(self.lanes) < self.spec.lanes:
            assert due is not None

    def teardown(self) -> None:
        """When every lane is served and time goes on, everything is answered."""
        for _ in range(10 * len(self.items) + 10):
            for lane in sorted(self.lanes):
                self.free(lane)
            due = self.batcher.next_deadline()
            if due is not None and not self.lanes:
                self.now = max(self.now, due)
                self.carry_out(self.batcher.on_timer(now=self.now)[0])
        assert not self.queued
        assert self.answered == set(self.items)


TestBatcher = BatcherMachine.TestCase
TestBatcher.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
