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
how many rows a batch takes; `service-level` is the reason where the level itself decided.

Which items a batch takes. The ready bucket whose head has the highest priority (0 first), then the
longest wait, leads. Its items follow in order of priority, first in first out within priority and
bucket, as long as they fit. With preferred sizes the batch is cut to the largest preferred size
that a whole number of items makes (`rows_max` counts as one), if there is one. No starvation: after
7 batches in a row that left a longer-waiting item behind, the longest-waiting item of the ready
buckets leads the next.

Levels may have policies of their own (`LevelPolicy`). A level that delays has a second queue behind
its first, before the next level: an item that has waited for its level's `wait_s_max` moves there.

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

Costs. One tuple per item; the queue is never scanned. A heap per bucket holds deadlines; entries of
items that left are dropped when met, or swept once they outnumber the rest. So `next_deadline()`
may be the deadline of an item that has left: `on_timer` then only moves it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from penstock.core.batching.run_times import RunTimes, ServiceLevel
from penstock.core.batching.spec import (
    Action,
    BatchSpec,
    Expire,
    LevelPolicy,
    RefuseItem,
    RunBatch,
)

__all__ = ["Action", "BatchSpec", "Batcher", "Expire", "LevelPolicy", "RefuseItem", "RunBatch"]

#: (deadline or inf, running number, id, rows, arrived, queue index): ordered as the deadline heap.
_Item = tuple[float, int, int, int, float, int]

_INF = float("inf")
_PASSES_MAX = 7  #: batches in a row that may leave a longer-waiting item behind
_SWEEP_MIN = 64  #: entries of items that left, tolerated before a sweep
#: s for the two messages between a lane and its driver; each took 0.5 to 1 ms under load
_AHEAD_S = 0.002
#: items of a bucket given up in a row; a wrong forecast wastes at most one item in 16
_DOOMED_MAX = 15


class Batcher:
    """The queue and the lanes of one copy. `now` never goes back; ids are the driver's, unique."""

    __slots__ = (
        "_ahead", "_alone", "_bucket_rows", "_buckets", "_deadlines", "_doomed", "_draining",
        "_full_reason", "_lanes_ahead", "_lanes_free", "_level", "_level_rows", "_number",
        "_passes", "_per_level", "_policies", "_preferred", "_priorities", "_queue_rows",
        "_queue_rows_max", "_queue_wait_s_max", "_queues", "_queues_by_bucket", "_ran", "_rows_max",
        "_runs", "_spec", "_stale", "_started", "_timeouts", "_timer_reason", "_wait_s_max",
        "_waiting", "_widths",
    )  # fmt: skip

    def __init__(self, spec: BatchSpec) -> None:
        self._spec = spec
        self._rows_max = spec.rows_max
        self._wait_s_max = spec.wait_s_max
        self._queue_rows_max = spec.queue_rows_max
        self._queue_wait_s_max = spec.queue_wait_s_max
        self._buckets = spec.buckets
        self._widths = max(1, len(spec.buckets))
        self._policies = spec.levels
        #: queues of one level and bucket: the second one is for items that let others go first
        self._per_level = 2 if any(level.delays for level in spec.levels) else 1
        self._priorities = spec.priorities * self._per_level
        self._level_rows = [0] * spec.priorities  #: waiting rows, where levels have policies
        #: heap of (time, item): when an item's wait is over by the policy of its level
        self._timeouts: list[tuple[float, _Item]] = []
        self._preferred = (
            frozenset((*spec.rows_preferred, spec.rows_max)) if spec.rows_preferred else frozenset()
        )
        self._full_reason = "single" if spec.rows_max == 1 else "batch-full"
        waits = spec.wait_s_max > 0 or spec.latency_s_p99_max is not None
        self._timer_reason = "waited-enough" if waits else "lane-free"
        #: one queue per priority and bucket, at `priority * _widths + bucket`; heads are never
        #: stale
        self._queues: list[deque[_Item]] = [deque() for _ in range(self._priorities * self._widths)]
        self._queues_by_bucket = [
            tuple(self._queues[bucket :: self._widths]) for bucket in range(self._widths)
        ]
        self._waiting: dict[int, _Item] = {}  #: queued items, oldest first
        #: by bucket: heap of items with a deadline, stale entries included
        self._deadlines: list[list[_Item]] = [[] for _ in range(self._widths)]
        #: item id -> rows, of queued items that count as a whole batch
        self._alone: dict[int, int] = {}
        self._stale = 0  #: entries of `_queues` whose items have left
        self._bucket_rows = [0] * self._widths
        self._queue_rows = 0
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
        self._number = 0
        self._passes = 0  #: batches in a row that left a longer-waiting item behind
        self._draining = False
        self._runs = RunTimes(spec)
        self._level = ServiceLevel(spec, self._runs) if spec.latency_s_p99_max else None
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
        index = bucket = self._bucket_of(length) if self._buckets else 0
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
        waiting = self._waiting
        if (alone or rows == self._rows_max) and not waiting and self._lanes_free:
            # The usual case of a model without batching: the item need not go through the queue.
            lane = self._leave(bucket, rows, now)
            length = self._buckets[bucket] if self._buckets else 0
            return [RunBatch(lane, (id,), rows, length, 0.0, 0, self._full_reason)]
        actions: list[Action] = []
        own_rows = rows
        if alone:
            rows = self._rows_max
        if self._queue_rows + rows > self._queue_rows_max:
            self._expire(now, actions)  # expired items must not take room
            if self._queue_rows + rows > self._queue_rows_max:
                actions.append(RefuseItem(id, "queue-full"))
                return actions
        assert id not in waiting, f"item {id} is queued already"
        if priority:
            level = min(priority, self._spec.priorities - 1)
            index += level * self._per_level * self._widths
        if self._policies and not self._fits_level(index, rows, now, actions):
            actions.append(RefuseItem(id, "queue-full"))
            return actions
        self._number = number = self._number + 1
        if deadline is None:
            item = (_INF, number, id, rows, now, index)
        else:
            item = (deadline, number, id, rows, now, index)
            heap = self._deadlines[bucket]
            heappush(heap, item)
            if len(heap) > _SWEEP_MIN + 2 * len(waiting):
                waiting[id] = item
                heap[:] = [entry for entry in heap if waiting.get(entry[2]) is entry]
                heapify(heap)
        waiting[id] = item
        if alone:
            self._alone[id] = own_rows
        self._queues[index].append(item)
        self._queue_rows += rows
        if self._policies:
            self._watch(item, now, wait_s_max)
        self._bucket_rows[bucket] = bucket_rows = self._bucket_rows[bucket] + rows
        if self._level is not None:
            self._level.arrived(bucket, now)
        if bucket_rows >= self._rows_max:
            if self._lanes_free or self._lanes_ahead:
                self._run_full(bucket, now, actions)
        elif bucket_rows in self._preferred and self._lanes_free:
            self._run_full(bucket, now, actions)
        return actions

    def on_timer(self, *, now: float) -> list[Action]:
        """Does everything that is due: deadlines, queue timeouts, waits that are over."""
        actions: list[Action] = []
        if self._waiting:
            self._expire(now, actions)
            self._run_ready(now, self._timer_reason, actions)
        return actions

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
        if self._spec.batches_ahead:
            self._lanes_ahead.remove(lane)
        self._lanes_free.append(lane)
        if self._waiting:
            self._expire(now, actions)
            self._run_ready(now, "lane-free", actions)
        return actions

    def cancel(self, id: int, *, now: float) -> bool:
        """True: the item was queued and is removed. False: it runs, or is unknown."""
        item = self._waiting.get(id)
        if item is None:
            return False
        self._remove(item)
        return True

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
        ids = tuple(self._waiting)
        self._started = [None if started is None else _INF for started in self._started]
        self._waiting.clear()
        self._alone.clear()
        self._forget_deadlines()
        for queue in self._queues:
            queue.clear()
        self._stale = self._queue_rows = 0
        self._bucket_rows = [0] * self._widths
        return ids

    # views

    def waiting(self) -> tuple[int, ...]:
        """The queued ids, oldest first."""
        return tuple(self._waiting)

    @property
    def queue_rows(self) -> int:
        """Rows in the queue."""
        return self._queue_rows

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
            "next_deadline": self.next_deadline(),
        }

    def check_invariants(self) -> None:
        """Raises AssertionError if the state contradicts itself; for tests and the twin."""
        waiting = self._waiting
        live = [item for queue in self._queues for item in queue if waiting.get(item[2]) is item]
        assert len(live) == len(waiting), "an item is waiting in no queue, or in two"
        assert self._stale == sum(map(len, self._queues)) - len(live), "stale entries miscounted"
        for index, queue in enumerate(self._queues):
            numbers = [item[1] for item in queue]
            assert numbers == sorted(numbers), f"queue {index} is out of order"
            assert all(item[5] == index for item in queue), f"queue {index} holds another's item"
            assert not queue or waiting.get(queue[0][2]) is queue[0], f"queue {index}: stale head"
        rows = [0] * self._widths
        for item in live:
            rows[item[5] % self._widths] += item[3]
        assert rows == self._bucket_rows, "rows of a bucket miscounted"
        assert sum(rows) == self._queue_rows <= self._queue_rows_max, "queue over its bound"
        dated = sum(1 for item in live if item[0] < _INF)
        kept = [
            entry for heap in self._deadlines for entry in heap if waiting.get(entry[2]) is entry
        ]
        assert dated == len(kept), "a deadline is not watched"
        assert self._alone.keys() <= waiting.keys(), "one to run alone is kept beyond its time"
        self._runs.check_invariants()
        idle = [lane for lane, started in enumerate(self._started) if started is None]
        assert sorted(self._lanes_free) == idle, "a lane is both free and busy"
        held = [lane for lane, batch in enumerate(self._ahead) if batch is not None]
        assert not set(held) & set(idle), "a lane that is free holds a batch ahead"
        open_lanes = set(range(self._spec.lanes)) - set(idle) - set(held)
        assert set(self._lanes_ahead) == (open_lanes if self._spec.batches_ahead else set())
        if self._lanes_free:
            assert not (self._draining and waiting), "an item waits while draining, a lane is free"
            assert all(count < self._rows_max for count in rows), (
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
            starts_at = self._starts_at(now)
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
                level = 0 if self._passes >= _PASSES_MAX else lead // self._widths
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
        if now >= self._due(bucket):
            if self._level is None or wait_reason == "lane-free":
                return wait_reason
            return self._level.why(bucket, self._oldest(bucket), self._bucket_rows[bucket])
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

    def _oldest(self, bucket: int) -> float:
        """When the oldest item of a non-empty bucket arrived."""
        return min(queue[0][4] for queue in self._queues_by_bucket[bucket] if queue)

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

    def _bucket_of(self, length: int) -> int:
        return min(bisect_left(self._buckets, length), self._widths - 1)

    def _lead(self, bucket: int) -> int:
        """The queue that goes first: the highest priority, or in its turn the oldest head."""
        queues = self._queues
        indexes = [at for at in range(bucket, len(queues), self._widths) if queues[at]]
        if self._passes < _PASSES_MAX:
            return indexes[0]
        return min(indexes, key=lambda at: queues[at][0][1])

    def _order(self, bucket: int, lead: int) -> Sequence[int]:
        """The queues of a bucket in the order in which a batch takes from them."""
        indexes = range(bucket, len(self._queues), self._widths)
        return (lead, *(index for index in indexes if index != lead))

    def _preferred_rows(self, order: Sequence[int]) -> int:
        """The largest preferred size that the first items in this order make exactly; or 0."""
        rows = best = 0
        for index in order:
            for item in self._queues[index]:
                if self._stale and self._waiting.get(item[2]) is not item:
                    continue
                if rows + item[3] > self._rows_max:
                    break
                rows += item[3]
                if rows in self._preferred:
                    best = rows
        return best

    def _run(self, bucket: int, lead: int, reason: str, now: float, actions: list[Action]) -> None:
        """Makes one batch of a ready bucket. A lane must be free."""
        limit = self._rows_max
        if self._preferred:
            preferred = self._preferred_rows(self._order(bucket, lead))
            if preferred and preferred < limit:
                limit = preferred
                reason = "preferred-size"
        first = self._queues[lead][0]
        if self._level is not None:
            allowed = self._level.rows_max(
                bucket, now - self._oldest(bucket), self._bucket_rows[bucket]
            )
            if allowed < min(limit, self._bucket_rows[bucket]):
                limit = max(allowed, first[3])
                reason = "service-level"
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
        actions.append(
            RunBatch(lane, tuple(ids), rows, length, now - oldest, self._queue_rows, reason)
        )

    def _take(self, queue: deque[_Item], rows: int, limit: int, ids: list[int]) -> int:
        """Moves items from a queue's head into `ids` while they fit; returns the rows now taken."""
        waiting = self._waiting
        while queue:
            item = queue[0]
            id = item[2]
            if self._stale and waiting.get(id) is not item:
                self._stale -= 1
                queue.popleft()
                continue
            taken = rows + item[3]
            if taken > limit:
                break
            rows = taken
            del waiting[id]
            queue.popleft()
            ids.append(id)
            if self._policies:
                self._level_rows[self._level_of(item[5])] -= item[3]
        return rows

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

    def _may_ride(self, bucket: int, item: _Item, now: float) -> bool:
        """Whether an item of a shorter bucket has waited long enough to leave with a longer one."""
        if self._level is None:
            return now >= item[4] + self._wait_s_max
        return now >= self._level.due(bucket, item[4], self._bucket_rows[bucket])

    def _expire(self, now: float, actions: list[Action]) -> None:
        """Drops items that must not run any more, bucket by bucket in the order of deadlines."""
        for heap in self._deadlines:
            while heap and now >= heap[0][0]:
                item = heappop(heap)
                if self._waiting.get(item[2]) is item:
                    self._remove(item)
                    actions.append(Expire(item[2], "deadline-passed"))
        if self._queue_wait_s_max is not None:
            for queue in self._queues:
                while queue and now >= queue[0][4] + self._queue_wait_s_max:
                    actions.append(Expire(queue[0][2], "queue-timeout"))
                    self._remove(queue[0])
        while self._timeouts and now >= self._timeouts[0][0]:
            item = heappop(self._timeouts)[1]
            if self._waiting.get(item[2]) is not item:
                continue
            if self._policies[self._level_of(item[5])].delays:
                self._delay(item)
            else:
                actions.append(Expire(item[2], "queue-timeout"))
                self._remove(item)

    def _level_of(self, index: int) -> int:
        """The priority level of a queue."""
        return index // (self._widths * self._per_level)

    def _fits_level(self, index: int, rows: int, now: float, actions: list[Action]) -> bool:
        """Whether the item's level has room for its rows."""
        level = self._level_of(index)
        rows_max = self._policies[level].rows_max
        if rows_max and self._level_rows[level] + rows > rows_max:
            self._expire(now, actions)  # expired items must not take room
            return self._level_rows[level] + rows <= rows_max
        return True

    def _watch(self, item: _Item, now: float, own_s: float | None) -> None:
        """Counts an item that is queued for its level, and notes when its wait there is over."""
        level = self._level_of(item[5])
        self._level_rows[level] += item[3]
        wait_s_max = self._policies[level].wait_s_max
        if wait_s_max is not None:
            if own_s is not None:
                wait_s_max = min(wait_s_max, own_s)
            heappush(self._timeouts, (now + wait_s_max, item))
            if len(self._timeouts) > _SWEEP_MIN + 2 * len(self._waiting):
                waiting = self._waiting
                live = [entry for entry in self._timeouts if waiting.get(entry[1][2]) is entry[1]]
                heapify(live)
                self._timeouts[:] = live

    def _delay(self, item: _Item) -> None:
        """Moves an item behind all others of its level."""
        deadline, number, id, rows, arrived, index = item
        moved = (deadline, number, id, rows, arrived, index + self._widths)
        self._waiting[id] = moved
        self._stale += 1
        queue = self._queues[index]
        while queue and self._waiting.get(queue[0][2]) is not queue[0]:
            self._stale -= 1
            queue.popleft()
        self._queues[index + self._widths].append(moved)
        if deadline < _INF:
            heappush(self._deadlines[index % self._widths], moved)

    def _remove(self, item: _Item) -> None:
        """Removes one item without searching the queue: its entry becomes stale."""
        waiting, queue = self._waiting, self._queues[item[5]]
        del waiting[item[2]]
        if self._alone:
            self._alone.pop(item[2], None)
        self._queue_rows -= item[3]
        if self._policies:
            self._level_rows[self._level_of(item[5])] -= item[3]
        self._bucket_rows[item[5] % self._widths] -= item[3]
        self._stale += 1
        while queue and waiting.get(queue[0][2]) is not queue[0]:
            self._stale -= 1
            queue.popleft()
        if not waiting:
            self._forget_deadlines()
        if self._stale > _SWEEP_MIN + len(waiting):
            for queue in self._queues:  # in place: callers hold these very queues
                live = [entry for entry in queue if waiting.get(entry[2]) is entry]
                queue.clear()
                queue.extend(live)
            self._stale = 0

    def _forget_deadlines(self) -> None:
        """Clears the deadlines: no item waits any more."""
        for heap in self._deadlines:
            heap.clear()
        self._timeouts.clear()
        self._passes = 0
