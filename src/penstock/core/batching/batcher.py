"""Which waiting items of one copy run together, on which lane, when, and why.

A batcher is a machine: the driver feeds it arrivals (`add`), finished batches (`lane_freed`),
cancellations and the time, and carries out the actions that come back. It knows rows, lengths,
priorities and deadlines; it must not know tensors, sockets or clocks.

When a batch leaves. A bucket of the queue is ready as soon as a lane is free and

* its rows reach `rows_max` (`batch-full`; `single` where `rows_max` is 1), or
* its rows reach a preferred size (`preferred-size`), or
* its oldest item has waited `wait_s_max` (`waited-enough`), or had done so before the lane became
  free (`lane-free`). The latter holds also where `wait_s_max` is 0: then an item waits only for a
  lane, never for more items, and a burst that meets busy lanes leaves as one batch, or
* the tightest deadline would be missed by waiting longer (`deadline-near`): runs are timed from
  their action to `lane_freed` and learned (`run_times.py`); a batch leaves the 99th percentile of
  its run time before the deadline. Nothing leaves early before a run was timed, or
* the batcher drains (`draining`).

A lane may hold one batch ahead (`batches_ahead`). That batch goes to a busy lane, which runs it as
soon as the present one ends, and does not wait until the driver has heard of that end. A full batch
gains nothing by waiting longer and goes at once. A batch that is due but not full goes ahead 2 ms
before the lane's expected end (by the mean run time), at the earliest after a quarter of the run.
Until then it may grow; later the lane would be idle while lane and driver exchange messages. In a
simulation with half a millisecond each way, P99 at half load fell by two fifths. A run ahead is
timed from the end of the run before it.

Where the spec gives a service level instead of knobs, `ServiceLevel` says when the wait is over and
how many rows a batch takes; `service-level` is the reason where the level itself decided, and
`half-of-callers` where a batch takes half of the rows so that their callers don't end up in step.

Which items a batch takes. The ready bucket whose head has the highest priority (0 first), then the
longest wait, leads. Its items follow in order of priority, first in first out within priority and
bucket, as long as they fit. With preferred sizes the batch is cut to the largest preferred size
that a whole number of items makes (`rows_max` counts as one), if there is one. No starvation: after
7 batches in a row that left a longer-waiting item behind, the longest-waiting item of the ready
buckets leads the next.

Buckets are not mixed, with one exception that costs less than waiting. When a batch takes the last
free lane and has rows to spare, items of shorter buckets whose wait is over join it if their bucket
is at least half as long. Padding then at most doubles their own compute; otherwise they would wait
for a whole run of other items. Items longer than the last bucket belong to the last.

Which items never run. An item whose deadline has passed is refused or expires; one that has queued
for `queue_wait_s_max` expires. An item that cannot be answered in time is never computed
(`deadline-cannot-be-met`): it is refused on arrival if even alone it would run too long, and it
expires before its batch leaves if the mean run time of the rows that would leave is too long. All
free their rows at once. A forecast that gives up items is never tested by a run. So after 15 items
of a bucket were given up in a row, the next batch leaves with all its items, and its run corrects
the estimate.

Where a batch runs. On its lane's thread, or at once on the thread that received the request, where
`run_here.py` allows that: nothing else runs or waits then.

The items themselves are kept by `waiting_items.py`. Entries of items that left are dropped when
met, so `next_deadline()` may be the deadline of one that has left: `on_timer` then only moves it.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop
from typing import Any

from penstock.core.batching.run_here import RunHere
from penstock.core.batching.run_times import RunTimes, ServiceLevel
from penstock.core.batching.spec import (
    Action,
    BatchSpec,
    Expire,
    LevelPolicy,
    RefuseItem,
    RunBatch,
)
from penstock.core.batching.waiting_items import PASSES_MAX, WaitingItem, WaitingItems

__all__ = ["Action", "BatchSpec", "Batcher", "Expire", "LevelPolicy", "RefuseItem", "RunBatch"]

_INF = float("inf")
#: s for the two messages between a lane and its driver; each took 0.5 to 1 ms under load
_AHEAD_S = 0.002
#: items of a bucket given up in a row; a wrong forecast wastes at most one item in 16
_DOOMED_MAX = 15


class Batcher(WaitingItems):
    """The queue and the lanes of one copy. `now` never goes back; ids are the driver's, unique."""

    __slots__ = (
        "_ahead", "_doomed", "_draining", "_full_reason", "_here", "_here_lane", "_idle_since",
        "_lanes_ahead", "_lanes_free", "_level", "_ran", "_runs", "_started", "_timer_reason",
        "_wait_s_max",
    )  # fmt: skip

    def __init__(self, spec: BatchSpec) -> None:
        super().__init__(spec)
        self._wait_s_max = spec.wait_s_max
        self._full_reason = "single" if spec.rows_max == 1 else "batch-full"
        waits = spec.wait_s_max > 0 or spec.latency_s_p99_max is not None
        self._timer_reason = "waited-enough" if waits else "lane-free"
        #: a stack: the lane used last is warm
        self._lanes_free = list(range(spec.lanes - 1, -1, -1))
        self._lanes_ahead: deque[int] = (
            deque()
        )  #: busy lanes that may take a batch ahead; oldest run first
        #: rows and bucket index of the batch that a busy lane holds ahead
        self._ahead: list[tuple[int, int] | None] = [None] * spec.lanes
        self._started: list[float | None] = [
            None
        ] * spec.lanes  #: when each lane's batch left; inf = the run is not timed
        self._ran = [(1, 0)] * spec.lanes  #: (rows, bucket index) of each lane's last batch
        self._draining = False
        self._idle_since = -_INF  #: when the last batch ended, where nothing runs
        self._runs = RunTimes(spec)
        self._level = ServiceLevel(spec, self._runs) if spec.latency_s_p99_max else None
        self._here = RunHere(spec.run_here_s_max) if spec.run_here_s_max else None
        self._here_lane = -1  #: the lane whose batch runs here, which takes none ahead; -1 = none
        #: by bucket: items given up since the last batch that left in spite of the forecast
        self._doomed = [0] * self._widths

    # inputs

    def add(
        self,
        id: int,
        *,
        rows: int = 1,
        length: int = 0,
        priority: int = 0,
        deadline: float | None = None,
        alone: bool = False,
        wait_s_max: float | None = None,
        now: float,
    ) -> list[Action]:
        """Queues an item of `rows` (>= 1) rows and `length` tokens, or refuses it.

        `wait_s_max`: instead of that of its level's policy, where it is less.

        An item that is to run `alone` counts as a whole batch while it waits, so no other fits
        beside it.

        Runs only a batch that became full or reached a preferred size, and expires dead items that
        it meets. Everything else waits for `on_timer`, so that the items of one socket read become
        one batch.
        """
        if rows > self._rows_max:
            return [RefuseItem(id, "too-many-rows")]
        if self._draining:
            return [RefuseItem(id, "draining")]
        bucket = self._bucket_of(length) if self._buckets else 0
        if self._here is not None:
            self._here.arrived(now)
        if deadline is not None:
            if now >= deadline:
                return [RefuseItem(id, "deadline-passed")]
            runs = self._runs
            if (
                now + runs.horizon_s > deadline
                and now + runs.mean_s[runs.at(rows, bucket)] > deadline
                and self._give_up(bucket)
            ):
                return [RefuseItem(id, "deadline-cannot-be-met")]
        if (alone or rows == self._rows_max) and not self._waiting and self._lanes_free:
            # The usual case of a model without batching: the item need not go through the queue.
            lane = self._leave(bucket, rows, now)
            length = self._buckets[bucket] if self._buckets else 0
            here = self._here is not None and self._goes_here(self._here, lane, now)
            return [RunBatch(lane, (id,), rows, length, 0.0, 0, self._full_reason, here=here)]
        actions: list[Action] = []
        counted = self._rows_max if alone else rows
        if not self._join(id, counted, bucket, priority, deadline, wait_s_max, now, actions):
            actions.append(RefuseItem(id, "queue-full"))
            return actions
        if alone:
            self._alone[id] = rows
        bucket_rows = self._bucket_rows[bucket]
        if self._level is not None:
            self._level.arrived(bucket, now)
        if bucket_rows >= self._rows_max:
            if self._lanes_free or self._lanes_ahead:
                self._run_full(bucket, now, actions)
        elif bucket_rows in self._preferred and self._lanes_free:
            self._run_full(bucket, now, actions)
        return actions

    def on_timer(self, *, now: float) -> tuple[list[Action], float | None]:
        """Does everything that is due: deadlines, queue timeouts, waits that are over.

        Call it after the items of one socket read were added, and at the time that it returns
        beside the actions: that is `next_deadline()`, once they are carried out. So an item that
        leaves at once is decided once.
        """
        actions: list[Action] = []
        if self._waiting:
            self._expire(now, actions)
            self._run_ready(now, self._timer_reason, actions)
        return actions, self.next_deadline() if self._waiting else None

    def next_deadline(self) -> float | None:
        """When to call `on_timer`, in s; None while only an input can change anything.

        Not later than `now` where an item may leave at once. Ask again after every call.
        """
        if not self._waiting:
            return None
        at = _INF
        if self._lanes_free:
            horizon_s = self._runs.horizon_s
            for bucket, rows in enumerate(self._bucket_rows):
                if not rows:
                    continue
                due = self._due(bucket)
                at = due if due < at else at
                heap = self._deadlines[bucket]
                if heap and heap[0][0] - horizon_s < at:
                    due = heap[0][0] - self._run_s_high(bucket)
                    at = due if due < at else at
        else:
            if self._lanes_ahead:
                at = max(self._ahead_at(), self._first_due())
            for heap in self._deadlines:
                if heap and heap[0][0] < at:
                    at = heap[0][0]
        if self._queue_wait_s_max is not None:
            for queue in self._queues:
                if queue:
                    due = queue[0][4] + self._queue_wait_s_max
                    at = due if due < at else at
        if self._timeouts and self._timeouts[0][0] < at:
            at = self._timeouts[0][0]
        return at if at < _INF else None

    def lane_freed(self, lane: int, *, now: float, timed: bool = True) -> list[Action]:
        """The batch on `lane` has ended, with or without success; items that waited for a lane
        leave.

        `timed` is False where the lane did not compute all the time (its worker was replaced).
        """
        started = self._started[lane]
        assert started is not None, f"nothing runs on lane {lane}"
        if timed and started < _INF:
            rows, bucket = self._ran[lane]
            self._runs.learn(rows, bucket, now - started)
        runs_here = lane == self._here_lane
        if runs_here and self._here is not None:
            self._here_lane = -1
            self._here.ended(now - started, now=now)
        ahead, self._ahead[lane] = self._ahead[lane], None
        actions: list[Action] = []
        if ahead is not None:
            self._ran[lane] = ahead
            self._started[lane] = now if timed and started < _INF else _INF
            self._lanes_ahead.append(lane)
            for bucket, rows in enumerate(self._bucket_rows):
                if rows >= self._rows_max:
                    self._run_full(bucket, now, actions)
            return actions
        self._started[lane] = None
        if self._spec.batches_ahead and not runs_here:
            self._lanes_ahead.remove(lane)
        self._lanes_free.append(lane)
        if not self.running:
            self._idle_since = now
        if self._waiting:
            self._expire(now, actions)
            self._run_ready(now, "lane-free", actions)
        return actions

    def drain(self, *, now: float) -> list[Action]:
        """From now on refuses new items, and runs the waiting ones without further delay."""
        self._draining = True
        actions: list[Action] = []
        self._expire(now, actions)
        self._run_ready(now, "draining", actions)
        return actions

    def give_back(self, *, now: float) -> tuple[int, ...]:
        """Empties the queue; returns all queued ids, oldest first.

        Running batches stay running until their lanes are freed, but are no longer timed: a batcher
        that gives back its queue has lost its worker.
        """
        self._started = [None if started is None else _INF for started in self._started]
        return self._empty()

    # views

    @property
    def running(self) -> int:
        """Number of batches that run now, one per busy lane."""
        return self._spec.lanes - len(self._lanes_free)

    def snapshot(self) -> dict[str, Any]:
        """JSON-ready state for `explain`."""
        oldest = next(iter(self._waiting.values()), None)
        return {
            "queue_items": len(self._waiting),
            "queue_rows": self._queue_rows,
            "queue_rows_by_bucket": [
                {"bucket": length, "rows": rows}
                for length, rows in zip(self._buckets or (0,), self._bucket_rows, strict=True)
            ],
            "oldest_arrived": None if oldest is None else oldest[4],
            "lanes": self._spec.lanes,
            "running": self.running,
            "ahead": sum(1 for batch in self._ahead if batch is not None),
            "draining": self._draining,
            "run_times": self._runs.snapshot(),
            "run_here": None if self._here is None else self._here.snapshot(),
            "next_deadline": self.next_deadline(),
        }

    def check_invariants(self) -> None:
        """Raises AssertionError if the state contradicts itself; for tests and the twin."""
        self._check_items()
        self._runs.check_invariants()
        idle = [lane for lane, started in enumerate(self._started) if started is None]
        assert sorted(self._lanes_free) == idle, "a lane is both free and busy"
        held = [lane for lane, batch in enumerate(self._ahead) if batch is not None]
        assert not set(held) & set(idle), "a lane that is free holds a batch ahead"
        assert self._here_lane not in idle, "a lane is free and runs here"
        open_lanes = set(range(self._spec.lanes)) - set(idle) - set(held) - {self._here_lane}
        assert set(self._lanes_ahead) == (open_lanes if self._spec.batches_ahead else set())
        if self._lanes_free:
            assert not (self._draining and self._waiting), (
                "an item waits while draining, a lane is free"
            )
            assert all(count < self._rows_max for count in self._bucket_rows), (
                "a full batch waits, a lane is free"
            )

    # decisions

    def _run_full(self, bucket: int, now: float, actions: list[Action]) -> None:
        """Runs batches of one bucket while it is full, or exactly of a preferred size."""
        self._expire(now, actions)
        while self._lanes_free or self._lanes_ahead:
            self._drop_doomed(bucket, self._starts_at(now), actions)
            rows = self._bucket_rows[bucket]
            if rows >= self._rows_max:
                reason = self._full_reason
            elif rows in self._preferred and self._lanes_free:
                reason = "preferred-size"
            else:
                return
            lead = bucket if self._priorities == 1 else self._lead(bucket)
            self._run(bucket, lead, reason, now, actions)

    def _run_ready(self, now: float, wait_reason: str, actions: list[Action]) -> None:
        """Runs ready buckets, the most urgent first, until no lane takes one or none is ready."""
        while self._waiting and (self._lanes_free or self._goes_ahead(now)):
            chosen: tuple[int, int, int, int, str] | None = None
            starts_at = now if self._lanes_free else self._starts_at(now)
            for bucket in range(self._widths):
                heap = self._deadlines[bucket]
                if heap and starts_at + self._runs.horizon_s > heap[0][0]:
                    self._drop_doomed(bucket, starts_at, actions)
                if not self._bucket_rows[bucket]:
                    continue
                reason = self._ready(bucket, now, wait_reason)
                if not reason:
                    continue
                lead = bucket if self._priorities == 1 else self._lead(bucket)
                level = 0 if self._passes >= PASSES_MAX else lead // self._widths
                candidate = (level, self._queues[lead][0][1], bucket, lead, reason)
                if chosen is None or candidate < chosen:
                    chosen = candidate
            if chosen is None:
                return
            self._run(chosen[2], chosen[3], chosen[4], now, actions)

    def _ready(self, bucket: int, now: float, wait_reason: str) -> str:
        """Why a batch of this bucket may leave now; empty if it may not."""
        if self._bucket_rows[bucket] >= self._rows_max:
            return self._full_reason
        if self._draining:
            return "draining"
        oldest = self._queues[bucket][0][4] if self._priorities == 1 else self._oldest(bucket)
        if self._level is None:
            if now >= oldest + self._wait_s_max:
                return wait_reason
        elif reason := self._level.why(bucket, oldest, self._bucket_rows[bucket], now):
            return reason if wait_reason != "lane-free" else wait_reason
        if self._preferred and self._preferred_rows(self._order(bucket, self._lead(bucket))):
            return "preferred-size"
        heap, waiting = self._deadlines[bucket], self._waiting
        while heap and waiting.get(heap[0][2]) is not heap[0]:
            heappop(heap)
        if heap and now >= heap[0][0] - self._run_s_high(bucket):
            return "deadline-near"
        return ""

    def _due(self, bucket: int) -> float:
        """When the wait of a non-empty bucket is over."""
        oldest = self._queues[bucket][0][4] if self._priorities == 1 else self._oldest(bucket)
        if self._level is None:
            return oldest + self._wait_s_max
        return self._level.due(bucket, oldest, self._bucket_rows[bucket])

    def _run_s_high(self, bucket: int) -> float:
        """The 99th percentile of the run time of all waiting rows of a non-empty bucket."""
        rows = self._bucket_rows[bucket]
        runs = self._runs
        return runs.high_s[runs.at(rows if rows < self._rows_max else self._rows_max, bucket)]

    def _starts_at(self, now: float) -> float:
        """When a batch that leaves now is expected to begin; ahead, it follows a run."""
        if self._lanes_free:
            return now
        lane = self._lanes_ahead[0]
        started = self._started[lane]
        if started is None or started == _INF:
            return now
        return max(now, started + self._runs.mean_s[self._runs.at(*self._ran[lane])])

    def _goes_ahead(self, now: float) -> bool:
        """Whether a batch may leave for a busy lane that will soon be free."""
        return bool(self._lanes_ahead) and now >= self._ahead_at()

    def _ahead_at(self) -> float:
        """When a batch that is not full may go to the lane that began its run first."""
        lane = self._lanes_ahead[0]
        started = self._started[lane]
        run_s = self._runs.mean_s[self._runs.at(*self._ran[lane])]
        if started is None or started == _INF or not run_s:
            return _INF
        return started + max(run_s - _AHEAD_S, run_s / 4)

    def _first_due(self) -> float:
        """When the first wait of a non-empty queue is over."""
        return min(self._due(bucket) for bucket, rows in enumerate(self._bucket_rows) if rows)

    def _drop_doomed(self, bucket: int, now: float, actions: list[Action]) -> None:
        """Gives up the items of a bucket that would be late if all its waiting items left now."""
        heap, runs, rows_max = self._deadlines[bucket], self._runs, self._rows_max
        while heap and self._bucket_rows[bucket]:
            rows = self._bucket_rows[bucket]
            run_s = runs.mean_s[runs.at(rows if rows < rows_max else rows_max, bucket)]
            item = heap[0]
            if now + run_s <= item[0]:
                return
            waits = self._waiting.get(item[2]) is item
            if waits and not self._give_up(bucket):
                return
            heappop(heap)
            if waits:
                self._remove(item)
                actions.append(Expire(item[2], "deadline-cannot-be-met"))

    def _give_up(self, bucket: int) -> bool:
        """Whether one more item of a bucket may be given up because of a forecast."""
        if self._doomed[bucket] >= _DOOMED_MAX:
            return False
        self._doomed[bucket] += 1
        return True

    def _leave(self, bucket: int, rows: int, now: float) -> int:
        """Takes a free lane for a batch; if none is free, the lane that began its run first."""
        if self._lanes_free:
            lane = self._lanes_free.pop()
            self._started[lane] = now
            self._ran[lane] = (rows, bucket)
            if self._spec.batches_ahead:
                self._lanes_ahead.append(lane)
        else:
            lane = self._lanes_ahead.popleft()
            self._ahead[lane] = (rows, bucket)
        if self._doomed[bucket] >= _DOOMED_MAX:
            self._doomed[bucket] = 0
        return lane

    def _goes_here(self, here: RunHere, lane: int, now: float) -> bool:
        """Whether the batch that just got this lane runs here."""
        if self._waiting or self.running > 1 or self._ahead[lane] is not None:
            return False
        if not here.allows(self._runs.mean_s[self._runs.at(*self._ran[lane])], now=now):
            return False
        self._here_lane = lane
        if self._spec.batches_ahead:
            self._lanes_ahead.remove(lane)
        return True

    def _run(self, bucket: int, lead: int, reason: str, now: float, actions: list[Action]) -> None:
        """Makes one batch of a ready bucket. A lane must be free."""
        limit = self._rows_max
        if self._preferred:
            preferred = self._preferred_rows(self._order(bucket, lead))
            if preferred and preferred < limit:
                limit = preferred
                reason = "preferred-size"
        first = self._queues[lead][0]
        if self._level is not None and self._bucket_rows[bucket] > 1:
            allowed = self._level.rows_max(
                bucket, now - self._oldest(bucket), self._bucket_rows[bucket]
            )
            if allowed < min(limit, self._bucket_rows[bucket]):
                limit = max(allowed, first[3])
                reason = "service-level"
            elif first[3] <= (half := self._half(self._level, bucket, limit, now)):
                limit = half
                reason = "half-of-callers"
        oldest = first[4]
        ids: list[int] = []
        rows = 0
        if self._priorities == 1:
            rows = self._take(self._queues[bucket], rows, limit, ids)
        else:
            for index in self._order(bucket, lead):
                queue = self._queues[index]
                if queue and rows < limit:
                    arrived, before = queue[0][4], rows
                    rows = self._take(queue, rows, limit, ids)
                    if rows > before and arrived < oldest:
                        oldest = arrived
        self._bucket_rows[bucket] -= rows
        if bucket and rows < limit and len(self._lanes_free) == 1:
            rows, oldest = self._take_shorter(bucket, rows, limit, now, oldest, ids)
        self._queue_rows -= rows
        if self._alone:
            rows = self._alone.pop(ids[0], rows)
        lane = self._leave(bucket, rows, now)
        if not self._waiting:
            self._forget_deadlines()
        elif self._priorities > 1:
            passed = any(queue and queue[0][1] < first[1] for queue in self._queues)
            self._passes = self._passes + 1 if passed else 0
        length = self._buckets[bucket] if self._buckets else 0
        here = self._here is not None and self._goes_here(self._here, lane, now)
        actions.append(
            RunBatch(
                lane, tuple(ids), rows, length, now - oldest, self._queue_rows, reason, here=here
            )
        )

    def _half(self, level: ServiceLevel, bucket: int, limit: int, now: float) -> int:
        """How many rows of a bucket run first, while the others' callers wait; 0: all of them."""
        rows = self._bucket_rows[bucket]
        running = sum(
            self._ran[lane][0] + (ahead[0] if ahead is not None else 0)
            for lane, ahead in enumerate(self._ahead)
            if self._started[lane] is not None
        )
        level.leaves(self._queue_rows + running)
        if running or self._draining or self._preferred or not self._queue_rows == rows < limit:
            return 0
        return level.half(bucket, rows, now - self._idle_since)

    def _take_shorter(
        self, bucket: int, rows: int, limit: int, now: float, oldest: float, ids: list[int]
    ) -> tuple[int, float]:
        """Lets due items of shorter buckets join; returns rows taken and oldest arrival."""
        for shorter in range(bucket - 1, -1, -1):
            if 2 * self._buckets[shorter] < self._buckets[bucket]:
                break
            for queue in self._queues_by_bucket[shorter]:
                while queue and (self._draining or self._may_ride(shorter, queue[0], now)):
                    arrived, before = queue[0][4], rows
                    if before + queue[0][3] > limit:
                        break
                    rows = self._take(queue, rows, rows + queue[0][3], ids)
                    self._bucket_rows[shorter] -= rows - before
                    oldest = min(oldest, arrived)
        return rows, oldest

    def _may_ride(self, bucket: int, item: WaitingItem, now: float) -> bool:
        """Whether an item of a shorter bucket has waited long enough to leave with a longer one."""
        if self._level is None:
            return now >= item[4] + self._wait_s_max
        return now >= self._level.due(bucket, item[4], self._bucket_rows[bucket])
