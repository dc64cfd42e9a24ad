"""What one run of a schedule is asked for: the job's members with its due time written in.

Placeholders stand in the job's name, in where it reads and in where it writes, and nowhere else
(braces mean something in other members):

    {schedule}                          the schedule's name
    {due}                               the due time in UTC, 20260302T080000Z: never twice the same
    {date} {year} {month} {day}         2026-03-02, 2026, 03, 02 } on the clock of the schedule's
    {hour} {minute}                     08, 00                   } time zone
    {{ }}                               braces

All follow from schedule and due time alone, so that a run that is begun again after a kill is the
same job. Local times come twice in autumn: the name therefore has to hold {due}.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from penstock.core.alarms.moments import date_of
from penstock.core.apply.versioned_names import ENDPOINT_NAME
from penstock.core.timetable.timetable import Zone
from penstock.errors import CallerError

JOB_NAME_DEFAULT: Final = "{schedule}-{due}"
_NAME: Final = "TransformJobName"
_INPUT: Final = ("TransformInput", "DataSource", "S3DataSource", "S3Uri")
_OUTPUT: Final = ("TransformOutput", "S3OutputPath")
_PLACEHOLDER: Final = re.compile(r"\{\{|\}\}|\{([a-z]{1,16})\}|[{}]")
_DAY_S: Final = 86_400
#: Any due time: all are as long.
_SAMPLE: Final = 1_700_000_000.0


def check(template: Mapping[str, Any], schedule: str, zone: Zone) -> None:
    """Raises CallerError `schedule-job-invalid` where no run could be made of it."""
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
    """At the path's end, where it leads to a text; what it goes through is copied."""
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
    year, month, day, hour, minute, second = _clock(int(due))
    stamp = f"{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z"
    year, month, day, hour, minute, _ = _clock(int(zone.local(due)))
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


def _clock(moment: int) -> tuple[int, int, int, int, int, int]:
    days, of_day = divmod(moment, _DAY_S)
    year, month, day = date_of(days)
    return year, month, day, of_day // 3600, of_day // 60 % 60, of_day % 60


def _invalid(message: str, hint: str) -> CallerError:
    return CallerError("schedule-job-invalid", message, hint=hint)
