"""`penstock status`: endpoints, their variants, and what their copies are doing."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli import options
from penstock.cli.client import Client
from penstock.cli.deploy import describe
from penstock.cli.output import print_json, print_table


def status(
    name: Annotated[str, typer.Argument(help="One endpoint; all when left out.")] = "",
    url: options.Url = "",
    key: options.Key = "",
    json_: options.Json = False,
) -> None:
    """Show endpoints and their copies."""
    client = Client(url, key=key)
    names = [name] if name else list_names(client)
    endpoints = [describe(client, endpoint) for endpoint in names]
    copies = client.admin("/copies")["copies"]
    if name:
        copies = [copy for copy in copies if copy["endpoint"] == name]
    if json_:
        print_json({"server": client.url, "endpoints": endpoints, "copies": copies})
        return
    print_table(
        f"endpoints at {client.url}",
        ("endpoint", "status", "variant", "weight", "instances", "reason"),
        [row for endpoint in endpoints for row in _rows(endpoint)],
    )
    if copies:
        print()
        columns = ("copy", "endpoint", "variant", "instance", "state", "outstanding", "pid")
        print_table("copies", columns, [[copy.get(key) for key in columns] for copy in copies])


def list_names(client: Client) -> list[str]:
    """All endpoint names, page by page, oldest first."""
    names: list[str] = []
    members: dict[str, Any] = {"MaxResults": 100, "SortOrder": "Ascending"}
    while True:
        page = client.sagemaker("ListEndpoints", **members)
        names += [summary["EndpointName"] for summary in page["Endpoints"]]
        if not page.get("NextToken"):
            return names
        members["NextToken"] = page["NextToken"]


def _rows(endpoint: dict[str, Any]) -> list[list[object]]:
    reason = endpoint.get("FailureReason", "")
    variants = endpoint.get("ProductionVariants") or [{}]
    return [
        [
            endpoint["EndpointName"],
            endpoint["EndpointStatus"],
            variant.get("VariantName", ""),
            variant.get("CurrentWeight", ""),
            f"{variant.get('CurrentInstanceCount', 0)}/{variant.get('DesiredInstanceCount', 0)}",
            reason,
        ]
        for variant in variants
    ]
