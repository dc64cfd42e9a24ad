"""What the timelines of reconciliation are told in: one endpoint `shop` with a variant `blue`."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.deployment.deployment import (
    CopyRoute,
    DeploymentSpec,
    EndpointRoutes,
    ModelSource,
    VariantRoutes,
    VariantSpec,
)
from penstock.core.deployment.endpoint_state import (
    GONE,
    LOST,
    READY,
    RUNNING,
    STARTING,
    STOPPING,
    CopyObserved,
    EndpointObserved,
    InstanceObserved,
    SlotFailure,
)


def deployment(generation: int = 1, *, count: int = 1, weight: float = 1.0) -> DeploymentSpec:
    return DeploymentSpec(
        endpoint="shop",
        generation=generation,
        config_name=f"config-{generation}",
        variants=(
            VariantSpec(
                name="blue",
                model=ModelSource(model_name="intent", uri="s3://models/intent.tar.gz"),
                instance_type="ml.local.small",
                instance_count=count,
                weight=weight,
                download_timeout_s=100.0,
                startup_timeout_s=50.0,
            ),
        ),
    )


@dataclass(frozen=True)
class Seen:
    """An instance, and the copy that has it to itself."""

    instance: InstanceObserved
    copies: tuple[CopyObserved, ...] = ()


def seen(
    name: str,
    phase: str,
    *,
    generation: int = 1,
    ordinal: int = 0,
    since: float | None = 0.0,
    copy: int = 0,
    routed: bool = True,
    outstanding: int = 0,
) -> Seen:
    """`phase` is the copy's where an instance has none of that name. A copy on an instance that
    broke its connection was ready."""
    of_instance = phase in (STARTING, RUNNING, GONE, STOPPING)
    instance = InstanceObserved(
        instance_id=name,
        variant="blue",
        generation=generation,
        ordinal=ordinal,
        phase=phase if of_instance else RUNNING,
        since=since,
    )
    if of_instance and not copy:
        return Seen(instance)
    loaded = CopyObserved(
        copy=copy or 100 + ordinal,
        instance_id=name,
        variant="blue",
        generation=generation,
        component="blue",
        ordinal=ordinal,
        phase=READY if of_instance else phase,
        since=since,
        load_s_max=150.0,
        outstanding_max=8 if copy else 0,
        model={"name": "intent"} if copy else {},
        routed=routed and bool(copy) and phase in (READY, LOST, GONE),
        outstanding=outstanding,
    )
    return Seen(instance, (loaded,))


def observed(
    *instances: Seen,
    failures: tuple[SlotFailure, ...] = (),
    published: EndpointRoutes | None = None,
) -> EndpointObserved:
    return EndpointObserved(
        instances=tuple(one.instance for one in instances),
        copies=tuple(copy for one in instances for copy in one.copies),
        failures=failures,
        published=published,
    )


def routes(*copies: tuple[int, str], weight: float = 1.0) -> EndpointRoutes:
    return EndpointRoutes(
        endpoint="shop",
        variants=(
            VariantRoutes(
                name="blue",
                weight=weight,
                strategy="LEAST_OUTSTANDING_REQUESTS",
                copies=tuple(
                    CopyRoute(copy=copy, instance_id=name, outstanding_max=8)
                    for copy, name in copies
                ),
                model={"name": "intent"} if copies else {},
            ),
        ),
    )


def failure(
    count: int = 1,
    *,
    generation: int = 1,
    ordinal: int = 0,
    at: float = 10.0,
    permanent: bool = False,
    component: str = "",
) -> SlotFailure:
    return SlotFailure(
        variant="blue",
        generation=generation,
        component=component,
        ordinal=ordinal,
        count=count,
        at=at,
        message="model.onnx is cut short. Upload it again.",
        permanent=permanent,
    )
