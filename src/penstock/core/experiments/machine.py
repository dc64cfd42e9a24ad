"""What an inference experiment does next, by its record, its endpoint and the time.

The record says which endpoint configuration the endpoint is to have (`wanted`), and whether its
update to it has begun. So a kill between any two steps changes nothing in the end: what was done is
seen on the endpoint, and what was not is done then.

    Creating -> Created -> Starting -> Running <-> Updating
                                          |            |
                                          v            v
    Completed or Cancelled      <-      Stopping

An endpoint that somebody else updates, deletes, or that fails, ends the experiment as Cancelled and
is left as it is. An update of ours that fails ends it, too: the endpoint serves on with what it
has, or, after an UpdateInferenceExperiment, goes back to what it had before the experiment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# SageMaker's values of InferenceExperimentStatus.
CREATING: Final = "Creating"
CREATED: Final = "Created"
STARTING: Final = "Starting"
RUNNING: Final = "Running"
UPDATING: Final = "Updating"
STOPPING: Final = "Stopping"
COMPLETED: Final = "Completed"
CANCELLED: Final = "Cancelled"

WAITING: Final = (CREATING, CREATED)  #: the endpoint is untouched
MOVING: Final = (STARTING, UPDATING, STOPPING)  #: the endpoint gets the wanted configuration
ENDED: Final = (COMPLETED, CANCELLED)

_IN_SERVICE: Final = "InService"
_GONE: Final = ("", "Deleting")
_FAILED: Final = "Failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentSpec:
    """What the record says."""

    status: str
    starts: float  #: wall s
    ends: float  #: wall s
    wanted: str = ""  #: the configuration that the endpoint is to have; empty: none yet
    begun: bool = False  #: the update to `wanted` was asked for
    #: every configuration that the endpoint may have by the experiment's own doing
    own: frozenset[str] = frozenset()
    end_status: str = COMPLETED  #: what it is to be after Stopping
    end_reason: str = ""  #: why, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentEndpoint:
    """What is seen of the endpoint."""

    status: str  #: empty: there is none
    config: str = ""  #: name of the configuration that serves
    target: str = ""  #: of the one that it is being updated to; empty: none
    failure: str = ""  #: why its last update failed
    unfit: str = ""  #: why the experiment can't start on it; empty: it can


@dataclass(frozen=True, slots=True)
class BecomeStatus:
    """The experiment has this status from now on."""

    status: str
    reason: str
    text: str = ""  #: for its StatusReason


@dataclass(frozen=True, slots=True)
class BeginUpdate:
    """The endpoint is updated to `wanted`; report that it was asked for, or refused."""

    reason: str


@dataclass(frozen=True, slots=True)
class NoteBegun:
    """The update was asked for before a kill: the record learns of it."""

    reason: str


@dataclass(frozen=True, slots=True)
class GoBack:
    """The experiment stops: the endpoint is to have what it had before."""

    end_status: str
    reason: str
    text: str = ""


ExperimentAction = BecomeStatus | BeginUpdate | NoteBegun | GoBack


def decide(
    spec: ExperimentSpec, endpoint: ExperimentEndpoint, *, now: float
) -> ExperimentAction | None:
    """The next step; None: there is nothing to do yet. `now`: wall s."""
    if spec.status in ENDED:
        return None
    if endpoint.status in _GONE:
        return BecomeStatus(CANCELLED, "endpoint-gone", "The endpoint was deleted.")
    if endpoint.status == _FAILED:
        return BecomeStatus(
            CANCELLED, "endpoint-failed", f"The endpoint failed. {endpoint.failure}"
        )
    if spec.status in WAITING:
        return _wait(spec, endpoint, now)
    if endpoint.status == _IN_SERVICE and endpoint.config not in spec.own:
        return BecomeStatus(
            CANCELLED,
            "taken-over",
            f"The endpoint was updated to {endpoint.config!r}, which is not the experiment's.",
        )
    if spec.status in MOVING:
        return _move(spec, endpoint, now)
    return _run(spec, endpoint, now)


def next_look(spec: ExperimentSpec) -> float | None:
    """When the time alone changes something, wall s; None: never."""
    if spec.status in WAITING:
        return spec.starts
    return spec.ends if spec.status == RUNNING else None


def failed(spec: ExperimentSpec, why: str) -> BecomeStatus | GoBack:
    """The step after an update that failed, or that was refused."""
    if spec.status == UPDATING:
        return GoBack(CANCELLED, "update-failed", why)
    return BecomeStatus(CANCELLED, "update-failed", why)


def _wait(
    spec: ExperimentSpec, endpoint: ExperimentEndpoint, now: float
) -> ExperimentAction | None:
    if now >= spec.ends:
        return BecomeStatus(CANCELLED, "never-started", "Its EndTime passed before it could start.")
    if now < spec.starts:
        return BecomeStatus(CREATED, "waits-for-start") if spec.status == CREATING else None
    if endpoint.status != _IN_SERVICE:
        return None
    if endpoint.unfit:
        return BecomeStatus(CANCELLED, "endpoint-unfit", endpoint.unfit)
    return BecomeStatus(STARTING, "start-due")


def _move(
    spec: ExperimentSpec, endpoint: ExperimentEndpoint, now: float
) -> ExperimentAction | None:
    if endpoint.status != _IN_SERVICE:
        ours = endpoint.target == spec.wanted
        return NoteBegun("update-under-way") if ours and not spec.begun else None
    if endpoint.config == spec.wanted:
        if spec.status == STOPPING:
            return BecomeStatus(spec.end_status, "stopped", spec.end_reason)
        return BecomeStatus(RUNNING, "in-service")
    if not spec.begun:
        if now >= spec.ends and spec.status != STOPPING:  # what it needs was away all the time
            return GoBack(COMPLETED if spec.status == UPDATING else CANCELLED, "schedule-ended")
        return BeginUpdate(spec.status.lower())
    return failed(spec, endpoint.failure or "The update of the endpoint was undone.")


def _run(spec: ExperimentSpec, endpoint: ExperimentEndpoint, now: float) -> ExperimentAction | None:
    if endpoint.status != _IN_SERVICE:
        return None
    if endpoint.config != spec.wanted:
        return BecomeStatus(
            CANCELLED, "taken-over", f"The endpoint was updated to {endpoint.config!r}."
        )
    return GoBack(COMPLETED, "schedule-ended") if now >= spec.ends else None
