"""`core/endpoint/reconcile.py` as literal timelines: what is desired and seen, and what follows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.kit.core_reconcile import deployment, failure, observed, routes, seen

from penstock.core.deployment.endpoint_state import (
    CREATING,
    DELETING,
    DRAINED,
    DRAINING,
    FAILED,
    GONE,
    IN_SERVICE,
    LOADING,
    LOST,
    READY,
    RUNNING,
    STARTING,
    STOPPING,
    UPDATING,
    DrainCopy,
    EndpointObserved,
    EndpointSpec,
    FinishDelete,
    LoadCopy,
    PublishRoutes,
    SetStatus,
    SlotFailure,
    StartInstance,
    StopInstance,
    WithdrawRoutes,
)
from penstock.core.deployment.slot_retries import ReconcileSpec
from penstock.core.endpoint.reconcile import ReconcileDecision, decide

CREATE = EndpointSpec(endpoint="shop", status=CREATING, target=deployment())
SERVE = EndpointSpec(endpoint="shop", status=IN_SERVICE, active=deployment())
ROLL_OUT = EndpointSpec(
    endpoint="shop", status=UPDATING, active=deployment(1), target=deployment(2)
)


def test_creating_starts_loads_publishes_and_is_in_service() -> None:
    assert decide(CREATE, observed(), now=0.0) == ReconcileDecision(
        (StartInstance("blue", 1, 0, "new-generation"),), None
    )
    # It starts: nothing to do but to look at the clock in 60 s.
    assert decide(CREATE, observed(seen("a", STARTING)), now=1.0) == ReconcileDecision((), 60.0)
    assert decide(CREATE, observed(seen("a", RUNNING)), now=2.0) == ReconcileDecision(
        (LoadCopy("a", "blue", 1, 0, "instance-running"),), None
    )
    # 100 s of download, 50 s of startup and 10 s of grace for the instance's own timeout.
    assert decide(CREATE, observed(seen("a", LOADING)), now=3.0) == ReconcileDecision((), 160.0)
    assert decide(CREATE, observed(seen("a", READY, copy=7)), now=4.0) == ReconcileDecision(
        (
            PublishRoutes(routes((7, "a")), "generation-ready"),
            SetStatus(IN_SERVICE, "generation-ready", "", 1),
        ),
        None,
    )
    settled = observed(seen("a", READY, copy=7), published=routes((7, "a")))
    assert decide(SERVE, settled, now=5.0) == ReconcileDecision((), None)


def test_routes_carry_how_the_variant_is_routed() -> None:
    routing = {
        "strategy": "PREFIX_AWARE", "prefix_length_max": 4096, "concurrency_threshold": 16
    }  # fmt: skip
    (blue,) = deployment().variants
    target = replace(deployment(), variants=(replace(blue, **routing),))
    desired = EndpointSpec(endpoint="shop", status=CREATING, target=target)
    (publish, _) = decide(desired, observed(seen("a", READY, copy=7)), now=4.0).actions
    assert isinstance(publish, PublishRoutes)
    (published,) = publish.routes.variants
    assert published == replace(routes((7, "a")).variants[0], **routing)


def test_creating_publishes_nothing_before_every_copy_is_ready() -> None:
    desired = EndpointSpec(endpoint="shop", status=CREATING, target=deployment(count=2))
    half = observed(seen("a", READY, copy=1), seen("b", LOADING, ordinal=1))
    assert decide(desired, half, now=1.0).actions == ()


def test_a_count_of_any_size_starts_a_few_at_a_time() -> None:
    """A count is a number in a request. 100,000 of them stopped the server for minutes, while the
    first 300 processes had filled the machine; 2^31 would not even have fitted into its memory."""
    spec = ReconcileSpec(starting_max=3)
    desired = EndpointSpec(endpoint="shop", status=CREATING, target=deployment(count=2**31 - 1))
    assert decide(desired, observed(), now=0.0, spec=spec).actions == tuple(
        StartInstance("blue", 1, ordinal, "new-generation") for ordinal in range(3)
    )
    some = observed(
        seen("a", STARTING), seen("b", RUNNING, ordinal=1), seen("c", LOADING, ordinal=2)
    )
    assert decide(desired, some, now=1.0, spec=spec).actions == (
        LoadCopy("b", "blue", 1, 0, "instance-running"),
        StartInstance("blue", 1, 3, "new-generation"),
    )
    # One that waits for its next attempt takes no place of those that may start.
    waits = observed(failures=(failure(at=1.0),))
    assert decide(desired, waits, now=1.2, spec=spec) == ReconcileDecision(
        tuple(StartInstance("blue", 1, ordinal, "new-generation") for ordinal in (1, 2, 3)), 1.5
    )


def test_a_queued_operation_has_no_time_limit_yet() -> None:
    queued = seen("a", LOADING, since=None)
    assert decide(CREATE, observed(queued), now=10_000.0) == ReconcileDecision((), None)


def test_a_model_that_is_wrong_fails_the_creation_at_once_and_stops_everything() -> None:
    both = observed(seen("b", RUNNING, ordinal=1), failures=(failure(permanent=True),))
    desired = EndpointSpec(endpoint="shop", status=CREATING, target=deployment(count=2))
    assert decide(desired, both, now=11.0).actions == (
        SetStatus(FAILED, "generation-failed", "model.onnx is cut short. Upload it again.", None),
    )
    assert decide(replace(desired, status=FAILED), both, now=12.0).actions == (
        StopInstance("b", "endpoint-failed"),
    )


def test_a_failure_that_may_pass_is_tried_three_times() -> None:
    once = observed(failures=(failure(1, at=10.0),))
    assert decide(CREATE, once, now=10.4) == ReconcileDecision((), 10.5)
    assert decide(CREATE, once, now=10.5).actions == (
        StartInstance("blue", 1, 0, "replace-failed"),
    )
    twice = observed(failures=(failure(2, at=20.0),))
    assert decide(CREATE, twice, now=20.0).next_deadline == 21.0
    thrice = observed(failures=(failure(3, at=30.0),))
    assert decide(CREATE, thrice, now=30.0).actions == (
        SetStatus(FAILED, "generation-failed", "model.onnx is cut short. Upload it again.", None),
    )


def test_a_load_that_hangs_is_a_startup_timeout() -> None:
    (action,) = decide(CREATE, observed(seen("a", LOADING)), now=160.0).actions
    assert isinstance(action, StopInstance)
    assert (action.instance_id, action.reason, action.permanent) == ("a", "startup-timeout", True)
    assert action.failure.startswith("startup timeout: variant blue, instance a")
    assert "ContainerStartupHealthCheckTimeoutInSeconds" in action.failure


def test_a_start_that_hangs_is_stopped_and_may_be_tried_again() -> None:
    (action,) = decide(CREATE, observed(seen("a", STARTING)), now=60.0).actions
    assert isinstance(action, StopInstance)
    assert (action.reason, action.permanent) == ("start-timeout", False)


def test_an_update_keeps_the_old_serving_until_all_new_copies_are_ready() -> None:
    old = seen("a", READY, copy=1)
    published = routes((1, "a"))
    assert decide(ROLL_OUT, observed(old, published=published), now=0.0).actions == (
        StartInstance("blue", 2, 0, "new-generation"),
    )
    loading = seen("b", LOADING, generation=2)
    assert decide(ROLL_OUT, observed(old, loading, published=published), now=1.0).actions == ()
    new = seen("b", READY, generation=2, copy=2)
    assert decide(ROLL_OUT, observed(old, new, published=published), now=2.0).actions == (
        PublishRoutes(routes((2, "b")), "generation-ready"),
        SetStatus(IN_SERVICE, "generation-ready", "", 2),
    )
    # The switch is recorded: the old copy is drained, then stopped.
    desired = EndpointSpec(endpoint="shop", status=IN_SERVICE, active=deployment(2))
    published = routes((2, "b"))
    assert decide(desired, observed(old, new, published=published), now=3.0).actions == (
        DrainCopy("a", 1, "old-generation"),
    )
    draining = seen("a", DRAINING, copy=1, since=3.0)
    waiting = decide(desired, observed(draining, new, published=published), now=4.0)
    assert waiting == ReconcileDecision((), 493.0)
    drained = seen("a", DRAINED, copy=1)
    assert decide(desired, observed(drained, new, published=published), now=5.0).actions == (
        StopInstance("a", "drained"),
    )


def test_the_switch_is_the_last_word_about_the_old_generation() -> None:
    """The old copy is lost in the very moment in which the new one is ready."""
    state = observed(
        seen("a", LOST, copy=1),
        seen("b", READY, generation=2, copy=2),
        published=routes((1, "a")),
    )
    assert decide(ROLL_OUT, state, now=2.0).actions == (
        PublishRoutes(routes((2, "b")), "generation-ready"),
        SetStatus(IN_SERVICE, "generation-ready", "", 2),
    )


@pytest.mark.parametrize("desired", [CREATE, ROLL_OUT])
def test_what_is_left_of_a_generation_before_is_stopped_while_the_new_one_comes_up(
    desired: EndpointSpec,
) -> None:
    assert desired.target is not None
    target = desired.target.generation
    state = observed(
        seen("a", STARTING, generation=0),
        seen("b", LOADING, generation=target),
        seen("c", READY, generation=target, ordinal=1, copy=3, routed=False),
        published=None if desired.active is None else routes(),
    )
    changed = replace(desired, target=deployment(target, count=2))
    assert decide(changed, state, now=1.0).actions == (StopInstance("a", "old-generation"),)


def test_both_variants_of_a_generation_must_be_ready() -> None:
    (blue,) = deployment().variants
    target = replace(deployment(), variants=(blue, replace(blue, name="green")))
    desired = EndpointSpec(endpoint="shop", status=CREATING, target=target)
    state = observed(seen("a", READY, copy=1))
    assert decide(desired, state, now=1.0).actions == (
        StartInstance("green", 1, 0, "new-generation"),
    )


def test_in_service_no_failure_takes_a_count_back() -> None:
    """The count was reached; what it was before is of no interest any more."""
    desired = replace(SERVE, active=deployment(count=2), previous=deployment())
    state = observed(
        seen("a", READY, copy=1),
        failures=(failure(3, ordinal=1, at=10.0),),
        published=routes((1, "a")),
    )
    assert decide(desired, state, now=10.0) == ReconcileDecision((), 12.0)


def test_a_copy_that_never_drains_is_stopped_when_its_time_is_over() -> None:
    desired = EndpointSpec(endpoint="shop", status=IN_SERVICE, active=deployment(2))
    draining = seen("a", DRAINING, copy=1, since=3.0)
    new = seen("b", READY, generation=2, copy=2)
    decision = decide(desired, observed(draining, new, published=routes((2, "b"))), now=493.0)
    assert decision.actions == (StopInstance("a", "drain-timeout"),)


def test_a_failed_update_leaves_the_old_generation_in_service_and_says_why() -> None:
    old = seen("a", READY, copy=1)
    published = routes((1, "a"))
    broken = observed(old, failures=(failure(generation=2, permanent=True),), published=published)
    assert decide(ROLL_OUT, broken, now=11.0).actions == (
        SetStatus(
            IN_SERVICE,
            "generation-failed",
            "the update to configuration config-2 failed, config-1 serves on: model.onnx is cut"
            " short. Upload it again.",
            1,
        ),
    )
    # What was already up of the new generation was never routed: it is stopped without draining.
    new = seen("b", READY, generation=2, ordinal=1, copy=2, routed=False)
    assert decide(SERVE, observed(old, new, published=published), now=12.0).actions == (
        StopInstance("b", "old-generation"),
    )


def test_a_capacity_error_keeps_the_beginning_that_clients_look_for() -> None:
    full = replace(failure(generation=2, permanent=True), message="CapacityError: no memory")
    (action,) = decide(
        ROLL_OUT,
        observed(seen("a", READY, copy=1), failures=(full,), published=routes((1, "a"))),
        now=11.0,
    ).actions
    assert isinstance(action, SetStatus)
    assert action.failure_reason == "CapacityError: no memory"


def test_an_old_copy_that_dies_during_an_update_is_replaced() -> None:
    """It was seen to serve: until the switch it is what the clients have."""
    died = observed(
        seen("b", LOADING, generation=2),
        failures=(failure(1, at=10.0),),
        published=routes((1, "a")),
    )
    assert decide(ROLL_OUT, died, now=10.5).actions == (
        StartInstance("blue", 1, 0, "replace-failed"),
        PublishRoutes(routes(), "copies-changed"),
    )


def test_after_a_restart_an_update_goes_straight_to_its_target() -> None:
    """A machine with room for one generation must come up too. The endpoint is known meanwhile."""
    assert decide(ROLL_OUT, observed(), now=0.0).actions == (
        StartInstance("blue", 2, 0, "new-generation"),
        PublishRoutes(routes(), "endpoint-known"),
    )
    known = observed(seen("b", LOADING, generation=2), published=routes())
    assert decide(ROLL_OUT, known, now=1.0).actions == ()


def test_after_a_restart_a_failing_target_falls_back_to_the_old_generation() -> None:
    failed = observed(failures=(failure(generation=2, permanent=True),), published=routes())
    (action,) = decide(ROLL_OUT, failed, now=1.0).actions
    assert isinstance(action, SetStatus)
    assert (action.status, action.active_generation) == (IN_SERVICE, 1)
    assert decide(SERVE, observed(published=routes()), now=2.0).actions == (
        StartInstance("blue", 1, 0, "variant-count"),
    )


def test_after_a_restart_an_endpoint_in_service_is_known_at_once_and_serves_as_copies_come() -> (
    None
):
    desired = EndpointSpec(endpoint="shop", status=IN_SERVICE, active=deployment(count=2))
    assert decide(desired, observed(), now=0.0).actions == (
        StartInstance("blue", 1, 0, "variant-count"),
        StartInstance("blue", 1, 1, "variant-count"),
        PublishRoutes(routes(), "endpoint-known"),
    )
    one_up = observed(seen("a", READY, copy=1), seen("b", LOADING, ordinal=1), published=routes())
    assert decide(desired, one_up, now=1.0).actions == (
        PublishRoutes(routes((1, "a")), "copies-changed"),
    )


def test_after_a_restart_a_deletion_is_finished() -> None:
    desired = EndpointSpec(endpoint="shop", status=DELETING, active=deployment())
    assert decide(desired, observed(), now=0.0).actions == (FinishDelete("nothing-left"),)


def test_a_copy_that_dies_in_service_is_withdrawn_at_once_and_replaced_after_a_pause() -> None:
    died = observed(failures=(failure(1, at=10.0),), published=routes((1, "a")))
    assert decide(SERVE, died, now=10.0) == ReconcileDecision(
        (PublishRoutes(routes(), "copies-changed"),), 10.5
    )


def test_in_service_even_a_wrong_model_is_tried_for_ever_every_30_s() -> None:
    """The store may be back tomorrow; what was asked for has not changed."""
    broken = observed(failures=(failure(40, at=100.0, permanent=True),), published=routes())
    assert decide(SERVE, broken, now=100.0) == ReconcileDecision((), 130.0)
    assert decide(SERVE, broken, now=130.0).actions == (
        StartInstance("blue", 1, 0, "replace-failed"),
    )


def test_a_lost_worker_leaves_the_routes_and_gets_time_to_come_back() -> None:
    lost = seen("a", LOST, copy=1, since=5.0)
    assert decide(SERVE, observed(lost, published=routes((1, "a"))), now=6.0) == ReconcileDecision(
        (PublishRoutes(routes(), "copies-changed"),), 165.0
    )
    (action,) = decide(SERVE, observed(lost, published=routes()), now=165.0).actions
    assert isinstance(action, StopInstance)
    assert (action.reason, action.permanent) == ("copy-not-back", False)


def test_a_broken_connection_waits_two_seconds_for_the_fleets_word() -> None:
    gone = seen("a", GONE, copy=1, since=5.0)
    assert decide(SERVE, observed(gone, published=routes()), now=5.0) == ReconcileDecision((), 7.0)
    (action,) = decide(SERVE, observed(gone, published=routes()), now=7.0).actions
    assert isinstance(action, StopInstance)
    assert action.reason == "connection-lost"


def test_a_broken_connection_is_a_failure_of_its_slot_so_the_next_attempt_pauses() -> None:
    """Without a story it would count as desired: one that breaks at once would start for ever."""
    gone = seen("a", GONE, copy=1, since=5.0)
    assert decide(SERVE, observed(gone, published=routes()), now=7.0) == ReconcileDecision(
        (StopInstance("a", "connection-lost", "variant blue, instance a broke its connection."),),
        None,
    )
    stopping = observed(seen("a", STOPPING), failures=(failure(1, at=7.0),), published=routes())
    assert decide(SERVE, stopping, now=7.0) == ReconcileDecision((), 7.5)
    assert decide(SERVE, stopping, now=7.5).actions == (
        StartInstance("blue", 1, 0, "replace-failed"),
    )


def test_it_wakes_at_the_earliest_of_its_deadlines() -> None:
    """Times of phases and pauses of slots, whichever is nearer, in whatever order they are seen."""
    desired = replace(SERVE, active=deployment(count=4))
    load, start = seen("a", LOADING, since=0.0), seen("b", STARTING, ordinal=1, since=50.0)
    late = (failure(9, at=70.0, ordinal=2), failure(8, at=79.0, ordinal=3))
    for instances in ((load, start), (start, load)):
        state = observed(*instances, failures=late, published=routes())
        assert decide(desired, state, now=80.0) == ReconcileDecision((), 100.0)
        sooner = replace(late[0], count=5)
        state = observed(*instances, failures=(sooner, late[1]), published=routes())
        assert decide(desired, state, now=72.0) == ReconcileDecision((), 78.0)
    state = observed(start, load, published=routes())
    assert decide(replace(SERVE, active=deployment(count=2)), state, now=80.0) == (
        ReconcileDecision((), 110.0)
    )


def test_what_failed_before_does_not_abort_an_update() -> None:
    """The old generation's model is wrong: that is what the update is to mend."""
    broken = observed(failures=(failure(5, at=0.0, permanent=True),), published=routes())
    assert decide(ROLL_OUT, broken, now=5.0) == ReconcileDecision(
        (StartInstance("blue", 2, 0, "new-generation"),), 8.0
    )


def test_the_first_of_several_final_failures_is_what_is_told() -> None:
    later = replace(failure(ordinal=0, at=12.0, permanent=True), message="later")
    first = replace(failure(ordinal=1, at=11.0, permanent=True), message="first")
    desired = EndpointSpec(endpoint="shop", status=CREATING, target=deployment(count=2))
    assert decide(desired, observed(failures=(later, first)), now=13.0).actions == (
        SetStatus(FAILED, "generation-failed", "first", None),
    )


def test_new_weights_are_published_and_done() -> None:
    desired = EndpointSpec(
        endpoint="shop", status=UPDATING, active=deployment(weight=3.0), previous=deployment()
    )
    state = observed(seen("a", READY, copy=1), published=routes((1, "a")))
    assert decide(desired, state, now=0.0).actions == (
        PublishRoutes(routes((1, "a"), weight=3.0), "weights-changed"),
        SetStatus(IN_SERVICE, "counts-reached", "", 1),
    )


def test_a_higher_count_is_reached_before_the_update_is_over() -> None:
    desired = EndpointSpec(
        endpoint="shop", status=UPDATING, active=deployment(count=2), previous=deployment()
    )
    first = seen("a", READY, copy=1)
    assert decide(desired, observed(first, published=routes((1, "a"))), now=0.0).actions == (
        StartInstance("blue", 1, 1, "variant-count"),
    )
    second = seen("b", READY, ordinal=1, copy=2)
    assert decide(
        desired, observed(first, second, published=routes((1, "a"))), now=1.0
    ).actions == (
        PublishRoutes(routes((1, "a"), (2, "b")), "weights-changed"),
        SetStatus(IN_SERVICE, "counts-reached", "", 1),
    )


def test_a_count_out_of_reach_is_taken_back_and_says_why() -> None:
    desired = EndpointSpec(
        endpoint="shop", status=UPDATING, active=deployment(count=2), previous=deployment()
    )
    full = observed(
        seen("a", READY, copy=1),
        failures=(failure(ordinal=1, permanent=True),),
        published=routes((1, "a")),
    )
    assert decide(desired, full, now=11.0).actions == (
        SetStatus(
            IN_SERVICE,
            "counts-out-of-reach",
            "model.onnx is cut short. Upload it again.",
            1,
            restore_previous=True,
        ),
    )


MORE = EndpointSpec(
    endpoint="shop", status=UPDATING, active=deployment(count=2), previous=deployment()
)


def test_a_count_out_of_reach_ends_after_three_failures_that_might_have_passed() -> None:
    def state(count: int) -> EndpointObserved:
        return observed(
            seen("a", READY, copy=1),
            failures=(failure(count, ordinal=1),),
            published=routes((1, "a")),
        )

    assert decide(MORE, state(2), now=10.0) == ReconcileDecision((), 11.0)
    assert decide(MORE, state(3), now=10.0).actions == (
        SetStatus(
            IN_SERVICE,
            "counts-out-of-reach",
            "model.onnx is cut short. Upload it again.",
            1,
            restore_previous=True,
        ),
    )


@pytest.mark.parametrize(
    "failed",
    [
        failure(5, ordinal=1, generation=7),
        replace(failure(5, ordinal=1), variant="green"),
        failure(5, ordinal=0),
    ],
    ids=["another generation", "another variant", "a slot that serves again"],
)
def test_a_failure_that_does_not_keep_a_count_from_being_reached_ends_nothing(
    failed: SlotFailure,
) -> None:
    state = observed(seen("a", READY, copy=1), failures=(failed,), published=routes((1, "a")))
    assert decide(MORE, state, now=100.0).actions == (StartInstance("blue", 1, 1, "variant-count"),)


def test_a_slot_that_fails_where_no_count_was_raised_ends_nothing() -> None:
    """A weight is changed while a copy is down: it is done when the routes have it."""
    desired = EndpointSpec(
        endpoint="shop", status=UPDATING, active=deployment(weight=3.0), previous=deployment()
    )
    state = observed(failures=(failure(5, at=99.0, permanent=True),), published=routes())
    assert decide(desired, state, now=100.0) == ReconcileDecision(
        (
            PublishRoutes(routes(weight=3.0), "weights-changed"),
            SetStatus(IN_SERVICE, "counts-reached", "", 1),
        ),
        107.0,
    )


def test_in_service_nothing_is_recorded_however_few_are_ready() -> None:
    desired = replace(SERVE, active=deployment(count=2))
    two = (seen("a", READY, copy=1), seen("b", READY, ordinal=1, copy=2))
    state = observed(*two, published=routes((1, "a"), (2, "b")))
    assert decide(desired, state, now=0.0) == ReconcileDecision((), None)
    one_left = observed(two[0], failures=(failure(9, ordinal=1),), published=routes((1, "a")))
    assert decide(desired, one_left, now=10.0) == ReconcileDecision((), 40.0)


def test_a_lower_count_withdraws_then_drains_the_newest() -> None:
    desired = EndpointSpec(
        endpoint="shop", status=UPDATING, active=deployment(), previous=deployment(count=2)
    )
    state = observed(
        seen("a", READY, copy=1),
        seen("b", READY, ordinal=1, copy=2),
        published=routes((1, "a"), (2, "b")),
    )
    assert decide(desired, state, now=0.0).actions == (
        PublishRoutes(routes((1, "a")), "weights-changed"),
        DrainCopy("b", 2, "variant-count"),
        SetStatus(IN_SERVICE, "counts-reached", "", 1),
    )


def test_a_lower_count_takes_the_copy_with_the_least_left_to_do_and_then_stays_with_it() -> None:
    """The whole of a scale-in: the idle copy goes although its slot is older, and although the
    other has been idle for long by the time that it is gone."""
    desired = EndpointSpec(endpoint="shop", status=IN_SERVICE, active=deployment())
    both, one = routes((1, "a"), (2, "b")), routes((2, "b"))
    kept = seen("b", READY, ordinal=1, copy=2, outstanding=1)
    idle = seen("a", READY, copy=1)
    assert decide(desired, observed(idle, kept, published=both), now=0.0).actions == (
        PublishRoutes(one, "copies-changed"),
        DrainCopy("a", 1, "variant-count"),
    )
    idle_now = seen("b", READY, ordinal=1, copy=2)
    # A request had been on its way to it; it is the one that leaves all the same.
    drains = seen("a", DRAINING, copy=1, since=0.0, outstanding=3)
    assert decide(desired, observed(drains, idle_now, published=one), now=1.0).actions == ()
    drained = seen("a", DRAINED, copy=1)
    assert decide(desired, observed(drained, idle_now, published=one), now=2.0).actions == (
        StopInstance("a", "drained"),
    )
    stops = seen("a", STOPPING, copy=1)
    assert decide(desired, observed(stops, idle_now, published=one), now=3.0).actions == ()


def test_with_a_stream_on_each_the_shorter_queue_goes_and_its_stream_may_take_its_time() -> None:
    desired = EndpointSpec(endpoint="shop", status=IN_SERVICE, active=deployment())
    one = routes((2, "b"))
    longer = seen("b", READY, ordinal=1, copy=2, outstanding=5)
    shorter = seen("a", READY, copy=1, outstanding=1)
    state = observed(shorter, longer, published=routes((1, "a"), (2, "b")))
    assert decide(desired, state, now=0.0).actions == (
        PublishRoutes(one, "copies-changed"),
        DrainCopy("a", 1, "variant-count"),
    )
    streams = seen("a", DRAINING, copy=1, since=0.0, outstanding=1)
    for now in (31.0, 480.0):
        decision = decide(desired, observed(streams, longer, published=one), now=now)
        assert decision == ReconcileDecision((), 490.0)


def test_a_deletion_does_not_wait_for_a_drain_that_a_lower_count_began() -> None:
    desired = EndpointSpec(endpoint="shop", status=DELETING, active=deployment())
    streams = seen("a", DRAINING, copy=1, since=0.0, outstanding=1)
    assert decide(desired, observed(streams), now=10.0) == ReconcileDecision((), 30.0)
    assert decide(desired, observed(streams), now=30.0).actions == (
        StopInstance("a", "drain-timeout"),
    )


def test_a_lower_count_keeps_the_copy_that_serves_not_the_one_that_is_coming_up() -> None:
    state = observed(
        seen("a", LOADING), seen("b", READY, ordinal=1, copy=2), published=routes((2, "b"))
    )
    assert decide(SERVE, state, now=0.0).actions == (StopInstance("a", "variant-count"),)


@pytest.mark.parametrize("status", [DELETING, FAILED])
def test_the_end_withdraws_drains_what_was_routed_and_stops_the_rest(status: str) -> None:
    desired = EndpointSpec(endpoint="shop", status=status, active=deployment())
    reason = "endpoint-deleted" if status == DELETING else "endpoint-failed"
    state = observed(
        seen("a", READY, copy=1),
        seen("b", LOADING, ordinal=1),
        seen("c", GONE, ordinal=2),
        seen("d", STOPPING, ordinal=3),
        published=routes((1, "a")),
    )
    assert decide(desired, state, now=0.0).actions == (
        WithdrawRoutes(reason),
        DrainCopy("a", 1, reason),
        StopInstance("b", reason),
        StopInstance("c", reason),
    )


def test_a_deleted_endpoint_is_forgotten_only_when_its_last_instance_has_ended() -> None:
    desired = EndpointSpec(endpoint="shop", status=DELETING, active=deployment())
    assert decide(desired, observed(seen("a", STOPPING)), now=0.0).actions == ()


def test_failure_reasons_keep_sagemakers_limit() -> None:
    long = replace(failure(permanent=True), message="x" * 5000)
    (action,) = decide(CREATE, observed(failures=(long,)), now=11.0).actions
    assert isinstance(action, SetStatus)
    assert len(action.failure_reason) == 1024
