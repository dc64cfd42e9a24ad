"""`penstock explain request ID`: why this copy, why this batch, where the time went.
`penstock explain model ENDPOINT MODEL`: why a target model is loaded or not, host by host."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer
from typer.core import TyperGroup

from penstock.cli import options
from penstock.cli.client import Client
from penstock.cli.output import print_json, print_table


class _RequestsFirst(TyperGroup):
    """Any word that is no subcommand is a request id: `penstock explain ID`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help"):
            args = ["request", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=_RequestsFirst, no_args_is_help=True)


@app.command("request")
def request(
    request: Annotated[str, typer.Argument(help="The request id (x-amzn-RequestId).")],
    url: options.Url = "",
    key: options.Key = "",
    json_: options.Json = False,
) -> None:
    """Explain one of the last requests: routing, batch, times. Also: penstock explain ID."""
    story = Client(url, key=key).admin(f"/requests/{quote(request, safe='')}")
    if json_:
        print_json(story)
    else:
        print_table(f"request {request}", ("what", "value"), _flat(story))


@app.command("model")
def model(
    endpoint: Annotated[str, typer.Argument(help="Name of a multi-model endpoint.")],
    model: Annotated[str, typer.Argument(help="The target model.")],
    url: options.Url = "",
    key: options.Key = "",
    json_: options.Json = False,
) -> None:
    """Explain a target model: why it is loaded or not, when that came about, what it cost."""
    path = f"/endpoints/{quote(endpoint, safe='')}/models/{quote(model, safe='')}"
    story = Client(url, key=key).admin(path)
    if json_:
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
            rows.append((f"{prefix}{name}", value))
    return rows
