"""`penstock traffic`: shows and changes how an orchestrator shares traffic among regions."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote

import typer

from penstock.cli import options
from penstock.cli.client import Client, answer_of
from penstock.cli.output import print_json, print_table
from penstock.errors import CallerError

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Endpoint = Annotated[
    str, typer.Option("--endpoint", help="Of this endpoint [all that have no shares of their own].")
]


@options.command(app, "show")
def show(
    endpoint: Annotated[
        str, typer.Argument(help="Of this endpoint only.", autocompletion=options.endpoint_names)
    ] = "",
    changes: Annotated[bool, typer.Option("--changes", help="Each move, and why.")] = False,
    server: options.ReportOptions = options.REPORT,
) -> None:
    """Show the regions, and which share of the traffic each is to have."""
    client = server.client()
    regions = _own(client, "GET", "/regions")["regions"]
    query = f"?endpoint={quote(endpoint, safe='')}" if endpoint else ""
    traffic = _own(client, "GET", f"/ratios{query}")["traffic"]
    if server.json_:
        print_json({"regions": regions, "traffic": traffic})
        return
    if changes:
        _print_changes(traffic)
        return
    print_table(
        "",
        ("region", "address", "state", "health", "way ms", "why"),
        [
            (one["region"], one["url"], one["state"], one["health"], one["way_ms"], one["detail"])
            for one in regions
        ],
    )
    print()
    _print_traffic(traffic)


@options.command(app, "set")
def set_(
    ratios: Annotated[list[str], typer.Argument(help="REGION=SHARE, for example eu=0.7 us=0.3.")],
    endpoint: Endpoint = "",
    server: options.ReportOptions = options.REPORT,
) -> None:
    """Set shares by hand; they stay until they are set anew or given back with 'auto'.

    They sum to 1, and are all that there are: a region that is not named gets nothing.
    """
    shares: dict[str, float] = {}
    for name, share in map(_ratio, ratios):
        if name in shares:
            raise CallerError(
                "traffic-invalid", f"{name} is named twice", hint="Give each region one share."
            )
        shares[name] = share
    _change(endpoint, shares, "manual", server)


@options.command(app, "auto")
def auto(
    endpoint: Endpoint = "",
    server: options.ReportOptions = options.REPORT,
) -> None:
    """Let shares move by themselves, by latency, queues, capacity, errors and cost."""
    _change(endpoint, {}, "automatic", server)


def _change(
    endpoint: str, ratios: dict[str, float], mode: str, server: options.ReportOptions
) -> None:
    body = {"endpoint": endpoint, "ratios": ratios, "mode": mode}
    told = _own(server.client(), "PUT", "/ratios", json.dumps(body).encode())
    if server.json_:
        print_json(told)
    else:
        _print_traffic([told])


def _ratio(item: str) -> tuple[str, float]:
    name, equals, share = item.partition("=")
    try:
        value = float(share)
    except ValueError:
        value = -1.0
    if not equals or not name or not 0 <= value < 1e6:
        raise CallerError(
            "traffic-invalid", f"{item!r} is no share of a region", hint="Write it like eu=0.7."
        )
    return name, value


def _own(client: Client, method: str, path: str, body: bytes = b"") -> dict[str, Any]:
    headers = {"Content-Type": "application/json"} if body else {}
    status, _, answered = client.request(method, f"/penstock/v1{path}", body, headers)
    return answer_of(status, answered)


def _print_traffic(traffic: list[dict[str, Any]]) -> None:
    print_table(
        "",
        ("endpoint", "mode", "region", "share", "room", "in flight", "health", "held"),
        [
            (
                one["endpoint"] or "(others)", one["mode"], region["region"], region["ratio"],
                region["room"], region["in_flight"],
                region["reason"] if region["has_it"] else "not there",
                one["held"],
            )
            for one in traffic
            for region in one["regions"]
        ],
    )  # fmt: skip


def _print_changes(traffic: list[dict[str, Any]]) -> None:
    rows = {
        (change["at"], change["endpoint"], change["region"]): change
        for one in traffic
        for change in one["changes"]
    }
    print_table(
        "",
        ("at", "endpoint", "region", "before", "after", "mode", "why"),
        [
            (
                datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds"),
                endpoint or "(others)", region, one["before"], one["after"], one["mode"],
                one["reason"],
            )
            for (at, endpoint, region), one in sorted(rows.items())
        ],
    )  # fmt: skip
