"""`core/endpoint/capacity.py` as literal timelines: which instances a variant should have."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.kit.core_reconcile import Seen, failure, observed, seen

from penstock.core.deployment.capacity_spec import (
    ComponentCopiesSpec,
    CopySpec,
    VariantCapacitySpec,
)
from penstock.core.deployment.deployment import ModelSource
from penstock.core.deployment.endpoint_state import (
    DRAINED,
    DRAINING,
    ENDING,
    GONE,
    LOADING,
    LOST,
    READY,
    RUNNING,
    STARTING,
    STOPPING,
    DrainCopy,
    EndpointObserved,
    InstanceObserved,
    StartInstance,
    StopInstance,
)
from penstock.core.deployment.slot_retries import ReconcileSpec
from penstock.core.endpoint.capacity import CapacityDecision, decide, take_away
from penstock.core.resources import ComputeResources

SPEC = ReconcileSpec()
SHARES = CopySpec(resources=ComputeResources(memory_bytes=1))


def desired(
    instances: int, *, generation: int = 1, need: CopySpec | None = None
) -> VariantCapacitySpec:
    component = ComponentCopiesSpec(
        name="blue", model=ModelSource(model_name="intent"), copies=instances
    )
    if need is not None:
        component = replace(component, need=need)
    return VariantCapacitySpec(
        name="blue", generation=generation, instances=instances, components=(component,)
    )


def decided(
    variant: VariantCapacitySpec,
    state: EndpointObserved,
    *,
    now: float = 0.0,
    starting_max: int = 16,
) -> CapacityDecision:
    spec = replace(SPEC, starting_max=starting_max)
    return decide(variant, state, now=now, spec=spec, start_reason="variant-count")


def starts(*ordinals: int, reason: str = "variant-count") -> tuple[StartInstance, ...]:
    return tuple(StartInstance("blue", 1, ordinal, reason) for ordinal in ordinals)


def kept(*instances: Seen) -> tuple[InstanceObserved, ...]:
    return tuple(one.instance for one in instances)


def sharing(one: Seen, *phases: str) -> Seen:
    """The instance with a copy in each of these phases, each with room for others."""
    (copy,) = seen(one.instance.instance_id, READY, copy=1).copies
    copies = tuple(
        replace(copy, copy=at, phase=phase, need=SHARES) for at, phase in enumerate(phases, 1)
    )
    return Seen(one.instance, copies)


def test_a_variant_comes_up_slot_by_slot() -> None:
    assert decided(desired(2), observed()) == CapacityDecision((), starts(0, 1), None)
    first = seen("a", STARTING)
    assert decided(desired(2), observed(first)) == CapacityDecision(kept(first), starts(1), None)
    both = (seen("a", READY, copy=1), seen("b", LOADING, ordinal=1))
    assert decided(desired(2), observed(*both)) == CapacityDecision(kept(*both), (), None)


def test_of_those_alike_the_ones_with_the_most_left_to_do_are_kept() -> None:
    """What goes has the least to finish. How far an instance is counts before that."""
    by_work = (
        seen("c", READY, ordinal=2, copy=3, outstanding=9),
        seen("a", READY, ordinal=0, copy=1, outstanding=2),
        seen("b", READY, ordinal=1, copy=2),
        seen("d", READY, ordinal=3, copy=4),
        seen("e", LOST, ordinal=4, copy=5, outstanding=20),
    )
    state = observed(*by_work[::-1])
    for count in range(6):
        assert decided(desired(count), state).kept == kept(*by_work[:count])


def test_what_an_instance_has_left_to_do_is_that_of_all_its_copies() -> None:
    """A copy that drains still has its requests."""
    first, drains = sharing(seen("a", RUNNING), READY, DRAINING).copies
    two = Seen(
        seen("a", RUNNING, ordinal=1).instance,
        (replace(first, outstanding=2), replace(drains, outstanding=2)),
    )
    (single,) = sharing(seen("b", RUNNING), READY).copies
    one = Seen(seen("b", RUNNING).instance, (replace(single, outstanding=3),))
    assert decided(desired(1, need=SHARES), observed(one, two)).kept == kept(two)


def test_of_too_many_the_most_advanced_are_kept() -> None:
    """Ready before lost before loading before connected before started; then the oldest slot."""
    by_progress = (
        seen("e", READY, ordinal=4, copy=5),
        seen("d", LOST, ordinal=3, copy=4),
        seen("c", LOADING, ordinal=2),
        seen("b", RUNNING, ordinal=1),
        seen("a", STARTING, ordinal=0),
    )
    state = observed(*by_progress[::-1])
    for count in range(6):
        assert decided(desired(count), state).kept == kept(*by_progress[:count])
    alike = (seen("b", READY, copy=2), seen("a", READY, copy=1, ordinal=1))
    assert decided(desired(1), observed(*alike[::-1])).kept == kept(alike[0])


def test_an_instance_that_serves_more_is_further() -> None:
    one = sharing(seen("a", RUNNING), READY)
    two = sharing(seen("b", RUNNING, ordinal=1), READY, READY, LOADING)
    state = observed(one, two, seen("c", RUNNING, ordinal=2))
    assert decided(desired(1, need=SHARES), state).kept == kept(two)
    assert decided(desired(2, need=SHARES), state).kept == kept(two, one)


def test_other_variants_and_generations_count_for_nothing() -> None:
    old = seen("a", READY, copy=1)
    assert decided(desired(1, generation=2), observed(old)).kept == ()
    green = replace(desired(1), name="green")
    assert decided(green, observed(old)).kept == ()


def test_a_slot_that_failed_pauses_and_takes_nobodys_place() -> None:
    failed = observed(failures=(failure(1, at=10.0),))
    assert decided(desired(1), failed, now=10.4) == CapacityDecision((), (), 10.5)
    assert decided(desired(1), failed, now=10.5).starts == starts(0, reason="replace-failed")
    assert decided(desired(3), failed, now=10.4, starting_max=2) == CapacityDecision(
        (), starts(1, 2), 10.5
    )


def test_the_next_deadline_is_the_first_pause_that_is_over() -> None:
    two = observed(failures=(failure(3, at=10.0), failure(1, at=10.0, ordinal=1)))
    assert decided(desired(2), two, now=10.0) == CapacityDecision((), (), 10.5)


def test_a_failure_of_a_copy_or_of_another_generation_pauses_no_slot() -> None:
    other = (failure(9, component="intent"), failure(9, generation=2))
    assert decided(desired(1), observed(failures=other), now=10.0).starts == starts(0)


@pytest.mark.parametrize("phase", [GONE, ENDING])
def test_an_instance_whose_end_has_no_story_yet_holds_its_slot(phase: str) -> None:
    """Its failure decides when the next attempt is due: without it there would be no pause."""
    broken = Seen(replace(seen("a", GONE).instance, phase=phase))
    assert decided(desired(1), observed(broken)) == CapacityDecision((), (), None)
    assert decided(desired(2), observed(broken)).starts == starts(1)


@pytest.mark.parametrize("phase", [STOPPING, DRAINING, DRAINED])
def test_an_instance_on_its_way_out_holds_no_slot(phase: str) -> None:
    leaving = seen("a", phase, copy=1)
    assert decided(desired(1), observed(leaving)) == CapacityDecision((), starts(0), None)


def test_an_instance_stays_when_one_of_its_copies_leaves() -> None:
    one = sharing(seen("a", RUNNING), DRAINING)
    assert decided(desired(1, need=SHARES), observed(one)) == CapacityDecision(kept(one), (), None)


def test_a_few_start_at_a_time_however_many_are_desired() -> None:
    some = observed(
        seen("a", STARTING), seen("b", RUNNING, ordinal=1), seen("c", LOADING, ordinal=2)
    )
    assert decided(desired(2**31 - 1), some, starting_max=3).starts == starts(3)
    assert decided(desired(2**31 - 1), some, starting_max=2).starts == ()


def test_an_empty_instance_whose_copies_share_is_not_on_its_way() -> None:
    """It may stay empty for ever: the copies may all be on others."""
    state = observed(seen("a", RUNNING))
    assert decided(desired(3, need=SHARES), state, starting_max=1).starts == starts(1)
    assert decided(desired(3), state, starting_max=1).starts == ()
    starting = observed(seen("a", STARTING))
    assert decided(desired(3, need=SHARES), starting, starting_max=1).starts == ()


def test_where_one_component_wants_instances_to_itself_an_empty_one_is_on_its_way() -> None:
    shared, whole = desired(3, need=SHARES), desired(3)
    both = replace(shared, components=(*shared.components, *whole.components))
    assert decided(both, observed(seen("a", RUNNING)), starting_max=1).starts == ()


def test_what_is_not_kept_is_taken_away_step_by_step() -> None:
    state = observed(
        seen("a", READY, copy=1),
        seen("b", READY, ordinal=1, copy=2),
        seen("c", STARTING, generation=2),
        seen("d", GONE, ordinal=3),
        seen("e", STOPPING, ordinal=4),
    )
    assert take_away(state, {"a"}, {1}) == (
        DrainCopy("b", 2, "variant-count"),
        StopInstance("c", "old-generation"),
    )
    assert take_away(state, {"a", "b", "c"}, {1, 2}) == ()
