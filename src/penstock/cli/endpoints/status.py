"""`penstock status`: endpoints, their variants, the state of their copies, and running jobs."""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from penstock.cli import options, transform_follow
from penstock.cli.client import Client
from penstock.cli.endpoints.deploy import describe
from penstock.cli.endpoints.listing import list_components, list_endpoints, shadows_among
from penstock.cli.output import print_json, print_table, seconds


def status(
    name: Annotated[
        str,
        typer.Argument(
            help="One endpoint; all when left out.", autocompletion=options.endpoint_names
        ),
    ] = "",
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show it again and again, until Ctrl-C.")
    ] = False,
    every_s: Annotated[
        float, typer.Option("--every-s", min=0.2, help="With --watch: seconds between two.")
    ] = 2.0,
    server: options.ReportOptions = options.REPORT,
) -> None:
    """Show endpoints and their copies, and transform jobs that run."""
    client = server.client()
    _show(client, name, json_=server.json_)
    while watch:
        time.sleep(every_s)
        drawn = io.StringIO()
        with contextlib.redirect_stdout(_Drawn(drawn)):
            _show(client, name, json_=server.json_)
        # One write: a terminal never shows half of it.
        clear = "\x1b[H\x1b[2J" if sys.stdout.isatty() else "\n"
        print(f"{clear}{drawn.getvalue()}", end="", flush=True)


class _Drawn:
    """Standard output that is kept, and is a terminal if the real one is."""

    def __init__(self, kept: io.StringIO) -> None:
        self.write, self.flush = kept.write, kept.flush
        self.isatty, self.encoding = sys.stdout.isatty, sys.stdout.encoding


def _show(client: Client, name: str, *, json_: bool) -> None:
    endpoints = [describe(client, name)] if name else list_endpoints(client)
    copies = client.admin("/copies")["copies"]
    costs = client.admin("/costs")["costs"]
    components = list_components(client, name)
    shadows = shadows_among(client, components)
    jobs = [] if name else transform_follow.going(client.admin("/jobs")["jobs"])
    if name:
        copies = [copy for copy in copies if copy["endpoint"] == name]
        costs = [cost for cost in costs if cost["endpoint"] == name]
    if json_:
        found = {
            "endpoints": endpoints, "components": components, "copies": copies, "costs": costs,
            "jobs": jobs, "shadows": shadows,
        }  # fmt: skip
        print_json({"server": client.url} | found)
        return
    failed = [one for one in endpoints if one.get("EndpointStatus") == "Failed" and not name]
    print_table(
        f"endpoints at {client.url}",
        ("endpoint", "status", "variant", "weight", "instances", "reason"),
        [row for endpoint in endpoints if endpoint not in failed for row in _rows(endpoint)],
    )
    if failed:
        print()
        print_table(
            "failed endpoints; 'penstock delete --failed' removes them",
            ("endpoint", "since", "reason"),
            [_failed_row(one) for one in failed],
        )
    if components:
        print()
        print_table(
            "inference components",
            ("component", "endpoint", "variant", "status", "copies", "reason"),
            [_component_row(one, shadows) for one in components],
        )
    if copies:
        print()
        _print_copies(copies, with_components=bool(components))
    if costs:
        print()
        pools = ("$ by type",) if any(_by_type(cost) for cost in costs) else ()
        print_table(
            "cost since the start; per answer over the last hour",
            ("endpoint", "variant", "$", "kJ", "energy by", "$ / 1000 requests", "J / request",
             "$ / 1000 tokens", *pools),
            [[*_cost_row(cost), *(_by_type(cost) for _ in pools)] for cost in costs],
        )  # fmt: skip
    if jobs:
        print()
        print_table(
            "transform jobs",
            transform_follow.STATUS_COLUMNS,
            [row for job in jobs for row in transform_follow.status_rows(job)],
        )


def _print_copies(copies: list[dict[str, Any]], *, with_components: bool) -> None:
    of = ("component",) if with_components else ()
    kinds = ("instance_type",) if _mixed(copies) else ()
    columns = ("copy", "endpoint", "variant", *of, "instance", *kinds, "state", "outstanding",
               "pid")  # fmt: skip
    builds = ("build",) if any(copy.get("build") for copy in copies) else ()
    rows = [
        [
            *(_state(copy) if each == "state" else copy.get(each) for each in columns),
            (copy.get("proof") or {}).get("state"),
            *((copy.get("build") or {}).get("folder") for _ in builds),
        ]
        for copy in copies
    ]
    print_table("copies", (*columns, "answers", *builds), rows)


def _failed_row(endpoint: dict[str, Any]) -> list[object]:
    since = seconds(endpoint.get("LastModifiedTime"))
    return [endpoint["EndpointName"], since, endpoint.get("FailureReason", "")]


def _state(copy: dict[str, Any]) -> str:
    """A copy that is being loaded shows what is done now."""
    return f"{copy['state']}: {copy['phase']}" if copy.get("phase") else str(copy["state"])


def _mixed(copies: list[dict[str, Any]]) -> bool:
    """Whether a variant has instances of several types."""
    types: dict[tuple[Any, Any], set[Any]] = {}
    for copy in copies:
        types.setdefault((copy["endpoint"], copy["variant"]), set()).add(copy["instance_type"])
    return any(len(each) > 1 for each in types.values())


def _cost_row(cost: dict[str, Any]) -> list[object]:
    request, joules = cost["dollars_per_request"], cost["joules_per_request"]
    tokens = cost["dollars_per_thousand_tokens"]
    return [
        cost["endpoint"],
        cost["variant"],
        f"{cost['dollars']:.4g}",
        f"{sum(cost['joules'].values()) / 1000:.4g}",
        ", ".join(cost["joules"]),
        None if request is None else f"{request * 1000:.4g}",
        None if joules is None else f"{joules:.4g}",
        None if tokens is None else f"{tokens:.4g}",
    ]


def _by_type(cost: dict[str, Any]) -> str:
    """Instances by type, for a variant with several types."""
    types = cost.get("dollars_by_type") or {}
    told = [f"{name} {dollars:.4g}" for name, dollars in sorted(types.items())]
    return ", ".join(told) if len(told) > 1 else ""


def _component_row(one: dict[str, Any], shadows: Mapping[str, str]) -> list[object]:
    runtime = one.get("RuntimeConfig") or {}
    name = one["InferenceComponentName"]
    return [
        f"{name} (shadow of {shadows[name]})" if name in shadows else name,
        one["EndpointName"],
        one["VariantName"],
        one["InferenceComponentStatus"],
        f"{runtime.get('CurrentCopyCount', 0)}/{runtime.get('DesiredCopyCount', 0)}",
        one.get("FailureReason", ""),
    ]


def _rows(endpoint: dict[str, Any]) -> list[list[object]]:
    reason = endpoint.get("FailureReason", "")
    variants = endpoint.get("ProductionVariants") or [{}]
    shadows = endpoint.get("ShadowProductionVariants") or []
    return [
        [
            endpoint["EndpointName"],
            endpoint["EndpointStatus"],
            variant.get("VariantName", "") + (" (shadow)" if variant in shadows else ""),
            variant.get("CurrentWeight", ""),
            f"{variant.get('CurrentInstanceCount', 0)}/{variant.get('DesiredInstanceCount', 0)}",
            reason,
        ]
        for variant in [*variants, *shadows]
    ]
