"""`core/experiments/machine.py`: experiments as literal timelines.

Their endpoint has `old` at first; `own-1` and `own-2` are configurations that were made for them.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.core.experiments.machine import (
    CANCELLED,
    COMPLETED,
    CREATED,
    CREATING,
    MOVING,
    RUNNING,
    STARTING,
    STOPPING,
    UPDATING,
    WAITING,
    BecomeStatus,
    BeginUpdate,
    ExperimentAction,
    ExperimentEndpoint,
    ExperimentSpec,
    GoBack,
    NoteBegun,
    decide,
    failed,
    next_look,
)

OWN = frozenset({"old", "own-1", "own-2"})
NEW = ExperimentSpec(status=CREATING, starts=10.0, ends=20.0)
STARTED = replace(NEW, status=STARTING, wanted="own-1", own=OWN)
RUNS = replace(STARTED, status=RUNNING, begun=True)
OLD = ExperimentEndpoint(status="InService", config="old")
ON_ITS_WAY = ExperimentEndpoint(status="Updating", config="old", target="own-1")
THERE = ExperimentEndpoint(status="InService", config="own-1")
UNDONE = replace(OLD, failure="no room")


@pytest.mark.parametrize(
    ("spec", "endpoint", "now", "action"),
    [
        (NEW, OLD, 9.9, BecomeStatus(CREATED, "waits-for-start")),
        (replace(NEW, status=CREATED), OLD, 9.9, None),
        (replace(NEW, status=CREATED), OLD, 10.0, BecomeStatus(STARTING, "start-due")),
        (NEW, OLD, 10.0, BecomeStatus(STARTING, "start-due")),
        # somebody else's update first
        (NEW, replace(OLD, status="Updating", target="other"), 10.0, None),
        (NEW, replace(OLD, unfit="no"), 10.0, BecomeStatus(CANCELLED, "endpoint-unfit", "no")),
        (replace(NEW, status=CREATED), replace(OLD, unfit="no"), 9.9, None),
        # the server was away for all of its time
        (
            replace(NEW, status=CREATED), OLD, 20.0,
            BecomeStatus(CANCELLED, "never-started", "Its EndTime passed before it could start."),
        ),
        (STARTED, OLD, 10.0, BeginUpdate("starting")),
        (replace(STARTED, begun=True), ON_ITS_WAY, 11.0, None),
        (replace(STARTED, begun=True), THERE, 12.0, BecomeStatus(RUNNING, "in-service")),
        (RUNS, THERE, 19.9, None),
        (RUNS, THERE, 20.0, GoBack(COMPLETED, "schedule-ended")),
        # its weights are being changed
        (RUNS, replace(THERE, status="Updating"), 20.0, None),
    ],
)  # fmt: skip
def test_it_waits_starts_runs_and_ends(
    spec: ExperimentSpec,
    endpoint: ExperimentEndpoint,
    now: float,
    action: ExperimentAction | None,
) -> None:
    assert decide(spec, endpoint, now=now) == action


@pytest.mark.parametrize(
    ("endpoint", "action"),
    [
        (OLD, BeginUpdate("starting")),
        (ON_ITS_WAY, NoteBegun("update-under-way")),
        (replace(ON_ITS_WAY, target="other"), None),
        (THERE, BecomeStatus(RUNNING, "in-service")),
    ],
)
def test_after_a_kill_the_endpoint_says_whether_its_update_had_begun(
    endpoint: ExperimentEndpoint, action: ExperimentAction | None
) -> None:
    assert decide(STARTED, endpoint, now=11.0) == action


STOPS = replace(RUNS, status=STOPPING, wanted="own-2", begun=False, end_reason="enough")


@pytest.mark.parametrize(
    ("spec", "endpoint", "action"),
    [
        (STOPS, THERE, BeginUpdate("stopping")),
        # it was stopped while the endpoint was on its way to what it ran with
        (STOPS, ON_ITS_WAY, None),
        (STOPS, replace(THERE, config="own-2"), BecomeStatus(COMPLETED, "stopped", "enough")),
        (
            replace(STOPS, wanted="old", end_status=CANCELLED), OLD,
            BecomeStatus(CANCELLED, "stopped", "enough"),
        ),
        # what it has is what it keeps
        (replace(STOPS, wanted="own-1"), THERE, BecomeStatus(COMPLETED, "stopped", "enough")),
    ],
)  # fmt: skip
def test_stopping_ends_once_the_endpoint_has_what_it_is_to_keep(
    spec: ExperimentSpec, endpoint: ExperimentEndpoint, action: ExperimentAction | None
) -> None:
    """Also long after its EndTime."""
    assert decide(spec, endpoint, now=30.0) == action


@pytest.mark.parametrize("status", [*WAITING, *MOVING, RUNNING])
def test_an_endpoint_that_is_deleted_or_fails_cancels_it(status: str) -> None:
    spec = replace(RUNS, status=status)
    gone = BecomeStatus(CANCELLED, "endpoint-gone", "The endpoint was deleted.")
    assert decide(spec, ExperimentEndpoint(status=""), now=11.0) == gone
    assert decide(spec, replace(THERE, status="Deleting"), now=11.0) == gone
    broken = ExperimentEndpoint(status="Failed", failure="no room")
    assert decide(spec, broken, now=11.0) == BecomeStatus(
        CANCELLED, "endpoint-failed", "The endpoint failed. no room"
    )


@pytest.mark.parametrize("status", [*MOVING, RUNNING])
def test_an_endpoint_that_somebody_else_updates_is_left_alone(status: str) -> None:
    spec, theirs = replace(RUNS, status=status), replace(THERE, config="theirs")
    assert decide(spec, theirs, now=11.0) == BecomeStatus(
        CANCELLED,
        "taken-over",
        "The endpoint was updated to 'theirs', which is not the experiment's.",
    )
    assert decide(spec, replace(theirs, status="Updating"), now=11.0) is None


def test_one_that_runs_ends_when_somebody_puts_the_old_configuration_back() -> None:
    assert decide(RUNS, OLD, now=11.0) == BecomeStatus(
        CANCELLED, "taken-over", "The endpoint was updated to 'old'."
    )


def test_an_update_that_is_undone_ends_it_with_the_endpoints_reason() -> None:
    cancelled = BecomeStatus(CANCELLED, "update-failed", "no room")
    assert decide(replace(STARTED, begun=True), UNDONE, now=11.0) == cancelled
    undone_stop = replace(THERE, failure="no room")
    assert decide(replace(STOPS, begun=True), undone_stop, now=11.0) == cancelled
    assert decide(replace(STARTED, begun=True), OLD, now=11.0) == BecomeStatus(
        CANCELLED, "update-failed", "The update of the endpoint was undone."
    )


def test_a_change_that_is_undone_goes_back_to_what_was_before_the_experiment() -> None:
    """Not to the shadow of before the change: nobody would look after it."""
    changes = replace(RUNS, status=UPDATING, wanted="own-2")
    back = GoBack(CANCELLED, "update-failed", "no room")
    assert decide(changes, replace(THERE, failure="no room"), now=11.0) == back
    assert failed(changes, "no room") == back
    assert failed(STARTED, "no model") == BecomeStatus(CANCELLED, "update-failed", "no model")


def test_an_update_that_can_not_be_asked_for_waits_no_longer_than_the_experiment() -> None:
    """A store that CreateEndpointConfig writes to may be away for days."""
    changes = replace(RUNS, status=UPDATING, wanted="own-2", begun=False)
    assert decide(STARTED, OLD, now=19.9) == BeginUpdate("starting")
    assert decide(STARTED, OLD, now=20.0) == GoBack(CANCELLED, "schedule-ended")
    assert decide(changes, THERE, now=20.0) == GoBack(COMPLETED, "schedule-ended")


@pytest.mark.parametrize("status", [COMPLETED, CANCELLED])
def test_one_that_has_ended_does_nothing(status: str) -> None:
    for endpoint in (OLD, THERE, ExperimentEndpoint(status="")):
        assert decide(replace(RUNS, status=status), endpoint, now=30.0) is None
    assert next_look(replace(RUNS, status=status)) is None


def test_time_alone_matters_before_the_start_and_for_the_end() -> None:
    assert [next_look(replace(RUNS, status=one)) for one in (*WAITING, RUNNING, *MOVING)] == [
        10.0, 10.0, 20.0, None, None, None,
    ]  # fmt: skip
