"""`penstock explain REQUEST`: why this copy, why this batch, where the time went."""

from __future__ import annotations

from typing import Annotated, Any
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
        print_table(f"request {request}", ("what", "value"), _flat(story))


def _flat(story: dict[str, Any], prefix: str = "") -> list[tuple[str, object]]:
    """Nested parts as rows of their own: `batch.rows`, `route.reason`."""
    rows: list[tuple[str, object]] = []
    for name, value in story.items():
        if isinstance(value, dict):
            rows += _flat(value, f"{prefix}{name}.")
        else:
            rows.append((f"{prefix}{name}", value))
    return rows
