"""`core/deployment/endpoint_state.py` and `core/deployment/capacity_spec.py`: what a value says
where nothing was said.
"""

from __future__ import annotations

from penstock.core.deployment.capacity_spec import SPREAD, WHOLE_INSTANCE, ComponentCopiesSpec
from penstock.core.deployment.deployment import ModelSource
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
