"""`penstock cost`: costs of models, tenants, requests and transform jobs, and of other ways to
serve them."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli import options, transform_follow
from penstock.cli.client import Client
from penstock.cli.cost_page import COLUMNS, alternative_cells, cells, page
from penstock.cli.output import figure, money, note, print_json, print_table
from penstock.core.cost.compared import Alternative, TypeOffer, of_usage
from penstock.core.cost.report import (
    TENANT_ENDS,
    CostLine,
    CostReport,
    report,
    tenants_by,
    usage_from_dict,
)
from penstock.durable_files import check_output, output
from penstock.errors import CallerError

_GIB = 2**30


def cost(
    usage: Annotated[
        str, typer.Option("--usage", help="A JSON file of usage instead of a server; - for stdin.")
    ] = "",
    html: Annotated[
        Path | None, typer.Option("--html", help="Write a page with plots to this file.")
    ] = None,
    tenant_ends: Annotated[
        str, typer.Option("--tenant-ends", help="Characters that end a part of a model's name.")
    ] = TENANT_ENDS,
    tenant_parts: Annotated[
        int, typer.Option("--tenant-parts", min=1, help="Parts of it that name the tenant.")
    ] = 1,
    top: Annotated[int, typer.Option("--top", min=1, help="Lines of each table.")] = 20,
    server: options.ReportOptions = options.REPORT,
) -> None:
    """Report what models, tenants, requests and jobs cost; compare with other ways to serve."""
    if html is not None:
        check_output(html)
    given = _read(usage) if usage else _asked(server.client())
    instances = usage_from_dict(given)
    found = report(instances, tenants_by(tenant_ends, parts=tenant_parts))
    others = of_usage(instances, _offers(given))
    jobs = _jobs(given)
    if html is not None:
        with output(html):
            html.write_text(page(found, others, jobs), encoding="utf-8")
        note(f"wrote {html}")
    if server.json_:
        print_json(as_dict(found, others) | {"jobs": jobs})
    elif html is None:
        _print(found, others, top)
        if jobs:
            print()
            rows = [transform_follow.cost_row(each) for each in jobs[:top]]
            print_table("transform jobs, the latest first", transform_follow.COST_COLUMNS, rows)


def as_dict(found: CostReport, others: list[Alternative]) -> dict[str, Any]:
    """The report for programs; money in US dollars."""
    return {
        "dollars": found.dollars,
        "unassigned": found.unassigned,
        "instance_hours": found.hours,
        "tenants": [_line(line) for line in found.tenants],
        "models": [_line(line) for line in found.models],
        "alternatives": [dataclasses.asdict(each) for each in others],
    }


def _line(line: CostLine) -> dict[str, Any]:
    told = dataclasses.asdict(line)
    told["cost"]["dollars"] = line.cost.dollars
    return told | {"dollars_per_request": line.dollars_per_request}


def _asked(client: Client) -> dict[str, Any]:
    return client.admin("/usage") | client.admin("/jobs?limit=1000")


def _jobs(given: Any) -> list[dict[str, Any]]:
    """The costs of transform jobs, if the usage has any."""
    try:
        return transform_follow.costs(given.get("jobs", ()))
    except (KeyError, TypeError, AttributeError) as error:
        raise CallerError("usage-invalid", f"jobs: {type(error).__name__}: {error}") from None


def _read(path: str) -> Any:
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
        return json.loads(text)
    except OSError as error:
        raise CallerError("usage-unreadable", f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise CallerError("usage-invalid", f"{path} is no JSON: {error}") from None


def _offers(given: Any) -> list[TypeOffer]:
    """Instance types to compare for separate endpoints, if the usage has any."""
    try:
        return [
            TypeOffer(
                name=str(each["name"]),
                memory_bytes=int(each["memory_bytes"]),
                price_per_hour=float(each["price_per_hour"]),
            )
            for each in given.get("offers", ())
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise CallerError("usage-invalid", f"offers: {type(error).__name__}: {error}") from None


def _print(found: CostReport, others: list[Alternative], top: int) -> None:
    print(
        f"{money(found.dollars)} for {figure(found.hours)} instance hours"
        + (f", {money(found.unassigned)} of it without any model" if found.unassigned else "")
    )
    print()
    print_table(
        "tenants",
        ("tenant", "models", *COLUMNS),
        [(line.name, line.models, *cells(line)) for line in found.tenants[:top]],
    )
    print()
    print_table(
        "models",
        ("endpoint", "model", "GiB at most", *COLUMNS),
        [
            (line.endpoint, line.name, f"{line.bytes_peak / _GIB:.3f}", *cells(line))
            for line in found.models[:top]
        ],
    )
    if others:
        print()
        print_table(
            "the same models in other ways, and what that saves: of one endpoint each, of memory"
            " fractions, of single endpoints without replicas",
            ("way", "replicas", "instances", "$ / hour", "models / instance", "saves", "fractions",
             "single"),
            [alternative_cells(each) for each in others],
        )  # fmt: skip
