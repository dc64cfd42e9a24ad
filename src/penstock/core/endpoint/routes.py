"""What gateways get: for each variant the copies that requests may be sent to.

A copy has routes while it is ready and in the spec. Otherwise its routes are removed first, and
then it is drained: so the caller carries out these routes before the drains. A variant with a model
has one entry, whose copies are those of the component that has its name. A variant that takes
inference components has an entry for each component that is not being deleted and has not failed,
without a copy while none is ready. While a revision replaces another at once, only the old one has
routes until it is replaced; in a batch-by-batch rollout both have, in one entry. Where its answers
are compared with the old one's, the new one's copies are marked as incoming.

While a new generation takes over step by step, the variants of both have entries, and the weights
say which share of the traffic each generation gets. Each generation's own weights say how its share
is divided, so that a generation with larger numbers gets no more. Those of the new one come last.

Shadow variants have entries apart, those of the generation that serves. Their weight there is the
share of the requests that is copied: theirs in proportion to the production variant's, at most all.
So have inference components that are shadows of others, also while there is no such other one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from penstock.core.deployment.capacity_spec import ComponentSpec, copies_name
from penstock.core.deployment.deployment import (
    ComparedRoutes,
    CopyRoute,
    DeploymentSpec,
    EndpointRoutes,
    ModelSource,
    TargetRoutes,
    VariantRoutes,
    VariantSpec,
)
from penstock.core.deployment.endpoint_state import (
    DELETING,
    FAILED,
    READY,
    CopyObserved,
    PublishRoutes,
    WithdrawRoutes,
)
from penstock.core.request.holding import zero_capacity_of
from penstock.core.rollout.agreement import AgreementSpec

GENERATION_READY = "generation-ready"
TARGETS_CHANGED = "targets-changed"
SHADOWS_CHANGED = "shadows-changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingRoutes:
    """The generation that takes over, and how far it is."""

    deployment: DeploymentSpec
    copies: Mapping[str, Iterable[CopyObserved]]  #: by variant, in any phase
    share: float  #: its part of the endpoint's traffic, 0 to 1
    agreement: AgreementSpec | None = None  #: what its answers are held to
    rollout: int = 0  #: its number, as `RolloutProgress.number`


def decide(
    deployment: DeploymentSpec,
    copies: Mapping[str, Iterable[CopyObserved]],
    published: EndpointRoutes | None,
    reason: str,
    components: Iterable[ComponentSpec] = (),
    served_names: Mapping[str, str] | None = None,
    incoming: IncomingRoutes | None = None,
    targets: tuple[TargetRoutes, ...] = (),
) -> tuple[PublishRoutes, ...]:
    """Routes to publish; empty where gateways have them already.

    Args:
        deployment: the generation that serves.
        copies: by variant, the copies that placement keeps, in any phase.
        published: the routes that gateways got last.
        reason: the reason for a change.
        components: inference components of the endpoint.
        served_names: its other names in protocols.
        incoming: the generation that takes over. It has no routes at a share of 0. Where variants
            take inference components it has none at any share, as these have rollouts of their own:
            such a generation takes over at once, when it is given as `deployment`.
        targets: of target models that another artifact answers for, or is to.
    """
    reachable = [one for one in components if one.status not in (DELETING, FAILED)]
    answering = [one for one in reachable if one.shadow is None]
    entries = _entries(deployment, deployment.variants, copies, answering)
    compared = None
    if incoming is not None and incoming.share > 0 and not _take_components(deployment, incoming):
        if incoming.agreement is not None:
            compared = ComparedRoutes(rollout=incoming.rollout, spec=incoming.agreement)
        new = _entries(incoming.deployment, incoming.deployment.variants, incoming.copies)
        entries = _weighed(entries, 1 - incoming.share) + [
            replace(one, incoming=True) for one in _weighed(new, incoming.share)
        ]
    routes = EndpointRoutes(
        endpoint=deployment.endpoint,
        variants=tuple(entries),
        takes_components=deployment.takes_components,
        asynchronous=deployment.asynchronous is not None,
        served_names=served_names or {},
        capture=deployment.capture if deployment.capture and deployment.capture.captures else None,
        shadows=_shadow_entries(deployment, copies, reachable),
        compared=compared,
        targets=targets,
    )
    if routes == published:
        return ()
    if published is None and reason != GENERATION_READY:
        reason = "endpoint-known"
    elif published == replace(routes, served_names=published.served_names if published else {}):
        reason = "served-names-changed"
    elif published is not None and published == replace(routes, targets=published.targets):
        reason = TARGETS_CHANGED
    elif published is not None and _copied_to(routes) != _copied_to(published):
        reason = SHADOWS_CHANGED
    return (PublishRoutes(routes, reason),)


def withdraw(published: EndpointRoutes | None, reason: str) -> tuple[WithdrawRoutes, ...]:
    """Makes gateways forget an endpoint that they know."""
    return () if published is None else (WithdrawRoutes(reason),)


def _take_components(deployment: DeploymentSpec, incoming: IncomingRoutes) -> bool:
    return deployment.takes_components or incoming.deployment.takes_components


def _weighed(entries: list[VariantRoutes], share: float) -> list[VariantRoutes]:
    """With weights whose sum is that share. Where all are 0 they stay 0."""
    total = sum(one.weight for one in entries) or 1.0
    return [replace(one, weight=one.weight / total * share) for one in entries]


def _shadow_entries(
    deployment: DeploymentSpec,
    copies: Mapping[str, Iterable[CopyObserved]],
    components: Collection[ComponentSpec],
) -> tuple[VariantRoutes, ...]:
    production = sum(one.weight for one in deployment.variants)
    of_variants = [
        replace(one, weight=min(one.weight / production, 1.0) if production else 0.0)
        for one in _entries(deployment, deployment.shadows, copies)
    ]
    shadows = {one.name: one.shadow for one in components if one.shadow is not None}
    names = {one.name.lower(): one.name for one in components}
    hosts = [one for one in deployment.variants if one.model is None]
    found = _entries(deployment, hosts, copies, [one for one in components if one.name in shadows])
    of_components = [
        replace(
            one,
            weight=shadows[one.component].share,
            shadow_of=names.get(source.lower(), source),
        )
        for one in found
        for source in (shadows[one.component].source,)
    ]
    return (*of_variants, *of_components)


def _copied_to(routes: EndpointRoutes) -> list[tuple[str, str, float]]:
    """Which components are shadows, of which others, and by which share."""
    return [(one.component, one.shadow_of, one.weight) for one in routes.shadows if one.component]


def _entries(
    deployment: DeploymentSpec,
    variants: Iterable[VariantSpec],
    copies: Mapping[str, Iterable[CopyObserved]],
    components: Collection[ComponentSpec] = (),
) -> list[VariantRoutes]:
    """The entries of some variants of a generation. `components`: those that may be routed to."""
    models = {one.name: one.active.model for one in components}
    entries: list[VariantRoutes] = []
    for variant in variants:
        there = copies.get(variant.name, ())
        if variant.model is not None:
            entries.append(_entry(variant, there, {variant.name}, variant.model))
            continue
        entries += [
            # Requests at no copies wait for copies of the base, if the base's model says so.
            _component_entry(variant, there, one, models.get(one.base, one.active.model))
            for one in sorted(components, key=lambda one: one.name)
            if one.variant == variant.name
        ]
    return [replace(one, config=deployment.config_name) for one in entries]


def _serving(component: ComponentSpec) -> set[str]:
    """Names of copies that may be routed to."""
    serving = {copies_name(component.name, component.active.number)}
    if component.target is not None and (component.target.batch or component.target.goes_back):
        serving.add(copies_name(component.name, component.target.number))
    return serving


def _component_entry(
    variant: VariantSpec,
    copies: Iterable[CopyObserved],
    component: ComponentSpec,
    model: ModelSource,
) -> VariantRoutes:
    there = tuple(copies)
    entry = replace(
        _entry(variant, there, _serving(component), model),
        component=component.name,
        base=component.base,
    )
    revision = component.compared
    if revision is None or revision.agreement is None:
        return entry
    named = copies_name(component.name, revision.number)
    new = {one.copy for one in there if one.component == named}
    marked = tuple(replace(one, incoming=one.copy in new) for one in entry.copies)
    if len({one.incoming for one in marked}) < 2:  # nothing to compare with
        return entry
    compared = ComparedRoutes(rollout=revision.rollout, spec=revision.agreement)
    return replace(entry, copies=marked, compared=compared)


def _entry(
    variant: VariantSpec,
    copies: Iterable[CopyObserved],
    components: Collection[str],
    model: ModelSource,
) -> VariantRoutes:
    ready = sorted(
        (one for one in copies if one.phase == READY and one.component in components),
        key=lambda one: one.copy,
    )
    return VariantRoutes(
        name=variant.name,
        weight=variant.weight,
        strategy=variant.strategy,
        copies=tuple(
            CopyRoute(
                copy=one.copy,
                instance_id=one.instance_id,
                outstanding_max=one.outstanding_max,
                base_copy=one.base_copy,
                kind=one.instance_type if variant.pools else "",
                cache_tokens=_cache_tokens(one.model),
            )
            for one in ready
        ),
        model=ready[0].model if ready else {},
        prefix_length_max=variant.prefix_length_max,
        concurrency_threshold=variant.concurrency_threshold,
        multi_model=variant.model is not None and variant.model.multi_model,
        direct=model.direct,
        zero_capacity=zero_capacity_of(model),
    )


def _cache_tokens(model: Mapping[str, object]) -> int:
    """Prompt tokens that the engine of a generating copy caches, by its description."""
    told = model.get("generation")
    tokens = told.get("cache_tokens") if isinstance(told, dict) else None
    return tokens if isinstance(tokens, int) else 0
