"""Follows a transform job: a progress bar in a terminal, else a line from time to time.

It also makes the rows of transform jobs in the tables of `penstock status` and `penstock cost`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import typer

from penstock.cli.client import SageMaker
from penstock.cli.output import figure, note, print_json
from penstock.errors import CallerError, ModelError, NotNowError

LOOK_EVERY_S: Final = 0.5
#: s between two lines without a terminal.
LINE_EVERY_S: Final = 10.0
#: s that a server may be away: after a restart it continues its jobs.
AWAY_S_MAX: Final = 120.0

STOPPED_EXIT: Final = 3
LEFT_EXIT: Final = 130  #: what a shell reports for a command that Ctrl-C ended
_ENDS: Final = ("Completed", "Failed", "Stopped")
_UNITS: Final = (("h", 3600), ("min", 60), ("s", 1))


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a job, from DescribeTransformJob."""

    status: str
    share: float | None  #: from 0 to 1; None = unknown yet
    words: str

    @classmethod
    def of(cls, described: dict[str, Any]) -> Progress:
        reported = described.get("PenstockProgress") or {}
        status = described["TransformJobStatus"]
        done, total = reported.get("BytesIn") or 0, reported.get("BytesTotal") or 0
        rate = (
            _average(described, reported) if status in _ENDS else reported.get("RecordsPerSecond")
        )
        words = [f"{reported.get('Records') or 0:,} records"]
        if rate:
            words.append(f"{rate:,.0f}/s")
        if reported.get("RefusedRecords"):
            words.append(f"{reported['RefusedRecords']:,} refused")
        if reported.get("EtaSeconds") is not None and status not in _ENDS:
            words.append(f"{duration(reported['EtaSeconds'])} left")
        if reported.get("CostSoFar"):
            words.append(f"${reported['CostSoFar']:.4f}" + ("" if status in _ENDS else " so far"))
        if reported.get("Instances"):
            words.append(f"{reported['Instances']} instance{'s'[: reported['Instances'] > 1]}")
        if reported.get("Waiting"):
            words.append(f"waits ({reported.get('WaitingMessage') or reported['Waiting']})")
        share = min(1.0, done / total) if total else None
        return cls(status, share, ", ".join(words))


def follow_to_end(client: SageMaker, job: str, *, json_: bool) -> NoReturn:
    """What a command that follows a job does last: prints how it ended, and exits with its code."""
    described = follow(client, job)
    if json_:
        print_json(described)
    raise typer.Exit(outcome(job, described))


def follow(client: SageMaker, job: str) -> dict[str, Any]:
    """The job's description once it has ended.

    Raises typer.Exit (130) where the job is left running, and NotNowError when its server is away
    for long.
    """
    asking = False
    while True:
        try:
            with _shown(job) as show:
                return _to_end(client, job, show)
        except KeyboardInterrupt:
            if asking or not _stop_wanted(job):
                note(
                    f"job {job} goes on; 'penstock jobs follow {job}' or 'penstock jobs stop {job}'"
                )
                raise typer.Exit(LEFT_EXIT) from None
            asking = True
            with suppress(CallerError):  # the job has ended meanwhile
                client.sagemaker("StopTransformJob", TransformJobName=job)


def outcome(job: str, described: dict[str, Any]) -> int:
    """Prints the result; returns the exit code. Raises ModelError for a failed job."""
    status, words = described["TransformJobStatus"], Progress.of(described).words
    if status == "Failed":
        raise ModelError(
            "transform-failed",
            f"job {job} failed: {described.get('FailureReason', 'no reason is told')}",
            hint="Objects that were processed whole keep their output; KEY.errors says which"
            " records were refused.",
        )
    where = described.get("TransformOutput", {}).get("S3OutputPath", "")
    note(f"job {job} {status.lower()}: {words}; output in {where}")
    return STOPPED_EXIT if status == "Stopped" else 0


def _average(described: dict[str, Any], reported: dict[str, Any]) -> float | None:
    """Records per second of a job that has ended, its start included."""
    began, ended = described.get("TransformStartTime"), described.get("TransformEndTime")
    if began is None or ended is None or ended <= began:
        return None
    return float((reported.get("Records") or 0) / (ended - began))


def duration(seconds: float) -> str:
    """A duration such as "2 h 5 min" or "8 s"."""
    whole = max(0, round(seconds))
    parts: list[str] = []
    for unit, size in _UNITS:
        count, whole = divmod(whole, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def _to_end(client: SageMaker, job: str, show: Callable[[Progress], None]) -> dict[str, Any]:
    heard = time.monotonic()
    while True:
        try:
            described = client.sagemaker("DescribeTransformJob", TransformJobName=job)
            heard = time.monotonic()
            progress = Progress.of(described)
            show(progress)
            if progress.status in _ENDS:
                return described
        except NotNowError:
            if time.monotonic() >= heard + AWAY_S_MAX:
                raise
        time.sleep(LOOK_EVERY_S)


def _stop_wanted(job: str) -> bool:
    """Asks whether to stop the job; False without a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    try:
        return typer.confirm(f"Stop job {job}? Otherwise it goes on by itself.", err=True)
    except (typer.Abort, KeyboardInterrupt):
        return False


@contextmanager
def _shown(job: str) -> Iterator[Callable[[Progress], None]]:
    if sys.stderr.isatty():
        with _bar(job) as show:
            yield show
    else:
        yield _Lines(job)


@contextmanager
def _bar(job: str) -> Iterator[Callable[[Progress], None]]:
    from rich.console import Console  # noqa: PLC0415 - 80 ms that other commands never pay
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn  # noqa: PLC0415
    from rich.progress import Progress as Bars  # noqa: PLC0415

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TextColumn("{task.fields[words]}", markup=False),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        note(f"job {job}")
        task = bars.add_task("", total=None, words="")

        def show(progress: Progress) -> None:
            bars.update(
                task,
                description=progress.status,
                total=None if progress.share is None else 1.0,
                completed=progress.share or 0.0,
                words=progress.words,
            )

        yield show


class _Lines:
    """Prints a line at each change of status, and every ten seconds."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._status = ""
        self._printed_at = 0.0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if progress.status == self._status and now < self._printed_at + LINE_EVERY_S:
            return
        self._status, self._printed_at = progress.status, now
        share = "" if progress.share is None else f" {progress.share:.0%},"
        note(f"{self._job}: {progress.status},{share} {progress.words}")


GOING: Final = ("InProgress", "Stopping")
STATUS_COLUMNS: Final = (
    "job", "status", "records", "refused", "records/s", "left", "$", "instance", "state", "GiB",
    "pid",
)  # fmt: skip
COST_COLUMNS: Final = (
    "job", "status", "instance type", "instance hours", "$", "records", "$ / 1000 records",
)  # fmt: skip
_GIB: Final = 2**30

Row = Mapping[str, Any]  #: a row of GET /admin/jobs


def going(jobs: Iterable[Row]) -> list[Row]:
    """The jobs that have not ended."""
    return [job for job in jobs if job["status"] in GOING]


def status_rows(job: Row) -> list[list[object]]:
    """A row for each instance; a job without instances has one, which says what it waits for."""
    reported = job["progress"]
    speed, left_s = reported["RecordsPerSecond"], reported["EtaSeconds"]
    waits = f"waits: {reported['Waiting']}" if reported.get("Waiting") else None
    own = [
        job["job"],
        job["status"],
        reported["Records"],
        reported["RefusedRecords"],
        None if speed is None else f"{speed:.0f}",
        None if left_s is None else duration(left_s),
        figure(reported["CostSoFar"]),
    ]
    instances = job["instances"] or [{"state": waits}]
    return [
        [*(own if not at else [None] * len(own)), one.get("instance"), one["state"],
         _gib(one.get("memory_bytes")), one.get("pid")]
        for at, one in enumerate(instances)
    ]  # fmt: skip


def costs(jobs: Iterable[Row]) -> list[dict[str, Any]]:
    """The cost of each job that has had an instance, for programs; money in US dollars."""
    return [
        {
            "job": job["job"],
            "status": job["status"],
            "instance_type": job["instance_type"],
            "instance_hours": reported["InstanceSeconds"] / 3600,
            "dollars": reported["CostSoFar"],
            "records": reported["Records"],
            "dollars_per_record": reported["CostSoFar"] / reported["Records"]
            if reported["Records"]
            else None,
        }
        for job in jobs
        if (reported := job["progress"])["InstanceSeconds"]
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
