"""The words of reconciliation: what is wished, what is seen, what may be done.

Plain values without any rule. The deciders (`capacity`, `placement`, `routes`, and `reconcile`
above them) know each other only through these; the control plane's driver fills and carries them
out. `core/deployment/wish.py` has what a variant should have.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.core.deployment.component_spec import ComponentSpec
from penstock.core.deployment.deployment import DeploymentSpec, EndpointRoutes
from penstock.core.deployment.wish import WHOLE_INSTANCE, CopySpec
from penstock.core.resources import NO_RESOURCES, ComputeResources

CREATING = "Creating"
IN_SERVICE = "InService"
UPDATING = "Updating"
FAILED = "Failed"
DELETING = "Deleting"

# Phases of an instance, in the order of its life.
STARTING = "starting"  #: the fleet was asked
RUNNING = "running"  #: connected: copies can be loaded on it
GONE = "gone"  #: the connection broke; the fleet has not reported the end yet
STOPPING = "stopping"

# Phases of a copy, in the order of its life.
LOADING = "loading"  #: downloads and loads
READY = "ready"  #: answers requests
LOST = "lost"  #: its worker died; the instance is bringing it back by itself
DRAINING = "draining"  #: no new requests; those in flight finish
DRAINED = "drained"
UNLOADING = "unloading"  #: leaves an instance that stays

#: Of an instance or a copy, within one decision: ended by it a moment ago. It holds its slot until
#: it is recorded why.
ENDING = "ending"


#: Why managed scaling takes an instance away.
RELEASED_IDLE = "idle-release"
CONSOLIDATED = "consolidation"
RELEASES = (RELEASED_IDLE, CONSOLIDATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSpec:
    """The recorded wish.

    `active` is the generation that serves (None until the first one did), `target` the one being
    rolled out, `previous` the active generation before its weights or counts were changed.
    """

    endpoint: str
    status: str
    active: DeploymentSpec | None = None
    target: DeploymentSpec | None = None
    previous: DeploymentSpec | None = None
    components: tuple[ComponentSpec, ...] = ()  #: inference components, by name


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceObserved:
    """One instance: capacity, whatever is loaded on it."""

    instance_id: str
    variant: str
    generation: int
    ordinal: int  #: its slot among the variant's instances
    phase: str
    since: float | None = None  #: when the phase began; None = queued, no limit runs yet
    resources: ComputeResources = NO_RESOURCES  #: that it was given
    taken_bytes: int = 0  #: of its memory, as the operating system measures; 0 = not measured yet
    leaving: bool = False  #: it was decided to take it away while copies on it serve
    instance_type: str = ""  #: tells the pool of a variant that has several
    guest: bool = False  #: it runs on what others leave


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyObserved:
    """One copy: a component's model on an instance, loaded or on its way."""

    copy: int  #: unique in the whole deployment
    instance_id: str
    variant: str
    generation: int
    component: str
    ordinal: int  #: its slot among the component's copies
    phase: str
    since: float | None = None  #: as of an instance
    need: CopySpec = WHOLE_INSTANCE  #: what is set aside for it on its instance
    load_s_max: float = 4200.0  #: download and startup timeouts of the component together
    outstanding_max: int = 0
    model: dict[str, object] = field(default_factory=dict)  #: description, for the routes
    routed: bool = False  #: routes that name it were published: requests may be in flight
    outstanding: int = 0  #: requests in flight on it at this moment, streams included
    base_copy: int = 0  #: an adapter's: the copy that it is loaded into, and ends with
    instance_type: str = ""  #: of its instance


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFailure:
    """What went wrong last in one slot, and how often in a row.

    Slots of instances have no component. What happens to a copy that has its instance to itself
    is the instance's failure: the two come and go together.
    """

    variant: str
    generation: int
    ordinal: int
    count: int
    at: float
    message: str
    component: str = ""
    reason: str = ""  #: code of what went wrong, where there is one
    permanent: bool = False  #: trying again cannot help: the request or the model is wrong
    refused: bool = False  #: nothing was tried: no instance had room


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolShortage:
    """Instances of one type could not be had, of the several that a variant may have."""

    variant: str
    generation: int
    instance_type: str
    count: int  #: of tries in a row
    at: float
    reason: str  #: code of what was missing
    message: str
    waits: bool = False  #: what is missing is being freed


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointObserved:
    """One snapshot, the same for every decider."""

    instances: tuple[InstanceObserved, ...] = ()
    copies: tuple[CopyObserved, ...] = ()
    failures: tuple[SlotFailure, ...] = ()
    published: EndpointRoutes | None = None
    released: tuple[tuple[str, float], ...] = ()  #: by variant, when managed scaling took one away
    shortages: tuple[PoolShortage, ...] = ()

    def copies_by_instance(self) -> dict[str, list[CopyObserved]]:
        """In their order; instances without a copy have no entry."""
        found: dict[str, list[CopyObserved]] = {}
        for copy in self.copies:
            found.setdefault(copy.instance_id, []).append(copy)
        return found


@dataclass(frozen=True, slots=True)
class StartInstance:
    variant: str
    generation: int
    ordinal: int
    reason: str  #: new-generation | variant-count | replace-failed | copies-need-more
    instance_type: str = ""  #: of the pool that was chosen; "" = the variant has but one type


@dataclass(frozen=True, slots=True)
class RefuseInstance:
    """No pool of a variant has room for an instance; the driver records it as the failure of the
    instance's slot."""

    variant: str
    generation: int
    ordinal: int
    reason: str  #: all-pools-short
    failure: str


@dataclass(frozen=True, slots=True)
class StopInstance:
    """With every copy on it. `failure` is set when the slot has failed by this; the driver records
    it as the slot's."""

    instance_id: str
    reason: str  #: as DrainCopy; drained | drain-timeout | start-timeout | startup-timeout | …
    failure: str = ""
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class LoadCopy:
    instance_id: str
    component: str
    generation: int
    ordinal: int
    reason: str  #: instance-running | copy-count | replace-failed | base-ready
    base_copy: int = 0  #: an adapter's


@dataclass(frozen=True, slots=True)
class DrainCopy:
    instance_id: str
    copy: int
    #: old-generation | variant-count | copy-count | endpoint-deleted | endpoint-failed |
    #: consolidation | base-leaves | adapter-leaves
    reason: str


@dataclass(frozen=True, slots=True)
class UnloadCopy:
    """Its instance stays. `failure` as of StopInstance, for the copy's slot."""

    instance_id: str
    copy: int
    #: as DrainCopy; drained | drain-timeout | startup-timeout | copy-not-back | base-gone
    reason: str
    failure: str = ""
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class RefuseCopy:
    """No instance has room for a copy; the driver records it as the failure of the copy's slot."""

    variant: str
    generation: int
    component: str
    ordinal: int
    reason: str  #: larger-than-instance | memory-taken | cores-taken | accelerators-taken | …
    failure: str


@dataclass(frozen=True, slots=True)
class PublishRoutes:
    routes: EndpointRoutes
    reason: str  #: generation-ready | copies-changed | weights-changed | endpoint-known


@dataclass(frozen=True, slots=True)
class WithdrawRoutes:
    reason: str  #: endpoint-deleted | endpoint-failed


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
class SetComponent:
    """The status of an inference component, recorded in one transaction. An `active_revision` that
    is the target's makes it active and ends the rollout; the present one's drops the target."""

    component: str
    status: str
    copies: int  #: the count that this was decided for: a newer one has a status of its own
    reason: str  #: copies-ready | counts-reached | counts-out-of-reach | component-failed | …
    failure_reason: str = ""
    active_revision: int | None = None


@dataclass(frozen=True, slots=True)
class ForgetComponent:
    component: str
    reason: str  #: nothing-left


@dataclass(frozen=True, slots=True)
class FinishDelete:
    reason: str  #: nothing-left


Action = (
    StartInstance
    | RefuseInstance
    | StopInstance
    | LoadCopy
    | DrainCopy
    | UnloadCopy
    | RefuseCopy
    | PublishRoutes
    | WithdrawRoutes
    | SetStatus
    | SetComponent
    | ForgetComponent
    | FinishDelete
)
