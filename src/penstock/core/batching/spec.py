"""The batcher's settings (`BatchSpec`), and its actions with their reasons.

Plain values; the decisions and their theory are in `batcher.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from penstock.errors import CallerError


@dataclass(frozen=True, slots=True)
class LevelPolicy:
    """How the items of one priority level wait, beside the bounds of the whole queue."""

    rows_max: int = 0  #: rows of this level that may wait; 0 = as the whole queue
    wait_s_max: float | None = None  #: s; None = only an item's deadline limits its wait
    #: True: an item that has waited so long lets all others of its level go first, and is served
    #: then (Triton's DELAY). False: it expires.
    delays: bool = False
    timeout_override: bool = False  #: a caller's own timeout may make the wait shorter


@dataclass(frozen=True, slots=True)
class BatchSpec:
    """How one copy's requests may be batched. Sizes in rows; wrong values raise `CallerError`."""

    rows_max: int = 1  #: rows of a batch, >= 1
    wait_s_max: float = 0.0  #: s that the oldest item waits for more items while a lane is free
    lanes: int = 1  #: batches that may run at once
    queue_rows_max: int = (
        2048  #: rows that may wait, >= rows_max; Triton's servers run at such sizes
    )
    #: s; > wait_s_max; None = only an item's deadline limits its wait
    queue_wait_s_max: float | None = None
    timeout_override: bool = False  #: a caller's own timeout may make that wait shorter
    preserves_order: bool = False  #: answers leave in the order in which their requests came
    rows_preferred: tuple[int, ...] = ()  #: preferred batch sizes, each in 1..rows_max
    buckets: tuple[int, ...] = ()  #: padded lengths, ascending; () = one bucket, reported as 0
    batches_ahead: int = 0  #: full batches that a busy lane may hold already, 0 or 1
    priorities: int = 1  #: levels; 0 is served first, a level beyond the last counts as the last
    #: the policy of each priority level; () = the bounds of the whole queue are all
    levels: tuple[LevelPolicy, ...] = ()
    #: s, > 0; service level that chooses wait and size; None = the knobs above do
    latency_s_p99_max: float | None = None
    #: s; batches whose runs are this short may run on the thread that received their request
    #: (`run_here.py`); 0 = none does
    run_here_s_max: float = 0.0
    #: (rows, length, run s) known beforehand, as from a compile report; length 0 without buckets
    runs_measured: tuple[tuple[int, int, float], ...] = ()

    def __post_init__(self) -> None:
        checks = (
            ("rows_max", self.rows_max >= 1, "at least 1"),
            ("wait_s_max", 0.0 <= self.wait_s_max < math.inf, "0 or more seconds"),
            ("lanes", self.lanes >= 1, "at least 1"),
            ("queue_rows_max", self.queue_rows_max >= self.rows_max, "at least rows_max"),
            (
                "queue_wait_s_max",
                self.queue_wait_s_max is None or self.queue_wait_s_max > self.wait_s_max,
                "more than wait_s_max, else items would expire before their batch may leave",
            ),
            (
                "rows_preferred",
                all(1 <= rows <= self.rows_max for rows in self.rows_preferred),
                "sizes from 1 to rows_max",
            ),
            (
                "buckets",
                all(length >= 1 for length in self.buckets)
                and list(self.buckets) == sorted(set(self.buckets)),
                "lengths of at least 1, ascending, each once",
            ),
            ("batches_ahead", self.batches_ahead in (0, 1), "0 or 1"),
            ("priorities", self.priorities >= 1, "at least 1"),
            (
                "levels",
                len(self.levels) in (0, self.priorities)
                and all(
                    level.rows_max >= 0 and (level.wait_s_max is None or level.wait_s_max > 0)
                    for level in self.levels
                ),
                "one policy for each priority level, with bounds above 0",
            ),
            (
                "latency_s_p99_max",
                self.latency_s_p99_max is None or 0.0 < self.latency_s_p99_max < math.inf,
                "more than 0 seconds",
            ),
            ("run_here_s_max", 0.0 <= self.run_here_s_max < math.inf, "0 or more seconds"),
            (
                "runs_measured",
                all(
                    1 <= rows <= self.rows_max and length >= 0 and 0.0 < run_s < math.inf
                    for rows, length, run_s in self.runs_measured
                ),
                "(rows from 1 to rows_max, length, seconds above 0)",
            ),
        )
        for key, good, allowed in checks:
            if not good:
                raise CallerError(
                    "invalid-batching",
                    f"batching.{key} is {getattr(self, key)!r}; allowed: {allowed}",
                    hint=f"Correct batching.{key} in the model's description.",
                )


# Not frozen: where rows_max is 1, one `RunBatch` is made per item, and freezing makes that five
# times as expensive (0.82 against 0.16 microseconds). No code changes an action.
@dataclass(slots=True)
class RunBatch:
    """Run these items on this lane, after its present run if it is busy; then call `lane_freed`."""

    lane: int
    ids: tuple[int, ...]  #: in the order of their rows
    rows: int
    bucket: int  #: pad to this length; 0 = to the longest item
    waited_s: float  #: s that the oldest item has waited
    queue_rows: int  #: rows that stay in the queue
    reason: str
    #: On the thread that received the request; the lane's own does it where it is busy
    here: bool = field(default=False, kw_only=True)


@dataclass(slots=True)
class RefuseItem:
    """Answer this item now with an error: it was never queued."""

    id: int
    #: queue-full | too-many-rows | deadline-passed | deadline-cannot-be-met | draining
    reason: str


@dataclass(slots=True)
class Expire:
    """Answer this item now with an error: it was queued and never computed."""

    id: int
    reason: str  #: deadline-passed | deadline-cannot-be-met | queue-timeout


Action = RunBatch | RefuseItem | Expire
