"""`core/deployment/endpoint_state.py` and `core/deployment/capacity_spec.py`: what a value says
where nothing was said.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.kit.core_reconcile import deployment

from penstock.core.deployment.capacity_spec import (
    SPREAD,
    WHOLE_INSTANCE,
    ComponentCopiesSpec,
    CopySpec,
    VariantCapacitySpec,
    capacity_specs,
    raised,
)
from penstock.core.deployment.deployment import ModelSource, VariantRoutes, VariantSpec
from penstock.core.deployment.endpoint_state import (
    READY,
    RUNNING,
    CopyObserved,
    EndpointObserved,
    InstanceObserved,
    SetStatus,
    SlotFailure,
    StopInstance,
    UnloadCopy,
)
from penstock.core.resources import ComputeResources


def test_an_instance_of_which_nothing_is_known_has_nothing() -> None:
    one = InstanceObserved(instance_id="a", variant="v", generation=1, ordinal=0, phase=RUNNING)
    assert one.since is None
    assert (one.resources, one.taken_bytes) == (ComputeResources(), 0)


def test_a_copy_has_its_instance_to_itself_sagemakers_time_to_load_and_no_requests() -> None:
    one = CopyObserved(
        copy=1, instance_id="a", variant="v", generation=1, component="v", ordinal=0, phase=READY
    )
    assert (one.need, one.load_s_max) == (WHOLE_INSTANCE, 3600.0 + 600.0)
    assert (one.outstanding_max, one.model, one.routed) == (0, {}, False)
    desired = ComponentCopiesSpec(name="v", model=ModelSource(model_name="m"), copies=1)
    assert (desired.need, desired.strategy) == (WHOLE_INSTANCE, SPREAD)
    assert (desired.download_timeout_s, desired.startup_timeout_s) == (3600.0, 600.0)


def test_a_failure_may_pass_and_an_end_is_none() -> None:
    failure = SlotFailure(variant="v", generation=1, ordinal=0, count=1, at=0.0, message="why")
    assert (failure.component, failure.permanent) == ("", False)
    for end in (StopInstance("a", "drained"), UnloadCopy("a", 1, "drained")):
        assert (end.failure, end.permanent) == ("", False)
    status = SetStatus("InService", "generation-ready")
    assert (status.failure_reason, status.active_generation) == ("", None)
    assert status.restore_previous is False


def test_copies_are_found_by_their_instance_in_their_order() -> None:
    a1, b2, a3 = (
        CopyObserved(
            copy=copy, instance_id=where, variant="v", generation=1, component="v", ordinal=0,
            phase=READY,
        )
        for copy, where in ((1, "a"), (2, "b"), (3, "a"))
    )  # fmt: skip
    assert EndpointObserved(copies=(a1, b2, a3)).copies_by_instance() == {"a": [a1, a3], "b": [b2]}


# What a variant is where its configuration says nothing: SageMaker's defaults.


def test_a_variant_has_weight_1_an_hour_to_download_and_ten_minutes_to_start() -> None:
    variant = VariantSpec(
        name="blue",
        model=ModelSource(model_name="intent"),
        instance_type="ml.m5.large",
        instance_count=1,
    )
    assert (variant.weight, variant.strategy) == (1.0, "LEAST_OUTSTANDING_REQUESTS")
    assert (variant.download_timeout_s, variant.startup_timeout_s) == (3600.0, 600.0)


def test_prompts_are_not_looked_at_unless_a_length_is_said() -> None:
    spec = VariantSpec(
        name="blue",
        model=ModelSource(model_name="intent"),
        instance_type="ml.m5.large",
        instance_count=1,
    )
    routes = VariantRoutes(name="blue", weight=1.0, strategy="RANDOM", copies=())
    for said in (spec, routes):
        assert (said.prefix_length_max, said.concurrency_threshold) == (0, 0)


# `core/deployment/capacity_spec.py`: what a variant should have, and which counts were raised.


def test_a_model_behind_a_variant_is_one_component_with_an_instance_for_each_copy() -> None:
    (blue,) = deployment().variants
    two = replace(deployment(3, count=2), variants=(replace(blue, instance_count=2), blue))
    first, second = capacity_specs(two)
    assert first == VariantCapacitySpec(
        name="blue",
        generation=3,
        instances=2,
        components=(
            ComponentCopiesSpec(
                name="blue",
                model=blue.model,
                copies=2,
                need=CopySpec(
                    resources=ComputeResources(memory_bytes=0, cores=0.0, accelerators=0),
                    whole_instance=True,
                ),
                strategy=SPREAD,
                download_timeout_s=100.0,
                startup_timeout_s=50.0,
            ),
        ),
    )
    assert (second.instances, second.components[0].copies) == (1, 1)


def test_a_component_is_found_by_its_name() -> None:
    (desired,) = capacity_specs(deployment())
    assert desired.component("blue") is desired.components[0]
    with pytest.raises(KeyError):
        desired.component("green")


def test_counts_that_are_higher_than_before_were_raised_of_instances_and_of_copies() -> None:
    both = frozenset({("blue", ""), ("blue", "blue")})
    assert raised(deployment(count=2), deployment(count=1)) == both
    assert raised(deployment(count=1), deployment(count=1)) == frozenset()
    assert raised(deployment(count=1), deployment(count=2)) == frozenset()
    assert raised(deployment(count=1), None) == both
    # A count of nothing is always reached.
    assert raised(deployment(count=0), None) == frozenset()


def test_a_variant_that_is_new_has_raised_its_counts() -> None:
    (blue,) = deployment().variants
    more = replace(deployment(), variants=(blue, replace(blue, name="green")))
    assert raised(more, deployment()) == frozenset({("green", ""), ("green", "green")})
