"""Schedules of jobs: which due times run, which are skipped, and why; and the job of each run.

A due time is *on time* for a minute. It is *missed* when it could not begin then: the server was
down, or the previous run had not ended and runs may not overlap. The schedule's rule says what
happens to missed due times:

    skip       nothing; a run that is due while another runs is skipped at once
    run-once   the latest of them runs as soon as it can, the older ones are skipped
    run-all    all run, oldest first, and without overlap one after the other

A paused schedule is not due, and its due times are never made up for. The state is what is
recorded: the first undecided due time, and how many runs have not ended. The caller writes all of a
decision at once, so that after a kill it is either recorded or not.

A run's job has the members of the schedule's job with the due time written in. Placeholders may
stand in the job's name, its input and its output, and nowhere else (braces have a meaning in other
members):

    {schedule}                          the schedule's name
    {due}                               the due time in UTC, 20260302T080000Z: never twice the same
    {date} {year} {month} {day}         2026-03-02, 2026, 03, 02 } on the clock of the schedule's
    {hour} {minute}                     08, 00                   } time zone
    {{ }}                               braces

All values follow from schedule and due time alone, so a run that is begun again after a kill is the
same job. Local times occur twice in autumn: so the name must contain {due}.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.core.apply.plan import ENDPOINT_NAME
from penstock.core.jobs.progress import WAIT_S_MAX
from penstock.core.timetable.cron import time_of
from penstock.core.timetable.timetable import Timetable, Zone
from penstock.errors import CallerError

SKIP: Final = "skip"
RUN_ONCE: Final = "run-once"
RUN_ALL: Final = "run-all"
MISSED_RULES: Final = (SKIP, RUN_ONCE, RUN_ALL)

#: s. A server that is busy, or restarts after an update, is not late. Cron's own unit is a minute.
ON_TIME_S: Final = 60.0
#: Runs that run-all makes up for: a day of one every quarter of an hour. Older ones are skipped.
MISSED_RUNS_MAX: Final = 96
#: s for which a start is retried that the server can't take now: a full disk or an unreachable
#: store prevents a start just as it interrupts a job.
START_TRIED_S: Final = WAIT_S_MAX

_WINDOW_S: Final = 3600.0

#: Error codes after which the same start may succeed later.
_NOT_NOW: Final = frozenset(
    {"ServiceUnavailable", "ThrottlingException", "InternalFailure", "server-stopping"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSpec:
    """When jobs begin, and what happens to missed due times."""

    timetable: Timetable
    missed: str = RUN_ONCE  #: one of MISSED_RULES
    overlap: bool = False  #: a run may begin while another has not ended


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleObserved:
    """The recorded state of one schedule that is not paused."""

    due: float | None  #: the first undecided due time, wall s; None: never again
    open_runs: int  #: runs that have not ended


@dataclass(frozen=True, slots=True)
class StartRun:
    due: float  #: wall s
    reason: str  #: on-time | made-up | asked-for


@dataclass(frozen=True, slots=True)
class PassOver:
    """Due times that do not run, from the first to the last."""

    first: float
    last: float
    reason: str  #: missed | previous-running | superseded | too-many-missed


Action = StartRun | PassOver


@dataclass(frozen=True, slots=True)
class ScheduleDecision:
    actions: tuple[Action, ...]
    due: float | None  #: the first undecided due time after this decision; None: there is none


def decide(spec: ScheduleSpec, seen: ScheduleObserved, *, now: float) -> ScheduleDecision:
    """What to do now. Without actions `due` may lie in the past: it waits for a run to end."""
    if seen.due is None or now < seen.due:
        return ScheduleDecision((), seen.due)
    blocked = seen.open_runs > 0 and not spec.overlap
    if blocked and spec.missed != SKIP:
        return ScheduleDecision((), seen.due)
    times = _latest(spec.timetable, seen.due, now, MISSED_RUNS_MAX if spec.missed == RUN_ALL else 2)
    if spec.missed == RUN_ALL:
        return _run_all(spec, seen.due, times, now)
    *older, newest = times
    after = spec.timetable.next_due(after=now)
    before = _passed(seen.due, older, "superseded" if spec.missed == RUN_ONCE else "missed")
    if spec.missed == RUN_ONCE:
        return ScheduleDecision((*before, _start(newest, now)), after)
    if not _on_time(newest, now):
        return ScheduleDecision((PassOver(seen.due, newest, "missed"),), after)
    if blocked:
        return ScheduleDecision((*before, PassOver(newest, newest, "previous-running")), after)
    return ScheduleDecision((*before, _start(newest, now)), after)


def run_now(spec: ScheduleSpec, seen: ScheduleObserved, *, now: float) -> StartRun | None:
    """The run that somebody requests, due at this second; None while another one runs."""
    if seen.open_runs and not spec.overlap:
        return None
    return StartRun(float(int(now)), "asked-for")


def next_look(spec: ScheduleSpec, seen: ScheduleObserved) -> float | None:
    """When to decide again, in wall seconds; None while nothing can be due, or while a due time
    waits for a run to end."""
    if seen.open_runs and not spec.overlap and spec.missed != SKIP:
        return None
    return seen.due


def judge_start(code: str, *, is_there: bool, begun: float, now: float) -> str:
    """The state of a run whose start was refused: starting (it is tried again), running or failed.

    Args:
        code: error code of the reply to CreateTransformJob.
        is_there: a job of that name exists: the run had begun before a kill.
        begun: when the run was decided, in wall seconds.
    """
    if is_there:
        return "running"
    return "starting" if code in _NOT_NOW and now < begun + START_TRIED_S else "failed"


def _run_all(spec: ScheduleSpec, first: float, times: list[float], now: float) -> ScheduleDecision:
    dropped: tuple[Action, ...] = ()
    if times[0] > first:
        dropped = (PassOver(first, _before(spec.timetable, times[0], first), "too-many-missed"),)
    begun = times if spec.overlap else times[:1]
    starts = tuple(_start(time, now) for time in begun)
    return ScheduleDecision((*dropped, *starts), spec.timetable.next_due(after=begun[-1]))


def _on_time(due: float, now: float) -> bool:
    return now < due + ON_TIME_S


def _start(due: float, now: float) -> StartRun:
    return StartRun(due, "on-time" if _on_time(due, now) else "made-up")


def _passed(first: float, older: list[float], reason: str) -> tuple[Action, ...]:
    return (PassOver(first, older[-1], reason),) if older else ()


def _latest(timetable: Timetable, first: float, last: float, count: int) -> list[float]:
    """The latest `count` due times from `first` (which is one) to `last`.

    Searches backwards, in windows that double: a schedule of every minute that nobody served for a
    year has half a million due times.
    """
    window_s = _WINDOW_S
    while True:
        begin = max(first, last - window_s)
        found = _from(timetable, begin, last)
        if len(found) >= count or begin == first:
            return (found or [first])[-count:]  # the zone's rules may have changed since
        window_s *= 2


def _from(timetable: Timetable, first: float, last: float) -> list[float]:
    found = []
    for moment in timetable.due_times(after=first - 1e-3):
        if moment > last:
            break
        found.append(moment)
    return found


def _before(timetable: Timetable, moment: float, first: float) -> float:
    """The last due time before `moment`, where `moment` is not the first."""
    [found] = _latest(timetable, first, moment - 1e-3, 1)
    return found


JOB_NAME_DEFAULT: Final = "{schedule}-{due}"
_NAME: Final = "TransformJobName"
_INPUT: Final = ("TransformInput", "DataSource", "S3DataSource", "S3Uri")
_OUTPUT: Final = ("TransformOutput", "S3OutputPath")
_PLACEHOLDER: Final = re.compile(r"\{\{|\}\}|\{([a-zA-Z0-9_]{1,32})\}|[{}]")
#: An example due time: all are written with the same length.
_SAMPLE: Final = 1_700_000_000.0


def check(template: Mapping[str, Any], schedule: str, zone: Zone) -> None:
    """Raises CallerError `schedule-job-invalid` where no run could be made of the template."""
    name = template.get(_NAME, JOB_NAME_DEFAULT)
    if not isinstance(name, str) or "{due}" not in name.replace("{{", "").replace("}}", ""):
        raise _invalid(
            "the job's name does not hold {due}, so that runs would have the same name",
            f"Leave TransformJobName out: it is {JOB_NAME_DEFAULT} then.",
        )
    rendered = job_of(template, schedule, _SAMPLE, zone)[_NAME]
    if not ENDPOINT_NAME.fullmatch(rendered):
        raise _invalid(
            f"jobs would be named like {rendered!r}, which is no name of a job",
            "A job's name has 63 letters, digits and hyphens between them at most.",
        )


def job_of(template: Mapping[str, Any], schedule: str, due: float, zone: Zone) -> dict[str, Any]:
    """The members of CreateTransformJob. Raises CallerError `schedule-job-invalid`."""
    words = _words(schedule, due, zone)
    job = dict(template)
    job[_NAME] = _written(template.get(_NAME, JOB_NAME_DEFAULT), words)
    for path in (_INPUT, _OUTPUT):
        _write(job, path, words)
    return job


def _write(members: dict[str, Any], path: tuple[str, ...], words: Mapping[str, str]) -> None:
    """Fills in the text at the end of the path, if any; copies the containers on the way."""
    at = members
    for name in path[:-1]:
        inner = at.get(name)
        if not isinstance(inner, dict):
            return
        at[name] = dict(inner)
        at = at[name]
    if isinstance(at.get(path[-1]), str):
        at[path[-1]] = _written(at[path[-1]], words)


def _written(text: str, words: Mapping[str, str]) -> str:
    def word(match: re.Match[str]) -> str:
        found = match[0]
        if found in ("{{", "}}"):
            return found[0]
        if match[1] not in words:
            raise _invalid(
                f"{found!r} in {text[:200]!r} is no placeholder",
                f"There are {', '.join(f'{{{name}}}' for name in words)}; {{{{ is a brace.",
            )
        return words[match[1]]

    return _PLACEHOLDER.sub(word, text)


def _words(schedule: str, due: float, zone: Zone) -> dict[str, str]:
    year, month, day, hour, minute, second = time_of(int(due))
    stamp = f"{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z"
    year, month, day, hour, minute, _ = time_of(int(zone.local(due)))
    return {
        "schedule": schedule,
        "due": stamp,
        "date": f"{year:04}-{month:02}-{day:02}",
        "year": f"{year:04}",
        "month": f"{month:02}",
        "day": f"{day:02}",
        "hour": f"{hour:02}",
        "minute": f"{minute:02}",
    }


def _invalid(message: str, hint: str) -> CallerError:
    return CallerError("schedule-job-invalid", message, hint=hint)
