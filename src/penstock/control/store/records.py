"""What the store gives and takes: rows as plain values, queries, pages, and its errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from penstock.core.deployment.capacity_spec import ComponentSpec
from penstock.core.deployment.deployment import DeploymentSpec
from penstock.core.deployment.endpoint_state import EndpointSpec
from penstock.core.deployment.served_names import TAG
from penstock.core.deployment.served_targets import ServedTarget
from penstock.core.request.grants import Grant
from penstock.core.rollout.policy import RolloutProgress
from penstock.errors import CallerError

MODEL = "model"
ENDPOINT_CONFIG = "endpoint-config"
ENDPOINT = "endpoint"
COMPONENT = "inference-component"
TRANSFORM_JOB = "transform-job"
EXPERIMENT = "inference-experiment"

#: The names of the kinds in AWS's messages.
NOUNS = {
    MODEL: "model",
    ENDPOINT_CONFIG: "endpoint configuration",
    ENDPOINT: "endpoint",
    COMPONENT: "inference component",
    TRANSFORM_JOB: "transform job",
    EXPERIMENT: "inference experiment",
}

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRecord:
    """A model or an endpoint configuration, as its create call described it."""

    name: str
    arn: str
    request: dict[str, Any]  #: the create call's members, as given
    created: float  #: seconds since the epoch
    modified: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRecord:
    """An endpoint, with the deployments that reconciliation works on."""

    name: str
    arn: str
    #: members of the create call or last update that are kept: its DeploymentConfig
    request: dict[str, Any]
    created: float
    modified: float
    status: str
    failure_reason: str
    active: DeploymentSpec | None
    target: DeploymentSpec | None
    previous: DeploymentSpec | None  #: `active` before the last change of its weights and counts
    progress: RolloutProgress | None = None  #: of `target`; None: its rollout has not begun
    components: tuple[ComponentSpec, ...] = ()  #: by name
    served_names: dict[str, str] = field(default_factory=dict)  #: as its tags say
    targets: tuple[ServedTarget, ...] = ()  #: sorted by target model

    @property
    def shown(self) -> DeploymentSpec:
        """The generation for DescribeEndpoint: the one that serves, or else the first one.

        Raises `UnreadableRecord` if there is none: an unreadable endpoint that is Deleting.
        """
        deployment = self.desired().shown
        if deployment is None:
            raise UnreadableRecord(ENDPOINT, self.name, "it has no deployment")
        return deployment

    @property
    def config_name(self) -> str:
        """The old configuration, until an update is complete. Empty if unknown for an endpoint that
        is Deleting."""
        deployment = self.active or self.target
        return deployment.config_name if deployment is not None else ""

    def desired(self) -> EndpointSpec:
        return EndpointSpec(
            endpoint=self.name,
            status=self.status,
            active=self.active,
            target=self.target,
            previous=self.previous,
            progress=self.progress,
            components=self.components,
            served_names=self.served_names,
            targets=self.targets,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentRecord:
    """An inference component."""

    name: str
    arn: str
    endpoint: str  #: the endpoint's name as it was given at creation
    endpoint_arn: str
    request: dict[str, Any]  #: members of the create call, with the changes of updates
    created: float
    modified: float
    failure_reason: str
    desired: ComponentSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedResource:
    """One entry of a list. It needs columns only, so a resource with damaged text is listed too."""

    name: str
    arn: str
    created: float
    modified: float
    status: str = ""  #: only for endpoints and inference components, like all fields below
    endpoint: str = ""
    endpoint_arn: str = ""
    variant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """The filters that all lists share. Times in seconds since the epoch; before is exclusive,
    after inclusive, as in AWS."""

    name_contains: str = ""
    created_before: float | None = None
    created_after: float | None = None
    modified_before: float | None = None
    modified_after: float | None = None
    status_equals: str = ""  #: endpoints and inference components only
    endpoint_equals: str = ""  #: inference components only
    variant_equals: str = ""  #: inference components only
    sort_by: str = "CreationTime"  #: Name | CreationTime | Status (where there is one)
    sort_order: str = "Descending"  #: Ascending | Descending
    max_results: int = 10
    next_token: str = ""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    items: tuple[T, ...]
    next_token: str = ""  #: empty on the last page


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    """One access key. `secret` and `salt` are stored forms: the secret encrypted, or a digest."""

    key_id: str
    kind: str  #: sigv4 | bearer
    label: str
    created: float
    secret: bytes = field(default=b"", repr=False)
    salt: bytes = field(default=b"", repr=False)
    grant: Grant = field(default_factory=Grant)  #: what the key may do; the default: everything


class AlreadyExists(CallerError):
    """A resource of that name (without case) exists; `arn` is the existing one's."""

    def __init__(self, kind: str, name: str, arn: str) -> None:
        super().__init__(
            "already-exists",
            f'Cannot create already existing {NOUNS[kind]} "{arn}".',
            hint="Choose another name, or delete the existing one first.",
        )
        self.kind = kind
        self.name = name
        self.arn = arn


class ServedNameTaken(CallerError):
    """Another endpoint has the name, or is served under it."""

    def __init__(self, name: str, endpoint: str) -> None:
        super().__init__(
            "served-name-taken",
            f'The name "{name}" belongs to endpoint "{endpoint}".',
            hint="Choose another name, or take it away there first: delete the endpoint, or its tag"
            f" {TAG}.",
        )


class NotFound(CallerError):
    """There is no resource of that kind and name. The front door adds the ARN to the message."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__("not-found", f'Could not find {NOUNS[kind]} "{name}".')
        self.kind = kind
        self.name = name


class UnreadableRecord(CallerError):
    """The stored text of a resource is damaged, or of an unknown version."""

    def __init__(self, kind: str, name: str, cause: object) -> None:
        super().__init__(
            "resource-unreadable",
            f'The stored record of {NOUNS[kind]} "{name}" can\'t be read: {cause}.',
            hint="Delete it and create it again, or bring the database back from a copy.",
        )
        self.kind = kind
        self.name = name


class EndpointBusy(CallerError):
    """The endpoint's status does not allow the change."""

    def __init__(self, name: str, status: str) -> None:
        super().__init__(
            "endpoint-busy",
            f'Endpoint "{name}" is {status}; only an endpoint that is InService can be updated.',
            hint="Wait until it is InService, or delete it.",
        )
        self.name = name
        self.endpoint_status = status


class RolloutSettled(CallerError):
    """There is no rollout to which anything could be ordered."""

    def __init__(self, endpoint: str, why: str, *, component: str = "", model: str = "") -> None:
        """`component`, `model`: of the endpoint, where it is theirs."""
        whose, option = f"endpoint {endpoint!r}", ""
        if component:
            whose, option = f"inference component {component!r}", f" --component {component}"
        elif model:
            whose, option = f"target model {model!r}", f" --model {model}"
        super().__init__(
            "rollout-settled",
            f"the rollout of {whose} can't be changed: {why}",
            hint=f"`penstock rollout show {endpoint}{option}` shows what it is.",
            status=409,
        )


class TargetRolloutUnderWay(CallerError):
    """A target model has one rollout at a time, and keeps its endpoint from others."""

    def __init__(self, endpoint: str, target: str, incoming: str) -> None:
        super().__init__(
            "target-rollout-under-way",
            f"target model {target!r} of endpoint {endpoint!r} is being rolled out, from artifact"
            f" {incoming!r}",
            hint=f"`penstock rollout promote {endpoint} --model {target}` ends it there, `penstock"
            f" rollout abort {endpoint} --model {target}` where it was.",
            status=409,
        )


class ComponentBusy(CallerError):
    """The inference component's status does not allow the change."""

    def __init__(self, name: str, status: str) -> None:
        super().__init__(
            "component-busy",
            f'Inference component "{name}" is {status}; only one that is InService can be updated.',
            hint="Wait until it is InService, or delete it.",
        )
        self.name = name


class BaseUnfit(CallerError):
    """An inference component can't have an adapter."""

    def __init__(self, name: str, cause: str) -> None:
        super().__init__(
            "adapter-base-unfit",
            f'Inference component "{name}" can\'t be the base of an adapter: {cause}.',
            hint="A base is a component with a model of its own, InService, on the same endpoint.",
        )
        self.name = name
        self.cause = cause


class HasAdapters(CallerError):
    """A base is deleted after its adapters."""

    def __init__(self, name: str, adapters: tuple[str, ...]) -> None:
        super().__init__(
            "component-has-adapters",
            f'Inference component "{name}" has adapters: {", ".join(adapters)}.',
            hint="Delete them first.",
        )
        self.name = name
        self.adapters = adapters


class UnknownVariant(CallerError):
    """An update names a variant that the endpoint does not have."""

    def __init__(self, endpoint: str, variant: str, known: tuple[str, ...]) -> None:
        super().__init__(
            "unknown-variant",
            f'Endpoint "{endpoint}" has no variant "{variant}".',
            hint=f"Its variants are {', '.join(known)}.",
        )
        self.variant = variant


class InvalidToken(CallerError):
    """A NextToken that was not made by the same list call."""

    def __init__(self) -> None:
        super().__init__(
            "invalid-next-token",
            "NextToken is not one of this list call's",
            hint="Pass the token of the last page unchanged, with the same filters and order.",
        )


class TooManyTags(CallerError):
    def __init__(self, arn: str, tag_count_max: int) -> None:
        super().__init__(
            "too-many-tags", f"{arn} would have more than {tag_count_max} tags", hint="Delete some."
        )
