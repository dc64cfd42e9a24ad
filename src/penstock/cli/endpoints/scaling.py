"""`penstock scaling explain ENDPOINT`: why an endpoint has the capacity it has."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from urllib.parse import quote

import typer

from penstock.cli import options
from penstock.cli.client import Client
from penstock.cli.output import note, print_json, print_table, seconds
from penstock.errors import CallerError

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _root() -> None:
    pass


@app.command("explain")
def explain(
    endpoint: Annotated[str, typer.Argument(help="Name of an endpoint.")],
    at: Annotated[
        str, typer.Option("--at", help="Up to this time: ISO 8601, or seconds since the epoch.")
    ] = "",
    url: options.Url = "",
    key: options.Key = "",
    json_: options.Json = False,
) -> None:
    """Explain its scaling as a timeline: observed load, proposals, decision and reason."""
    query = f"?at={moment(at)}" if at else ""
    story = Client(url, key=key).admin(f"/endpoints/{quote(endpoint, safe='')}/scaling{query}")
    if json_:
        print_json(story)
        return
    if not story["targets"]:
        note(f"{endpoint} has no scalable target: RegisterScalableTarget makes one")
    for target in story["targets"]:
        bounds = f"{target['capacity_min']} to {target['capacity_max']}"
        print_table(
            f"{target['resource_id']}: {target['capacity']} ({bounds}), {target['ready']} ready,"
            f" {target['in_flight']} in flight",
            ("when", "seen", "wishes", "decision", "reason", "trigger", "activity"),
            [_row(one) for one in target["timeline"]],
        )
        for fault in (target["fault"], *(one["fault"] for one in target["policies"])):
            if fault:
                note(f"{target['resource_id']} is not scaled as it should be: {fault}")
        print()


def moment(text: str) -> float:
    """Wall seconds of a time. Raises CallerError `at-invalid`."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).timestamp()  # without a zone: in this machine's
    except (ValueError, OverflowError) as error:
        raise CallerError(
            "at-invalid",
            f"--at {text!r} is not a time",
            hint="Write 2026-03-02T10:00:00, with +00:00 for UTC, or seconds since the epoch.",
        ) from error


def _row(one: dict[str, Any]) -> list[object]:
    seen = one["observed"] or {}
    wishes = [f"{wish['policy']} {_wish(wish)}" for wish in one["wishes"]]
    was, to = one["was"], one["to"]
    activity = one["activity"] or {}
    return [
        seconds(one["at"]),
        f"{seen['ready']} of {seen['capacity']} ready, {seen['in_flight']} in flight"
        if seen
        else None,
        ", ".join(wishes),
        None if to is None else f"{was} -> {to}" if was != to else f"stays {to}",
        one["reason"],
        one["trigger"],
        activity.get("status"),
    ]


def _wish(wish: dict[str, Any]) -> str:
    return wish["reason"] if wish["capacity"] is None else str(wish["capacity"])
