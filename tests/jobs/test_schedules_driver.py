"""Schedules over a real database: what is begun, what is told, and what a kill leaves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.jobs.schedule_site import JOB, Killed, SchedulesSite, at
from tests.kit.metrics_page import shown

from penstock.errors import CallerError

DAILY = "cron(0 3 * * ? *)"
FIRST, SECOND = "nightly-20260302T030000Z", "nightly-20260303T030000Z"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[SchedulesSite]:
    made = SchedulesSite(tmp_path / "state", "00:00:00")
    yield made
    made.close()


def refused(call: object, *args: object, **members: object) -> str:
    with pytest.raises(CallerError) as error:
        call(*args, **members)  # type: ignore[operator]
    return error.value.code


def test_a_job_is_begun_when_it_is_due_and_followed_to_its_end(site: SchedulesSite) -> None:
    site.create(expression=DAILY)
    assert site.tick() == 20.0  # a wall clock may be set: it is looked at long before it is due
    assert site.tick("02:59:50") == 10.0
    assert site.plane.created == []
    assert site.tick("03:00:00") == 1.0
    assert site.plane.created == [FIRST]
    assert site.told() == [f"{FIRST} running on-time"]
    (created,) = [members for asked, members in site.plane.asked if asked == "CreateTransformJob"]
    assert created == JOB | {
        "TransformJobName": FIRST,
        "TransformOutput": {"S3OutputPath": "s3://o/2026-03-02"},
    }
    site.plane.status[FIRST] = "Completed"
    assert site.tick("03:10:00") == 20.0
    assert [(one.state, one.ended) for one in site.runs()] == [("completed", at("03:10:00"))]
    site.tick("2026-03-03T03:00:01")
    assert site.plane.created == [FIRST, SECOND]


def test_jobs_of_a_schedule_are_its_owners(site: SchedulesSite) -> None:
    """Also after a restart, and another schedule of the same name has nobody's."""
    site.create(expression=DAILY, owner="key-of-search")
    site.create("another", expression=DAILY)
    site.restart()
    site.tick("03:00:00")
    created = sorted(owner for asked, owner in site.plane.owners if asked == "CreateTransformJob")
    assert created == ["", "key-of-search"]
    site.runner.run(site.schedules.delete("nightly"))
    assert site.create(expression=DAILY).owner == ""
    told = {one.name: one.owner for one in site.runner.run(site.schedules.all())}
    assert told == {"nightly": "", "another": ""}


@pytest.mark.parametrize(
    ("status", "told"), [("Failed", "failed"), ("Stopped", "stopped"), ("Stopping", "running")]
)
def test_how_a_job_ends_is_how_its_run_ends(site: SchedulesSite, status: str, told: str) -> None:
    site.create(expression=DAILY)
    site.tick("03:00:00")
    site.plane.status[FIRST] = status
    site.tick("03:00:05")
    assert site.told() == [f"{FIRST} {told} on-time"]


def test_a_server_that_was_down_makes_up_for_the_last(site: SchedulesSite) -> None:
    site.create(expression="cron(0 * * * ? *)")
    site.create("skipping", expression="cron(0 * * * ? *)", missed="skip")
    site.tick("05:30:00")
    assert site.told() == ["- passed-over superseded", "nightly-20260302T050000Z running made-up"]
    passed = site.runs()[0]
    assert (passed.due, passed.last) == (at("01:00:00"), at("04:00:00"))
    assert site.told("skipping") == ["- passed-over missed"]


def test_runs_do_not_overlap_unless_asked(site: SchedulesSite) -> None:
    site.create(expression="rate(1 hour)", missed="run-all")
    site.create("beside", expression="rate(1 hour)", overlap=True)
    site.tick("01:00:00")
    site.tick("02:00:00")
    assert site.plane.created == [
        "beside-20260302T010000Z",
        "nightly-20260302T010000Z",
        "beside-20260302T020000Z",
    ]
    assert site.tick("02:10:00") == 1.0  # it waits for the run's end, which is looked for
    site.plane.status["nightly-20260302T010000Z"] = "Completed"
    site.tick("02:20:00")
    assert site.told()[-1] == "nightly-20260302T020000Z running made-up"


def test_a_job_that_is_refused_is_told_and_the_next_is_begun(site: SchedulesSite) -> None:
    site.create(expression=DAILY)
    site.plane.refusal = CallerError("ValidationException", "the prefix is empty")
    site.tick("03:00:00")
    (run,) = site.runs()
    assert (run.state, run.message) == ("failed", "ValidationException: the prefix is empty")
    site.plane.refusal = None
    site.tick("2026-03-03T03:00:00")
    assert site.plane.created == [SECOND]


def test_a_server_that_can_not_take_it_now_is_asked_again(site: SchedulesSite) -> None:
    site.create(expression=DAILY)
    site.plane.refusal = CallerError("ServiceUnavailable", "in a moment")
    assert site.tick("03:00:00") == 1.0
    assert site.told() == [f"{FIRST} starting on-time"]
    site.plane.refusal = None
    site.tick("03:00:01")
    assert site.told() == [f"{FIRST} running on-time"]
    assert site.runs()[0].message == ""


def test_what_is_paused_is_not_due_and_not_made_up_for(site: SchedulesSite) -> None:
    site.create(expression=DAILY)
    site.runner.run(site.schedules.pause("NIGHTLY"))  # names count without case
    assert site.tick("2026-03-04T12:00:00") == 20.0
    site.runner.run(site.schedules.resume("nightly"))
    site.tick()
    assert site.told() == []
    site.tick("2026-03-05T03:00:00")
    assert site.plane.created == ["nightly-20260305T030000Z"]


def test_run_now_is_beside_the_timetable_and_refused_while_a_run_lasts(site: SchedulesSite) -> None:
    site.create(expression=DAILY)
    run = site.runner.run(site.schedules.run_now("nightly"))
    assert (run.job, run.reason) == ("nightly-20260302T000000Z", "asked-for")
    site.tick()
    assert site.plane.created == [run.job]
    assert refused(lambda: site.runner.run(site.schedules.run_now("nightly"))) == "schedule-busy"
    site.plane.status[run.job] = "Completed"
    site.tick("03:00:00")
    assert site.plane.created == [run.job, FIRST]


def test_a_deleted_schedule_leaves_its_job_running_and_nothing_else(site: SchedulesSite) -> None:
    site.create(expression=DAILY)
    site.tick("03:00:00")
    site.runner.run(site.schedules.delete("nightly"))
    assert site.tick("2026-03-03T03:00:00") == 20.0
    assert site.plane.status == {FIRST: "InProgress"}
    call = lambda: site.runner.run(site.schedules.describe("nightly", 1))  # noqa: E731
    assert refused(call) == "schedule-not-found"


def test_what_can_never_be_due_or_read_is_refused(site: SchedulesSite) -> None:
    for expression in ("cron(0 3 30 2 ? *)", "at(2026-03-01T00:00:00)", "every night", "cron(0 3)"):
        assert refused(site.create, expression=expression) == "schedule-invalid"
    assert refused(site.create, expression="cron(0 20 * * MON-FRI *)") == "schedule-invalid"
    assert refused(site.create, expression=DAILY, timezone="Mars") == "schedule-invalid"
    assert refused(site.create, expression=DAILY, job={"TransformJobName": "x"}) == (
        "schedule-job-invalid"
    )
    site.create(expression=DAILY)
    assert refused(site.create, "Nightly", expression=DAILY) == "schedule-exists"


def _nights(site: SchedulesSite) -> None:
    """Two nights; each job ends within its night."""
    for night in (2, 3):
        for time in ("03:00:45", "03:05:00"):
            if site.clock.wall() <= at(f"2026-03-0{night}T{time}"):
                site.tick(f"2026-03-0{night}T{time}")
                site.plane.status = dict.fromkeys(site.plane.status, "Completed")


@pytest.mark.parametrize("missed", ["skip", "run-once"])
def test_a_kill_at_any_step_neither_loses_nor_doubles_a_run(tmp_path: Path, missed: str) -> None:
    """The process ends before and after each call of the database and of the control plane; it is
    back ten seconds later."""
    undisturbed = SchedulesSite(tmp_path / "undisturbed", "00:00:00")
    undisturbed.create(expression=DAILY, missed=missed)
    begun = undisturbed.steps
    _nights(undisturbed)
    steps = undisturbed.steps
    expected = undisturbed.plane.created, undisturbed.told()
    undisturbed.close()
    assert expected == (
        [FIRST, SECOND],
        [f"{FIRST} completed on-time", f"{SECOND} completed on-time"],
    )
    assert steps - begun > 30
    for kill_at in range(begun + 1, steps + 1):
        site = SchedulesSite(tmp_path / str(kill_at), "00:00:00")
        site.create(expression=DAILY, missed=missed)
        site.kill_at = kill_at
        with pytest.raises(Killed):
            _nights(site)
        site.restart()
        site.clock.advance(10.0)
        site.tick()
        _nights(site)
        site.plane.status = dict.fromkeys(site.plane.status, "Completed")
        site.tick()
        assert (site.plane.created, site.told()) == expected, kill_at
        site.close()


def failing(site: SchedulesSite) -> dict[tuple[str, ...], float]:
    return shown(site.counts, "penstock_schedule_failing")


def test_a_run_that_failed_is_seen_until_one_succeeds_whatever_is_restarted(
    site: SchedulesSite,
) -> None:
    site.create(expression=DAILY)
    site.tick("03:00:00")
    assert failing(site) == {("nightly",): 0.0}
    site.plane.status[FIRST] = "Failed"
    site.tick("03:10:00")
    assert failing(site) == {("nightly",): 1.0}
    ended = shown(site.counts, "penstock_schedule_runs_ended")
    assert (ended["nightly", "failed"], ended["nightly", "completed"]) == (1.0, 0.0)
    site.restart()
    site.tick("03:11:00")
    assert failing(site) == {("nightly",): 1.0}
    success = "penstock_schedule_last_success_timestamp_seconds"
    assert shown(site.counts, success) == {}
    site.tick("2026-03-03T03:00:00")
    site.plane.status[SECOND] = "Completed"
    site.tick("2026-03-03T03:10:00")
    assert failing(site) == {("nightly",): 0.0}
    assert shown(site.counts, success) == {("nightly",): at("2026-03-03T03:10:00")}


def test_a_start_that_is_refused_is_a_run_that_failed(site: SchedulesSite) -> None:
    site.create(expression=DAILY)
    site.plane.refusal = CallerError("ValidationException", "no such model")
    site.tick("03:00:00")
    assert failing(site) == {("nightly",): 1.0}


def test_what_is_due_and_does_not_begin_is_overdue_and_what_is_passed_over_counts(
    site: SchedulesSite,
) -> None:
    site.create(expression="rate(1 hour)", missed="run-once")
    overdue = "penstock_schedule_overdue_seconds"
    site.tick("2026-03-02T01:00:00")
    site.tick("2026-03-02T02:00:00")
    assert shown(site.counts, overdue) == {("nightly",): 0.0}
    site.tick("2026-03-02T03:30:00")  # the run before it still runs
    due = site.runner.run(site.schedules.describe("nightly", 1))[0].due
    assert due is not None
    assert shown(site.counts, overdue) == {("nightly",): at("2026-03-02T03:30:00") - due}
    for job in site.plane.created:
        site.plane.status[job] = "Completed"
    site.tick("2026-03-02T05:30:00")
    assert shown(site.counts, overdue) == {("nightly",): 0.0}
    assert shown(site.counts, "penstock_schedule_runs_ended")["nightly", "passed-over"] == 1.0


def test_a_deleted_schedule_leaves_the_page(site: SchedulesSite) -> None:
    site.create(expression=DAILY)
    site.tick()
    site.runner.run(site.schedules.delete("nightly"))
    site.tick()
    assert failing(site) == {}
