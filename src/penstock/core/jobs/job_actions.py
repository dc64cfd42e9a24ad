"""What the machine of a transform job is given, and what it says: plain values."""

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

# What kept a span, or an output, from being done.
WRONG: Final = "wrong"  #: data, or a place, that doing it again can't help
CRASH: Final = "crash"  #: the instance ended by itself
TAKEN: Final = "taken"  #: the instance was taken away
AWAY: Final = "away"  #: its disk or store gives, or takes, nothing for now
FULL: Final = "full"  #: a disk takes nothing for now, from anybody
LATER: Final = "later"  #: anything else that may pass


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPolicy:
    """What a job puts up with."""

    refused_max: int | None = 0  #: records; None = any number
    spans_at_once: int = 2  #: on one copy: the next is read while one runs
    attempts_max: int = 8  #: of a span or an output that could not be done for a while
    #: Of instances over one span, with something at work at each of them.
    crashes_max: int = SPAN_DEATHS_MAX
    crash_tries_max: int = SPAN_TRIES_MAX  #: of instances over one span, for whatever reason
    backoff: Backoff = Backoff(0.5, 30.0)  #: before it is tried again
    stop_s_max: float = 30.0  #: for spans to end that need not be finished


@dataclass(frozen=True, slots=True)
class NotDone:
    """Why a span or an output was not done."""

    kind: str  #: wrong | crash | taken | away | full | later
    message: str
    #: records of the span that were when its instance crashed; None: nothing was noted
    at_work: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class RunSpan:
    copy: int
    span: Span
    reason: str  #: next-in-share | stolen | again | suspects-apart
    #: of a span whose instance ended: what is known of it. Note what is at work; with suspects run
    #: these apart, and commit nothing
    case: CrashCase | None = None


@dataclass(frozen=True, slots=True)
class StopSpans:
    """Those that run need not be finished; each is still told of when it has ended."""

    reason: str  #: stop-asked | refused-too-many


@dataclass(frozen=True, slots=True)
class AssembleObject:
    object: int
    reason: str  #: object-whole


@dataclass(frozen=True, slots=True)
class FailObject:
    """To be recorded before anything else; what was refused of it is put down for its owner."""

    object: int
    message: str
    #: span-wrong | span-crashes | span-attempts | records-refused | storage-overdue | output-…
    reason: str


@dataclass(frozen=True, slots=True)
class KeepCase:
    """To be recorded before anything else is begun."""

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
    message: str  #: FailureReason
    reason: str  #: all-objects-done | objects-failed | refused-too-many | stop-asked | hopeless


Action = RunSpan | StopSpans | AssembleObject | FailObject | KeepCase | ReleaseCapacity | EndJob
