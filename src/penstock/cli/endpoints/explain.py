"""`penstock explain request ID`: why this copy, why this batch, where the time went.
`penstock explain model ENDPOINT MODEL`: why a target model is loaded or not, host by host.
`penstock scaling explain ENDPOINT`: why an endpoint has the capacity it has."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from urllib.parse import quote

import typer
from typer.core import TyperGroup

from penstock.cli import options
from penstock.cli.output import note, print_found, print_json, print_table, seconds
from penstock.errors import CallerError


class _RequestsFirst(TyperGroup):
    """Any word that is no subcommand is a request id: `penstock explain ID`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help"):
            args = ["request", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=_RequestsFirst, no_args_is_help=True)


@options.command(app, "request")
def request(
    request: Annotated[str, typer.Argument(help="The request id (x-amzn-RequestId).")],
    server: options.ReportOptions = options.REPORT,
) -> None:
    """Explain one of the last requests: routing, batch, times. Also: penstock explain ID."""
    story = server.client().admin(f"/requests/{quote(request, safe='')}")
    title = f"request {request}"
    print_found(story, title, ("what", "value"), _flat(story), json_=server.json_)


@options.command(app, "model")
def model(
    endpoint: Annotated[
        str,
        typer.Argument(
            help="Name of a multi-model endpoint.", autocompletion=options.endpoint_names
        ),
    ],
    model: Annotated[str, typer.Argument(help="The target model.")],
    server: options.ReportOptions = options.REPORT,
) -> None:
    """Explain a target model: why it is loaded or not, when that came about, what it cost."""
    path = f"/endpoints/{quote(endpoint, safe='')}/models/{quote(model, safe='')}"
    story = server.client().admin(path)
    if server.json_:
        print_json(story)
        return
    rows = [(f"artifact {one['uri']}", one["state"]) for one in story["artifacts"]]
    print_table(f"{model} of {endpoint}", ("what", "value"), rows)
    for host in story["hosts"]:
        print()
        told = dict(host.get("residency") or {})
        events = told.pop("story", None) or []
        facts = {name: host[name] for name in ("hits", "misses", "waiting") if name in host}
        error = (host.get("error") or {}).get("message")
        rows = _flat(facts | ({"error": error} if error else {}) | told)
        print_table(f"on instance {host['instance']}", ("what", "value"), rows)
        if events:
            print()
            columns = ("s ago", "what", "why", "for", "took s", "message")
            print_table("what happened", columns, [_event(one) for one in events])


def _event(event: dict[str, Any]) -> list[object]:
    cost_s = event.get("cost_s")
    return [
        f"{event.get('ago_s', 0.0):.1f}",
        event.get("what"),
        event.get("why"),
        event.get("made_room_for"),
        None if cost_s is None else f"{cost_s:.3f}",
        event.get("message"),
    ]


def _flat(story: dict[str, Any], prefix: str = "") -> list[tuple[str, object]]:
    """Nested members as rows: `batch.rows`, `route.reason`."""
    rows: list[tuple[str, object]] = []
    for name, value in story.items():
        if isinstance(value, dict):
            rows += _flat(value, f"{prefix}{name}.")
        else:
            is_time = (name == "at" or name.endswith("_at")) and isinstance(value, float | int)
            rows.append((f"{prefix}{name}", seconds(value) if is_time else value))
    return rows


#: A group, of one command.
scaling_app = typer.Typer(callback=lambda: None, no_args_is_help=True, rich_markup_mode=None)


@options.command(scaling_app, "explain")
def scaling(
    endpoint: Annotated[
        str, typer.Argument(help="Name of an endpoint.", autocompletion=options.endpoint_names)
    ],
    at: Annotated[
        str, typer.Option("--at", help="Up to this time: ISO 8601, or seconds since the epoch.")
    ] = "",
    server: options.ReportOptions = options.REPORT,
) -> None:
    """Explain its scaling as a timeline: observed load, proposals, decision and reason."""
    query = f"?at={moment(at)}" if at else ""
    story = server.client().admin(f"/endpoints/{quote(endpoint, safe='')}/scaling{query}")
    if server.json_:
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
