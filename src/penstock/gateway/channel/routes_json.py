"""Routes as JSON, and back."""

from __future__ import annotations

from typing import Any

from penstock.core.deployment.deployment import CopyRoute, EndpointRoutes, VariantRoutes
from penstock.gateway.channel.messages import Json


def routes_from(fields: Json) -> EndpointRoutes:
    """What `orjson` made of `EndpointRoutes`. Raises TypeError or KeyError for anything else."""
    variants = tuple(_variant(one) for one in fields["variants"])
    return EndpointRoutes(**(fields | {"variants": variants}))


def _variant(fields: dict[str, Any]) -> VariantRoutes:
    copies = tuple(CopyRoute(**one) for one in fields["copies"])
    return VariantRoutes(**(fields | {"copies": copies}))
