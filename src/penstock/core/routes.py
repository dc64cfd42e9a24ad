"""What gateways are told: for each variant the copies that requests may be sent to.

A copy is routed to while it is ready and wished; one that is not is left out first and drained
only then, so whoever decides puts these routes before the drains. Requests name a variant, so its
routes name copies of the component that bears its name: other components are loaded, and become
reachable when requests can name them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.core.deployment import (
    CopyRoute,
    DeploymentSpec,
    EndpointRoutes,
    VariantRoutes,
    VariantSpec,
)
from penstock.core.endpoint_state import READY, CopyObserved, PublishRoutes, WithdrawRoutes
from penstock.core.holding import zero_capacity_of

GENERATION_READY = "generation-ready"


def decide(
    deployment: DeploymentSpec,
    copies: Mapping[str, Iterable[CopyObserved]],
    published: EndpointRoutes | None,
    reason: str,
) -> tuple[PublishRoutes, ...]:
    """Routes to publish; none where gateways know them already.

    Args:
        deployment: the generation that serves.
        copies: by variant, those that placement keeps, in any phase.
        published: what gateways were told last.
        reason: of a change.
    """
    routes = EndpointRoutes(
        endpoint=deployment.endpoint,
        variants=tuple(
            _variant_routes(variant, copies.get(variant.name, ()))
            for variant in deployment.variants
        ),
    )
    if routes == published:
        return ()
    if published is None and reason != GENERATION_READY:
        reason = "endpoint-known"
    return (PublishRoutes(routes, reason),)


def withdraw(published: EndpointRoutes | None, reason: str) -> tuple[WithdrawRoutes, ...]:
    """Gateways forget an endpoint that they were told of."""
    return () if published is None else (WithdrawRoutes(reason),)


def _variant_routes(variant: VariantSpec, copies: Iterable[CopyObserved]) -> VariantRoutes:
    ready = sorted(
        (one for one in copies if one.phase == READY and one.component == variant.name),
        key=lambda one: one.copy,
    )
    return VariantRoutes(
        name=variant.name,
        weight=variant.weight,
        strategy=variant.strategy,
        copies=tuple(
            CopyRoute(
                copy=one.copy, instance_id=one.instance_id, outstanding_max=one.outstanding_max
            )
            for one in ready
        ),
        model=ready[0].model if ready else {},
        prefix_length_max=variant.prefix_length_max,
        concurrency_threshold=variant.concurrency_threshold,
        multi_model=variant.model.multi_model,
        zero_capacity=zero_capacity_of(variant.model),
    )
