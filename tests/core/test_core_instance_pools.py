"""`core/endpoint/instance_pools.py` as literal timelines, and what `capacity` makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.kit.core_reconcile import Seen, observed, seen

from penstock.core.deployment.capacity_spec import (
    ComponentCopiesSpec,
    VariantCapacitySpec,
    capacity_specs,
)
from penstock.core.deployment.deployment import DeploymentSpec, ModelSource, PoolSpec, VariantSpec
from penstock.core.deployment.endpoint_state import (
    CREATING,
    IN_SERVICE,
    LOADING,
    READY,
    STARTING,
    EndpointObserved,
    EndpointSpec,
    PoolShortage,
    RefuseInstance,
    SlotFailure,
    StartInstance,
)
from penstock.core.deployment.slot_retries import ReconcileSpec
from penstock.core.endpoint import capacity
from penstock.core.endpoint.instance_pools import (
    ALL_POOLS_SHORT,
    InstancePoolChoice,
    choose,
    passes_over,
    rank,
    shortage_of,
)
from penstock.core.endpoint.reconcile import decide
from penstock.core.machine.room import NO_ROOM, PLACED, WAIT, RoomDecision

SPEC = ReconcileSpec()
BIG, SMALL = "ml.big", "ml.small"


def desired(instances: int = 1, pools: tuple[str, ...] = (BIG, SMALL)) -> VariantCapacitySpec:
    component = ComponentCopiesSpec(
        name="blue", model=ModelSource(model_name="m"), copies=instances
    )
    return VariantCapacitySpec(
        name="blue", generation=1, instances=instances, components=(component,), pools=pools
    )


def short(
    kind: str, *, at: float = 10.0, count: int = 1, waits: bool = False, generation: int = 1
) -> PoolShortage:
    return PoolShortage(
        variant="blue",
        generation=generation,
        instance_type=kind,
        count=count,
        at=at,
        reason="memory-taken",
        message=f"CapacityError: {kind} is full.",
        waits=waits,
    )


def refused(*, at: float, ordinal: int = 0, count: int = 1) -> SlotFailure:
    return SlotFailure(
        variant="blue",
        generation=1,
        ordinal=ordinal,
        count=count,
        at=at,
        message="full",
        reason=ALL_POOLS_SHORT,
        permanent=True,
    )


def chosen(*shortages: PoolShortage, now: float, failures: tuple[SlotFailure, ...] = ()) -> object:
    return choose(desired(), shortages, failures, now=now, spec=SPEC)


def test_the_first_pool_is_filled_as_long_as_it_has_room() -> None:
    assert chosen(now=0.0) == InstancePoolChoice(instance_type=BIG)


def test_a_pool_that_is_short_is_passed_over_and_tried_again_after_its_pause() -> None:
    """Half a second after the first time, then twice as long each time in a row."""
    assert chosen(short(BIG), now=10.4) == InstancePoolChoice(instance_type=SMALL)
    assert chosen(short(BIG), now=10.5) == InstancePoolChoice(instance_type=BIG)
    assert chosen(short(BIG, count=3), now=11.9) == InstancePoolChoice(instance_type=SMALL)
    assert chosen(short(BIG, count=3), now=12.0) == InstancePoolChoice(instance_type=BIG)
    assert chosen(short(BIG, count=99), now=39.9) == InstancePoolChoice(instance_type=SMALL)
    assert chosen(short(BIG, count=99), now=40.0) == InstancePoolChoice(instance_type=BIG)


def test_shortages_of_other_variants_and_generations_count_for_nothing() -> None:
    other = replace(short(BIG), variant="green")
    assert chosen(other, short(BIG, generation=2), now=10.1) == InstancePoolChoice(
        instance_type=BIG
    )


def test_where_all_are_short_it_is_refused_once_with_what_each_lacks() -> None:
    both = (short(SMALL), short(BIG, count=2, at=10.1))
    assert chosen(*both, now=10.2) == InstancePoolChoice(
        refusal="CapacityError: no instance pool of variant blue has room. ml.big: ml.big is full.;"
        " ml.small: ml.small is full."
    )
    # It is known, and the pool whose pause is over first is tried next.
    assert chosen(*both, now=10.2, failures=(refused(at=10.15),)) == InstancePoolChoice(
        next_deadline=10.5
    )
    assert chosen(*both, now=10.5, failures=(refused(at=10.15),)) == InstancePoolChoice(
        instance_type=SMALL
    )
    # A refusal from before is about another time.
    assert isinstance(chosen(*both, now=10.2, failures=(refused(at=10.05),)), InstancePoolChoice)
    assert chosen(*both, now=10.2, failures=(refused(at=10.05),)) != InstancePoolChoice(
        next_deadline=10.5
    )


def test_nobody_is_refused_for_an_answer_that_is_half_a_second_old() -> None:
    """The others are short at this moment; what is still passed over is asked first."""
    found = (short(BIG, count=9), short(SMALL, at=10.5))
    assert chosen(*found, now=10.5) == InstancePoolChoice(instance_type=BIG)
    asked = short(BIG, count=9, at=10.5)
    choice = choose(desired(), (asked, found[1]), (), now=10.5, spec=SPEC)
    assert choice.refusal


def test_what_is_being_freed_is_waited_for_two_seconds_at_a_time() -> None:
    both = (short(BIG), short(SMALL, count=9, waits=True))
    assert chosen(
        short(BIG, count=9), short(SMALL, count=9, waits=True), now=10.1
    ) == InstancePoolChoice(next_deadline=12.0)
    assert chosen(*both, now=10.1) == InstancePoolChoice(next_deadline=10.5)


@pytest.mark.parametrize(
    ("outcome", "reason", "passes"),
    [
        (PLACED, "fits", False),
        (NO_ROOM, "memory-taken", True),
        (WAIT, "room-being-freed", True),
        (WAIT, "guests-give-room", False),
    ],
)
def test_room_that_is_there_within_a_moment_is_waited_for(
    outcome: str, reason: str, passes: bool
) -> None:
    assert passes_over(RoomDecision(outcome=outcome, reason=reason)) is passes


def test_tries_at_one_time_are_one_try() -> None:
    first = short(BIG)
    assert shortage_of(None, first, spec=SPEC) == first
    assert shortage_of(first, short(BIG, at=10.4), spec=SPEC) == short(BIG, at=10.4)
    later = short(BIG, at=10.5)
    assert shortage_of(first, later, spec=SPEC) == replace(later, count=2)


def on(kind: str, one: Seen) -> Seen:
    return Seen(replace(one.instance, instance_type=kind), one.copies)


def decided(count: int, state: EndpointObserved, *, now: float = 10.1) -> capacity.CapacityDecision:
    return capacity.decide(desired(count), state, now=now, spec=SPEC, start_reason="variant-count")


def test_starts_name_the_pool_and_one_refusal_stands_for_all_slots() -> None:
    assert decided(2, observed()).starts == (
        StartInstance("blue", 1, 0, "variant-count", BIG),
        StartInstance("blue", 1, 1, "variant-count", BIG),
    )
    one_short = replace(observed(), shortages=(short(BIG),))
    assert decided(1, one_short).starts == (StartInstance("blue", 1, 0, "variant-count", SMALL),)
    all_short = replace(observed(), shortages=(short(BIG), short(SMALL)))
    decision = decided(2, all_short)
    assert decision.starts == ()
    assert [(one.ordinal, one.reason) for one in decision.refusals] == [(0, ALL_POOLS_SHORT)]
    known = replace(all_short, failures=(refused(at=10.05),))
    assert decided(2, known) == capacity.CapacityDecision((), (), 10.5)


def test_of_too_many_that_are_as_far_the_least_wanted_pool_goes_first() -> None:
    """How far an instance is counts before its pool, its pool before what it has left to do."""
    state = observed(
        on(SMALL, seen("a", READY, copy=1, outstanding=9)),
        on(BIG, seen("b", READY, ordinal=1, copy=2)),
        on(BIG, seen("c", LOADING, ordinal=2)),
        on("ml.gone", seen("d", READY, ordinal=3, copy=4, outstanding=99)),
    )
    names = [one.instance_id for one in decided(4, state).kept]
    assert names == ["b", "a", "d", "c"]
    assert [rank(desired(), one) for one in decided(4, state).kept] == [0, 1, 2, 0]


def deployment(count: int) -> DeploymentSpec:
    return DeploymentSpec(
        endpoint="shop",
        generation=1,
        config_name="c",
        variants=(
            VariantSpec(
                name="blue",
                model=ModelSource(model_name="m"),
                instance_type=BIG,
                instance_count=count,
                pools=(
                    PoolSpec(instance_type=BIG, priority=1),
                    PoolSpec(instance_type=SMALL, priority=2, model=ModelSource(model_name="s")),
                ),
            ),
        ),
    )


def test_an_endpoint_comes_up_on_the_pools_that_have_room() -> None:
    """Two are desired, the first pool has one: its second instance is refused, and comes from the
    second pool in the next decision."""
    desired = EndpointSpec(endpoint="shop", status=CREATING, target=deployment(2))
    first = on(BIG, seen("a", STARTING))
    state = replace(observed(first), shortages=(short(BIG),))
    assert decide(desired, state, now=10.1).actions == (
        StartInstance("blue", 1, 1, "new-generation", SMALL),
    )


def test_a_creation_without_room_in_any_pool_fails_by_its_refusal() -> None:
    desired = EndpointSpec(endpoint="shop", status=CREATING, target=deployment(1))
    state = replace(observed(), shortages=(short(BIG), short(SMALL)))
    (action,) = decide(desired, state, now=10.1).actions
    assert isinstance(action, RefuseInstance)
    failed = replace(state, failures=(replace(refused(at=10.1), message=action.failure),))
    (status,) = decide(desired, failed, now=10.1).actions
    assert status.reason == "generation-failed"


def test_in_service_a_refusal_is_not_the_end() -> None:
    """What is missing is tried again in turn, pool by pool, for ever."""
    desired = EndpointSpec(endpoint="shop", status=IN_SERVICE, active=deployment(1))
    state = replace(observed(), shortages=(short(BIG), short(SMALL)), failures=(refused(at=10.05),))
    assert decide(desired, state, now=10.1).next_deadline == 10.55
    begun = [
        one for one in decide(desired, state, now=10.55).actions if one.reason != "endpoint-known"
    ]
    assert begun == [StartInstance("blue", 1, 0, "replace-failed", BIG)]


def test_each_pool_may_have_a_model_of_its_own() -> None:
    (variant,) = deployment(1).variants
    (wanted,) = capacity_specs(deployment(1))
    assert wanted.pools == (BIG, SMALL)
    named = [variant.model_on(kind) for kind in (BIG, SMALL, "ml.other")]
    assert [one.model_name if one else None for one in named] == ["m", "s", "m"]
