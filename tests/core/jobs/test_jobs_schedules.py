"""Which due times are run and which are passed over, as timelines: whole lists of actions."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.clock import zone_of
from penstock.core.jobs.schedules import (
    MISSED_RUNS_MAX,
    Action,
    PassOver,
    ScheduleObserved,
    ScheduleSpec,
    StartRun,
    check,
    decide,
    job_of,
    judge_start,
    next_look,
    run_now,
)
from penstock.core.timetable.timetable import Timetable, parse
from penstock.errors import CallerError


def at(text: str) -> float:
    """Of a time in UTC; only hours and minutes are those of 2 March 2026."""
    whole = text if "T" in text else f"2026-03-02T{text}"
    return datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp()


def clock(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%m-%dT%H:%M:%S").removeprefix("03-02T")


def told(action: Action) -> str:
    if isinstance(action, StartRun):
        return f"run {clock(action.due)} {action.reason}"
    span = "" if action.last == action.first else f"..{clock(action.last)}"
    return f"pass {clock(action.first)}{span} {action.reason}"


@dataclass
class Record:
    """What the driver keeps: the due time, and which runs have not ended."""

    spec: ScheduleSpec
    due: float | None
    running: list[float] = field(default_factory=list)

    def look(self, now: str) -> list[str]:
        decision = decide(self.spec, self.seen(), now=at(now))
        self.due = decision.due
        self.running += [one.due for one in decision.actions if isinstance(one, StartRun)]
        return [told(action) for action in decision.actions]

    def seen(self) -> ScheduleObserved:
        return ScheduleObserved(due=self.due, open_runs=len(self.running))


def schedule(
    text: str = "cron(0 * * * ? *)",
    *,
    missed: str = "run-once",
    overlap: bool = False,
    zone: str = "UTC",
    since: str = "00:00:00",
    until: str = "",
) -> Record:
    table = Timetable(parse(text, zone_of(zone)), at(since), at(until) if until else None)
    spec = ScheduleSpec(timetable=table, missed=missed, overlap=overlap)
    return Record(spec, table.next_due(after=at(since)))


@pytest.mark.parametrize("missed", ["skip", "run-once", "run-all"])
def test_what_is_due_is_run_at_once_and_what_is_not_yet_is_left(missed: str) -> None:
    one = schedule(missed=missed)
    assert one.look("00:59:59") == []
    assert one.look("01:00:00") == ["run 01:00:00 on-time"]
    assert one.due == at("02:00:00")
    one.running.clear()
    assert one.look("02:00:59") == ["run 02:00:00 on-time"]  # for a minute it is on time
    one.running.clear()
    late = {"skip": "pass 03:00:00 missed"}.get(missed, "run 03:00:00 made-up")
    assert one.look("03:01:00") == [late]


def test_unless_said_otherwise_the_latest_missed_is_run_and_none_overlap() -> None:
    spec = ScheduleSpec(timetable=Timetable(parse("rate(1 hour)", zone_of("UTC")), 0.0))
    assert (spec.missed, spec.overlap) == ("run-once", False)


@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        ("skip", ["pass 01:00:00..04:00:00 missed"]),
        ("run-once", ["pass 01:00:00..03:00:00 superseded", "run 04:00:00 made-up"]),
        ("run-all", ["run 01:00:00 made-up"]),
    ],
)
def test_a_server_that_was_down_for_hours(missed: str, expected: list[str]) -> None:
    one = schedule(missed=missed)
    assert one.look("04:30:00") == expected
    assert one.due == at("02:00:00" if missed == "run-all" else "05:00:00")


@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        ("skip", ["pass 01:00:00..03:00:00 missed", "run 04:00:00 on-time"]),
        ("run-once", ["pass 01:00:00..03:00:00 superseded", "run 04:00:00 on-time"]),
    ],
)
def test_a_server_that_comes_back_on_time_for_the_last(missed: str, expected: list[str]) -> None:
    assert schedule(missed=missed).look("04:00:30") == expected


def test_run_all_makes_up_one_after_the_other() -> None:
    one = schedule(missed="run-all")
    told_at = {}
    for now in ("03:30:00", "03:40:00", "03:50:00", "04:10:00"):
        told_at[now] = one.look(now)
        one.running.clear()  # it has ended before the next look
    assert told_at == {
        "03:30:00": ["run 01:00:00 made-up"],
        "03:40:00": ["run 02:00:00 made-up"],
        "03:50:00": ["run 03:00:00 made-up"],
        "04:10:00": ["run 04:00:00 made-up"],
    }
    assert one.look("04:20:00") == []


def test_run_all_with_overlap_makes_up_all_at_once() -> None:
    one = schedule(missed="run-all", overlap=True)
    assert one.look("03:30:00") == [
        "run 01:00:00 made-up",
        "run 02:00:00 made-up",
        "run 03:00:00 made-up",
    ]
    assert one.due == at("04:00:00")


def test_run_all_gives_up_what_is_too_long_ago() -> None:
    """A schedule of every minute that nobody served for eight hours: the last 96 are made up."""
    one = schedule("rate(1 minute)", missed="run-all", overlap=True)
    first, *runs = one.look("08:00:30")
    assert first == "pass 00:01:00..06:24:00 too-many-missed"
    assert (len(runs), runs[0], runs[-1]) == (
        MISSED_RUNS_MAX,
        "run 06:25:00 made-up",
        "run 08:00:00 on-time",
    )


def test_years_without_a_server_are_looked_at_from_their_end() -> None:
    one = schedule("rate(1 minute)", since="2006-03-02T00:00:00")
    assert one.look("09:00:30") == [
        "pass 00:01:00..08:59:00 superseded",
        "run 09:00:00 on-time",
    ]


@pytest.mark.parametrize(
    ("missed", "while_it_runs", "once_it_ended"),
    [
        ("skip", ["pass 02:00:00 previous-running", "pass 03:00:00 previous-running"], []),
        ("run-once", [], ["pass 02:00:00 superseded", "run 03:00:00 made-up"]),
        ("run-all", [], ["run 02:00:00 made-up"]),
    ],
)
def test_without_overlap_a_due_run_waits_or_is_passed_over(
    missed: str, while_it_runs: list[str], once_it_ended: list[str]
) -> None:
    one = schedule(missed=missed)
    assert one.look("01:00:00") == ["run 01:00:00 on-time"]
    assert one.look("02:00:00") + one.look("02:00:40") + one.look("03:00:00") == while_it_runs
    one.running.clear()
    assert one.look("03:20:00") == once_it_ended


def test_with_overlap_a_run_begins_beside_another() -> None:
    one = schedule(overlap=True)
    assert one.look("01:00:00") + one.look("02:00:00") == [
        "run 01:00:00 on-time",
        "run 02:00:00 on-time",
    ]
    assert len(one.running) == 2


def test_a_moment_is_run_once_and_never_again() -> None:
    one = schedule("at(2026-03-02T08:00:00)")
    assert one.look("08:00:00") == ["run 08:00:00 on-time"]
    assert one.due is None
    assert one.look("09:00:00") == []
    assert next_look(one.spec, ScheduleObserved(due=None, open_runs=0)) is None


def test_a_moment_that_was_missed_is_made_up_unless_missed_ones_are_skipped() -> None:
    assert schedule("at(2026-03-02T08:00:00)").look("12:00:00") == ["run 08:00:00 made-up"]
    one = schedule("at(2026-03-02T08:00:00)", missed="skip")
    assert one.look("12:00:00") == ["pass 08:00:00 missed"]


def test_nothing_is_due_after_the_end() -> None:
    one = schedule(until="02:00:00")
    assert one.look("05:00:00") == ["pass 01:00:00 superseded", "run 02:00:00 made-up"]
    assert one.due is None


def test_a_day_with_a_skipped_hour_has_its_run_once() -> None:
    """Berlin, 29 March 2026: 2:00 becomes 3:00. What is due at 2:30 is run at 3:30, 1:30 UTC."""
    one = schedule("cron(30 2 * * ? *)", zone="Europe/Berlin", since="2026-03-27T12:00:00")
    ran = []
    for now in ("2026-03-28T01:30:00", "2026-03-29T01:30:00", "2026-03-30T00:30:00"):
        ran += one.look(now)
        one.running.clear()
    assert ran == [
        "run 03-28T01:30:00 on-time",
        "run 03-29T01:30:00 on-time",
        "run 03-30T00:30:00 on-time",
    ]


def test_every_half_hour_of_a_day_with_a_skipped_hour() -> None:
    """The skipped 2:00 and 2:30 are taken as 3:00 and 3:30: each moment is run once."""
    one = schedule(
        "cron(0/30 * * * ? *)",
        zone="Europe/Berlin",
        since="2026-03-28T23:59:59",
        overlap=True,
        missed="run-all",
    )
    assert one.look("2026-03-29T02:10:00") == [
        "run 03-29T00:00:00 made-up",
        "run 03-29T00:30:00 made-up",
        "run 03-29T01:00:00 made-up",
        "run 03-29T01:30:00 made-up",
        "run 03-29T02:00:00 made-up",
    ]


def test_an_hour_that_comes_twice_has_its_runs_once() -> None:
    """Berlin, 25 October 2026: 3:00 becomes 2:00. 2:00 and 2:30 are run the first time they come,
    at 0:00 and 0:30 UTC, and 3:00 two hours after 2:00. A rate is not moved by clocks."""
    one = schedule(
        "cron(0/30 * * * ? *)",
        zone="Europe/Berlin",
        since="2026-10-24T23:59:59",
        overlap=True,
        missed="run-all",
    )
    assert one.look("2026-10-25T02:10:00") == [
        "run 10-25T00:00:00 made-up",
        "run 10-25T00:30:00 made-up",
        "run 10-25T02:00:00 made-up",
    ]
    rate = schedule(
        "rate(1 hour)",
        zone="Europe/Berlin",
        since="2026-10-24T23:00:00",
        overlap=True,
        missed="run-all",
    )
    assert rate.look("2026-10-25T02:10:00") == [
        "run 10-25T00:00:00 made-up",
        "run 10-25T01:00:00 made-up",
        "run 10-25T02:00:00 made-up",
    ]


def test_when_to_look_again() -> None:
    """At the next due time; where a due run waits for another's end, nothing but that matters."""
    one = schedule()
    assert next_look(one.spec, ScheduleObserved(due=60.0, open_runs=0)) == 60.0
    assert next_look(one.spec, ScheduleObserved(due=60.0, open_runs=1)) is None
    skipping = schedule(missed="skip")
    assert next_look(skipping.spec, ScheduleObserved(due=60.0, open_runs=1)) == 60.0
    beside = schedule(overlap=True)
    assert next_look(beside.spec, ScheduleObserved(due=60.0, open_runs=1)) == 60.0


def test_a_run_that_somebody_asks_for_is_due_this_second_unless_another_runs() -> None:
    one = schedule()
    assert run_now(one.spec, one.seen(), now=1000.75) == StartRun(1000.0, "asked-for")
    assert run_now(one.spec, ScheduleObserved(due=None, open_runs=1), now=1000.75) is None
    beside = schedule(overlap=True)
    assert run_now(beside.spec, ScheduleObserved(due=None, open_runs=1), now=1000.0) is not None


@pytest.mark.parametrize(
    ("code", "is_there", "after_s", "state"),
    [
        ("ResourceInUse", True, 1.0, "running"),  # begun before a kill
        ("ValidationException", True, 1.0, "running"),  # the model was deleted since
        ("ValidationException", False, 1.0, "failed"),
        ("ServiceUnavailable", False, 86_399.0, "starting"),
        ("ServiceUnavailable", False, 86_400.0, "failed"),
    ],
)
def test_what_a_refused_start_means(code: str, is_there: bool, after_s: float, state: str) -> None:
    assert judge_start(code, is_there=is_there, begun=100.0, now=100.0 + after_s) == state


def test_actions_say_which_times_they_stand_for() -> None:
    decision = decide(schedule().spec, ScheduleObserved(due=at("01:00:00"), open_runs=0),
                      now=at("02:00:00"))  # fmt: skip
    assert decision.actions == (
        PassOver(at("01:00:00"), at("01:00:00"), "superseded"),
        StartRun(at("02:00:00"), "on-time"),
    )


# What a run of a schedule is asked for: placeholders written in, and where.


UTC_ZONE, BERLIN = zone_of("UTC"), zone_of("Europe/Berlin")
DUE = datetime(2026, 3, 1, 23, 30, tzinfo=UTC).timestamp()


def template(**members: Any) -> dict[str, Any]:
    return {
        "ModelName": "duplicates",
        "TransformInput": {
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://in/{date}/"}}
        },
        "TransformOutput": {"S3OutputPath": "s3://out/{year}/{month}/{day}/{hour}{minute}/"},
    } | members


def test_placeholders_are_the_due_time_in_the_schedules_zone() -> None:
    """Half past eleven on 1 March in UTC is half past midnight on the 2nd in Berlin; `due` alone
    is UTC everywhere, so that no two runs have the same name."""
    assert job_of(template(), "nightly", DUE, BERLIN) == {
        "TransformJobName": "nightly-20260301T233000Z",
        "ModelName": "duplicates",
        "TransformInput": {
            "DataSource": {
                "S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://in/2026-03-02/"}
            }
        },
        "TransformOutput": {"S3OutputPath": "s3://out/2026/03/02/0030/"},
    }
    greenwich = job_of(template(), "nightly", DUE, UTC_ZONE)
    assert greenwich["TransformOutput"] == {"S3OutputPath": "s3://out/2026/03/01/2330/"}
    assert greenwich["TransformJobName"] == "nightly-20260301T233000Z"


def test_seconds_belong_to_the_minute_and_the_hour_that_they_are_in() -> None:
    for hour, minute, second in ((23, 59, 59), (3, 0, 0)):
        due = datetime(2026, 3, 1, hour, minute, second, tzinfo=UTC).timestamp()
        job = job_of(template(), "nightly", due, UTC_ZONE)
        assert job["TransformJobName"] == f"nightly-20260301T{hour:02}{minute:02}{second:02}Z"
        assert job["TransformOutput"]["S3OutputPath"].endswith(f"/{hour:02}{minute:02}/")


def test_the_template_stays_as_it_is() -> None:
    made = template()
    job_of(made, "nightly", DUE, BERLIN)
    assert made == template()


def test_braces_elsewhere_mean_what_they_mean() -> None:
    """A variable of the model may hold JSON."""
    job = job_of(template(Environment={"LIMITS": '{"date": 3}'}), "nightly", DUE, BERLIN)
    assert job["Environment"] == {"LIMITS": '{"date": 3}'}


def test_braces_that_are_meant_are_doubled() -> None:
    output = {"S3OutputPath": "file:///{{{{out}}/{schedule}"}
    job = job_of(template(TransformOutput=output), "nightly", DUE, BERLIN)
    assert job["TransformOutput"] == {"S3OutputPath": "file:///{{out}/nightly"}


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"TransformJobName": "nightly-{date}"}, "does not hold {due}"),
        ({"TransformJobName": "nightly-{{due}}"}, "does not hold {due}"),
        ({"TransformJobName": 7}, "does not hold {due}"),
        ({"TransformJobName": "a/{due}"}, "no name of a job"),
        ({"TransformJobName": "x" * 48 + "{due}"}, "no name of a job"),
        ({"TransformOutput": {"S3OutputPath": "s3://out/{dat}/"}}, "'{dat}'"),
        ({"TransformOutput": {"S3OutputPath": "s3://out/{/"}}, "'{'"),
        ({"TransformOutput": {"S3OutputPath": "s3://out/}/"}}, "'}'"),
    ],
)
def test_what_makes_no_run_is_refused(members: dict[str, Any], words: str) -> None:
    with pytest.raises(CallerError) as refused:
        check(template(**members), "nightly", BERLIN)
    assert refused.value.code == "schedule-job-invalid"
    assert words in refused.value.message


def test_what_is_no_object_is_left_for_the_api_to_refuse() -> None:
    check({"TransformInput": [], "TransformOutput": {"S3OutputPath": 5}}, "nightly", BERLIN)


def test_a_placeholder_that_is_none_is_named_as_it_was_written() -> None:
    with pytest.raises(CallerError, match=r"'\{day_of\}' in"):
        check({"TransformJobName": "n-{due}-{day_of}"}, "nightly", zone_of("UTC"))
