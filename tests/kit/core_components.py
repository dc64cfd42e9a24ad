"""What the timelines of inference components are told in: a component `chat` on `blue`."""

from __future__ import annotations

from penstock.core.deployment.capacity_spec import ComponentRevision, ComponentSpec, CopySpec
from penstock.core.deployment.deployment import ModelSource
from penstock.core.deployment.endpoint_state import IN_SERVICE, READY, CopyObserved, SlotFailure
from penstock.core.resources import ComputeResources

NEED = CopySpec(resources=ComputeResources(memory_bytes=2**30, cores=1.0))


def revision(number: int = 1, *, batch: int = 0, batch_wait_s: float = 0.0) -> ComponentRevision:
    return ComponentRevision(
        number=number,
        model=ModelSource(model_name=f"chat-{number}"),
        need=NEED,
        download_timeout_s=100.0,
        startup_timeout_s=50.0,
        batch=batch,
        batch_wait_s=batch_wait_s,
    )


def chat(
    copies: int,
    status: str = IN_SERVICE,
    *,
    active: ComponentRevision | None = None,
    target: ComponentRevision | None = None,
    name: str = "chat",
) -> ComponentSpec:
    return ComponentSpec(
        name=name,
        variant="blue",
        status=status,
        copies=copies,
        active=active or revision(),
        target=target,
    )


def copy(
    number: int,
    ordinal: int = 0,
    *,
    of: str = "chat/1",
    where: str = "a",
    phase: str = READY,
    since: float | None = 0.0,
    routed: bool = True,
) -> CopyObserved:
    return CopyObserved(
        copy=number,
        instance_id=where,
        variant="blue",
        generation=1,
        component=of,
        ordinal=ordinal,
        phase=phase,
        since=since,
        need=NEED,
        load_s_max=150.0,
        outstanding_max=8,
        model={"name": of},
        routed=routed and phase == READY,
    )


def failed(
    ordinal: int = 0,
    *,
    of: str = "chat/1",
    count: int = 3,
    permanent: bool = False,
    at: float = 5.0,
) -> SlotFailure:
    """`of` nothing: of an instance."""
    return SlotFailure(
        variant="blue",
        generation=1,
        ordinal=ordinal,
        count=count,
        at=at,
        message=f"{of or 'an instance'} can't be had.",
        component=of,
        permanent=permanent,
    )
