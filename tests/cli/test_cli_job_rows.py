"""Transform jobs in tables: a line for each instance, or what a job waits for."""

from __future__ import annotations

from typing import Any

from penstock.cli import transform_follow


def job(**fields: Any) -> dict[str, Any]:
    told = {"Records": 5000, "RefusedRecords": 1, "RecordsPerSecond": 1250.4, "EtaSeconds": 65.0,
            "CostSoFar": 0.0123}  # fmt: skip
    return {
        "job": "j",
        "status": "InProgress",
        "progress": told | fields.pop("progress", {}),
        "instances": [
            {"instance": "i-1", "state": "ready", "memory_bytes": 2**29, "pid": 7},
            {"instance": "i-2", "state": "starting", "memory_bytes": None, "pid": None},
        ],
    } | fields


def test_a_job_has_a_line_for_each_instance_and_its_own_figures_once() -> None:
    own = ["j", "InProgress", 5000, 1, "1250", "1 min 5 s", "0.0123"]
    assert transform_follow.status_rows(job()) == [
        [*own, "i-1", "ready", "0.50", 7],
        [*[None] * 7, "i-2", "starting", None, None],
    ]


def test_a_job_without_instances_says_what_it_waits_for() -> None:
    waits = job(instances=[], progress={"Waiting": "room", "RecordsPerSecond": None})
    assert transform_follow.status_rows(waits)[0][7:] == [None, "waits: room", None, None]
    assert transform_follow.status_rows(job(instances=[]))[0][7:] == [None, None, None, None]


def test_a_job_that_has_ended_does_not_go_on() -> None:
    ended = [job(status=one) for one in ("Completed", "Failed", "Stopped")]
    stopping = job(status="Stopping")
    assert transform_follow.going([*ended, stopping]) == [stopping]
