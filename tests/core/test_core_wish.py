"""`core/deployment/wish.py`: what a variant should have, and which of its counts were raised."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.kit.core_reconcile import deployment

from penstock.core.deployment.wish import (
    SPREAD,
    ComponentCopiesSpec,
    CopySpec,
    VariantCapacitySpec,
    raised,
    wished,
)
from penstock.core.resources import ComputeResources


def test_a_model_behind_a_variant_is_one_component_with_an_instance_for_each_copy() -> None:
    (blue,) = deployment().variants
    two = replace(deployment(3, count=2), variants=(replace(blue, instance_count=2), blue))
    first, second = wished(two)
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
    (wish,) = wished(deployment())
    assert wish.component("blue") is wish.components[0]
    with pytest.raises(KeyError):
        wish.component("green")


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
