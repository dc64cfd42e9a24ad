"""`penstock explain REQUEST`: why this copy, why this batch, where the time went."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from penstock.cli import options
from penstock.cli.client import Client
from penstock.cli.output import print_json, print_table


def explain(
    request: Annotated[str, typer.Argument(help="The request id (x-amzn-RequestId).")],
    url: options.Url = "",
    key: options.Key = "",
    json_: options.Json = False,
) -> None:
    """Explain one of the last requests: routing, batch, times."""
    story = Client(url, key=key).admin(f"/requests/{quote(request, safe='')}")
    if json_:
        print_json(story)
    else:
        print_table(f"request {request}", ("what", "value"), story.items())
