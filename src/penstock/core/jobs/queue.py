"""Which waiting jobs begin: by priority, then fair between owners, as far as there is room.

The waiting job with the higher priority goes first; of equal ones, the one whose owner has fewer
running jobs, then the older one. A job is never overtaken by those behind it: otherwise a job that
needs much room would wait for ever. A running job is never stopped for one of higher priority.

Room: all jobs together have at most as many instances as the machine has cores, for more would only
share the same cores; one job may always run. While a running job waits for memory no other begins,
for `short_s_max` at most: after that, endpoints hold the memory and not jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWaiting:
    """A job that has not begun."""

    name: str
    owner: str
    priority: int
    created: float  #: seconds since the epoch
    instances: int
    begun: bool = False  #: it had begun before the server was restarted: it goes first


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRunning:
    name: str
    owner: str
    instances: int
    #: since when the job itself waits for room, monotonic s; None: it does not
    short_since: float | None = None


@dataclass(frozen=True, slots=True)
class StartJob:
    name: str
    reason: str  #: begun-before | next-in-line


@dataclass(frozen=True, slots=True)
class QueueDecision:
    starts: tuple[StartJob, ...]
    waits: tuple[tuple[str, str], ...]  #: (job, why): cores-taken | room-short | others-first
    next_deadline: float | None  #: decide again then, if nothing else happens


def decide(
    waiting: Iterable[JobWaiting],
    running: Iterable[JobRunning],
    *,
    cores: float,
    now: float,
    short_s_max: float = 60.0,
) -> QueueDecision:
    """Which jobs begin now, in order; and why the others wait."""
    line, there = list(waiting), list(running)
    instances = sum(one.instances for one in there)
    owners = Counter(one.owner for one in there)
    deadlines = [
        one.short_since + short_s_max
        for one in there
        if one.short_since is not None and now < one.short_since + short_s_max
    ]
    starts: list[StartJob] = []
    held = "room-short" if deadlines else ""
    while line and not held:
        first = min(line, key=lambda one: _place(one, owners))
        if instances and instances + first.instances > cores:
            held = "cores-taken"
            break
        line.remove(first)
        instances += first.instances
        owners[first.owner] += 1
        starts.append(StartJob(first.name, "begun-before" if first.begun else "next-in-line"))
    first_name = min(line, key=lambda one: _place(one, owners)).name if line else ""
    waits = tuple((one.name, held if one.name == first_name else "others-first") for one in line)
    return QueueDecision(tuple(starts), waits, min(deadlines, default=None))


def _place(one: JobWaiting, owners: Counter[str]) -> tuple[bool, int, int, float, str]:
    return not one.begun, -one.priority, owners[one.owner], one.created, one.name
