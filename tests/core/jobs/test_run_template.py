"""What a run of a schedule is asked for: placeholders written in, and where."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.clock import zone_of
from penstock.core.jobs.schedules import check, job_of
from penstock.errors import CallerError

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
