"""`penstock schedule`: transform jobs that start at due times, over the admin API."""

from __future__ import annotations

import json
import time
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import quote
from zoneinfo import ZoneInfo

import typer

from penstock.cli import options
from penstock.cli.client import Client, if_there
from penstock.cli.endpoints.explain import moment
from penstock.cli.jobs.transform_job import JobOptions, job_of
from penstock.cli.output import note, print_found, print_json, print_table
from penstock.cli.transform_follow import LOOK_EVERY_S, follow_to_end
from penstock.errors import CallerError, ModelError, NotNowError

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

#: s. A job usually exists within a second; a server without room for it tries longer.
_BEGIN_S_MAX: Final = 30.0
#: Runs to search for the new one, since others may have been due meanwhile.
_RUNS_LOOKED_AT: Final = 50

Name = Annotated[str, typer.Argument(help="Name of a schedule.")]


@options.command(app, "create")
def create(
    name: Annotated[str, typer.Argument(help="Name of the schedule; its jobs begin with it.")],
    model: Annotated[str, typer.Argument(help="As of 'penstock transform'.")] = "",
    input_: Annotated[
        str, typer.Argument(metavar="input", help="What to read; {date} and others stand in.")
    ] = "",
    output: Annotated[str, typer.Argument(help="Where to write; {date} and others stand in.")] = "",
    *,
    cron: Annotated[
        str, typer.Option("--cron", help="Minute, hour, day, month, weekday, year: '0 3 * * ? *'.")
    ] = "",
    rate: Annotated[str, typer.Option("--rate", help="From now on, like '6 hours'.")] = "",
    at: Annotated[str, typer.Option("--at", help="Once: yyyy-mm-ddThh:mm:ss.")] = "",
    time_zone: Annotated[
        str, typer.Option("--time-zone", help="Of --cron, --at and {date}: Europe/Berlin [UTC].")
    ] = "UTC",
    missed: Annotated[
        str, typer.Option("--missed", help="Of runs that were missed: skip, run-once or run-all.")
    ] = "run-once",
    overlap: Annotated[
        bool, typer.Option("--overlap", help="A run may begin while another has not ended.")
    ] = False,
    starts: Annotated[str, typer.Option("--starts", help="Nothing is due before: ISO 8601.")] = "",
    ends: Annotated[str, typer.Option("--ends", help="Nothing is due after: ISO 8601.")] = "",
    paused: Annotated[bool, typer.Option("--paused", help="Until it is resumed.")] = False,
    job: Annotated[
        Path | None,
        typer.Option("--job", help="JSON file with CreateTransformJob's members, for the flags."),
    ] = None,
    job_options: JobOptions,
    server: options.ReportOptions = options.REPORT,
) -> None:
    """Have a transform job begin whenever it is due.

    In INPUT and OUTPUT stand {schedule}, {due} (UTC), {date}, {year}, {month}, {day}, {hour} and
    {minute}.
    """
    expression = _expression(cron, rate, at)
    client = server.client()
    if job is not None:
        members = _job_file(job)
    else:
        if not (model and input_ and output):
            raise CallerError(
                "usage", "MODEL, INPUT and OUTPUT are missing", hint="Or give --job FILE."
            )
        members, _ = job_of(client, job_options, model, input_, output, placeholders=True)
    body = {
        "expression": expression,
        "time_zone": time_zone,
        "missed": missed,
        "overlap": overlap,
        "paused": paused,
        "starts": moment(starts) if starts else None,
        "ends": moment(ends) if ends else None,
        "job": members,
    }
    made = client.admin(_path(name), method="POST", body=json.dumps(body).encode())
    if server.json_:
        print_json(made)
    else:
        note(f"schedule {name}: {_due(made)}")


@options.command(app, "list")
def list_(server: options.ReportOptions = options.REPORT) -> None:
    """List schedules."""
    found = server.client().admin("/schedules")["schedules"]
    rows = [
        (one["name"], one["expression"], one["time_zone"], one["missed"], _due(one))
        for one in found
    ]
    columns = ("schedule", "expression", "time zone", "missed", "next")
    print_found(found, "", columns, rows, json_=server.json_)


@options.command(app, "show")
def show(
    name: Name,
    runs: Annotated[int, typer.Option("--runs", min=1, max=200, help="The latest.")] = 10,
    server: options.ReportOptions = options.REPORT,
) -> None:
    """Show a schedule and what became of its latest due times."""
    found = server.client().admin(f"{_path(name)}?runs={runs}")
    if server.json_:
        print_json(found)
        return
    overlap = "runs may overlap" if found["overlap"] else "no overlap"
    print(f"{found['name']}: {found['expression']} ({found['time_zone']}), {_due(found)}")
    print(f"missed runs: {found['missed']}; {overlap}; model {found['job'].get('ModelName')}")
    rows = [_row(run, found["time_zone"]) for run in found["runs"]]
    print_table("", ("due", "job", "state", "reason", "message"), rows)


@options.command(app, "pause")
def pause(name: Name, server: options.ServerOptions = options.SERVER) -> None:
    """Pause a schedule: no run is due until it is resumed, and missed runs are not made up for."""
    server.client().admin(f"{_path(name)}/pause", method="POST")
    note(f"schedule {name} is paused")


@options.command(app, "resume")
def resume(name: Name, server: options.ServerOptions = options.SERVER) -> None:
    """Resume a schedule: runs are due again from now on."""
    client = server.client()
    client.admin(f"{_path(name)}/resume", method="POST")
    note(f"schedule {name}: {_due(client.admin(_path(name)))}")


@options.command(app, "run-now")
def run_now(
    name: Name,
    wait: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Follow its job to its end.")
    ] = True,
    server: options.ReportOptions = options.REPORT,
) -> None:
    """Begin a run beside the timetable, and follow its job to its end.

    The exit code is that of 'penstock transform': 0 when it has completed, 1 when it failed or
    could not begin, 3 when it was stopped, and 130 when it was left running.
    """
    client = server.client()
    asked = client.admin(f"{_path(name)}/run-now", method="POST")
    job, run = asked["job"], _begun(client, name, asked)
    if not wait:
        if server.json_:
            print_json(run)
        note(f"job {job} has begun; 'penstock jobs follow {job}' shows how it goes on")
        return
    follow_to_end(client, job, json_=server.json_)


@options.command(app, "delete")
def delete(name: Name, server: options.ServerOptions = options.SERVER) -> None:
    """Delete a schedule; a job that runs goes on."""
    server.client().admin(_path(name), method="DELETE")
    note(f"schedule {name} is deleted")


def _begun(client: Client, name: str, asked: dict[str, Any]) -> dict[str, Any]:
    """The run, once its job exists. Raises ModelError `run-failed` where it could not start, and
    NotNowError `run-not-begun` where the server is still trying."""
    run, deadline = asked, time.monotonic() + _BEGIN_S_MAX
    while run["state"] == "starting":
        if time.monotonic() >= deadline:
            raise NotNowError(
                "run-not-begun",
                f"run {run['job']} of {name} has not begun yet: {run['message'] or 'it waits'}",
                hint=f"The server goes on trying; see 'penstock schedule show {name}'.",
            )
        time.sleep(LOOK_EVERY_S)
        runs = client.admin(f"{_path(name)}?runs={_RUNS_LOOKED_AT}")["runs"]
        run = next((one for one in runs if one["job"] == run["job"]), run)
    job = run["job"]
    if run["state"] == "failed" and not if_there(
        client, "DescribeTransformJob", TransformJobName=job
    ):
        raise ModelError(
            "run-failed",
            f"run {job} of {name} failed: {run['message'] or run['reason']}",
            hint=f"Its job could not begin; see 'penstock schedule show {name}'.",
        )
    return run


def _path(name: str) -> str:
    return f"/schedules/{quote(name, safe='')}"


def _expression(cron: str, rate: str, at: str) -> str:
    given = [(kind, text) for kind, text in (("cron", cron), ("rate", rate), ("at", at)) if text]
    if len(given) != 1:
        raise CallerError(
            "usage", "say when it is due, in one way", hint="Give --cron, --rate or --at."
        )
    return "{}({})".format(*given[0])


def _job_file(path: Path) -> dict[str, Any]:
    try:
        members = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CallerError(
            "job-file", f"{path} can't be read: {error}", hint="It is an object of JSON."
        ) from error
    if not isinstance(members, dict):
        raise CallerError("job-file", f"{path} is no object of JSON")
    return members


def _due(found: dict[str, Any]) -> str:
    if found["fault"]:
        return f"can't run: {found['fault']}"
    if found["paused"]:
        return "paused"
    return (
        "never again" if found["due"] is None else f"next {_time(found['due'], found['time_zone'])}"
    )


def _row(run: dict[str, Any], zone: str) -> list[object]:
    due = _time(run["due"], zone)
    if run["last"] != run["due"]:
        due = f"{due} to {_time(run['last'], zone)}"
    return [due, run["job"], run["state"], run["reason"], run["message"]]


def _time(moment_: float, zone: str) -> str:
    """A time in the schedule's zone, if this machine knows the zone."""
    try:
        known: ZoneInfo | None = ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        known = None
    return datetime.fromtimestamp(moment_, known).isoformat(sep=" ", timespec="seconds")
