"""Drives a machine of `core.batching`: feeds it, carries out its actions, wakes it in time.

`BatcherDriver` has a `Batcher`, `SequenceDriver` a `SequenceBatcher`.

It decides nothing and records nothing. Time and timers are arguments (`clock`, `call_at`), so that
the same driver runs on an event loop, in tests and beside the twin under a manual clock. Rules:

* after everything of one socket read was added, call `turn`: all due items leave as one batch;
* `run` must not call `lane_freed` before it returns; it does so later, once per batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from penstock.clock import Clock
from penstock.core.batching.batcher import Action, Expire, RefuseItem, RunBatch
from penstock.core.batching.sequences import FreeSequenceSlot, SequenceAction, SequenceBatcher

Item = TypeVar("Item")


class Timer(Protocol):
    def cancel(self) -> None: ...


#: (monotonic s, callback) -> a timer that can be cancelled.
CallAt = Callable[[float, Callable[[], None]], Timer]


class BatchMachine(Protocol):
    """What a driver needs of a machine."""

    @property
    def add(self) -> Callable[..., list[Any]]: ...
    @property
    def cancel(self) -> Callable[..., Any]: ...
    @property
    def queue_rows(self) -> int: ...
    @property
    def running(self) -> int: ...
    def on_timer(self, *, now: float) -> tuple[list[Any], float | None]: ...
    def next_deadline(self) -> float | None: ...
    def lane_freed(self, lane: int, *, now: float, timed: bool = True) -> list[Any]: ...
    def drain(self, *, now: float) -> list[Any]: ...
    def give_back(self, *, now: float) -> tuple[int, ...]: ...
    def waiting(self) -> tuple[int, ...]: ...
    def snapshot(self) -> dict[str, Any]: ...


class BatcherDriver(Generic[Item]):
    """`run(action, items)` starts a batch; `drop(item, reason)` answers an item that never runs.

    `observe` sees every list of actions that is not empty (scenario tests compare them).
    """

    __slots__ = (
        "_batcher", "_call_at", "_clock", "_drop", "_items", "_next_id", "_observe", "_run",
        "_timer", "_timer_at",
    )  # fmt: skip

    def __init__(
        self,
        batcher: BatchMachine,
        *,
        clock: Clock,
        call_at: CallAt,
        run: Callable[[RunBatch, list[Item]], None],
        drop: Callable[[Item, str], None],
        observe: Callable[[list[Action]], None] | None = None,
    ) -> None:
        self._batcher = batcher
        self._clock = clock
        self._call_at = call_at
        self._run = run
        self._drop = drop
        self._observe = observe
        self._items: dict[int, Item] = {}  #: queued items; running ones belong to `run`
        self._next_id = 0
        self._timer: Timer | None = None
        self._timer_at = 0.0

    def add(
        self,
        item: Item,
        *,
        now: float,
        rows: int = 1,
        length: int = 0,
        priority: int = 0,
        deadline: float | None = None,
        alone: bool = False,
        **more: Any,
    ) -> int:
        """Queues an item; returns the id for `cancel`. `more`: as the machine's `add` takes it."""
        ident = self._next_id = self._next_id + 1
        self._items[ident] = item
        actions = self._batcher.add(
            ident, rows=rows, length=length, priority=priority, deadline=deadline, alone=alone,
            now=now, **more,
        )  # fmt: skip
        if actions:
            self._carry_out(actions)
        return ident

    def turn(self, now: float) -> None:
        """Runs the items that are due and sets the timer for the others."""
        if not self._items:
            return  # nothing waits, so nothing is due
        actions, at = self._batcher.on_timer(now=now)
        if actions:
            self._carry_out(actions)
        if at is not None:
            self._wake_at(at)

    def lane_freed(self, lane: int, *, timed: bool = True) -> None:
        """The batch on `lane` has ended, with whatever result; `timed` as in the batcher."""
        now = self._clock.monotonic()
        self._carry_out(self._batcher.lane_freed(lane, now=now, timed=timed))
        if self._items:
            self.turn(now)

    def cancel(self, ident: int) -> bool:
        """True: the item was queued and will never run."""
        if ident not in self._items:
            return False
        gone: bool = self._batcher.cancel(ident, now=self._clock.monotonic())
        if gone:
            del self._items[ident]
        return gone

    def drain(self) -> None:
        """Takes no new items; queued ones run without delay."""
        now = self._clock.monotonic()
        self._carry_out(self._batcher.drain(now=now))
        self.turn(now)

    def give_back(self) -> list[Item]:
        """Empties the queue and returns its items, oldest first."""
        idents = self._batcher.give_back(now=self._clock.monotonic())
        return [self._items.pop(ident) for ident in idents]

    def waiting(self) -> list[Item]:
        """The queued items, oldest first."""
        return [self._items[ident] for ident in self._batcher.waiting()]

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def queue_rows(self) -> int:
        return self._batcher.queue_rows

    @property
    def running(self) -> int:
        return self._batcher.running

    def snapshot(self) -> dict[str, Any]:
        return self._batcher.snapshot()

    def _carry_out(self, actions: list[Action]) -> None:
        if not actions:
            return
        if self._observe is not None:
            self._observe(actions)
        pop = self._items.pop
        for action in actions:
            if type(action) is RunBatch:
                self._run(action, [pop(ident) for ident in action.ids])
            elif isinstance(action, RefuseItem | Expire):
                self._drop(pop(action.id), action.reason)

    def _wake_at(self, at: float) -> None:
        """Sets the timer. One that would fire too early is kept: firing costs less than replacing
        it."""
        timer = self._timer
        if timer is not None:
            if self._timer_at <= at:
                return
            timer.cancel()
        self._timer_at = at
        self._timer = self._call_at(at, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self.turn(self._clock.monotonic())


class SequenceDriver(BatcherDriver[Item]):
    """`freed` gets each slot whose state is not needed any more.

    Its timer goes on while nothing waits: an idle sequence ends by the time alone.
    """

    __slots__ = ("_freed", "_sequences")

    def __init__(
        self, batcher: SequenceBatcher, *, freed: Callable[[FreeSequenceSlot], None], **driving: Any
    ) -> None:
        super().__init__(batcher, **driving)
        self._sequences = batcher
        self._freed = freed

    def add_step(
        self,
        item: Item,
        *,
        sequence: int | str,
        start: bool,
        end: bool,
        deadline: float | None,
        alone: bool,
        now: float,
    ) -> int:
        """Queues a request of a sequence; returns the id for `cancel`."""
        ident = self._next_id = self._next_id + 1
        self._items[ident] = item
        self._carry_out(
            self._sequences.add(
                ident,
                sequence=sequence,
                start=start,
                end=end,
                deadline=deadline,
                alone=alone,
                now=now,
            )
        )
        return ident

    def turn(self, now: float) -> None:
        actions, at = self._batcher.on_timer(now=now)
        self._carry_out(actions)
        if at is not None:
            self._wake_at(at)

    def lane_freed(self, lane: int, *, timed: bool = True) -> None:
        super().lane_freed(lane, timed=timed)
        if not self._items:
            self.turn(self._clock.monotonic())

    def lane_lost(self, lane: int) -> None:
        """The lane's worker has ended, and with it the state of its sequences."""
        self._carry_out(self._sequences.lane_lost(lane))
        self.turn(self._clock.monotonic())

    def lane_ready(self, lane: int) -> None:
        self._sequences.lane_ready(lane)
        self.turn(self._clock.monotonic())

    def cancel(self, ident: int) -> bool:
        if ident not in self._items:
            return False
        now = self._clock.monotonic()
        gone, actions = self._sequences.cancel(ident, now=now)
        if gone:
            del self._items[ident]
            self._carry_out(actions)
            self.turn(now)  # the slot may have gone to a sequence that waited
        return gone

    @property
    def open_count(self) -> int:
        return self._sequences.open_count

    @property
    def backlog_count(self) -> int:
        return self._sequences.backlog_count

    def _carry_out(self, actions: list[Any]) -> None:
        if not actions:
            return
        if self._observe is not None:
            self._observe(actions)
        step: SequenceAction
        for step in actions:
            if isinstance(step, RunBatch):
                self._run(step, [self._items.pop(ident) for ident in step.ids])
            elif isinstance(step, FreeSequenceSlot):
                self._freed(step)
            else:
                self._drop(self._items.pop(step.id), step.reason)
