"""The inputs and actions of a transform job's machine: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.core.backoff import Backoff
from penstock.core.blame.crashed_instances import CrashCase
from penstock.core.blame.death_limits import SPAN_DEATHS_MAX, SPAN_TRIES_MAX
from penstock.core.jobs.spec import Span

COMPLETED: Final = "Completed"
FAILED: Final = "Failed"
STOPPED: Final = "Stopped"

# Reasons for which a span or an output was not done.
WRONG: Final = "wrong"  #: the data or the place is wrong: a retry can't help
CRASH: Final = "crash"  #: the instance ended by itself
TAKEN: Final = "taken"  #: the instance was stopped on purpose; it did not end by itself
AWAY: Final = "away"  #: its disk or store can't be read or written for now
FULL: Final = "full"  #: the disk has no room for now, for any writer
LATER: Final = "later"  #: any other temporary cause


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPolicy:
    """Limits and pauses of a job."""

    refused_max: int | None = 0  #: records that may be refused; None = any number
    spans_at_once: int = 2  #: spans on one copy: the next is read while one runs
    attempts_max: int = 8  #: attempts for a span or an output that failed by temporary causes
    #: Deaths of instances over one span, with something in common at work at each of them.
    crashes_max: int = SPAN_DEATHS_MAX
    crash_tries_max: int = SPAN_TRIES_MAX  #: deaths of instances over one span, for any reason
    backoff: Backoff = Backoff(0.5, 30.0)  #: pauses before a retry
    stop_s_max: float = 30.0  #: s for running spans to end after a stop


@dataclass(frozen=True, slots=True)
class NotDone:
    """Why a span or an output was not done."""

    kind: str  #: wrong | crash | taken | away | full | later
    message: str
    #: records of the span that were at work when its instance crashed; None: nothing was noted
    at_work: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class RunSpan:
    copy: int
    span: Span
    reason: str  #: next-in-share | stolen | again | suspects-apart
    #: What is known of a span whose instance ended. The copy then notes what is at work. If there
    #: are suspects, it runs only these, apart, and commits nothing.
    case: CrashCase | None = None


@dataclass(frozen=True, slots=True)
class StopSpans:
    """Running spans need not be finished; the end of each is still reported."""

    reason: str  #: stop-asked | refused-too-many


@dataclass(frozen=True, slots=True)
class AssembleObject:
    object: int
    reason: str  #: object-whole


@dataclass(frozen=True, slots=True)
class FailObject:
    """Record this before anything else; the object's refused records are kept for its owner."""

    object: int
    message: str
    #: span-wrong | span-crashes | span-attempts | records-refused | storage-overdue | output-…
    reason: str


@dataclass(frozen=True, slots=True)
class KeepCase:
    """Record this before anything else begins."""

    object: int
    span: int
    case: CrashCase
    reason: str  #: instance-ended | suspects-passed


@dataclass(frozen=True, slots=True)
class ReleaseCapacity:
    reason: str  #: no-span-left | stop-overdue


@dataclass(frozen=True, slots=True)
class EndJob:
    status: str  #: Completed | Failed | Stopped
    message: str  #: becomes FailureReason
    reason: str  #: all-objects-done | objects-failed | refused-too-many | stop-asked | hopeless


Action = RunSpan | StopSpans | AssembleObject | FailObject | KeepCase | ReleaseCapacity | EndJob
