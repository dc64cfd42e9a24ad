"""`penstock rollout`: how a new generation of an endpoint takes over, or a new specification of an
inference component, and orders to it."""

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
Component = Annotated[
    str,
    typer.Option(
        "--component", help="One of its inference components, whose update it is.", metavar="NAME"
    ),
]


@options.command(app, "show")
def show(
    name: Endpoint, component: Component = "", server: options.ReportOptions = options.REPORT
) -> None:
    """Show how far a rollout is, and what comparisons of answers say."""
    story = server.client().admin(_path(name, component))
    if server.json_:
        print_json(story)
        return
    print_table(f"rollout of {component or name}", ("what", "value"), _rows(story))
    agreement = story["agreement"]
    if agreement is not None:
        print()
        print_table(
            "tests", ("test", "share", "of", "bound", "sure it is", "sure"), _tests(agreement)
        )


@options.command(app, "explain")
def explain(
    name: Endpoint, component: Component = "", server: options.ReportOptions = options.REPORT
) -> None:
    """Explain a rollout: each step with its time, its reason and its numbers."""
    story = server.client().admin(_path(name, component))
    if server.json_:
        print_json(story["timeline"])
        return
    rows = [
        (f"{datetime.fromtimestamp(one['at']):%H:%M:%S}", one["what"], one["reason"], one["detail"])
        for one in story["timeline"]
    ]
    print_table(f"rollouts of {component or name}", ("time", "what", "reason", "detail"), rows)
    if story["agreement"] is not None:
        print(f"\nanswers: {story['agreement']['verdict']}: {story['agreement']['why']}")


@options.command(app, "pause")
def pause(
    name: Endpoint, component: Component = "", server: options.ServerOptions = options.SERVER
) -> None:
    """Take no further step until it is resumed. Alarms and comparisons may still send it back."""
    _order(name, component, "pause", server)


@options.command(app, "resume")
def resume(
    name: Endpoint, component: Component = "", server: options.ServerOptions = options.SERVER
) -> None:
    """Go on as the policy says."""
    _order(name, component, "resume", server)


@options.command(app, "promote")
def promote(
    name: Endpoint, component: Component = "", server: options.ServerOptions = options.SERVER
) -> None:
    """Give the new generation everything, without further waits."""
    _order(name, component, "promote", server)


@options.command(app, "abort")
def abort(
    name: Endpoint, component: Component = "", server: options.ServerOptions = options.SERVER
) -> None:
    """Go back to the old generation."""
    _order(name, component, "abort", server)


def _order(name: str, component: str, order: str, server: options.ServerOptions) -> None:
    story = server.client().admin(_path(name, component, f"/{order}"), method="POST")
    new = story["new"]
    to = _what(new) if new else "?"
    note(f"rollout of {component or name} to {to}: {order} is ordered")


def _path(name: str, component: str, order: str = "") -> str:
    query = f"?component={quote(component, safe='')}" if component else ""
    return f"/endpoints/{quote(name, safe='')}/rollout{order}{query}"


def _what(one: dict[str, Any]) -> str:
    """A generation, or a revision of a component."""
    return str(one["config"] if "config" in one else one["model"])


def _described(one: dict[str, Any]) -> str:
    if "config" in one:
        return f"{one['config']} (generation {one['generation']})"
    return f"{one['model']} (revision {one['revision']}, {one['copies_ready']} copies ready)"


def _rows(story: dict[str, Any]) -> list[tuple[str, object]]:
    progress, policy, agreement = story["progress"], story["policy"], story["agreement"]
    rows: list[tuple[str, object]] = [("status", story["status"])]
    for which in ("old", "new"):
        if one := story[which]:
            rows.append((which, _described(one)))
    if policy is not None and "batch" in policy:
        each = f"{policy['batch']} copies at a time, {policy['wait_s']:g} s after each"
        rows.append(("policy", f"{policy['kind']}: {each}"))
    elif policy is not None:
        steps = ", ".join(f"{share:.0%}" for share in policy["shares"])
        rows.append(("policy", f"{policy['kind']}: {steps}; each bakes {policy['wait_s']:g} s"))
    if progress is not None:
        part = f", {progress['share']:.0%} of the traffic" if "share" in progress else ""
        rows.append(("stage", f"{progress['stage']}{part}"))
        if progress["order"]:
            rows.append(("ordered", progress["order"]))
    elif not story["under_way"]:
        rows.append(("stage", "no rollout is under way"))
    if agreement is not None:
        pairs = ", ".join(
            f"{count} {name.replace('_', ' ')}"
            for name, count in agreement["pairs"].items()
            if count
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
