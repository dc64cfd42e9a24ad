"""Which waiting items of one copy run together, on which lane, when, and why.

A batcher is a machine: the driver feeds it arrivals (`add`), finished batches (`lane_freed`),
cancellations and the time, and carries out the actions that come back. It knows rows, lengths,
priorities and deadlines; it must not know tensors, sockets or clocks.

When a batch leaves. A bucket of the queue is ready as soon as a lane is free and

* its rows reach `rows_max` (`batch-full`; `single` where `rows_max` is 1), or
* its rows reach a preferred size (`preferred-size`), or
* its oldest item has waited `wait_s_max` (`waited-enough`), or had done so before the lane became
  free (`lane-free`, also where `wait_s_max` is 0: then nothing waits for company, only for a lane,
  and a burst that meets busy lanes leaves as one batch), or
* the tightest deadline would be missed by waiting on (`deadline-near`): runs are timed from their
  action to `lane_freed`, smoothed as TCP smooths round trips (RFC 6298: mean + 4 mean deviations),
  and an item leaves that long before its deadline. Nothing leaves early before a run was timed.
* the batcher drains (`draining`).

Who is in it. The ready bucket whose head has the highest priority (0 first), then the longest
wait, leads; its items follow in order of priority, first in first out within priority and bucket,
as long as they fit. With preferred sizes the batch is cut to the largest of them that a whole
number of items makes (`rows_max` counts as one), if there is one. No starvation: after 7 batches
in a row that left a longer-waiting item behind, the longest-waiting item of the ready buckets
leads the next.

Buckets are not mixed, with one exception that costs less than waiting. When a batch takes the last
free lane and has rows to spare, items of shorter buckets whose wait is over ride along if their
bucket is at least half as long: padding then at most doubles their own compute, and the other
choice is to wait for a whole run of somebody else's. Items longer than the last bucket belong to
the last.

Who never runs. An item whose deadline has passed is refused or expires; one that has queued for
`queue_wait_s_max` expires. Both free their rows at once.

Costs. One tuple per item; the queue is never scanned (a heap holds deadlines; entries of items that
left are dropped when met, or swept once they outnumber the rest). So `next_deadline()` may be the
deadline of an item that has left: `on_timer` then only moves it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from penstock.core.batch_spec import Action, BatchSpec, Expire, Refuse, RunBatch

__all__ = ["Action", "BatchSpec", "Batcher", "Expire", "Refuse", "RunBatch"]

#: (deadline or inf, running number, id, rows, arrived, queue index): ordered as the deadline heap.
_Item = tuple[float, int, int, int, float, int]

_INF = float("inf")
_PASSES_MAX = 7  #: batches in a row that may leave a longer-waiting item behind
_SWEEP_MIN = 64  #: entries of items that left, tolerated before a sweep


class Batcher:
    """The queue and the lanes of one copy. `now` never goes back; ids are the driver's, unique."""

    __slots__ = (
        "_bucket_rows", "_buckets", "_deadlines", "_draining", "_full_reason", "_lanes_free",
        "_number", "_passes", "_preferred", "_priorities", "_queue_rows", "_queue_rows_max",
        "_queue_wait_s_max", "_queues", "_queues_by_bucket", "_rows_max", "_run_s_bound",
        "_run_s_deviation", "_run_s_mean", "_spec", "_stale", "_started", "_timer_reason",
        "_wait_s_max", "_waiting", "_widths",
    )  # fmt: skip

    def __init__(self, spec: BatchSpec) -> None:
        self._spec = spec
        self._rows_max = spec.rows_max
        self._wait_s_max = spec.wait_s_max
        self._queue_rows_max = spec.queue_rows_max
        self._queue_wait_s_max = spec.queue_wait_s_max
        self._buckets = spec.buckets
        self._widths = max(1, len(spec.buckets))
        self._priorities = spec.priorities
        self._preferred = (
            frozenset((*spec.rows_preferred, spec.rows_max)) if spec.rows_preferred else frozenset()
        )
        self._full_reason = "single" if spec.rows_max == 1 else "batch-full"
        self._timer_reason = "waited-enough" if spec.wait_s_max > 0 else "lane-free"
        #: one per priority and bucket, at `priority * _widths + bucket`; heads are never stale
        self._queues: list[deque[_Item]] = [deque() for _ in range(spec.priorities * self._widths)]
        self._queues_by_bucket = [
            tuple(self._queues[bucket :: self._widths]) for bucket in range(self._widths)
        ]
        self._waiting: dict[int, _Item] = {}  #: what is queued, oldest first
        self._deadlines: list[_Item] = []  #: heap of items with a deadline, stale entries included
        self._stale = 0  #: entries of `_queues` whose items have left
        self._bucket_rows = [0] * self._widths
        self._queue_rows = 0
        self._lanes_free = list(range(spec.lanes - 1, -1, -1))  #: a stack: the last used is warm
        self._started: list[float | None] = [
            None
        ] * spec.lanes  #: when a lane's batch left; inf = untimed
        self._number = 0
        self._passes = 0  #: batches in a row that left a longer-waiting item behind
        self._draining = False
        self._run_s_mean = 0.0
        self._run_s_deviation = 0.0
        self._run_s_bound = 0.0  #: mean + 4 deviations; 0 before the first run: never early

    # inputs

    def add(
        self,
        id: int,
        *,
        rows: int = 1,
        length: int = 0,
        priority: int = 0,
        deadline: float | None = None,
        now: float,
    ) -> list[Action]:
        """Queues an item of `rows` (>= 1) rows and `length` tokens, or refuses it.

        Runs only what became full or of a preferred size (and expires what it finds dead doing so);
        everything else waits for `on_timer`, so that the items of one socket read become one batch.
        """
        if rows > self._rows_max:
            return [Refuse(id, "too-many-rows")]
        if self._draining:
            return [Refuse(id, "draining")]
        if deadline is not None and now >= deadline:
            return [Refuse(id, "deadline-passed")]
        waiting = self._waiting
        if rows == self._rows_max and not waiting and self._lanes_free:
            # What a model without batching sees nearly always: no need to go through the queue.
            lane = self._lanes_free.pop()
            self._started[lane] = now
            length = self._buckets[self._bucket_of(length)] if self._buckets else 0
            return [RunBatch(lane, (id,), rows, length, 0.0, 0, self._full_reason)]
        actions: list[Action] = []
        if self._queue_rows + rows > self._queue_rows_max:
            self._expire(now, actions)  # the dead hold no room
            if self._queue_rows + rows > self._queue_rows_max:
                actions.append(Refuse(id, "queue-full"))
                return actions
        assert id not in waiting, f"item {id} is queued already"
        index = bucket = self._bucket_of(length) if self._buckets else 0
        if priority and self._priorities > 1:
            index += min(priority, self._priorities - 1) * self._widths
        self._number = number = self._number + 1
        if deadline is None:
            item = (_INF, number, id, rows, now, index)
        else:
            item = (deadline, number, id, rows, now, index)
            heap = self._deadlines
            heappush(heap, item)
            if len(heap) > _SWEEP_MIN + 2 * len(waiting):
                waiting[id] = item
                heap[:] = [entry for entry in heap if waiting.get(entry[2]) is entry]
                heapify(heap)
        waiting[id] = item
        self._queues[index].append(item)
        self._queue_rows += rows
        self._bucket_rows[bucket] = bucket_rows = self._bucket_rows[bucket] + rows
        if self._lanes_free and (bucket_rows >= self._rows_max or bucket_rows in self._preferred):
            self._run_full(bucket, now, actions)
        return actions

    def on_timer(self, *, now: float) -> list[Action]:
        """Everything that is due: deadlines, queue timeouts, waits that are over."""
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
        heap = self._deadlines
        if self._lanes_free:
            wait_s_max = self._wait_s_max
            for queue in self._queues:
                if queue:
                    due = queue[0][4] + wait_s_max
                    at = due if due < at else at
            if heap:
                due = heap[0][0] - self._run_s_bound
                at = due if due < at else at
        elif heap:
            at = heap[0][0]
        if self._queue_wait_s_max is not None:
            for queue in self._queues:
                if queue:
                    due = queue[0][4] + self._queue_wait_s_max
                    at = due if due < at else at
        return at if at < _INF else None

    def lane_freed(self, lane: int, *, now: float, timed: bool = True) -> list[Action]:
        """The batch on `lane` is done, whatever came of it; what waited for a lane leaves.

        `timed` is False where the lane was not computing all the while (its worker was replaced).
        """
        started = self._started[lane]
        assert started is not None, f"nothing runs on lane {lane}"
        self._started[lane] = None
        self._lanes_free.append(lane)
        if timed and started < _INF:
            self._learn(now - started)
        actions: list[Action] = []
        if self._waiting:
            self._expire(now, actions)
            self._run_ready(now, "lane-free", actions)
        return actions

    def cancel(self, id: int, *, now: float) -> bool:
        """True: it was queued and is gone. False: it runs, or is unknown."""
        item = self._waiting.get(id)
        if item is None:
            return False
        self._remove(item)
        return True

    def drain(self, *, now: float) -> list[Action]:
        """Refuses new items from now on and runs what waits without further delay."""
        self._draining = True
        actions: list[Action] = []
        self._expire(now, actions)
        self._run_ready(now, "draining", actions)
        return actions

    def give_back(self, *, now: float) -> tuple[int, ...]:
        """Empties the queue; returns all queued ids, oldest first.

        Running batches stay running until their lanes are freed, but are no longer timed: what gave
        back its queue has lost its worker.
        """
        ids = tuple(self._waiting)
        self._started = [None if started is None else _INF for started in self._started]
        self._waiting.clear()
        self._deadlines.clear()
        for queue in self._queues:
            queue.clear()
        self._stale = self._queue_rows = self._passes = 0
        self._bucket_rows = [0] * self._widths
        return ids

    # views

    @property
    def queue_rows(self) -> int:
        """Rows that wait."""
        return self._queue_rows

    @property
    def running(self) -> int:
        """Batches that run now, one per busy lane."""
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
            "draining": self._draining,
            "run_s_mean": self._run_s_mean,
            "run_s_bound": self._run_s_bound,
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
        kept = sum(1 for e in self._deadlines if e[0] < _INF and waiting.get(e[2]) is e)
        assert dated == kept, "a deadline is not watched"
        idle = [lane for lane, started in enumerate(self._started) if started is None]
        assert sorted(self._lanes_free) == idle, "a lane is both free and busy"
        if self._lanes_free:
            assert not (self._draining and waiting), "an item waits while draining, a lane is free"
            assert all(count < self._rows_max for count in rows), (
                "a full batch waits, a lane is free"
            )

    # decisions

    def _run_full(self, bucket: int, now: float, actions: list[Action]) -> None:
        """Runs batches of one bucket as long as it is full, or just of a preferred size."""
        if self._queue_wait_s_max is not None or self._deadlines:
            self._expire(now, actions)
        while self._lanes_free:
            rows = self._bucket_rows[bucket]
            if rows >= self._rows_max:
                reason = self._full_reason
            elif rows in self._preferred:
                reason = "preferred-size"
            else:
                return
            lead = bucket if self._priorities == 1 else self._lead(bucket)
            self._run(bucket, lead, reason, now, actions)

    def _run_ready(self, now: float, wait_reason: str, actions: list[Action]) -> None:
        """Runs ready buckets, the most urgent first, until no lane is free or none is ready."""
        while self._lanes_free and self._waiting:
            chosen: tuple[int, int, int, int, str] | None = None
            for bucket in range(self._widths):
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
        wait_s_max = self._wait_s_max
        for queue in self._queues_by_bucket[bucket]:
            if queue and now >= queue[0][4] + wait_s_max:
                return wait_reason
        if self._preferred and self._preferred_rows(self._order(bucket, self._lead(bucket))):
            return "preferred-size"
        heap, waiting = self._deadlines, self._waiting
        while heap and waiting.get(heap[0][2]) is not heap[0]:
            heappop(heap)
        if heap and now >= heap[0][0] - self._run_s_bound and heap[0][5] % self._widths == bucket:
            return "deadline-near"
        return ""

    def _bucket_of(self, length: int) -> int:
        return min(bisect_left(self._buckets, length), self._widths - 1)

    def _lead(self, bucket: int) -> int:
        """The queue that goes first: the highest priority, or in its turn the oldest head."""
        lead, oldest = -1, _INF
        for index in range(bucket, len(self._queues), self._widths):
            queue = self._queues[index]
            if queue:
                if self._passes < _PASSES_MAX:
                    return index
                if queue[0][1] < oldest:
                    lead, oldest = index, queue[0][1]
        return lead

    def _order(self, bucket: int, lead: int) -> Sequence[int]:
        """The queues of a bucket in the order in which a batch takes from them."""
        if self._priorities == 1:
            return (bucket,)
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
        lane = self._lanes_free.pop()
        self._started[lane] = now
        if bucket and rows < limit and not self._lanes_free:
            rows, oldest = self._take_shorter(bucket, rows, limit, now, oldest, ids)
        self._queue_rows -= rows
        if not self._waiting:
            self._deadlines.clear()
            self._passes = 0
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
        return rows

    def _take_shorter(
        self, bucket: int, rows: int, limit: int, now: float, oldest: float, ids: list[int]
    ) -> tuple[int, float]:
        """Lets due items of shorter buckets ride along; returns rows taken and oldest arrival."""
        for shorter in range(bucket - 1, -1, -1):
            if 2 * self._buckets[shorter] < self._buckets[bucket]:
                break
            for queue in self._queues_by_bucket[shorter]:
                while queue and (self._draining or now >= queue[0][4] + self._wait_s_max):
                    arrived, before = queue[0][4], rows
                    if before + queue[0][3] > limit:
                        break
                    rows = self._take(queue, rows, rows + queue[0][3], ids)
                    self._bucket_rows[shorter] -= rows - before
                    oldest = min(oldest, arrived)
        return rows, oldest

    def _learn(self, run_s: float) -> None:
        if self._run_s_bound:
            error = run_s - self._run_s_mean
            self._run_s_mean += error / 8
            self._run_s_deviation += (abs(error) - self._run_s_deviation) / 4
        else:
            self._run_s_mean = run_s
            self._run_s_deviation = run_s / 2
        self._run_s_bound = self._run_s_mean + 4 * self._run_s_deviation

    def _expire(self, now: float, actions: list[Action]) -> None:
        """Drops what must not run any more, in the order of its deadline."""
        heap = self._deadlines
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

    def _remove(self, item: _Item) -> None:
        """Takes one item out of the queue without looking for it: its entry becomes stale."""
        waiting, queue = self._waiting, self._queues[item[5]]
        del waiting[item[2]]
        self._queue_rows -= item[3]
        self._bucket_rows[item[5] % self._widths] -= item[3]
        self._stale += 1
        while queue and waiting.get(queue[0][2]) is not queue[0]:
            self._stale -= 1
            queue.popleft()
        if not waiting:
            self._deadlines.clear()
            self._passes = 0
        if self._stale > _SWEEP_MIN + len(waiting):
            for queue in self._queues:  # in place: callers hold these very queues
                live = [entry for entry in queue if waiting.get(entry[2]) is entry]
                queue.clear()
                queue.extend(live)
            self._stale = 0
