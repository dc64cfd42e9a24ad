"""What an endpoint should be, and the routes that say where its copies are.

Both are plain values: the control plane makes a `DeploymentSpec` out of an endpoint configuration
and its models (a snapshot: deleting either afterwards changes nothing), reconciliation turns it
into actions, and a gateway is given `EndpointRoutes`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from penstock.core.rollout.agreement import AgreementSpec
from penstock.core.rollout.policy import RolloutPolicy

RANDOM = "RANDOM"
LEAST_OUTSTANDING_REQUESTS = "LEAST_OUTSTANDING_REQUESTS"
PREFIX_AWARE = "PREFIX_AWARE"
ROUND_ROBIN = "ROUND_ROBIN"  #: for comparison
#: Penstock's own: SageMaker's RoutingConfig has no name for them, PENSTOCK_ROUTING has.
OWN_STRATEGIES = (ROUND_ROBIN,)
ROUTING_STRATEGIES = (RANDOM, LEAST_OUTSTANDING_REQUESTS, PREFIX_AWARE, *OWN_STRATEGIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """A model as CreateModel gave it, reduced to what loading needs."""

    model_name: str
    #: artifact: file://, s3://, https://; empty for a foreign server started by a command line
    uri: str = ""
    compressed: bool | None = None  #: True: an archive; False: plain files; None: find out
    image: str = ""
    #: what the image's name stood for when its first copy was loaded; empty = not known yet
    image_id: str = ""
    image_resolved: str = ""  #: what names that image for good: with its digest, if it has one
    environment: tuple[tuple[str, str], ...] = ()  #: sorted by key
    multi_model: bool = False  #: `uri` is a prefix of target models, each loaded when it is called
    keeps_models: bool = True  #: ModelCacheSetting: an idle target model stays loaded
    network_isolated: bool = False  #: EnableNetworkIsolation
    hostname: str = ""  #: ContainerHostname, for one of several containers
    #: the containers of a model of several, in their order; it has no `uri` and `image` itself
    containers: tuple[ModelSource, ...] = ()
    direct: bool = False  #: each request names its container; else each answer is the next request

    @property
    def parts(self) -> tuple[ModelSource, ...]:
        """Its containers: itself, where it has one."""
        return self.containers or (self,)

    def with_images(self, images: Mapping[str, tuple[str, str]]) -> ModelSource:
        """With what the names of its images stand for, where that is not known yet. `images`: name
        -> (id, what names it for good)."""
        found = images.get(self.image)
        whole = self
        if found is not None and not self.image_id:
            whole = replace(self, image_id=found[0], image_resolved=found[1])
        return replace(whole, containers=tuple(one.with_images(images) for one in self.containers))


# SageMaker's names (ProductionVariantManagedInstanceScalingScaleInStrategy).
IDLE_RELEASE = "IDLE_RELEASE"  #: instances without a copy are stopped
CONSOLIDATION = "CONSOLIDATION"  #: ... and also those whose copies have room on the others


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedScaling:
    """Bounds for the instances of a variant whose number follows its copies."""

    instances_min: int
    instances_max: int
    strategy: str = IDLE_RELEASE
    step_max: int = 0  #: instances that may be stopped at once; 0 = any number
    #: s between two changes: from the start of an instance, or the last stop
    cooldown_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec:
    """Instances of one type among several that a variant may have."""

    instance_type: str
    priority: int = 1  #: 1 to 5; the lowest number is filled first
    model: ModelSource | None = None  #: replaces the variant's model; None: the variant's own


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantSpec:
    """One production variant, or one shadow variant."""

    name: str
    model: ModelSource | None  #: None: the variant takes inference components
    instance_type: str  #: of all its instances; of the first pool where it has pools
    instance_count: int  #: the initial number, where instances are managed
    #: bounds, where the number of instances follows their copies; None: it does not
    managed: ManagedScaling | None = None
    weight: float = 1.0
    strategy: str = LEAST_OUTSTANDING_REQUESTS
    prefix_length_max: int = 0  #: PREFIX_AWARE: bytes of a prompt that routing compares
    #: PREFIX_AWARE: a copy with this many outstanding requests is passed over
    concurrency_threshold: int = 0
    download_timeout_s: float = 3600.0
    startup_timeout_s: float = 600.0
    guest: bool = False  #: offline work: it takes capacity that nobody else uses, and gives it back
    cores_max: int = 0  #: for a guest: cores of the machine that it may use at most; 0 = all
    #: in the order in which they are filled; empty: all instances have one type
    pools: tuple[PoolSpec, ...] = ()

    def model_on(self, instance_type: str) -> ModelSource | None:
        """The model that copies load on an instance of that type."""
        own = (one.model for one in self.pools if one.instance_type == instance_type)
        return next(own, None) or self.model


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncSpec:
    """AsyncInferenceConfig: the endpoint answers later, into objects."""

    output_uri: str  #: prefix of the objects that hold answers, file:// or s3://
    failure_uri: str = ""  #: the same for failures; empty: a failure writes no object
    concurrency_max: int = 0  #: MaxConcurrentInvocationsPerInstance; 0 = what keeps a copy busy
    success_topic: str = ""  #: topic that is notified of each answer; empty: none
    error_topic: str = ""  #: topic that is notified of each failure; empty: none
    answer_in_success: bool = False  #: a notification of success also contains a short answer
    answer_in_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSpec:
    """DataCaptureConfig: a share of the calls is written down, in objects of JSON lines."""

    destination_uri: str  #: prefix of the objects, file:// or s3://
    percentage: int  #: of the calls, 0 to 100
    enabled: bool = True  #: False: it is shown, and nothing is captured
    inputs: bool = True  #: a line has the request
    outputs: bool = True  #: a line has the answer
    #: content types whose data is written as text; that of all others in Base64
    csv_types: tuple[str, ...] = ("text/csv",)
    json_types: tuple[str, ...] = ("application/json",)

    @property
    def captures(self) -> bool:
        """Whether any call is captured."""
        return self.enabled and self.percentage > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentSpec:
    """One generation of an endpoint: made by CreateEndpoint, and by each UpdateEndpoint.

    Changing weights or counts (UpdateEndpointWeightsAndCapacities) keeps the generation.
    """

    endpoint: str
    generation: int  #: grows by one with each UpdateEndpoint
    config_name: str
    variants: tuple[VariantSpec, ...]
    metrics_publish_s: int = 0  #: MetricPublishFrequencyInSeconds; 0 = not given
    metrics_enhanced: bool = False  #: EnableEnhancedMetrics
    asynchronous: AsyncSpec | None = None  #: None: it answers at once
    #: how it takes over from the generation that serves; None: at once, as soon as it is ready
    rollout: RolloutPolicy | None = None
    capture: CaptureSpec | None = None  #: None: it has no DataCaptureConfig
    #: shadow variants: they get copies of requests, and no caller gets an answer of theirs
    shadows: tuple[VariantSpec, ...] = ()

    @property
    def hosted(self) -> tuple[VariantSpec, ...]:
        """All variants that have instances. Production variants come first: they get room first."""
        return (*self.variants, *self.shadows)

    def with_images(self, images: Mapping[str, tuple[str, str]]) -> DeploymentSpec:
        """As `ModelSource.with_images`, for all its models."""

        def kept(model: ModelSource | None) -> ModelSource | None:
            return None if model is None else model.with_images(images)

        def resolved(variants: tuple[VariantSpec, ...]) -> tuple[VariantSpec, ...]:
            return tuple(
                replace(
                    one,
                    model=kept(one.model),
                    pools=tuple(replace(pool, model=kept(pool.model)) for pool in one.pools),
                )
                for one in variants
            )

        return replace(self, variants=resolved(self.variants), shadows=resolved(self.shadows))

    def scaled(self, part: float) -> DeploymentSpec:
        """With this part of its production instances, rounded up; all of them at 1."""
        if part >= 1.0:
            return self
        variants = tuple(
            # Rounded first: three times a third is not 1.
            replace(one, instance_count=math.ceil(round(one.instance_count * part, 6)))
            for one in self.variants
        )
        return replace(self, variants=variants)

    @property
    def takes_components(self) -> bool:
        return any(one.model is None for one in self.variants)

    @property
    def guest(self) -> bool:
        """Whether it does offline work, on capacity that nobody else uses."""
        return any(one.guest for one in self.variants)


class Group(NamedTuple):
    """Names copies that can replace one another for any request."""

    variant: str
    component: str  #: inference component; "" = the variant's own model
    incoming: bool  #: as `VariantRoutes.incoming`

    @property
    def pool(self) -> str:
        """The key of its requests in a gateway's counts."""
        name = self.component or self.variant
        return f"{name} incoming" if self.incoming else name


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRoute:
    """One loaded copy that requests may be sent to."""

    copy: int  #: unique in the whole deployment, u32; what INVOKE frames name
    instance_id: str
    outstanding_max: int  #: further requests are refused at the gateway: queue and lanes are full
    base_copy: int = 0  #: for an adapter: the copy whose queue and engine it shares; 0 = no adapter
    kind: str = ""  #: instance type, where instances of the variant may have several; else ""
    cache_tokens: int = 0  #: prompt tokens that its engine caches; 0 = none, or not known
    #: of the revision of a component that takes over, where answers of both are compared
    incoming: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantRoutes:
    name: str
    #: its part of requests that name no variant, and of those that name one that is here twice
    weight: float
    strategy: str
    copies: tuple[CopyRoute, ...]
    model: dict[str, object] = field(
        default_factory=dict
    )  #: description for metadata calls (tensors, labels, platform, versions)
    prefix_length_max: int = 0  #: PREFIX_AWARE: bytes of a prompt that routing compares
    #: PREFIX_AWARE: a copy with this many outstanding requests is passed over
    concurrency_threshold: int = 0
    #: its copies are hosts of target models: each request names a target model
    multi_model: bool = False
    direct: bool = False  #: each request names one of the containers of its model
    #: its copies are of a new generation, beside the same variant of the one that it replaces
    incoming: bool = False
    #: name of its generation's endpoint configuration, which metrics have as a dimension; no
    #: difference by itself, as no copy is of two of them
    config: str = field(default="", compare=False)
    component: str = ""  #: name of the inference component; "" = the variant's own model
    base: str = ""  #: for an adapter: the component whose copies it is loaded into; "" = no adapter
    #: for requests while there is no copy: hold | refuse; "" = the server's setting
    zero_capacity: str = ""
    #: two revisions of the component, whose copies are both here; None: no answers are compared
    compared: ComparedRoutes | None = None
    #: of a component that is a shadow: the one whose requests are copied to it; "" = no such one
    shadow_of: str = ""

    @property
    def group(self) -> Group:
        """The name of its copies, unique in the routes of an endpoint."""
        return Group(self.name, self.component, self.incoming)

    @property
    def lanes(self) -> int:
        """Runs that one of its copies has at once, as it reports; at least 1."""
        told = self.model.get("lanes")
        return max(told, 1) if isinstance(told, int) else 1

    @property
    def sequence_idle_s(self) -> float:
        """s after which a sequence of its model has ended; 0: its model keeps none."""
        told = self.model.get("sequence_idle_s")
        return float(told) if isinstance(told, int | float) else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRoutes:
    """Two generations of an endpoint, two revisions of a component or two artifacts of a target
    model, whose answers are compared. A gateway copies requests that one has answered to the other.
    The incoming one is held to the agreement."""

    rollout: int  #: its number, as `RolloutProgress.number` or `ComponentRevision.rollout`
    spec: AgreementSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRoutes:
    """Which artifacts of a multi-model endpoint answer requests for one of its target models."""

    target: str  #: the name that requests give
    serves: str  #: the name of the artifact that answers
    incoming: str = ""  #: of the one that takes over; "" = none
    share: float = 0.0  #: the incoming one's part of the requests, 0 to 1
    compared: ComparedRoutes | None = None  #: None: the answers of both are not compared


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRoutes:
    """Everything that a gateway knows of an endpoint. Publishing it again replaces all of it."""

    endpoint: str
    variants: tuple[VariantRoutes, ...]
    takes_components: bool = False  #: each request names an inference component
    asynchronous: bool = False  #: it takes InvokeEndpointAsync, and not InvokeEndpoint
    #: other names in protocols -> target model or component; "" = the endpoint itself
    served_names: Mapping[str, str] = field(default_factory=dict)
    capture: CaptureSpec | None = None  #: None: no call is captured
    #: of shadow variants, and of components that are shadows, apart from the others: no caller's
    #: request is ever routed to them. Their weight is the share of the requests that is copied to
    #: them, 0 to 1
    shadows: tuple[VariantRoutes, ...] = ()
    compared: ComparedRoutes | None = None  #: of its generations; None: no answers are compared
    #: of target models that are not answered by the artifact of their own name alone
    targets: tuple[TargetRoutes, ...] = ()

    @property
    def hosted(self) -> tuple[VariantRoutes, ...]:
        """All variants that have copies."""
        return (*self.variants, *self.shadows)
