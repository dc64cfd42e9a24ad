"""What the timelines of placement are told in: a variant `blue`, its instances and copies."""

from __future__ import annotations

from penstock.core.deployment.capacity_spec import (
    SPREAD,
    ComponentCopiesSpec,
    CopySpec,
    VariantCapacitySpec,
)
from penstock.core.deployment.deployment import ModelSource
from penstock.core.deployment.endpoint_state import (
    LOST,
    READY,
    RUNNING,
    CopyObserved,
    EndpointObserved,
    InstanceObserved,
    LoadCopy,
    SlotFailure,
)
from penstock.core.deployment.slot_retries import ReconcileSpec
from penstock.core.endpoint.placement import PlacementDecision, decide
from penstock.core.resources import ComputeResources

GIB = 2**30
SPEC = ReconcileSpec()


def resources(gib: float = 0.0, cores: float = 0.0, accelerators: int = 0) -> ComputeResources:
    return ComputeResources(memory_bytes=int(gib * GIB), cores=cores, accelerators=accelerators)


def need(gib: float = 0.0, cores: float = 0.0, accelerators: int = 0) -> CopySpec:
    return CopySpec(resources=resources(gib, cores, accelerators))


def component(
    name: str, copies: int, wants: CopySpec | None = None, strategy: str = SPREAD
) -> ComponentCopiesSpec:
    return ComponentCopiesSpec(
        name=name,
        model=ModelSource(model_name=name),
        copies=copies,
        need=need(1.0) if wants is None else wants,
        strategy=strategy,
    )


def instance(
    name: str, ordinal: int = 0, *, gib: float = 8.0, cores: float = 4.0, accelerators: int = 0,
    taken_gib: float = 0.0, phase: str = RUNNING,
) -> InstanceObserved:  # fmt: skip
    return InstanceObserved(
        instance_id=name,
        variant="blue",
        generation=1,
        ordinal=ordinal,
        phase=phase,
        since=0.0,
        resources=resources(gib, cores, accelerators),
        taken_bytes=int(taken_gib * GIB),
    )


def instances(count: int) -> list[InstanceObserved]:
    return [instance(name, at) for at, name in enumerate("abcdefgh"[:count])]


def copy(
    number: int, where: str, name: str = "x", ordinal: int = 0, *, phase: str = READY,
    wants: CopySpec | None = None, routed: bool = True, outstanding: int = 0,
) -> CopyObserved:  # fmt: skip
    return CopyObserved(
        copy=number,
        instance_id=where,
        variant="blue",
        generation=1,
        component=name,
        ordinal=ordinal,
        phase=phase,
        since=0.0,
        need=need(1.0) if wants is None else wants,
        routed=routed and phase in (READY, LOST),
        outstanding=outstanding,
    )


def decided(
    components: list[ComponentCopiesSpec],
    where: list[InstanceObserved],
    *copies: CopyObserved,
    failures: tuple[SlotFailure, ...] = (),
    now: float = 0.0,
    desired: int | None = None,
) -> PlacementDecision:
    variant = VariantCapacitySpec(
        name="blue",
        generation=1,
        instances=len(where) if desired is None else desired,
        components=tuple(components),
    )
    state = EndpointObserved(instances=tuple(where), copies=copies, failures=failures)
    return decide(variant, where, state, now=now, spec=SPEC)


def loads(*placed: tuple[str, str, int], reason: str = "copy-count") -> tuple[LoadCopy, ...]:
    """Each (instance, component, slot)."""
    return tuple(LoadCopy(where, name, 1, ordinal, reason) for where, name, ordinal in placed)


def kept_on(decision: PlacementDecision) -> list[tuple[int, str]]:
    return [(one.copy, one.instance_id) for one in decision.kept]
