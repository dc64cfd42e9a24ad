"""`core/endpoint/reconcile.py`: which failure ends a rollout, or a new count."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.kit.core_reconcile import deployment, failure, observed, seen

from penstock.core.deployment.endpoint_state import (
    GONE,
    LOADING,
    READY,
    EndpointObserved,
    SlotFailure,
)
from penstock.core.deployment.slot_retries import ReconcileSpec
from penstock.core.endpoint.reconcile import of_count, of_rollout

SPEC = ReconcileSpec()


def ends_rollout(*failures: SlotFailure) -> SlotFailure | None:
    return of_rollout(deployment(2), observed(failures=failures), SPEC)


def ends_count(state: EndpointObserved) -> SlotFailure | None:
    return of_count(deployment(count=2), deployment(), state, SPEC)


def test_a_rollout_ends_by_a_wrong_model_or_by_the_third_failure_of_a_slot() -> None:
    wrong, third = failure(1, generation=2, permanent=True), failure(3, generation=2)
    assert ends_rollout(wrong) is wrong
    assert ends_rollout(third) is third
    assert ends_rollout(failure(2, generation=2), failure(9, generation=1)) is None
    assert ends_rollout() is None


def test_of_several_that_end_a_rollout_the_first_is_told_then_by_name() -> None:
    late = failure(3, generation=2, at=20.0)
    assert ends_rollout(late, failure(3, generation=2, at=10.0)) == failure(3, generation=2)
    green = replace(late, variant="green")
    assert ends_rollout(green, late) is late
    component = replace(late, component="x")
    assert ends_rollout(component, late) is late
    higher = replace(late, ordinal=1)
    assert ends_rollout(higher, late) is late


@pytest.mark.parametrize("component", ["", "blue"])
def test_a_count_ends_by_what_keeps_its_slot_from_serving(component: str) -> None:
    """A slot of an instance, or of a copy on one."""
    one = seen("a", READY, copy=1)
    final = failure(3, ordinal=1, component=component)
    assert ends_count(observed(one, failures=(final,))) is final
    assert ends_count(observed(one, failures=(replace(final, count=2),))) is None
    assert ends_count(observed(one, failures=(replace(final, variant="green"),))) is None
    assert ends_count(observed(one, failures=(replace(final, generation=2),))) is None
    # The slot serves again, or not yet.
    second = seen("b", READY, ordinal=1, copy=2)
    assert ends_count(observed(one, second, failures=(final,))) is None
    for phase in (LOADING, GONE):
        loading = seen("b", phase, ordinal=1, copy=2 if phase == LOADING else 0)
        assert ends_count(observed(one, loading, failures=(final,))) is final
    # What serves is of another generation.
    other = seen("b", READY, ordinal=1, copy=2, generation=2)
    assert ends_count(observed(one, other, failures=(final,))) is final


def test_an_instance_that_broke_its_connection_serves_nobody() -> None:
    final = failure(3, ordinal=1)
    gone = seen("b", GONE, ordinal=1, copy=2)
    assert ends_count(observed(gone, failures=(final,))) is final


def test_what_fails_where_no_count_was_raised_ends_no_count() -> None:
    final = failure(3, ordinal=1, component="other")
    assert ends_count(observed(failures=(final,))) is None
    same = observed(failures=(failure(3, ordinal=0),))
    assert of_count(deployment(count=2), deployment(count=2), same, SPEC) is None
