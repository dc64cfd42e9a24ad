"""`penstock status`: endpoints, their variants, and what their copies are doing."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli import options
from penstock.cli.client import Client, SageMaker
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
    costs = client.admin("/costs")["costs"]
    components = list_components(client, name)
    if name:
        copies = [copy for copy in copies if copy["endpoint"] == name]
        costs = [cost for cost in costs if cost["endpoint"] == name]
    if json_:
        found = {
            "endpoints": endpoints, "components": components, "copies": copies, "costs": costs
        }  # fmt: skip
        print_json({"server": client.url} | found)
        return
    print_table(
        f"endpoints at {client.url}",
        ("endpoint", "status", "variant", "weight", "instances", "reason"),
        [row for endpoint in endpoints for row in _rows(endpoint)],
    )
    if components:
        print()
        print_table(
            "inference components",
            ("component", "endpoint", "variant", "status", "copies", "reason"),
            [_component_row(one) for one in components],
        )
    if copies:
        print()
        of = ("component",) if components else ()
        columns = ("copy", "endpoint", "variant", *of, "instance", "state", "outstanding", "pid")
        rows = [
            [*map(copy.get, columns), (copy.get("proof") or {}).get("state")] for copy in copies
        ]
        print_table("copies", (*columns, "answers"), rows)
    if costs:
        print()
        print_table(
            "cost since the start; per answer over the last hour",
            ("endpoint", "variant", "$", "kJ", "energy by", "$ / 1000 requests", "J / request",
             "$ / 1000 tokens"),
            [_cost_row(cost) for cost in costs],
        )  # fmt: skip


def list_names(client: Client) -> list[str]:
    """All endpoint names, page by page, oldest first."""
    return [str(each["EndpointName"]) for each in list_all(client, "ListEndpoints", "Endpoints")]


def list_components(client: Client, endpoint: str = "") -> list[dict[str, Any]]:
    """Inference components as they are described, of one endpoint or of all."""
    filters = {"EndpointNameEquals": endpoint} if endpoint else {}
    return [
        client.sagemaker(
            "DescribeInferenceComponent", InferenceComponentName=one["InferenceComponentName"]
        )
        for one in list_all(client, "ListInferenceComponents", "InferenceComponents", **filters)
    ]


def list_all(
    client: SageMaker, operation: str, member: str, **filters: Any
) -> list[dict[str, Any]]:
    """What a List operation has under `member` in all its pages, oldest first."""
    found: list[dict[str, Any]] = []
    members: dict[str, Any] = {"MaxResults": 100, "SortOrder": "Ascending"} | filters
    while True:
        page = client.sagemaker(operation, **members)
        found += page[member]
        if not page.get("NextToken"):
            return found
        members["NextToken"] = page["NextToken"]


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


def _component_row(one: dict[str, Any]) -> list[object]:
    runtime = one["RuntimeConfig"]
    return [
        one["InferenceComponentName"],
        one["EndpointName"],
        one["VariantName"],
        one["InferenceComponentStatus"],
        f"{runtime['CurrentCopyCount']}/{runtime['DesiredCopyCount']}",
        one.get("FailureReason", ""),
    ]


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
