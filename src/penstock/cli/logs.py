"""`penstock logs`: what an endpoint's instances and models wrote."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from penstock.cli import options
from penstock.cli.client import Client
from penstock.cli.output import note, print_json


def logs(
    name: Annotated[str, typer.Argument(help="Name of the endpoint.")],
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, max=10_000)] = 100,
    url: options.Url = "",
    key: options.Key = "",
    json_: options.Json = False,
) -> None:
    """Print the last lines of an endpoint's logs, oldest first."""
    found = Client(url, key=key).admin(f"/endpoints/{quote(name, safe='')}/logs?lines={lines}")
    if json_:
        print_json(found)
        return
    if not any(log["lines"] for log in found["logs"]):
        note(f"endpoint {name} has written nothing yet")
    for log in found["logs"]:
        for line in log["lines"]:
            print(f"{log['log']} | {line}")
