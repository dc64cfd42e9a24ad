"""`penstock logs`: the output of an endpoint's or a transform job's instances and models."""

from __future__ import annotations

from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

from penstock.cli import options
from penstock.cli.client import Client
from penstock.cli.output import note, print_json
from penstock.errors import CallerError, PenstockError

_NOT_FOUND: Final = "not-found"


def logs(
    name: Annotated[str, typer.Argument(help="Name of the endpoint, or of a transform job.")],
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, max=10_000)] = 100,
    job: Annotated[bool, typer.Option("--job", help="The job, where both have the name.")] = False,
    server: options.ReportOptions = options.REPORT,
) -> None:
    """Print the last lines of an endpoint's or a transform job's logs, oldest first."""
    found = _found(server.client(), name, lines, job=job)
    if server.json_:
        print_json(found)
        return
    if not any(log["lines"] for log in found["logs"]):
        what = "job" if "job" in found else "endpoint"
        note(f"{what} {name} has written nothing yet")
    for log in found["logs"]:
        for line in log["lines"]:
            print(f"{log['log']} | {line}")


def _found(client: Client, name: str, lines: int, *, job: bool) -> dict[str, Any]:
    """The logs of the endpoint; those of the job with `job`, or if there is no such endpoint."""
    path = f"{quote(name, safe='')}/logs?lines={lines}"
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
