"""`penstock rollout`: how a new generation of an endpoint takes over, and orders to it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from urllib.parse import quote

import typer

from penstock.cli import options
from penstock.cli.output import note, print_json, print_table

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Endpoint = Annotated[
    str, typer.Argument(help="Name of the endpoint.", autocompletion=options.endpoint_names)
]


@options.command(app, "show")
def show(name: Endpoint, server: options.ReportOptions = options.REPORT) -> None:
    """Show how far a rollout is, and what comparisons of answers say."""
    story = server.client().admin(_path(name))
    if server.json_:
        print_json(story)
        return
    print_table(f"rollout of {name}", ("what", "value"), _rows(story))
    agreement = story["agreement"]
    if agreement is not None:
        print()
        print_table(
            "tests", ("test", "share", "of", "bound", "sure it is", "sure"), _tests(agreement)
        )


@options.command(app, "explain")
def explain(name: Endpoint, server: options.ReportOptions = options.REPORT) -> None:
    """Explain a rollout: each step with its time, its reason and its numbers."""
    story = server.client().admin(_path(name))
    if server.json_:
        print_json(story["timeline"])
        return
    rows = [
        (f"{datetime.fromtimestamp(one['at']):%H:%M:%S}", one["what"], one["reason"], one["detail"])
        for one in story["timeline"]
    ]
    print_table(f"rollouts of {name}", ("time", "what", "reason", "detail"), rows)
    if story["agreement"] is not None:
        print(f"\nanswers: {story['agreement']['verdict']}: {story['agreement']['why']}")


@options.command(app, "pause")
def pause(name: Endpoint, server: options.ServerOptions = options.SERVER) -> None:
    """Take no further step until it is resumed. Alarms and comparisons may still send it back."""
    _order(name, "pause", server)


@options.command(app, "resume")
def resume(name: Endpoint, server: options.ServerOptions = options.SERVER) -> None:
    """Go on as the policy says."""
    _order(name, "resume", server)


@options.command(app, "promote")
def promote(name: Endpoint, server: options.ServerOptions = options.SERVER) -> None:
    """Give the new generation everything, without further waits."""
    _order(name, "promote", server)


@options.command(app, "abort")
def abort(name: Endpoint, server: options.ServerOptions = options.SERVER) -> None:
    """Go back to the old generation."""
    _order(name, "abort", server)


def _order(name: str, order: str, server: options.ServerOptions) -> None:
    story = server.client().admin(f"{_path(name)}/{order}", method="POST")
    new = story["new"]
    note(f"rollout of {name} to {new['config'] if new else '?'}: {order} is ordered")


def _path(name: str) -> str:
    return f"/endpoints/{quote(name, safe='')}/rollout"


def _rows(story: dict[str, Any]) -> list[tuple[str, object]]:
    progress, policy, agreement = story["progress"], story["policy"], story["agreement"]
    rows: list[tuple[str, object]] = [("status", story["status"])]
    for which in ("old", "new"):
        if one := story[which]:
            rows.append((which, f"{one['config']} (generation {one['generation']})"))
    if policy is not None:
        steps = ", ".join(f"{share:.0%}" for share in policy["shares"])
        rows.append(("policy", f"{policy['kind']}: {steps}; each bakes {policy['wait_s']:g} s"))
    if progress is not None:
        rows.append(("stage", f"{progress['stage']}, {progress['share']:.0%} of the traffic"))
        if progress["order"]:
            rows.append(("ordered", progress["order"]))
    elif not story["under_way"]:
        rows.append(("stage", "no rollout is under way"))
    if agreement is not None:
        pairs = ", ".join(
            f"{count} {name.replace('_', ' ')}"
            for name, count in agreement["pairs"].items()
            if count and name != "scorer_error"
        )
        rows += [("pairs", pairs or "none yet"), (agreement["verdict"], agreement["why"])]
    if story["failure_reason"]:
        rows.append(("reason", story["failure_reason"]))
    return rows


def _tests(agreement: dict[str, Any]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for one in agreement["tests"]:
        above = one["sure_above"] > one["sure_below"]
        sure = max(one["sure_above"], one["sure_below"])
        share = "" if one["share"] is None else f"{one['share']:.2%}"
        side = "above" if above else "below"
        row = (one["test"], share, one["trials"], f"{one['bound']:.2%}", side, f"{sure:.2%}")
        rows.append(row)
    return rows
