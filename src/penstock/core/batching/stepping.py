"""Which requests join and leave a running decode batch between two of its steps.

Generation is many short steps. Static batching would run a batch until its longest answer is done;
here (continuous batching) every step may have other rows: Yu et al., 2022, "Orca: A Distributed
Serving System for Transformer-Based Generative Models".

Before each step the driver calls `plan` and carries out what it returns, in this order:

1. `Drop`     a request leaves unanswered: cancelled, or its deadline passed or cannot be met;
2. `Prefill`  waiting requests are encoded and take rows (prefill first: an empty row delays a
              whole answer, while a prefill delays the others by one step);
3. `Move`     a row is copied into a hole, so that the rows in use are 0 .. n-1;
4. `DecodeStep`     one token for each row in use.

Then it reports `finish` for each request that is complete, and `stepped`. The end of a step drives
the machine, not time: while `busy`, call `plan` again; there is no deadline to sleep on.

Requests join in order of arrival. A request that needs several rows (a beam search) and does not
fit blocks those behind it: if others could overtake it for ever, it would starve. The machine knows
neither tokens nor models.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any

from penstock.core.learned_times import LearnedTime
from penstock.errors import CallerError

_STEP_WEIGHT = 1 / 8


@dataclass(frozen=True, slots=True)
class SteppingSpec:
    rows_max: int  #: rows of a step
    #: padded source tokens encoded between two steps; a single longer request is still taken
    prefill_tokens_max: int = 4096
    buckets: tuple[int, ...] = ()  #: source lengths that a prefill is padded to, ascending

    def __post_init__(self) -> None:
        if self.rows_max < 1 or self.prefill_tokens_max < 1:
            raise CallerError(
                "step-spec", f"rows_max {self.rows_max}, prefill_tokens_max "
                f"{self.prefill_tokens_max}: both are at least 1",
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Drop:
    id: int
    reason: str  #: cancelled | deadline-passed | deadline-cannot-be-met | too-many-rows


@dataclass(frozen=True, slots=True)
class Prefill:
    ids: tuple[int, ...]
    rows: tuple[tuple[int, ...], ...]  #: the rows that each of `ids` gets
    bucket: int  #: source length to pad to; 0 where the spec has no buckets
    reason: str  #: prefill-first | batch-empty


@dataclass(frozen=True, slots=True)
class Move:
    source: int
    target: int
    reason: str = "compact"


@dataclass(frozen=True, slots=True)
class DecodeStep:
    rows: int
    reason: str  #: all-rows | rows-free


Action = Drop | Prefill | Move | DecodeStep


@dataclass(slots=True, eq=False)
class _SequenceEntry:
    id: int
    rows_count: int
    tokens: int
    steps_left_min: int
    deadline: float | None
    rows: list[int] = field(default_factory=list)
    cancelled: bool = False


class Stepper:
    """The machine of one running batch."""

    def __init__(self, spec: SteppingSpec) -> None:
        self._spec = spec
        self._waiting: dict[int, _SequenceEntry] = {}  #: in order of arrival
        self._running: dict[int, _SequenceEntry] = {}
        self._owners: list[_SequenceEntry | None] = [None] * spec.rows_max
        #: by rows in use: made once, as a plan is made before every step
        self._steps = [DecodeStep(rows, "rows-free") for rows in range(spec.rows_max)]
        self._steps.append(DecodeStep(spec.rows_max, "all-rows"))
        self._step = LearnedTime(_STEP_WEIGHT)
        self._held_up = ""  #: why the first waiting request did not join at the last plan

    # inputs

    def add(
        self,
        id: int,
        *,
        now: float,
        rows: int = 1,
        tokens: int = 1,
        steps_min: int = 1,
        deadline: float | None = None,
    ) -> list[Action]:
        """Queues a request of `tokens` source tokens that will take at least `steps_min` steps."""
        if id in self._waiting or id in self._running:
            raise ValueError(f"request {id} is here already")
        if rows > self._spec.rows_max:
            return [Drop(id, "too-many-rows")]
        if deadline is not None and now >= deadline:
            return [Drop(id, "deadline-passed")]
        self._waiting[id] = _SequenceEntry(id, rows, tokens, steps_min, deadline)
        return []

    def cancel(self, id: int) -> bool:
        """The request leaves at the next `plan`. False: it is unknown, or has left already."""
        entry = self._waiting.get(id) or self._running.get(id)
        if entry is None:
            return False
        entry.cancelled = True
        return True

    def finish(self, id: int) -> None:
        """The request is complete: its rows are free from now on."""
        self._release(self._running.pop(id))

    def stepped(self, seconds: float) -> None:
        """Learns the duration of a step."""
        for entry in self._running.values():
            entry.steps_left_min = max(0, entry.steps_left_min - 1)
        self._step.learn(seconds)

    # the plan

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._running)

    @property
    def rows_in_use(self) -> int:
        return sum(entry.rows_count for entry in self._running.values())

    def plan(self, *, now: float) -> list[Action]:
        """What to do before and in the next step; empty when there is nothing to do."""
        actions: list[Action] = []
        self._drop(now, actions)
        if self._waiting:
            self._join(actions)
        self._compact(actions)
        if self._running:
            actions.append(self._steps[self.rows_in_use])
        return actions

    def _drop(self, now: float, actions: list[Action]) -> None:
        for queue in (self._running, self._waiting):
            gone = [
                (entry, reason) for entry in queue.values() if (reason := self._end(entry, now))
            ]
            for entry, reason in gone:
                del queue[entry.id]
                self._release(entry)
                actions.append(Drop(entry.id, reason))

    def _end(self, entry: _SequenceEntry, now: float) -> str:
        """Why the request must not be computed further; empty while it may."""
        if entry.cancelled:
            return "cancelled"
        if entry.deadline is None:
            return ""
        if now >= entry.deadline:
            return "deadline-passed"
        if now + entry.steps_left_min * self._step.mean_s > entry.deadline:
            return "deadline-cannot-be-met"
        return ""

    def _join(self, actions: list[Action]) -> None:
        reason = "prefill-first" if self._running else "batch-empty"
        free = [row for row, owner in enumerate(self._owners) if owner is None]
        groups: dict[int, list[_SequenceEntry]] = {}
        tokens = taken = 0
        self._held_up = ""
        for entry in list(self._waiting.values()):
            if taken + entry.rows_count > len(free):
                self._held_up = "rows-busy"
                break
            bucket = self._bucket_of(entry.tokens)
            tokens += bucket or entry.tokens
            if groups and tokens > self._spec.prefill_tokens_max:
                self._held_up = "prefill-limit"
                break
            entry.rows = free[taken : taken + entry.rows_count]
            taken += entry.rows_count
            groups.setdefault(bucket, []).append(entry)
        for bucket, entries in groups.items():
            for entry in entries:
                del self._waiting[entry.id]
                self._running[entry.id] = entry
                for row in entry.rows:
                    self._owners[row] = entry
            ids = tuple(entry.id for entry in entries)
            rows = tuple(tuple(entry.rows) for entry in entries)
            actions.append(Prefill(ids, rows, bucket, reason))

    def _bucket_of(self, tokens: int) -> int:
        buckets = self._spec.buckets
        if not buckets:
            return 0
        return buckets[min(bisect_left(buckets, tokens), len(buckets) - 1)]

    def _compact(self, actions: list[Action]) -> None:
        """The last rows in use fill the first holes."""
        owners, count = self._owners, self.rows_in_use
        holes = [row for row in range(count) if owners[row] is None]
        beyond = [row for row in range(count, len(owners)) if owners[row] is not None]
        for target, source in zip(holes, reversed(beyond), strict=True):
            owner = owners[source]
            assert owner is not None
            owner.rows[owner.rows.index(source)] = target
            owners[target], owners[source] = owner, None
            actions.append(Move(source, target))

    def _release(self, entry: _SequenceEntry) -> None:
        for row in entry.rows:
            self._owners[row] = None

    # views

    def snapshot(self) -> dict[str, Any]:
        return {
            "waiting": list(self._waiting),
            "running": {entry.id: list(entry.rows) for entry in self._running.values()},
            "rows_in_use": self.rows_in_use,
            "rows_max": self._spec.rows_max,
            "step_s": self._step.mean_s,
            "held_up": self._held_up if self._waiting else "",
        }

    def check_invariants(self) -> None:
        owned = [row for entry in self._running.values() for row in entry.rows]
        assert len(owned) == len(set(owned)), "a row has two owners"
        for entry in self._running.values():
            assert len(entry.rows) == entry.rows_count
            assert all(self._owners[row] is entry for row in entry.rows)
        assert sum(owner is not None for owner in self._owners) == len(owned)
        assert not (self._waiting.keys() & self._running.keys())
        assert all(not entry.rows for entry in self._waiting.values())
