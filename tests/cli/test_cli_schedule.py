"""`penstock schedule`: its jobs are asked for by the options of `transform`, and what came of a run
by hand is the exit code, as there."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.cli.job_server import JobServer, serving
from typer.testing import CliRunner, Result

from penstock.cli import main, transform_follow
from penstock.cli.jobs import schedule
from penstock.errors import NotNowError

RUN = {"job": "j", "reason": "run-now", "message": "", "state": "starting"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[JobServer]:
    monkeypatch.setattr(transform_follow, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(schedule, "LOOK_EVERY_S", 0.0)
    with serving() as one:
        one.runs = [RUN, RUN | {"message": "no room"}, RUN | {"state": "running"}]
        yield one


def run_now(server: JobServer, *words: str) -> Result:
    argv = ["schedule", "run-now", "nightly", "--url", server.url, *words]
    return CliRunner().invoke(main.app, argv)


@pytest.mark.parametrize(("status", "code"), [("Completed", 0), ("Stopped", 3)])
def test_a_run_is_followed_to_its_end(server: JobServer, status: str, code: int) -> None:
    server.say("InProgress")
    server.say(status)
    assert run_now(server).exit_code == code
    assert server.operations() == ["DescribeTransformJob"] * 2


def test_a_run_whose_job_fails_is_a_failure_with_its_reason(server: JobServer) -> None:
    server.say("Failed", "the model can't be loaded")
    done = run_now(server, "--json")
    assert json.loads(done.stdout)["TransformJobStatus"] == "Failed"
    assert done.exit_code == 1
    assert "the model can't be loaded" in str(done.exception)


def test_it_is_enough_that_it_has_begun_where_nobody_follows(server: JobServer) -> None:
    done = run_now(server, "--no-follow", "--json")
    assert (done.exit_code, server.asked) == (0, [])
    assert json.loads(done.stdout[: done.stdout.rindex("}") + 1])["state"] == "running"


def test_a_run_that_does_not_begin_may_pass_later(
    server: JobServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "_BEGIN_S_MAX", 0.0)
    done = run_now(server)
    assert isinstance(done.exception, NotNowError)
    assert done.exception.code == "run-not-begun"


def test_a_schedule_says_of_its_jobs_what_transform_would_say_of_one(server: JobServer) -> None:
    server.say("Completed")
    words = ["m", "s3://in/{date}", "s3://out/{date}"]
    words += ["--content-type", "text/csv", "--split", "Line", "--max-payload-mb", "0", "--join"]
    words += ["--env", "A=b=c", "--env", "D=e", "--cores", "1.5", "--count", "3"]
    words += ["--url", server.url, "--json"]
    due = ["--cron", "0 3 * * ? *", "--overlap"]
    made = CliRunner().invoke(main.app, ["schedule", "create", "nightly", *words, *due])
    assert made.exit_code == 0, made.output
    done = CliRunner().invoke(main.app, ["transform", *words, "--name", "j", "--no-follow"])
    assert done.exit_code == 0, done.output
    asked = dict(server.asked)["CreateTransformJob"]
    assert asked.pop("TransformJobName") == "j"
    [body] = server.posted
    assert json.loads(body) == {
        "expression": "cron(0 3 * * ? *)",
        "time_zone": "UTC",
        "missed": "run-once",
        "overlap": True,
        "paused": False,
        "starts": None,
        "ends": None,
        "job": asked,
    }
    assert asked["Environment"] == {"A": "b=c", "D": "e", "PENSTOCK_TRANSFORM_CORES_MAX": "1.5"}
    assert asked["TransformResources"] == {"InstanceType": "ml.local.small", "InstanceCount": 3}
