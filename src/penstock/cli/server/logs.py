"""`penstock logs`: the output of an endpoint's or a transform job's instances and models."""

from __future__ import annotations

import json
import sys
import time
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

from penstock.cli import options
from penstock.cli.client import Client
from penstock.cli.output import note, print_json
from penstock.errors import CallerError, NotNowError, PenstockError

_NOT_FOUND: Final = "not-found"
_LOOK_EVERY_S: Final = 0.5
_TIME_CHARS: Final = 23


def logs(
    name: Annotated[
        str,
        typer.Argument(
            help="Name of the endpoint, or of a transform job.",
            autocompletion=options.endpoint_names,
        ),
    ],
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, max=10_000)] = 100,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print what is written from now on, too.")
    ] = False,
    job: Annotated[bool, typer.Option("--job", help="The job, where both have the name.")] = False,
    server: options.ReportOptions = options.REPORT,
) -> None:
    """Print the last lines of an endpoint's or a transform job's logs, oldest first."""
    client = server.client()
    found = _found(client, name, f"lines={lines}", job=job)
    if server.json_ and not follow:
        print_json(found)
        return
    what = "job" if "job" in found else "endpoint"
    if not any(log["lines"] for log in found["logs"]):
        note(f"{what} {name} has written nothing yet")
    _print(by_time(found["logs"])[-lines:], json_=server.json_)
    away = False
    while follow:
        time.sleep(_LOOK_EVERY_S)
        try:
            found = _found(client, name, f"since={found['next']}", job=what == "job")
            away = False
        except NotNowError as error:  # a server that restarts goes on writing the same logs
            if not away:
                note(f"{error.message}; waiting for it")
            away = True
            continue
        _print(by_time(found["logs"]), json_=server.json_)


def _print(lines: list[tuple[str, str]], *, json_: bool) -> None:
    for log, line in lines:
        print(json.dumps({"log": log, "line": line}) if json_ else f"{log} | {line}")
    sys.stdout.flush()


def by_time(logs: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """(log, line) of several logs in the order of their times.

    A line without a time, such as one of the model's own, follows the line that it stands behind.
    """
    timed: list[tuple[str, str, str]] = []
    for log in logs:
        at = ""
        for line in log["lines"]:
            if _has_time(line):
                at = line[:_TIME_CHARS]
            timed.append((at, log["log"], line))
    timed.sort(key=lambda one: one[0])  # stable: a log's own order stays
    return [(log, line) for _, log, line in timed]


def _has_time(line: str) -> bool:
    """Whether it begins like 2026-03-02 10:00:00,123."""
    return line[:4].isdigit() and line[4:5] == line[7:8] == "-" and line[19:20] == ","


def _found(client: Client, name: str, query: str, *, job: bool) -> dict[str, Any]:
    """The logs of the endpoint; those of the job with `job`, or if there is no such endpoint."""
    path = f"{quote(name, safe='')}/logs?{query}"
    if job:
        return client.admin(f"/jobs/{path}")
    try:
        return client.admin(f"/endpoints/{path}")
    except PenstockError as error:
        if error.code != _NOT_FOUND:
            raise
    try:
        return client.admin(f"/jobs/{path}")
    except PenstockError as error:
        if error.code != _NOT_FOUND:
            raise
        raise CallerError(
            _NOT_FOUND,
            f"there is no endpoint and no transform job named {name[:63]!r}",
            hint="penstock status names endpoints, penstock jobs list names jobs.",
            status=404,
        ) from None
