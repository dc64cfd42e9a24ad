"""`core/endpoint/endings.py`: what takes too long, and how what is taken away ends."""

from __future__ import annotations

from dataclasses import replace

from tests.kit.core_reconcile import Seen, observed, seen

from penstock.core.deployment.capacity_spec import CopySpec
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
    UNLOADING,
    CopyObserved,
    DrainCopy,
    InstanceObserved,
    StopInstance,
    UnloadCopy,
)
from penstock.core.deployment.slot_retries import ReconcileSpec
from penstock.core.endpoint.endings import Expired, expire, retire_copy, retire_instance
from penstock.core.resources import ComputeResources

SPEC = ReconcileSpec()
SHARES = CopySpec(resources=ComputeResources(memory_bytes=1))


def both(phase: str, *, routed: bool = True) -> tuple[InstanceObserved, list[CopyObserved]]:
    one = seen("a", phase, copy=1, routed=routed)
    return one.instance, list(one.copies)


def sharing(one: Seen) -> Seen:
    """The same, with a copy that leaves room for others."""
    return Seen(one.instance, tuple(replace(copy, need=SHARES) for copy in one.copies))


def test_nothing_is_over_before_its_time_and_the_next_to_be_over_is_told() -> None:
    state = observed(
        seen("a", STARTING, since=10.0),
        seen("b", LOADING, ordinal=1, since=0.0),
        seen("c", GONE, ordinal=2, since=40.0),
        seen("d", DRAINING, ordinal=3, since=30.0),
        seen("e", READY, ordinal=4, copy=5),
        seen("f", STOPPING, ordinal=5),
    )
    assert expire(state, now=41.0, spec=SPEC) == Expired((), state, 42.0)


def test_what_is_over_ends_with_its_story_and_is_seen_as_ending() -> None:
    state = observed(
        seen("a", STARTING, since=0.0),
        seen("b", GONE, ordinal=1, since=58.0),
        seen("c", READY, ordinal=2, copy=5),
    )
    expired = expire(state, now=60.0, spec=SPEC)
    assert expired.actions == (
        StopInstance(
            "a",
            "start-timeout",
            "variant blue, instance a did not start within 60 s. Look at its log.",
        ),
        StopInstance("b", "connection-lost", "variant blue, instance b broke its connection."),
    )
    assert [one.phase for one in expired.observed.instances] == [ENDING, ENDING, RUNNING]
    assert expired.observed.copies == state.copies
    assert expired.next_deadline is None


def test_no_clock_ends_the_start_of_a_guest() -> None:
    one = seen("a", STARTING, since=0.0)
    state = observed(Seen(replace(one.instance, yields=True)))
    assert expire(state, now=9999.0, spec=SPEC) == Expired((), state, None)


def test_a_copy_that_has_its_instance_to_itself_takes_it_along() -> None:
    loading = observed(seen("a", LOADING), seen("b", LOST, ordinal=1, copy=2, since=1.0))
    expired = expire(loading, now=160.0, spec=SPEC)
    assert expired.actions == (
        StopInstance(
            "a",
            "startup-timeout",
            "startup timeout: variant blue, instance a has not loaded its model within 150 s. Raise"
            " ContainerStartupHealthCheckTimeoutInSeconds or ModelDataDownloadTimeoutInSeconds, or"
            " look at its log.",
            permanent=True,
        ),
    )
    assert expired.next_deadline == 161.0
    assert [one.phase for one in expired.observed.instances] == [ENDING, RUNNING]
    (action,) = expire(observed(seen("b", LOST, copy=2, since=1.0)), now=161.0, spec=SPEC).actions
    assert action == StopInstance(
        "b",
        "copy-not-back",
        "variant blue, instance b: its model's process ended and did not come back in time.",
    )


def test_a_copy_that_shares_its_instance_ends_alone() -> None:
    state = observed(sharing(seen("a", LOADING)))
    expired = expire(state, now=160.0, spec=SPEC)
    (action,) = expired.actions
    assert isinstance(action, UnloadCopy)
    assert (action.copy, action.reason, action.permanent) == (100, "startup-timeout", True)
    assert action.failure.startswith("startup timeout: variant blue, instance a has not loaded")
    assert [one.phase for one in expired.observed.instances] == [RUNNING]
    assert [copy.phase for copy in expired.observed.copies] == [ENDING]
    draining = observed(sharing(seen("a", DRAINING, copy=1, since=3.0)))
    assert expire(draining, now=493.0, spec=SPEC).actions == (UnloadCopy("a", 1, "drain-timeout"),)


def test_a_drain_lasts_as_long_as_the_longest_stream_and_no_longer() -> None:
    draining = observed(seen("a", DRAINING, copy=1, since=3.0))
    assert expire(draining, now=492.9, spec=SPEC) == Expired((), draining, 493.0)
    assert expire(draining, now=493.0, spec=SPEC).actions == (StopInstance("a", "drain-timeout"),)


def test_a_drain_is_short_where_the_whole_endpoint_goes() -> None:
    """Also one that began before: nobody waits eight minutes for a deletion."""
    draining = observed(seen("a", DRAINING, copy=1, since=3.0))
    assert expire(draining, now=32.9, spec=SPEC, ending=True) == Expired((), draining, 33.0)
    over = expire(draining, now=33.0, spec=SPEC, ending=True)
    assert over.actions == (StopInstance("a", "drain-timeout"),)
    impatient = replace(SPEC, drain_s_max=5.0)
    assert expire(draining, now=8.0, spec=impatient, ending=True).actions == over.actions


def test_no_time_of_a_copy_runs_on_an_instance_that_does_not() -> None:
    """Its instance has broken its connection, or is being stopped: that is what is waited for."""
    stuck = Seen(seen("a", STOPPING).instance, seen("a", LOADING).copies)
    state = observed(stuck)
    assert expire(state, now=9_999.0, spec=SPEC) == Expired((), state, None)


def test_what_was_routed_to_drains_before_its_instance_is_stopped() -> None:
    assert retire_instance(*both(READY), "variant-count") == [DrainCopy("a", 1, "variant-count")]
    assert retire_instance(*both(LOST), "variant-count") == [DrainCopy("a", 1, "variant-count")]
    assert retire_instance(*both(DRAINING), "variant-count") == []
    assert retire_instance(*both(DRAINED), "variant-count") == [StopInstance("a", "drained")]


def test_what_was_never_routed_to_is_stopped_at_once() -> None:
    for phase in (RUNNING, LOADING, STARTING):
        assert retire_instance(seen("a", phase).instance, [], "old-generation") == [
            StopInstance("a", "old-generation")
        ]
    assert retire_instance(*both(READY, routed=False), "old-generation") == [
        StopInstance("a", "old-generation")
    ]
    assert retire_instance(*both(GONE), "endpoint-deleted") == [
        StopInstance("a", "endpoint-deleted")
    ]
    assert retire_instance(*both(STOPPING), "endpoint-deleted") == []


def test_an_instance_of_many_is_stopped_when_the_last_of_them_has_drained() -> None:
    one = seen("a", RUNNING).instance
    first, second = (replace(seen("a", READY, copy=copy).copies[0], need=SHARES) for copy in (1, 2))
    loading = replace(seen("a", LOADING, copy=3).copies[0], need=SHARES)
    assert retire_instance(one, [first, second, loading], "variant-count") == [
        DrainCopy("a", 1, "variant-count"),
        DrainCopy("a", 2, "variant-count"),
    ]
    drained, draining = replace(first, phase=DRAINED), replace(second, phase=DRAINING)
    assert retire_instance(one, [drained, draining, loading], "variant-count") == []
    assert retire_instance(one, [drained, loading], "variant-count") == [
        StopInstance("a", "drained")
    ]


def test_a_copy_taken_from_an_instance_that_stays_drains_and_is_unloaded() -> None:
    def copy(phase: str, *, routed: bool = True) -> CopyObserved:
        return replace(both(phase, routed=routed)[1][0], need=SHARES)

    assert retire_copy(copy(READY), "copy-count") == [DrainCopy("a", 1, "copy-count")]
    assert retire_copy(copy(DRAINING), "copy-count") == []
    assert retire_copy(copy(DRAINED), "copy-count") == [UnloadCopy("a", 1, "drained")]
    assert retire_copy(copy(UNLOADING), "copy-count") == []
    assert retire_copy(copy(ENDING), "copy-count") == []
    for never_routed in (copy(LOADING), copy(READY, routed=False)):
        assert retire_copy(never_routed, "copy-count") == [UnloadCopy("a", 1, "copy-count")]
