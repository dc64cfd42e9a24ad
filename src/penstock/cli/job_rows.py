"""Transform jobs in the tables of `penstock status` and `penstock cost`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.cli.cost_words import figure
from penstock.cli.transform_follow import duration

GOING: Final = ("InProgress", "Stopping")
STATUS_COLUMNS: Final = (
    "job", "status", "records", "refused", "records/s", "left", "$", "instance", "state", "GiB",
    "pid",
)  # fmt: skip
COST_COLUMNS: Final = (
    "job", "status", "instance type", "instance hours", "$", "records", "$ / 1000 records",
)  # fmt: skip
_GIB: Final = 2**30

Row = Mapping[str, Any]  #: of GET /admin/jobs


def going(jobs: Iterable[Row]) -> list[Row]:
    """Those that have not ended."""
    return [job for job in jobs if job["status"] in GOING]


def status_rows(job: Row) -> list[list[object]]:
    """A line for each instance; a job that holds none has one, which says what it waits for."""
    told = job["progress"]
    speed, left_s = told["RecordsPerSecond"], told["EtaSeconds"]
    waits = f"waits: {told['Waiting']}" if told.get("Waiting") else None
    own = [
        job["job"],
        job["status"],
        told["Records"],
        told["RefusedRecords"],
        None if speed is None else f"{speed:.0f}",
        None if left_s is None else duration(left_s),
        figure(told["CostSoFar"]),
    ]
    instances = job["instances"] or [{"state": waits}]
    return [
        [*(own if not at else [None] * len(own)), one.get("instance"), one["state"],
         _gib(one.get("memory_bytes")), one.get("pid")]
        for at, one in enumerate(instances)
    ]  # fmt: skip


def costs(jobs: Iterable[Row]) -> list[dict[str, Any]]:
    """What each job that ever held an instance has cost, for programs; money in US dollars."""
    return [
        {
            "job": job["job"],
            "status": job["status"],
            "instance_type": job["instance_type"],
            "instance_hours": told["InstanceSeconds"] / 3600,
            "dollars": told["CostSoFar"],
            "records": told["Records"],
            "dollars_per_record": told["CostSoFar"] / told["Records"] if told["Records"] else None,
        }
        for job in jobs
        if (told := job["progress"])["InstanceSeconds"]
    ]


def cost_row(cost: Row) -> list[object]:
    each = cost["dollars_per_record"]
    return [
        cost["job"],
        cost["status"],
        cost["instance_type"],
        figure(cost["instance_hours"]),
        figure(cost["dollars"]),
        cost["records"],
        None if each is None else figure(1000 * each),
    ]


def _gib(size: int | None) -> str | None:
    return None if size is None else f"{size / _GIB:.2f}"
