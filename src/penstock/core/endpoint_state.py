"""The words of reconciliation: what is wished, what is seen, what may be done.

Plain values without any rule; `core/reconcile.py` decides with them, the control plane's driver
fills and carries them out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.core.deployment import DeploymentSpec, EndpointRoutes

CREATING = "Creating"
IN_SERVICE = "InService"
UPDATING = "Updating"
FAILED = "Failed"
DELETING = "Deleting"

# Phases of an instance and its copy, in the order of its life.
STARTING = "starting"  #: the fleet was asked
RUNNING = "running"  #: connected, nothing loaded
LOADING = "loading"  #: downloads and loads
READY = "ready"  #: answers requests
LOST = "lost"  #: the copy's worker died; the instance is bringing it back by itself
GONE = "gone"  #: the connection broke; the fleet has not reported the end yet
DRAINING = "draining"  #: no new requests; those in flight finish
DRAINED = "drained"
STOPPING = "stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointDesired:
    """The recorded wish.

    `active` is the generation that serves (None until the first one did), `target` the one being
    rolled out, `previous` the active generation before its weights or counts were changed.
    """

    endpoint: str
    status: str
    active: DeploymentSpec | None = None
    target: DeploymentSpec | None = None
    previous: DeploymentSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceObserved:
    """One instance and the copy on it."""

    instance_id: str
    variant: str
    generation: int
    ordinal: int
    phase: str
    since: float | None = None  #: when the phase began; None = queued, no limit runs yet
    load_s_max: float = 4200.0  #: download and startup timeouts of the variant together
    copy: int | None = None
    outstanding_max: int = 0
    model: dict[str, object] = field(default_factory=dict)  #: description, for the routes
    routed: bool = False  #: routes that name its copy were published: requests may be in flight


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFailure:
    """What went wrong last in one slot, and how often in a row."""

    variant: str
    generation: int
    ordinal: int
    count: int
    at: float
    message: str
    permanent: bool = False  #: trying again cannot help: the request or the model is wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointObserved:
    instances: tuple[InstanceObserved, ...] = ()
    failures: tuple[SlotFailure, ...] = ()
    published: EndpointRoutes | None = None


@dataclass(frozen=True, slots=True)
class StartInstance:
    variant: str
    generation: int
    ordinal: int
    reason: str  #: new-generation | variant-count | replace-failed


@dataclass(frozen=True, slots=True)
class LoadCopy:
    instance_id: str
    variant: str
    reason: str  #: instance-running


@dataclass(frozen=True, slots=True)
class PublishRoutes:
    routes: EndpointRoutes
    reason: str  #: generation-ready | copies-changed | weights-changed | endpoint-known


@dataclass(frozen=True, slots=True)
class WithdrawRoutes:
    reason: str  #: endpoint-deleted | endpoint-failed


@dataclass(frozen=True, slots=True)
class DrainCopy:
    instance_id: str
    copy: int
    reason: str  #: old-generation | variant-count | endpoint-deleted | endpoint-failed


@dataclass(frozen=True, slots=True)
class StopInstance:
    """`failure` is set when the slot has failed by this; the driver records it as the slot's."""

    instance_id: str
    reason: str  #: as DrainCopy; drained | drain-timeout | start-timeout | startup-timeout | …
    failure: str = ""
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class SetStatus:
    """Recorded in one transaction. An `active_generation` that is the target's makes it active and
    ends the rollout; the present one's drops the target."""

    status: str
    reason: str  #: generation-ready | generation-failed | counts-reached | counts-out-of-reach
    failure_reason: str = ""
    active_generation: int | None = None
    restore_previous: bool = False


@dataclass(frozen=True, slots=True)
class FinishDelete:
    reason: str  #: nothing-left


Action = (
    StartInstance
    | LoadCopy
    | PublishRoutes
    | WithdrawRoutes
    | DrainCopy
    | StopInstance
    | SetStatus
    | FinishDelete
)
