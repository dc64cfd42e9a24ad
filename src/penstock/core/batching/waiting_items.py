"""The items that wait for a batch: queues by priority and bucket, and what ends a wait.

`WaitingItems` keeps them; which run together, when and where, its heir decides (`batcher.py`). It
knows rows, priorities, buckets, deadlines and the policies of levels; it must not know lanes.

Levels may have policies of their own (`LevelPolicy`). A level that delays has a second queue behind
its first, before the next level: an item that has waited for its level's `wait_s_max` moves there.

Costs. One tuple per item; the queue is never scanned. A heap per bucket holds deadlines; entries of
items that left are dropped when met, or swept once they outnumber the rest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from penstock.core.batching.spec import Action, BatchSpec, Expire

#: (deadline or inf, running number, id, rows, arrived, queue index): ordered as the deadline heap.
WaitingItem = tuple[float, int, int, int, float, int]

_INF = float("inf")
PASSES_MAX = 7  #: batches in a row that may leave a longer-waiting item behind
_SWEEP_MIN = 64  #: entries of items that left, tolerated before a sweep


class WaitingItems:
    """The queue of one copy. Ids are the driver's, unique."""

    __slots__ = (
        "_alone", "_bucket_rows", "_buckets", "_deadlines", "_level_rows", "_number", "_passes",
        "_per_level", "_policies", "_preferred", "_priorities", "_queue_rows", "_queue_rows_max",
        "_queue_wait_s_max", "_queues", "_queues_by_bucket", "_rows_max", "_spec", "_stale",
        "_timeouts", "_waiting", "_widths",
    )  # fmt: skip

    def __init__(self, spec: BatchSpec) -> None:
        self._spec = spec
        self._rows_max = spec.rows_max
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
        self._timeouts: list[tuple[float, WaitingItem]] = []
        self._preferred = (
            frozenset((*spec.rows_preferred, spec.rows_max)) if spec.rows_preferred else frozenset()
        )
        #: one queue per priority and bucket, at `priority * _widths + bucket`; heads are never
        #: stale
        self._queues: list[deque[WaitingItem]] = [
            deque() for _ in range(self._priorities * self._widths)
        ]
        self._queues_by_bucket = [
            tuple(self._queues[bucket :: self._widths]) for bucket in range(self._widths)
        ]
        self._waiting: dict[int, WaitingItem] = {}  #: queued items, oldest first
        #: by bucket: heap of items with a deadline, stale entries included
        self._deadlines: list[list[WaitingItem]] = [[] for _ in range(self._widths)]
        #: item id -> rows, of queued items that count as a whole batch
        self._alone: dict[int, int] = {}
        self._stale = 0  #: entries of `_queues` whose items have left
        self._bucket_rows = [0] * self._widths
        self._queue_rows = 0
        self._number = 0
        self._passes = 0  #: batches in a row that left a longer-waiting item behind

    def cancel(self, id: int, *, now: float) -> bool:
        """True: the item was queued and is removed. False: it runs, or is unknown."""
        item = self._waiting.get(id)
        if item is None:
            return False
        self._remove(item)
        return True

    def waiting(self) -> tuple[int, ...]:
        """The queued ids, oldest first."""
        return tuple(self._waiting)

    @property
    def queue_rows(self) -> int:
        """Rows in the queue."""
        return self._queue_rows

    # changes

    def _join(
        self,
        id: int,
        rows: int,
        bucket: int,
        priority: int,
        deadline: float | None,
        wait_s_max: float | None,
        now: float,
        actions: list[Action],
    ) -> bool:
        """Queues an item, unless there is no room for it; expires dead ones where they take it."""
        if self._queue_rows + rows > self._queue_rows_max:
            self._expire(now, actions)
            if self._queue_rows + rows > self._queue_rows_max:
                return False
        waiting = self._waiting
        assert id not in waiting, f"item {id} is queued already"
        index = bucket
        if priority:
            level = min(priority, self._spec.priorities - 1)
            index += level * self._per_level * self._widths
        if self._policies and not self._fits_level(index, rows, now, actions):
            return False
        self._number = number = self._number + 1
        item = (_INF if deadline is None else deadline, number, id, rows, now, index)
        if deadline is not None:
            heap = self._deadlines[bucket]
            heappush(heap, item)
            if len(heap) > _SWEEP_MIN + 2 * len(waiting):
                waiting[id] = item
                heap[:] = [entry for entry in heap if waiting.get(entry[2]) is entry]
                heapify(heap)
        waiting[id] = item
        self._queues[index].append(item)
        self._queue_rows += rows
        self._bucket_rows[bucket] += rows
        if self._policies:
            self._watch(item, now, wait_s_max)
        return True

    def _empty(self) -> tuple[int, ...]:
        """Empties the queue; returns all queued ids, oldest first."""
        ids = tuple(self._waiting)
        self._waiting.clear()
        self._alone.clear()
        self._forget_deadlines()
        for queue in self._queues:
            queue.clear()
        self._stale = self._queue_rows = 0
        self._bucket_rows = [0] * self._widths
        return ids

    def _take(self, queue: deque[WaitingItem], rows: int, limit: int, ids: list[int]) -> int:
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

    def _remove(self, item: WaitingItem) -> None:
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

    def _forget_deadlines(self) -> None:
        """Clears the deadlines: no item waits any more."""
        for heap in self._deadlines:
            heap.clear()
        self._timeouts.clear()
        self._passes = 0

    # levels

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

    def _watch(self, item: WaitingItem, now: float, own_s: float | None) -> None:
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

    def _delay(self, item: WaitingItem) -> None:
        """Moves an item behind all others of its level. Those that were moved stay in the order in
        which they came, whenever the wait of each ended."""
        deadline, number, id, rows, arrived, index = item
        moved = (deadline, number, id, rows, arrived, index + self._widths)
        self._waiting[id] = moved
        self._stale += 1
        queue = self._queues[index]
        while queue and self._waiting.get(queue[0][2]) is not queue[0]:
            self._stale -= 1
            queue.popleft()
        delayed = self._queues[index + self._widths]
        at = len(delayed)
        while at and delayed[at - 1][1] > number:
            at -= 1
        delayed.insert(at, moved)
        if deadline < _INF:
            heappush(self._deadlines[index % self._widths], moved)

    # views

    def _check_items(self) -> None:
        """Raises AssertionError if the queue contradicts itself."""
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

    def _bucket_of(self, length: int) -> int:
        return min(bisect_left(self._buckets, length), self._widths - 1)

    def _oldest(self, bucket: int) -> float:
        """When the oldest item of a non-empty bucket arrived."""
        return min(queue[0][4] for queue in self._queues_by_bucket[bucket] if queue)

    def _lead(self, bucket: int) -> int:
        """The queue that goes first: the highest priority, or in its turn the oldest head."""
        queues = self._queues
        indexes = [at for at in range(bucket, len(queues), self._widths) if queues[at]]
        if self._passes < PASSES_MAX:
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
