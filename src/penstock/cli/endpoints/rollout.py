"""`penstock rollout`: how a new generation of an endpoint takes over, a new specification of an
inference component, or another artifact of a target model, and orders to it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final
from urllib.parse import quote

import orjson
import typer

from penstock.cli import options
from penstock.cli.endpoints.models import CHANGE_S_MAX
from penstock.cli.output import note, print_json, print_table

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Endpoint = Annotated[
    str, typer.Argument(help="Name of the endpoint.", autocompletion=options.endpoint_names)
]
Model = Annotated[
    str, typer.Option("--model", help="Of this target model of a multi-model endpoint.")
]
Component = Annotated[
    str,
    typer.Option(
        "--component", help="One of its inference components, whose update it is.", metavar="NAME"
    ),
]
_CANARY, _LINEAR, _AT_ONCE = "CANARY", "LINEAR", "ALL_AT_ONCE"
_PERCENT: Final = 10


@options.command(app, "start")
def start(
    name: Endpoint,
    model: Annotated[str, typer.Option("--model", help="The target model that callers name.")],
    to: Annotated[
        str, typer.Option("--to", help="The artifact that is to answer, below the same prefix.")
    ],
    canary: Annotated[
        int | None,
        typer.Option(
            "--canary", min=1, max=50, metavar="PERCENT", help="A part first, then the rest [10]."
        ),
    ] = None,
    linear: Annotated[
        int | None,
        typer.Option("--linear", min=1, max=50, metavar="PERCENT", help="One part after another."),
    ] = None,
    all_at_once: Annotated[
        bool, typer.Option("--all-at-once", help="All requests at once.")
    ] = False,
    wait: Annotated[
        float, typer.Option("--wait", min=0.0, metavar="S", help="Seconds after each part [300].")
    ] = 300.0,
    give_up: Annotated[
        float, typer.Option("--give-up", min=0.0, metavar="S", help="Go back after so long.")
    ] = 0.0,
    agreement: Annotated[
        str, typer.Option("--agreement", help="Compare answers: 'scores tolerance=0.01'.")
    ] = "",
    alarm: Annotated[
        list[str] | None, typer.Option("--alarm", help="Go back when this one is in ALARM.")
    ] = None,
    server: options.ServerOptions = options.SERVER,
) -> None:
    """Give a target model another artifact, a part of its requests at a time.

    The artifact is loaded first: one that can't be changes nothing.
    """
    given = [canary is not None, linear is not None, all_at_once]
    if sum(given) > 1:
        raise typer.BadParameter("give one of --canary, --linear and --all-at-once")
    kind = _AT_ONCE if all_at_once else _LINEAR if linear is not None else _CANARY
    wanted = {
        "artifact": to,
        "kind": kind,
        "percent": linear or canary or _PERCENT,
        "wait_s": 0.0 if all_at_once else wait,
        "execution_s_max": give_up,
        "alarms": alarm or [],
        "agreement": agreement,
    }
    client = server.client(timeout_s=CHANGE_S_MAX)
    client.admin(_path(name, "", model), method="POST", body=orjson.dumps(wanted))
    note(f"rollout of {name}:{model} to {to}: begun")


@options.command(app, "show")
def show(
    name: Endpoint,
    component: Component = "",
    model: Model = "",
    server: options.ReportOptions = options.REPORT,
) -> None:
    """Show how far a rollout is, and what comparisons of answers say."""
    story = server.client().admin(_path(name, component, model))
    if server.json_:
        print_json(story)
        return
    print_table(f"rollout of {_whose(name, component, model)}", ("what", "value"), _rows(story))
    agreement = story["agreement"]
    if agreement is not None:
        print()
        print_table(
            "tests", ("test", "share", "of", "bound", "sure it is", "sure"), _tests(agreement)
        )


@options.command(app, "explain")
def explain(
    name: Endpoint,
    component: Component = "",
    model: Model = "",
    server: options.ReportOptions = options.REPORT,
) -> None:
    """Explain a rollout: each step with its time, its reason and its numbers."""
    story = server.client().admin(_path(name, component, model))
    if server.json_:
        print_json(story["timeline"])
        return
    rows = [
        (f"{datetime.fromtimestamp(one['at']):%H:%M:%S}", one["what"], one["reason"], one["detail"])
        for one in story["timeline"]
    ]
    whose = _whose(name, component, model)
    print_table(f"rollouts of {whose}", ("time", "what", "reason", "detail"), rows)
    if story["agreement"] is not None:
        print(f"\nanswers: {story['agreement']['verdict']}: {story['agreement']['why']}")


@options.command(app, "pause")
def pause(
    name: Endpoint,
    component: Component = "",
    model: Model = "",
    server: options.ServerOptions = options.SERVER,
) -> None:
    """Take no further step until it is resumed. Alarms and comparisons may still send it back."""
    _order(name, component, model, "pause", server)


@options.command(app, "resume")
def resume(
    name: Endpoint,
    component: Component = "",
    model: Model = "",
    server: options.ServerOptions = options.SERVER,
) -> None:
    """Go on as the policy says."""
    _order(name, component, model, "resume", server)


@options.command(app, "promote")
def promote(
    name: Endpoint,
    component: Component = "",
    model: Model = "",
    server: options.ServerOptions = options.SERVER,
) -> None:
    """Give the new one everything, without further waits."""
    _order(name, component, model, "promote", server)


@options.command(app, "abort")
def abort(
    name: Endpoint,
    component: Component = "",
    model: Model = "",
    server: options.ServerOptions = options.SERVER,
) -> None:
    """Go back to the old one."""
    _order(name, component, model, "abort", server)


def _order(
    name: str, component: str, model: str, order: str, server: options.ServerOptions
) -> None:
    story = server.client().admin(_path(name, component, model, f"/{order}"), method="POST")
    new = story["new"]
    to = _what(new) if new else "?"
    note(f"rollout of {_whose(name, component, model)} to {to}: {order} is ordered")


def _path(name: str, component: str, model: str, order: str = "") -> str:
    if component and model:
        raise typer.BadParameter("give --component or --model, not both")
    query = f"?component={quote(component, safe='')}" if component else ""
    of_model = f"/models/{quote(model, safe='')}" if model else ""
    return f"/endpoints/{quote(name, safe='')}{of_model}/rollout{order}{query}"


def _whose(name: str, component: str, model: str) -> str:
    return component or (f"{name}:{model}" if model else name)


def _what(one: dict[str, Any]) -> str:
    """A generation, a revision of a component, or an artifact."""
    return str(next(one[name] for name in ("config", "artifact", "model") if name in one))


def _described(one: dict[str, Any], other: dict[str, Any] | None) -> str:
    if "config" in one:
        return f"{one['config']} (generation {one['generation']})"
    if "artifact" in one:
        return str(one["artifact"])
    what = str(one["model"])
    if other is not None and other["model"] == what:
        # Both revisions of an adapter have its name
        what = f"{what} from {one['source']}"
    return f"{what} (revision {one['revision']}, {one['copies_ready']} copies ready)"


def _rows(story: dict[str, Any]) -> list[tuple[str, object]]:
    progress, policy, agreement = story["progress"], story["policy"], story["agreement"]
    rows: list[tuple[str, object]] = [("status", story["status"])]
    for which, beside in (("old", "new"), ("new", "old")):
        if one := story[which]:
            rows.append((which, _described(one, story[beside])))
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
            if count and isinstance(count, int)
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
