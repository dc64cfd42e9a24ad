"""What an endpoint should be, and the routes that say where its copies are.

Both are plain values: the control plane makes a `DeploymentSpec` out of an endpoint configuration
and its models (a snapshot: deleting either afterwards changes nothing), reconciliation turns it
into actions, and a gateway is given `EndpointRoutes`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

RANDOM = "RANDOM"
LEAST_OUTSTANDING_REQUESTS = "LEAST_OUTSTANDING_REQUESTS"
PREFIX_AWARE = "PREFIX_AWARE"
ROUND_ROBIN = "ROUND_ROBIN"  #: Penstock's own, for comparison; SageMaker has no such strategy
ROUTING_STRATEGIES = (RANDOM, LEAST_OUTSTANDING_REQUESTS, PREFIX_AWARE, ROUND_ROBIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """A model as CreateModel gave it, reduced to what loading needs."""

    model_name: str
    uri: str = ""  #: artifact: file://, s3://, https://; empty for a foreign server by command line
    compressed: bool | None = None  #: an archive, or files as they are; None: look
    image: str = ""
    environment: tuple[tuple[str, str], ...] = ()  #: sorted by key
    multi_model: bool = False  #: `uri` is a prefix of target models, each loaded when it is called
    keeps_models: bool = True  #: ModelCacheSetting: a target model stays when it is idle
    network_isolated: bool = False  #: EnableNetworkIsolation


# SageMaker's names (ProductionVariantManagedInstanceScalingScaleInStrategy).
IDLE_RELEASE = "IDLE_RELEASE"  #: instances without a copy go
CONSOLIDATION = "CONSOLIDATION"  #: so do those whose copies have room on the others
SCALE_IN_STRATEGIES = (IDLE_RELEASE, CONSOLIDATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedScaling:
    """How many instances a variant may have where they follow its copies."""

    instances_min: int
    instances_max: int
    strategy: str = IDLE_RELEASE
    step_max: int = 0  #: instances that go at once; 0 = any number
    cooldown_s: float = 60.0  #: from the start of an instance, or the last that went, to the next


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec:
    """Instances of one type among several that a variant may have."""

    instance_type: str
    priority: int = 1  #: 1 to 5; the lowest number is filled first
    model: ModelSource | None = None  #: in place of the variant's; none: the variant's


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantSpec:
    """One production variant."""

    name: str
    model: ModelSource | None  #: none: it takes inference components
    instance_type: str  #: of all its instances; where it has pools the first one's
    instance_count: int  #: of managed instances: to begin with
    managed: ManagedScaling | None = None  #: its instances follow the copies on them
    weight: float = 1.0
    strategy: str = LEAST_OUTSTANDING_REQUESTS
    prefix_length_max: int = 0  #: PREFIX_AWARE: bytes of a prompt that routing looks at
    concurrency_threshold: int = 0  #: PREFIX_AWARE: a copy with as many outstanding is passed over
    download_timeout_s: float = 3600.0
    startup_timeout_s: float = 600.0
    guest: bool = False  #: offline work: it takes what others leave, and gives it back
    cores_max: int = 0  #: of a guest: it runs on no more cores of the machine; 0 = on any
    pools: tuple[PoolSpec, ...] = ()  #: in the order in which they are filled; none: one type

    def model_on(self, instance_type: str) -> ModelSource | None:
        """What its copies load on an instance of that type."""
        own = (one.model for one in self.pools if one.instance_type == instance_type)
        return next(own, None) or self.model


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncSpec:
    """AsyncInferenceConfig: the endpoint answers later, into objects."""

    output_uri: str  #: prefix of the objects that hold answers, file:// or s3://
    failure_uri: str = ""  #: the same for what failed; empty: failures leave no object
    concurrency_max: int = 0  #: MaxConcurrentInvocationsPerInstance; 0 = what keeps a copy busy
    success_topic: str = ""  #: told of each answer; empty: nobody
    error_topic: str = ""  #: told of each failure
    answer_in_success: bool = False  #: the notification holds a short answer, too
    answer_in_error: bool = False


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
    asynchronous: AsyncSpec | None = None  #: none: it answers at once

    @property
    def takes_components(self) -> bool:
        return any(one.model is None for one in self.variants)

    @property
    def guest(self) -> bool:
        """It takes what others leave."""
        return any(one.guest for one in self.variants)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRoute:
    """One loaded copy that requests may be sent to."""

    copy: int  #: unique in the whole deployment, u32; what INVOKE frames name
    instance_id: str
    outstanding_max: int  #: more than this are refused at the gateway: queue and lanes are full
    base_copy: int = 0  #: an adapter's: the copy whose queue and engine it shares
    kind: str = ""  #: of its instance, where those of its variant may be of several
    cache_tokens: int = 0  #: of prompts that its engine keeps; 0 = none, or it does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantRoutes:
    name: str
    weight: float
    strategy: str
    copies: tuple[CopyRoute, ...]
    model: dict[str, object] = field(
        default_factory=dict
    )  #: description for metadata calls (tensors, labels, platform, versions)
    prefix_length_max: int = 0  #: PREFIX_AWARE: bytes of a prompt that routing looks at
    concurrency_threshold: int = 0  #: PREFIX_AWARE: a copy with as many outstanding is passed over
    multi_model: bool = False  #: its copies are hosts of target models: each request names one
    component: str = ""  #: inference component; none: the variant's own model
    base: str = ""  #: an adapter's: the component whose copies it is loaded into
    zero_capacity: str = ""  #: what comes at no copies: hold | refuse; empty: the server's setting


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRoutes:
    """All that a gateway knows of an endpoint. Publishing it again replaces it as a whole."""

    endpoint: str
    variants: tuple[VariantRoutes, ...]
    takes_components: bool = False  #: each request names an inference component
    asynchronous: bool = False  #: it takes InvokeEndpointAsync, and not InvokeEndpoint
