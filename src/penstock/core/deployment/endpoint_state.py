"""The data of reconciliation: the spec, what is observed, and the possible actions.

Plain values without any rule. The deciders (`capacity`, `placement`, `routes`, and `reconcile`
above them) share only these types. The control plane's driver fills them in and carries out the
actions. `core/deployment/capacity_spec.py` says what a variant should have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.core.deployment.capacity_spec import WHOLE_INSTANCE, ComponentSpec, CopySpec
from penstock.core.deployment.deployment import DeploymentSpec, EndpointRoutes
from penstock.core.deployment.served_targets import ServedTarget
from penstock.core.resources import NO_RESOURCES, ComputeResources
from penstock.core.rollout.agreement import AgreementCounts
from penstock.core.rollout.policy import RolloutProgress

CREATING = "Creating"
IN_SERVICE = "InService"
UPDATING = "Updating"
FAILED = "Failed"
DELETING = "Deleting"

#: SageMaker's bound for FailureReason.
FAILURE_REASON_CHARS_MAX = 1024

# Phases of an instance, in the order of its life.
STARTING = "starting"  #: its start was requested from the fleet
RUNNING = "running"  #: connected: copies can be loaded on it
GONE = "gone"  #: the connection broke; the fleet has not reported the end yet
STOPPING = "stopping"

# Phases of a copy, in the order of its life.
LOADING = "loading"  #: is downloaded and loaded
READY = "ready"  #: answers requests
LOST = "lost"  #: its worker died; the instance restarts it by itself
DRAINING = "draining"  #: gets no new requests; those in flight finish
DRAINED = "drained"
UNLOADING = "unloading"  #: is being unloaded from an instance that stays

#: Phases of a copy that serves, or will by itself.
THERE = (LOADING, READY, LOST)

#: Phase within one decision only: this decision has just ended the instance or copy. It holds its
#: slot until the reason is recorded.
ENDING = "ending"


#: Reason for which managed scaling stops an instance.
RELEASED_IDLE = "idle-release"
CONSOLIDATED = "consolidation"
RELEASES = (RELEASED_IDLE, CONSOLIDATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSpec:
    """The recorded specification of an endpoint.

    `active` is the generation that serves (None until the first one did), `target` the one being
    rolled out, `previous` the active generation before its weights or counts were changed.
    """

    endpoint: str
    status: str
    active: DeploymentSpec | None = None
    target: DeploymentSpec | None = None
    previous: DeploymentSpec | None = None
    progress: RolloutProgress | None = None  #: of `target`; None: its rollout has not begun
    components: tuple[ComponentSpec, ...] = ()  #: inference components, sorted by name
    #: other names in protocols -> target model or component; "" = the endpoint itself
    served_names: Mapping[str, str] = field(default_factory=dict)
    targets: tuple[ServedTarget, ...] = ()  #: sorted by target model

    @property
    def generations(self) -> tuple[DeploymentSpec, ...]:
        """The one that serves and the one being rolled out, as far as there are any."""
        return tuple(one for one in (self.active, self.target) if one is not None)

    @property
    def shown(self) -> DeploymentSpec | None:
        """The generation that users see: the one that serves, or else the first one."""
        return self.active or self.target


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceObserved:
    """One instance: its capacity, whatever is loaded on it."""

    instance_id: str
    variant: str
    generation: int
    ordinal: int  #: its slot among the variant's instances
    phase: str
    since: float | None = None  #: when the phase began; None = queued, so no limit runs yet
    resources: ComputeResources = NO_RESOURCES  #: resources that it was given
    taken_bytes: int = 0  #: memory in use as measured by the operating system; 0 = not measured yet
    leaving: bool = False  #: it is to be stopped, but copies on it still serve
    instance_type: str = ""  #: identifies the pool of a variant that has several
    yields: bool = False  #: others go before it, so that it may get no core for minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyObserved:
    """One copy: a component's model on an instance, loaded or being loaded."""

    copy: int  #: unique in the whole deployment
    instance_id: str
    variant: str
    generation: int
    component: str
    ordinal: int  #: its slot among the component's copies
    phase: str
    since: float | None = None  #: when the phase began; None = queued
    need: CopySpec = WHOLE_INSTANCE  #: resources set aside for it on its instance
    load_s_max: float = 4200.0  #: s; sum of the component's download and startup timeouts
    outstanding_max: int = 0
    model: dict[str, object] = field(default_factory=dict)  #: description, for the routes
    routed: bool = False  #: published routes have named it: it may have requests in flight
    outstanding: int = 0  #: requests in flight on it now, streams included
    #: for an adapter: the copy that it is loaded into and ends with; 0 = no adapter
    base_copy: int = 0
    instance_type: str = ""  #: type of its instance


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFailure:
    """The last failure in one slot, and the number of failures in a row.

    A slot with an empty component is an instance's. What happens to a copy that has its instance to
    itself is recorded as the instance's failure: the two start and end together.
    """

    variant: str
    generation: int
    ordinal: int
    count: int
    at: float
    message: str
    component: str = ""
    reason: str = ""  #: error code, where there is one
    permanent: bool = False  #: a retry cannot help: the request or the model is wrong
    refused: bool = False  #: nothing was tried: no instance had room


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolShortage:
    """A failed attempt to get instances of one type, where a variant may have several types."""

    variant: str
    generation: int
    instance_type: str
    count: int  #: attempts in a row
    at: float
    reason: str  #: error code that says what was missing
    message: str
    waits: bool = False  #: the missing capacity is being freed


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointObserved:
    """One snapshot, the same for every decider."""

    instances: tuple[InstanceObserved, ...] = ()
    copies: tuple[CopyObserved, ...] = ()
    failures: tuple[SlotFailure, ...] = ()
    published: EndpointRoutes | None = None
    #: (variant, time) when managed scaling last stopped one
    released: tuple[tuple[str, float], ...] = ()
    shortages: tuple[PoolShortage, ...] = ()
    alarms: Mapping[str, str] = field(default_factory=dict)  #: name -> state, of a rollout's alarms
    agreement: AgreementCounts | None = None  #: of a rollout whose answers are compared
    #: target model -> the same, of its rollout
    target_agreements: Mapping[str, AgreementCounts] = field(default_factory=dict)
    #: component -> the same of the rollout of its new revision
    component_agreements: Mapping[str, AgreementCounts] = field(default_factory=dict)

    def copies_by_instance(self) -> dict[str, list[CopyObserved]]:
        """Copies in their order, by instance id; instances without a copy have no entry."""
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
    instance_type: str = ""  #: type of the chosen pool; "" = the variant has only one type


@dataclass(frozen=True, slots=True)
class RefuseInstance:
    """No pool of a variant has room for an instance; the driver records this as the failure of the
    instance's slot."""

    variant: str
    generation: int
    ordinal: int
    reason: str  #: all-pools-short
    failure: str


@dataclass(frozen=True, slots=True)
class StopInstance:
    """Stop an instance with every copy on it. `failure` is set when this makes the slot fail; the
    driver then records it for the slot."""

    instance_id: str
    #: one of DrainCopy's, or drained | drain-timeout | start-timeout | startup-timeout | …
    reason: str
    failure: str = ""
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class LoadCopy:
    instance_id: str
    component: str
    generation: int
    ordinal: int
    reason: str  #: instance-running | copy-count | replace-failed | base-ready
    base_copy: int = 0  #: for an adapter: the base's copy to load it into; 0 = no adapter


@dataclass(frozen=True, slots=True)
class DrainCopy:
    instance_id: str
    copy: int
    #: old-generation | variant-count | copy-count | endpoint-deleted | endpoint-failed |
    #: consolidation | base-leaves | adapter-leaves
    reason: str


@dataclass(frozen=True, slots=True)
class UnloadCopy:
    """Unload a copy; its instance stays. `failure`: as StopInstance's, for the copy's slot."""

    instance_id: str
    copy: int
    #: one of DrainCopy's, or drained | drain-timeout | startup-timeout | copy-not-back | base-gone
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
    #: generation-ready | copies-changed | weights-changed | endpoint-known |
    #: served-names-changed | targets-changed | shadows-changed | share-raised | baked
    reason: str


@dataclass(frozen=True, slots=True)
class WithdrawRoutes:
    reason: str  #: endpoint-deleted | endpoint-failed


@dataclass(frozen=True, slots=True)
class SetStatus:
    """A new status, recorded in one transaction. If `active_generation` is the target's, the target
    becomes active and the rollout ends; if it is the active one's, the target is dropped."""

    status: str
    #: generation-ready | generation-failed | counts-reached | counts-out-of-reach, or of a rollout:
    #: baked | share-raised | terminated | alarm | timeout
    reason: str
    failure_reason: str = ""
    active_generation: int | None = None
    restore_previous: bool = False


@dataclass(frozen=True, slots=True)
class SetRollout:
    """How far the rollout of a generation is, recorded in one transaction."""

    generation: int
    progress: RolloutProgress
    reason: str  #: as `RolloutStep`'s
    why: str = ""  #: the same in words, with numbers


@dataclass(frozen=True, slots=True)
class SetTarget:
    """How far the rollout of a target model is, or what answers for it from now on, recorded in one
    transaction."""

    served: ServedTarget
    reason: str  #: as `RolloutStep`'s
    why: str = ""  #: the same in words, with numbers


@dataclass(frozen=True, slots=True)
class SetComponent:
    """A component's new status, recorded in one transaction. If `active_revision` is the target's,
    the target becomes active and the rollout ends; if it is the active one's, the target is
    dropped. `goes_back`: both change places, so that the active one replaces the target in turn;
    the reason why."""

    component: str
    status: str
    #: the count that this decision was made for: a later count gets a status of its own
    copies: int
    reason: str  #: copies-ready | counts-reached | counts-out-of-reach | component-failed | …
    failure_reason: str = ""
    active_revision: int | None = None
    goes_back: str = ""
    why: str = ""  #: of the reason, in words with numbers
    rang: tuple[str, ...] | None = None  #: of the target; None: as it is


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
    | SetRollout
    | SetTarget
    | SetComponent
    | ForgetComponent
    | FinishDelete
)
