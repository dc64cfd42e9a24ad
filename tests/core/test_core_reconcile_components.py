"""`core/endpoint/reconcile.py` where copies share instances: timelines of a variant with two
components.

The spec stands in the place of the one that `core/deployment/capacity_spec.py` makes of a variant
with a model: two instances, as many copies of the variant's model as its count says, one of
another. With inference components, and their life: `test_core_reconcile_inference_components.py`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.kit.core_reconcile import Seen, deployment, observed, routes, seen

from penstock.core.deployment import capacity_spec
from penstock.core.deployment.capacity_spec import (
    ComponentCopiesSpec,
    CopySpec,
    VariantCapacitySpec,
)
from penstock.core.deployment.deployment import VariantSpec
from penstock.core.deployment.endpoint_state import (
    CREATING,
    DRAINED,
    IN_SERVICE,
    LOADING,
    READY,
    RUNNING,
    STARTING,
    UPDATING,
    DrainCopy,
    EndpointSpec,
    LoadCopy,
    PublishRoutes,
    SetStatus,
    StartInstance,
    UnloadCopy,
)
from penstock.core.endpoint.reconcile import ReconcileDecision, decide
from penstock.core.resources import ComputeResources

SHARES = CopySpec(resources=ComputeResources(cores=1.0))


@pytest.fixture(autouse=True)
def _copies_share(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(generation: int, variant: VariantSpec) -> VariantCapacitySpec:
        return VariantCapacitySpec(
            name=variant.name,
            generation=generation,
            instances=2,
            components=tuple(
                ComponentCopiesSpec(name=name, model=variant.model, copies=copies, need=SHARES)
                for name, copies in ((variant.name, variant.instance_count), ("other", 1))
            ),
        )

    monkeypatch.setattr(capacity_spec, "_single_model", made)


def on(name: str, ordinal: int, *copies: tuple[int, str, int, str]) -> Seen:
    """A running instance with copies: (number, component, slot, phase)."""
    (one,) = seen(name, READY, copy=1).copies
    instance = replace(
        seen(name, RUNNING, ordinal=ordinal).instance, resources=ComputeResources(cores=4.0)
    )
    return Seen(
        instance,
        tuple(
            replace(
                one, copy=copy, component=component, ordinal=slot, phase=phase, need=SHARES,
                routed=component == "blue" and phase == READY,
            )
            for copy, component, slot, phase in copies
        ),
    )  # fmt: skip


CREATE = EndpointSpec(endpoint="shop", status=CREATING, target=deployment(count=2))
SERVE = EndpointSpec(endpoint="shop", status=IN_SERVICE, active=deployment(count=2))


def test_an_endpoint_is_in_service_once_its_instances_run_and_all_its_copies_are_ready() -> None:
    assert decide(CREATE, observed(), now=0.0).actions == (
        StartInstance("blue", 1, 0, "new-generation"),
        StartInstance("blue", 1, 1, "new-generation"),
    )
    coming = seen("b", STARTING, ordinal=1)
    assert decide(CREATE, observed(on("a", 0), coming), now=1.0).actions == (
        LoadCopy("a", "blue", 1, 0, "copy-count"),
        LoadCopy("a", "blue", 1, 1, "copy-count"),
        LoadCopy("a", "other", 1, 0, "copy-count"),
    )
    both = ((1, "blue", 0, READY), (2, "blue", 1, READY))
    ready = on("a", 0, *both, (3, "other", 0, READY))
    assert decide(CREATE, observed(ready, coming), now=2.0) == ReconcileDecision((), 60.0)
    loading = on("a", 0, *both, (3, "other", 0, LOADING))
    assert decide(CREATE, observed(loading, on("b", 1)), now=2.0) == ReconcileDecision((), 160.0)
    assert decide(CREATE, observed(ready, on("b", 1)), now=3.0).actions == (
        PublishRoutes(routes((1, "a"), (2, "a")), "generation-ready"),
        SetStatus(IN_SERVICE, "generation-ready", "", 1),
    )


def test_a_copy_leaves_the_routes_drains_and_is_unloaded_while_its_instance_stays() -> None:
    fewer = replace(
        SERVE, status=UPDATING, active=deployment(count=1), previous=deployment(count=2)
    )
    beside, empty = (3, "other", 0, READY), on("b", 1)
    state = observed(
        on("a", 0, (1, "blue", 0, READY), (2, "blue", 1, READY), beside),
        empty,
        published=routes((1, "a"), (2, "a")),
    )
    assert decide(fewer, state, now=0.0).actions == (
        PublishRoutes(routes((1, "a")), "weights-changed"),
        DrainCopy("a", 2, "copy-count"),
        SetStatus(IN_SERVICE, "counts-reached", "", 1),
    )
    drained = on("a", 0, (1, "blue", 0, READY), (2, "blue", 1, DRAINED), beside)
    after = replace(SERVE, active=deployment(count=1))
    state = observed(drained, empty, published=routes((1, "a")))
    assert decide(after, state, now=1.0).actions == (UnloadCopy("a", 2, "drained"),)


def test_an_instance_that_ends_takes_its_copies_and_they_come_back_on_the_other() -> None:
    left = on("b", 1, (2, "blue", 1, READY))
    state = observed(left, published=routes((1, "a"), (2, "b")))
    assert decide(SERVE, state, now=0.0).actions == (
        LoadCopy("b", "blue", 1, 0, "copy-count"),
        LoadCopy("b", "other", 1, 0, "copy-count"),
        StartInstance("blue", 1, 0, "variant-count"),
        PublishRoutes(routes((2, "b")), "copies-changed"),
    )
