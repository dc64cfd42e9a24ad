"""Which slot a sequence has, and which requests of sequences run together.

Requests of one sequence share the state of a model. So a sequence has a slot of one lane from its
first request to its last, and its requests run there in order, one at a time. The rules are those
of Triton's sequence batcher (docs of the Triton Inference Server, "Sequence Batcher").

A sequence *begins* with a request that says so. It gets the free slot with the lowest number. Where
no slot is free it waits in the backlog with all its requests, first come first served. It *ends*
once the request has run that says so, or when nothing came for `idle_s_max` while nothing of it
waited or ran. Its slot then goes to the backlog's first. A sequence that is begun again under the
same name goes on in its slot. If it had ended and others wait, it goes behind them.

A sequence is *lost* with its lane's worker (`lane_lost`), and when one of its requests leaves the
queue without having run: a state with a hole in it would be a wrong one. What waits of it is
refused, and so is what comes for it later, until it is begun again. A request that is refused when
it comes changes nothing: it may be sent again.

Two strategies say which requests form a batch. A lane runs one batch at a time.

* *direct*: row `n` of a batch is slot `n`, for models that hold a state per row. Slots without a
  request are padding, up to the last slot with one. A batch leaves as soon as its lane is free, or,
  where `utilization_min` is set, once so many of the slots have a request or the oldest has waited
  `wait_s_max`.
* *oldest*: the oldest requests of the lane's sequences, at most `rows_max`. A batch leaves as that
  of a model without state would: full, at a preferred size, or when the oldest waited enough.

Which rows a batch has and what they mean to the model is in `RunSequences`; tensors are unknown.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any, Final

from penstock.core.batching.spec import Expire, RefuseItem, RunBatch

#: Reasons of `RefuseItem` and `Expire` besides the batcher's.
NOT_STARTED: Final = "sequence-not-started"
LOST: Final = "sequence-lost"
#: Lost sequences that are remembered, so that their callers learn why; the oldest go first.
_LOST_MAX: Final = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceSpec:
    """How one copy keeps sequences. Sizes in sequences, times in s."""

    lanes: int = 1
    slots: int = 1  #: sequences that a lane holds at once; with `direct` the rows of its batches
    direct: bool = True  #: the strategy; False: oldest
    idle_s_max: float = 1.0  #: a sequence without a request for so long has ended
    rows_max: int = 1  #: oldest: requests of a batch
    rows_preferred: tuple[int, ...] = ()  #: oldest: sizes at which a batch leaves
    wait_s_max: float = 0.0  #: how long the oldest request waits for others
    utilization_min: float = 0.0  #: direct: part of the slots with a request; 0 = any
    queue_rows_max: int = 2048  #: requests that may wait, those of the backlog included


@dataclass(frozen=True, slots=True)
class SequenceStep:
    """One row of a batch."""

    sequence: Hashable
    slot: int
    start: bool  #: the state begins anew with this row
    end: bool  #: the state is not needed after it


@dataclass(slots=True)
class RunSequences(RunBatch):
    """Run these requests; `ids` are those of the rows that are no padding, in order."""

    steps: tuple[SequenceStep | None, ...] = ()  #: the rows; None: padding


@dataclass(frozen=True, slots=True)
class FreeSequenceSlot:
    """The state of this slot is not needed any more."""

    sequence: Hashable
    lane: int
    slot: int
    reason: str  #: ended | idle | lost


SequenceAction = RunSequences | FreeSequenceSlot | RefuseItem | Expire


class _Request:
    __slots__ = ("alone", "arrived", "deadline", "end", "id", "start")

    def __init__(
        self, id: int, start: bool, end: bool, arrived: float, deadline: float, alone: bool
    ) -> None:
        self.id = id
        self.alone = alone
        self.start = start
        self.end = end
        self.arrived = arrived
        self.deadline = deadline


class _OpenSequence:
    __slots__ = ("key", "lane", "queue", "running", "slot", "used")

    def __init__(self, key: Hashable, now: float) -> None:
        self.key = key
        self.lane = -1  #: -1: it is in the backlog
        self.slot = -1
        self.queue: deque[_Request] = deque()
        self.running: _Request | None = None
        self.used = now  #: its last request or answer, whichever came later

    @property
    def accepts_more(self) -> bool:
        """Whether its newest request is not its last one."""
        last = self.queue[-1] if self.queue else self.running
        return last is None or not last.end


class SequenceBatcher:
    """The sequences of one copy. `now` never goes back; ids are the driver's, unique."""

    def __init__(self, spec: SequenceSpec) -> None:
        self._spec = spec
        self._open: dict[Hashable, _OpenSequence] = {}
        self._backlog: OrderedDict[Hashable, _OpenSequence] = OrderedDict()
        #: sequences with a slot and nothing waiting or running, the one unused for longest first
        self._idle: OrderedDict[Hashable, _OpenSequence] = OrderedDict()
        #: by lane: sequences with a slot and a request that may run
        self._ready: list[dict[Hashable, _OpenSequence]] = [{} for _ in range(spec.lanes)]
        self._of_request: dict[int, _OpenSequence] = {}  #: waiting requests
        self._free = [(slot, lane) for slot in range(spec.slots) for lane in range(spec.lanes)]
        self._batches: list[list[_OpenSequence] | None] = [None] * spec.lanes  #: what a lane runs
        self._down: set[int] = set()  #: lanes without a worker
        self._lost: OrderedDict[Hashable, None] = OrderedDict()
        self._draining = False

    # Inputs

    def add(
        self,
        id: int,
        *,
        sequence: Hashable,
        start: bool,
        end: bool,
        deadline: float | None = None,
        alone: bool = False,
        now: float,
    ) -> list[SequenceAction]:
        """Queues a request, or refuses it. What may run is run by `on_timer`. One that is to run
        `alone` is the only one of its batch."""
        if deadline is not None and now >= deadline:
            return [RefuseItem(id, "deadline-passed")]
        found = self._open.get(sequence)
        if not start and (found is None or not found.accepts_more):
            return [RefuseItem(id, LOST if sequence in self._lost else NOT_STARTED)]
        if found is None and self._draining:
            return [RefuseItem(id, "draining")]
        if len(self._of_request) >= self._spec.queue_rows_max:
            return [RefuseItem(id, "queue-full")]
        if found is None:
            found = self._open[sequence] = _OpenSequence(sequence, now)
            self._lost.pop(sequence, None)
            self._backlog[sequence] = found
        self._idle.pop(sequence, None)
        found.used = now
        until = math.inf if deadline is None else deadline
        found.queue.append(_Request(id, start, end, now, until, alone))
        self._of_request[id] = found
        self._fill_slots()
        self._look(found)
        return []

    def on_timer(self, *, now: float) -> tuple[list[SequenceAction], float | None]:
        """Does what is due; beside the actions, when to call again once they are carried out."""
        actions: list[SequenceAction] = []
        while self._idle:
            sequence = next(iter(self._idle.values()))
            if now < sequence.used + self._spec.idle_s_max:
                break
            self._close(sequence, "idle", actions)
        for lane in range(self._spec.lanes):
            at = self._due(lane)
            if at is not None and now >= at:
                self._run(lane, now, actions)
        return actions, self.next_deadline()

    def next_deadline(self) -> float | None:
        """When to call `on_timer`, in s; None: nothing waits. Ask again after every call."""
        times = [at for lane in range(self._spec.lanes) if (at := self._due(lane)) is not None]
        if self._idle:
            times.append(next(iter(self._idle.values())).used + self._spec.idle_s_max)
        return min(times, default=None)

    def lane_freed(self, lane: int, *, now: float, timed: bool = True) -> list[SequenceAction]:
        """The lane's batch has ended, with whatever result. `timed` has no meaning here."""
        actions: list[SequenceAction] = []
        batch, self._batches[lane] = self._batches[lane] or [], None
        for sequence in batch:
            ran, sequence.running = sequence.running, None
            if self._open.get(sequence.key) is not sequence:
                continue  # it was lost meanwhile
            sequence.used = now
            if ran is not None and ran.end:
                self._ended(sequence, actions)
            else:
                self._look(sequence)
        return actions

    def lane_lost(self, lane: int) -> list[SequenceAction]:
        """The lane's worker has ended: its sequences are lost, and it runs nothing until
        `lane_ready`. The batch that it ran ends by `lane_freed` all the same."""
        self._down.add(lane)
        self._free = [each for each in self._free if each[1] != lane]
        heapify(self._free)
        actions: list[SequenceAction] = []
        for sequence in list(self._open.values()):
            if sequence.lane == lane:
                self._lose(sequence, actions)
        return actions

    def lane_ready(self, lane: int) -> None:
        if lane in self._down:
            self._down.remove(lane)
            for slot in range(self._spec.slots):
                heappush(self._free, (slot, lane))
            self._fill_slots()

    def cancel(self, id: int, *, now: float) -> tuple[bool, list[SequenceAction]]:
        """(whether it waited and will never run, what follows). Its sequence is lost with it."""
        sequence = self._of_request.pop(id, None)
        if sequence is None:
            return False, []
        sequence.queue = deque(each for each in sequence.queue if each.id != id)
        actions: list[SequenceAction] = []
        self._lose(sequence, actions)
        return True, actions

    def drain(self, *, now: float) -> list[SequenceAction]:
        """Begins no further sequence; those that are open go on."""
        self._draining = True
        return []

    def give_back(self, *, now: float) -> tuple[int, ...]:
        """Empties the queue and forgets the sequences; returns the requests, oldest first."""
        ids = tuple(self._of_request)
        for sequence in list(self._open.values()):
            sequence.queue.clear()
            self._lose(sequence, [])
        self._of_request.clear()
        return ids

    # Reading

    def waiting(self) -> tuple[int, ...]:
        return tuple(self._of_request)

    @property
    def queue_rows(self) -> int:
        return len(self._of_request)

    @property
    def running(self) -> int:
        return sum(batch is not None for batch in self._batches)

    @property
    def open_count(self) -> int:
        """Sequences with a slot."""
        return len(self._open) - len(self._backlog)

    @property
    def backlog_count(self) -> int:
        """Sequences that wait for a slot."""
        return len(self._backlog)

    def snapshot(self) -> dict[str, Any]:
        """JSON-ready state for `explain`."""
        return {
            "sequences": self.open_count,
            "backlog": self.backlog_count,
            "waiting": self.queue_rows,
            "running": self.running,
            "slots_free": len(self._free),
            "lanes_lost": sorted(self._down),
        }

    def check_invariants(self) -> None:
        """Raises AssertionError if the state contradicts itself; for tests and the twin."""
        taken = [(each.slot, each.lane) for each in self._open.values() if each.lane >= 0]
        assert len(set(taken)) == len(taken), "two sequences have one slot"
        assert not set(taken) & set(self._free), "a taken slot is free"
        alive = self._spec.slots * (self._spec.lanes - len(self._down))
        assert len(taken) + len(self._free) == alive, "a slot is nobody's"
        assert all(each.lane < 0 and each.queue for each in self._backlog.values())
        assert not (self._backlog and self._free), "a sequence waits beside a free slot"
        queued = sum(len(each.queue) for each in self._open.values())
        assert queued == len(self._of_request), "a request is lost"
        for sequence in self._open.values():
            if sequence.lane >= 0:
                rests = not sequence.queue and sequence.running is None
                assert rests == (sequence.key in self._idle), "idle is wrong"
                runs = bool(sequence.queue) and sequence.running is None
                assert runs == (sequence.key in self._ready[sequence.lane]), "ready is wrong"

    # Slots

    def _fill_slots(self) -> None:
        """The backlog's first get the slots that are free."""
        while self._backlog and self._free:
            slot, lane = heappop(self._free)
            _, sequence = self._backlog.popitem(last=False)
            sequence.lane, sequence.slot = lane, slot
            self._look(sequence)

    def _look(self, sequence: _OpenSequence) -> None:
        """Notes what the sequence waits for: its turn, or a request."""
        if sequence.lane < 0 or sequence.running is not None:
            return
        if sequence.queue:
            self._ready[sequence.lane][sequence.key] = sequence
        else:
            self._idle[sequence.key] = sequence

    def _ended(self, sequence: _OpenSequence, actions: list[SequenceAction]) -> None:
        """Its last request has run. What waits behind that begins it again."""
        if not sequence.queue:
            self._close(sequence, "ended", actions)
        elif self._backlog:
            actions.append(FreeSequenceSlot(sequence.key, sequence.lane, sequence.slot, "ended"))
            self._leave_slot(sequence)
            self._backlog[sequence.key] = sequence
            self._fill_slots()
        else:
            self._look(sequence)

    def _close(self, sequence: _OpenSequence, reason: str, actions: list[SequenceAction]) -> None:
        del self._open[sequence.key]
        self._idle.pop(sequence.key, None)
        if sequence.lane >= 0:
            actions.append(FreeSequenceSlot(sequence.key, sequence.lane, sequence.slot, reason))
            self._leave_slot(sequence)
        else:
            del self._backlog[sequence.key]
        self._fill_slots()

    def _leave_slot(self, sequence: _OpenSequence) -> None:
        self._ready[sequence.lane].pop(sequence.key, None)
        if sequence.lane not in self._down:
            heappush(self._free, (sequence.slot, sequence.lane))
        sequence.lane = sequence.slot = -1

    def _lose(self, sequence: _OpenSequence, actions: list[SequenceAction]) -> None:
        for request in sequence.queue:
            del self._of_request[request.id]
            actions.append(Expire(request.id, LOST))
        sequence.queue.clear()
        self._lost[sequence.key] = None
        self._lost.move_to_end(sequence.key)
        if len(self._lost) > _LOST_MAX:
            self._lost.popitem(last=False)
        self._close(sequence, "lost", actions)

    # Batches

    def _due(self, lane: int) -> float | None:
        """When the lane's next batch leaves; None: there is none, or it can't run now."""
        ready = self._ready[lane]
        if not ready or self._batches[lane] is not None or lane in self._down:
            return None
        oldest = min(each.queue[0].arrived for each in ready.values())
        return oldest if self._is_full(len(ready)) else oldest + self._spec.wait_s_max

    def _is_full(self, count: int) -> bool:
        spec = self._spec
        if spec.direct:
            return count >= spec.slots * spec.utilization_min
        return count >= spec.rows_max or any(count >= rows for rows in spec.rows_preferred)

    def _run(self, lane: int, now: float, actions: list[SequenceAction]) -> None:
        late = [each for each in self._ready[lane].values() if each.queue[0].deadline <= now]
        for sequence in late:
            request = sequence.queue.popleft()
            del self._of_request[request.id]
            actions.append(Expire(request.id, "deadline-passed"))
            self._lose(sequence, actions)
        ready = list(self._ready[lane].values())
        if not ready:
            return
        reason = self._reason(len(ready))
        chosen = self._chosen(ready)
        steps: list[SequenceStep | None] = []
        ids = []
        arrived = now
        for sequence in chosen:
            del self._ready[lane][sequence.key]
            sequence.running = request = sequence.queue.popleft()
            del self._of_request[request.id]
            ids.append(request.id)
            arrived = min(arrived, request.arrived)
            if self._spec.direct:
                steps += [None] * (sequence.slot - len(steps))
            steps.append(SequenceStep(sequence.key, sequence.slot, request.start, request.end))
        self._batches[lane] = chosen
        waited_s, waiting = now - arrived, len(self._of_request)
        rows = len(steps)
        actions.append(
            RunSequences(lane, tuple(ids), rows, 0, waited_s, waiting, reason, tuple(steps))
        )

    def _chosen(self, ready: list[_OpenSequence]) -> list[_OpenSequence]:
        alone = [each for each in ready if each.queue[0].alone]
        if alone:
            return alone[:1]
        if self._spec.direct:
            return sorted(ready, key=lambda each: each.slot)
        ready.sort(key=lambda each: (each.queue[0].arrived, each.queue[0].id))
        fit = min(len(ready), self._spec.rows_max)
        sizes = [rows for rows in self._spec.rows_preferred if rows <= fit]
        if fit < self._spec.rows_max and sizes:
            fit = max(sizes)
        return ready[:fit]

    def _reason(self, count: int) -> str:
        spec = self._spec
        if spec.direct:
            full = count >= max(1.0, spec.slots * spec.utilization_min)
            return "lane-free" if not spec.utilization_min or full else "waited-enough"
        if count >= spec.rows_max:
            return "batch-full"
        if any(count >= rows for rows in spec.rows_preferred):
            return "preferred-size"
        return "waited-enough" if spec.wait_s_max else "lane-free"
