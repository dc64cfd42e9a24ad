"""Schedules of a real server: jobs that begin by themselves, once, whatever is killed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.kit.polling import wait_until
from tests.kit.servers import penstock
from tests.kit.transform import ANSWER, GOOD, TransformSite, transform_site

pytestmark = pytest.mark.system


class ScheduledJobsSite(TransformSite):
    """One server with a model, and schedules of jobs over a few records."""

    def ask(self, method: str, path: str, members: Any = None) -> tuple[int, dict[str, Any]]:
        """Below /admin/schedules: status and answer."""
        body = b"" if members is None else json.dumps(members).encode()
        status, answer, _ = self.server.ask(f"/admin/schedules{path}", body or None, method=method)
        return status, json.loads(answer)

    def template(self, name: str) -> dict[str, Any]:
        request = self.request(name, "affine", self.uri("good"))
        del request["TransformJobName"]
        return request

    def due_in(self, name: str, seconds: float, **members: Any) -> float:
        """A schedule that is due once; when, in wall seconds. Of a server that is so busy that the
        moment has passed when it reads the request, a later one is asked for."""
        for late_s in (0.0, 5.0, 30.0):
            due = float(int(time.time() + seconds + late_s) + 1)
            expression = f"at({datetime.fromtimestamp(due, UTC):%Y-%m-%dT%H:%M:%S})"
            asked = {"expression": expression, "job": self.template(name)} | members
            status, told = self.ask("POST", f"/{name}", asked)
            if status == 200:
                assert told["due"] == due
                return due
        raise AssertionError(told)

    def runs(self, name: str) -> list[dict[str, Any]]:
        status, told = self.ask("GET", f"/{name}")
        assert status == 200, told
        return list(told["runs"])

    def begun(self, name: str) -> dict[str, Any]:
        """The latest run, once its job is there."""

        def seen() -> list[dict[str, Any]]:
            runs = self.runs(name)
            return runs if runs and runs[0]["state"] != "starting" else []

        found: list[dict[str, Any]] = wait_until(seen, f"a run of {name}", 60)
        return found[0]

    def jobs(self, name: str) -> list[str]:
        """Of the schedule, by ListTransformJobs."""
        found = self.server.client("sagemaker").list_transform_jobs(NameContains=f"{name}-")
        return [one["TransformJobName"] for one in found["TransformJobSummaries"]]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScheduledJobsSite]:
    top = tmp_path_factory.mktemp("schedules")
    with transform_site(top, made=ScheduledJobsSite) as site:
        site.put("good/a.csv", [GOOD] * 5)
        yield site


def stamp(due: float) -> str:
    return f"{datetime.fromtimestamp(due, UTC):%Y%m%dT%H%M%SZ}"


@pytest.mark.timeout(300)
def test_a_job_begins_by_itself_and_its_output_is_there(site: ScheduledJobsSite) -> None:
    due = site.due_in("nightly", 1.0)
    run = site.begun("nightly")
    assert (run["job"], run["due"]) == (f"nightly-{stamp(due)}", due)
    assert site.ended(run["job"], seconds=240)["TransformJobStatus"] == "Completed"
    assert site.outputs("nightly") == {"a.csv.out": f"{ANSWER}\n" * 5}
    wait_until(lambda: site.runs("nightly")[0]["state"] == "completed", "the run's end", 60)
    assert site.ask("GET", "")[1]["schedules"][0]["due"] is None


@pytest.mark.timeout(300)
def test_a_kill_before_at_and_after_the_due_time_leaves_one_job(site: ScheduledJobsSite) -> None:
    """The server is dead when the run is due; is killed as it begins; is killed once it is told."""
    before = site.due_in("dead", 0.5)
    site.server.kill()
    wait_until(lambda: time.time() > before, "the due time", 60)
    site.server.start()
    wait_until(lambda: site.runs("dead"), "the run that was missed", 60)
    at = site.due_in("begins", 2.0)
    wait_until(lambda: time.time() >= at + 0.005, "the due time", 60)
    site.server.kill()
    site.server.start()
    wait_until(lambda: site.runs("begins"), "the run that was due", 60)
    after = site.due_in("told", 2.0)
    wait_until(lambda: site.runs("told"), "a run", 60)
    site.server.kill()
    site.server.start()
    for name, due in (("dead", before), ("begins", at), ("told", after)):
        run = site.begun(name)
        assert len(site.runs(name)) == 1
        assert run["state"] in ("running", "completed"), run
        assert site.jobs(name) == [run["job"]] == [f"{name}-{stamp(due)}"]


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"expression": "cron(0 3 * * *)"}, "schedule-invalid"),
        ({"expression": "cron(0 3 30 2 ? *)"}, "schedule-invalid"),
        ({"time_zone": "Mars"}, "schedule-invalid"),
        ({"missed": "maybe"}, "schedule-invalid"),
        ({"overlap": 1}, "schedule-invalid"),
        ({"starts": "soon"}, "schedule-invalid"),
        ({"cron": "0 3 * * ? *"}, "schedule-invalid"),
        ({"job": []}, "schedule-invalid"),
        ({"job": {"ModelName": "affine"}}, "schedule-job-invalid"),
        ({"job": {"TransformJobName": "same-{date}"}}, "schedule-job-invalid"),
        ({"job": {"ModelName": "none"}}, "ValidationException"),
        ({"job": {"BatchStrategy": "Some"}}, "schedule-job-invalid"),
        ({"job": {"TransformOutput": {"S3OutputPath": "s3://o/{dat}"}}}, "schedule-job-invalid"),
    ],
)
def test_what_is_no_schedule_is_refused(
    site: ScheduledJobsSite, members: dict[str, Any], code: str
) -> None:
    job = members.get("job")
    whole = {"expression": "cron(0 3 * * ? *)", "job": site.template("x")} | members
    if isinstance(job, dict) and len(job) == 1 and job != {"ModelName": "affine"}:
        whole["job"] = site.template("x") | job
    status, told = site.ask("POST", "/refused", whole)
    assert (status, told["code"]) == (400, code), told
    assert told["hint"] or code == "ValidationException"
    assert site.ask("GET", "/refused")[0] == 404


def test_names_are_used_once_and_are_names(site: ScheduledJobsSite) -> None:
    whole = {"expression": "cron(0 3 * * ? *)", "job": site.template("x"), "paused": True}
    assert site.ask("POST", "/Twice", whole)[0] == 200
    status, told = site.ask("POST", "/twice", whole)
    assert (status, told["code"]) == (409, "schedule-exists")
    for name in ("a_b", "x" * 41, "-a"):
        assert site.ask("POST", f"/{name}", whole)[1]["code"] == "schedule-invalid"
    assert site.ask("DELETE", "/twice")[0] == 200
    assert site.ask("DELETE", "/twice")[0] == 404


def test_the_command_line_makes_shows_pauses_and_deletes(
    site: ScheduledJobsSite, tmp_path: Path
) -> None:
    def schedule(*words: str, code: int = 0) -> str:
        done = penstock("schedule", *words, server=site.server, status=code)
        return done.stdout + done.stderr

    source, output = str(tmp_path / "{date}.csv"), str(tmp_path / "out" / "{due}")
    zone = ("--time-zone", "Europe/Berlin")
    made = schedule("create", "cli", "affine", source, output, "--cron", "30 2 * * ? 2199", *zone)
    assert "next 2199-01-01 02:30:00+01:00" in made
    told = json.loads(schedule("show", "cli", "--json"))
    assert told["job"]["TransformInput"]["ContentType"] == "text/csv"
    assert told["job"]["TransformOutput"]["S3OutputPath"] == f"file://{output}"
    schedule("pause", "cli")
    assert "paused" in schedule("list")
    schedule("resume", "cli")
    said = schedule("run-now", "cli", code=1)  # over a file that is not there
    (failed,) = site.runs("cli")
    assert failed["state"] == "failed"
    assert f"{datetime.fromtimestamp(failed['due'], UTC):%Y}-" in failed["message"]
    assert f"error[run-failed]: run {failed['job']} of cli failed: {failed['message']}" in said
    assert failed["job"] in schedule("show", "cli")
    schedule("delete", "cli")
    assert "error[schedule-not-found]" in schedule("show", "cli", code=1)
    assert "error[usage]" in schedule("create", "cli", "affine", source, output, code=1)
