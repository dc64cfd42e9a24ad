"""A shadow variant beside its production variant: it has instances and routes of its own, and
nothing ever waits for it. Literal timelines."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.kit.core_reconcile import Seen, deployment, failure, observed, routes, seen

from penstock.core.deployment.capacity_spec import raised
from penstock.core.deployment.deployment import CopyRoute, DeploymentSpec, EndpointRoutes
from penstock.core.deployment.endpoint_state import (
    CREATING,
    IN_SERVICE,
    LOADING,
    READY,
    RUNNING,
    UPDATING,
    DrainCopy,
    EndpointSpec,
    LoadCopy,
    PublishRoutes,
    SetRollout,
    SetStatus,
    StartInstance,
    StopInstance,
)
from penstock.core.endpoint.reconcile import ReconcileDecision, decide
from penstock.core.rollout.policy import (
    BAKING,
    CANARY,
    CAPACITY_PERCENT,
    RolloutPolicy,
    RolloutProgress,
    RolloutSize,
)


def shadowed(
    generation: int = 1, *, count: int = 1, weight: float = 0.5, production: float = 1.0
) -> DeploymentSpec:
    """`blue`, whose requests are copied to `dark`."""
    made = deployment(generation, weight=production)
    (blue,) = made.variants
    return replace(made, shadows=(replace(blue, name="dark", instance_count=count, weight=weight),))


def dark(name: str, phase: str, *, generation: int = 1, copy: int = 0, ordinal: int = 0) -> Seen:
    """As `seen`, of the shadow variant."""
    found = seen(name, phase, generation=generation, copy=copy, ordinal=ordinal)
    return Seen(
        replace(found.instance, variant="dark"),
        tuple(replace(one, variant="dark", component="dark") for one in found.copies),
    )


def known(
    *copies: tuple[int, str], shadow: tuple[tuple[int, str], ...] = (), share: float = 0.5
) -> EndpointRoutes:
    made = routes(*copies)
    (of_shadow,) = routes(*shadow).variants
    return replace(made, shadows=(replace(of_shadow, name="dark", weight=share),))


CREATE = EndpointSpec(endpoint="shop", status=CREATING, target=shadowed())
SERVE = EndpointSpec(endpoint="shop", status=IN_SERVICE, active=shadowed())


def test_a_shadow_starts_once_its_endpoint_serves_and_then_gets_routes_apart() -> None:
    assert decide(CREATE, observed(), now=0.0).actions == (
        StartInstance("blue", 1, 0, "new-generation"),
    )
    blue = seen("a", READY, copy=1)
    assert decide(CREATE, observed(blue), now=4.0).actions == (
        PublishRoutes(known((1, "a")), "generation-ready"),
        SetStatus(IN_SERVICE, "generation-ready", "", 1),
    )
    alone = known((1, "a"))
    assert decide(SERVE, observed(blue, published=alone), now=5.0).actions == (
        StartInstance("dark", 1, 0, "variant-count"),
    )
    assert decide(SERVE, observed(blue, dark("d", RUNNING), published=alone), now=6.0).actions == (
        LoadCopy("d", "dark", 1, 0, "instance-running"),
    )
    whole = observed(blue, dark("d", READY, copy=2), published=alone)
    both = known((1, "a"), shadow=((2, "d"),))
    assert decide(SERVE, whole, now=7.0).actions == (PublishRoutes(both, "copies-changed"),)
    assert decide(SERVE, replace(whole, published=both), now=8.0) == ReconcileDecision((), None)


def test_a_shadow_that_can_not_load_is_tried_for_ever_and_its_endpoint_stays_in_service() -> None:
    wrong = replace(failure(7, permanent=True), variant="dark")
    state = observed(seen("a", READY, copy=1), failures=(wrong,), published=known((1, "a")))
    assert decide(SERVE, state, now=39.9) == ReconcileDecision((), 40.0)
    assert decide(SERVE, state, now=40.0).actions == (
        StartInstance("dark", 1, 0, "replace-failed"),
    )


def test_a_shadow_takes_no_room_while_production_lacks_an_instance() -> None:
    """On a machine that has room for one of them, a shadow that waits for room would take that of a
    production instance that died, and keep it. What the shadow has already stays."""
    blue = StartInstance("blue", 1, 0, "variant-count")
    assert decide(SERVE, observed(published=known()), now=0.0).actions == (blue,)
    for phase in (RUNNING, LOADING):
        begun = observed(seen("a", phase), published=known())
        actions = decide(SERVE, begun, now=1.0).actions
        assert not [one for one in actions if isinstance(one, StartInstance)]
    left = observed(dark("d", READY, copy=2), published=known(shadow=((2, "d"),)))
    assert decide(SERVE, left, now=2.0).actions == (blue,)


@pytest.mark.parametrize(
    ("weight", "production", "share"),
    [(0.5, 1.0, 0.5), (1.0, 4.0, 0.25), (3.0, 2.0, 1.0), (0.0, 1.0, 0.0), (1.0, 0.0, 0.0)],
)
def test_the_share_is_the_shadows_weight_for_each_of_productions_at_most_all(
    weight: float, production: float, share: float
) -> None:
    made = shadowed(weight=weight, production=production)
    desired = replace(SERVE, active=made)
    (publish, *_) = (
        one
        for one in decide(desired, observed(seen("a", READY, copy=1)), now=0.0).actions
        if isinstance(one, PublishRoutes)
    )
    assert [one.weight for one in publish.routes.shadows] == [share]
    assert [one.weight for one in publish.routes.variants] == [production]


def test_a_change_of_the_shadows_share_or_count_is_done_at_once() -> None:
    """Even if its instances can't be had: nobody waits for them."""
    wrong = replace(failure(7, permanent=True, ordinal=1), variant="dark")
    more = shadowed(count=2, weight=1.0)
    desired = EndpointSpec(endpoint="shop", status=UPDATING, active=more, previous=shadowed())
    state = observed(
        seen("a", READY, copy=1),
        dark("d", READY, copy=2),
        failures=(wrong,),
        published=known((1, "a"), shadow=((2, "d"),)),
    )
    assert decide(desired, state, now=11.0).actions == (
        PublishRoutes(known((1, "a"), shadow=((2, "d"),), share=1.0), "weights-changed"),
        SetStatus(IN_SERVICE, "counts-reached", "", 1),
    )
    assert raised(more, shadowed()) == frozenset()


def test_a_lower_count_of_a_shadow_drains_its_newest_copy() -> None:
    two = known((1, "a"), shadow=((2, "d"), (3, "e")))
    state = observed(
        seen("a", READY, copy=1),
        dark("d", READY, copy=2),
        dark("e", READY, copy=3, ordinal=1),
        published=two,
    )
    assert decide(SERVE, state, now=0.0).actions == (
        PublishRoutes(known((1, "a"), shadow=((2, "d"),)), "copies-changed"),
        DrainCopy("e", 3, "variant-count"),
    )


def test_a_new_generation_takes_over_without_its_shadow_and_the_old_one_ends() -> None:
    desired = EndpointSpec(endpoint="shop", status=UPDATING, active=shadowed(1), target=shadowed(2))
    before = known((1, "a"), shadow=((2, "d"),))
    old = (seen("a", READY, copy=1), dark("d", READY, copy=2))
    assert decide(desired, observed(*old, published=before), now=0.0).actions == (
        StartInstance("blue", 2, 0, "new-generation"),
    )
    new = seen("b", READY, copy=3, generation=2)
    assert decide(desired, observed(*old, new, published=before), now=1.0).actions == (
        PublishRoutes(known((3, "b")), "generation-ready"),
        SetStatus(IN_SERVICE, "generation-ready", "", 2),
    )
    serve = EndpointSpec(endpoint="shop", status=IN_SERVICE, active=shadowed(2))
    assert decide(serve, observed(*old, new, published=known((3, "b"))), now=2.0).actions == (
        StartInstance("dark", 2, 0, "variant-count"),
        DrainCopy("a", 1, "old-generation"),
        DrainCopy("d", 2, "old-generation"),
    )


CANARY_POLICY = RolloutPolicy(
    kind=CANARY, size=RolloutSize(kind=CAPACITY_PERCENT, value=25), wait_s=60.0
)


def test_while_traffic_moves_the_serving_generations_shadow_keeps_its_share() -> None:
    target = replace(shadowed(2), rollout=CANARY_POLICY)
    baking = RolloutProgress(stage=BAKING, began=0.0, since=0.0, step=1, share=0.25)
    desired = EndpointSpec(
        endpoint="shop", status=UPDATING, active=shadowed(1), target=target, progress=baking
    )
    state = observed(
        seen("a", READY, copy=1),
        dark("d", READY, copy=2),
        seen("b", READY, copy=3, generation=2),
        published=known((1, "a"), shadow=((2, "d"),)),
    )
    (publish,) = decide(desired, state, now=1.0, wall=1.0).actions
    assert isinstance(publish, PublishRoutes)
    assert [(one.weight, one.incoming) for one in publish.routes.variants] == [
        (0.75, False),
        (0.25, True),
    ]
    assert publish.routes.shadows == known(shadow=((2, "d"),)).shadows


def test_a_shadow_that_is_left_alone_holds_no_traffic_back() -> None:
    """All of the old generation that callers know has died; the new one takes all, though its own
    copies start again. The old shadow's copy answers nobody."""
    target = replace(shadowed(2), rollout=CANARY_POLICY)
    all_of_it = RolloutProgress(stage=BAKING, began=0.0, since=0.0, step=2, share=1.0)
    desired = EndpointSpec(
        endpoint="shop", status=UPDATING, active=shadowed(1), target=target, progress=all_of_it
    )
    state = observed(
        dark("d", READY, copy=2),
        seen("b", LOADING, copy=3, generation=2),
        published=known((1, "a"), shadow=((2, "d"),)),
    )
    actions = decide(desired, state, now=1.0, wall=1.0).actions
    assert PublishRoutes(known(), "copies-changed") in actions
    assert not [one for one in actions if isinstance(one, SetStatus | SetRollout)]


def test_a_shadow_that_left_the_configuration_ends() -> None:
    desired = replace(SERVE, active=deployment(2))
    state = observed(
        seen("b", READY, copy=3, generation=2), dark("d", RUNNING), published=routes((3, "b"))
    )
    assert decide(desired, state, now=0.0).actions == (StopInstance("d", "old-generation"),)


def test_a_copy_of_a_shadow_is_routed_to_like_any_other() -> None:
    (of_shadow,) = known(shadow=((2, "d"),)).shadows
    assert of_shadow.copies == (CopyRoute(copy=2, instance_id="d", outstanding_max=8),)
    assert [one.name for one in known().hosted] == ["blue", "dark"]
