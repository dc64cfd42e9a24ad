"""What `penstock apply` has to do: the difference between the spec and what exists.

Each run makes a new plan from what exists and remembers nothing. So a run that was killed anywhere
is continued by the next one, and where everything is as it should be the plan is empty. Nothing is
deleted unless pruning is asked for. Then only things that carry the mark of an earlier run are
deleted: a package's own digest, the stack's tag, a versioned name. An archive that any other model
reads stays, wherever it lies.

This module knows names, digests and sizes; neither stores nor protocols. Steps come in the order
in which to carry them out, `Action` by `Action`; steps of one action do not depend on each other.

Names are derived from content: the same content has the same name, whoever makes it. A model and
an endpoint configuration can't be changed, so each change of an endpoint gives them a new name: the
endpoint's own name, cut to leave room, and a digest.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

#: SageMaker's pattern for names of endpoints, models and configurations; use it with `fullmatch`.
ENDPOINT_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
#: SageMaker's bound of 63 characters, minus a hyphen and the digest.
_STEM_CHARS_MAX = 52
_DIGEST_CHARS = 10
_DIGEST = re.compile(r"[0-9a-f]{10}\Z")


def versioned_name(endpoint: str, content: str) -> str:
    """The name of a model or configuration of `endpoint` that is made of `content`."""
    digest = hashlib.sha256(content.encode()).hexdigest()[:_DIGEST_CHARS]
    return f"{stem(endpoint)}-{digest}"


def is_version_of(name: str, endpoint: str) -> bool:
    """Whether `versioned_name` gives `name` to something of this endpoint."""
    rest = name.removeprefix(f"{stem(endpoint)}-")
    return rest != name and _DIGEST.match(rest) is not None


def stem(endpoint: str) -> str:
    """The common beginning of all versioned names of an endpoint."""
    return endpoint[:_STEM_CHARS_MAX]


class Action(Enum):
    """What a step does, in the order of execution: a configuration names models that must exist."""

    REMOVE_LEFT_OVER = "remove-left-over"
    UPLOAD = "upload"
    CREATE_MODEL = "create-model"
    CREATE_ENDPOINT_CONFIG = "create-endpoint-config"
    CREATE_ENDPOINT = "create-endpoint"
    UPDATE_ENDPOINT = "update-endpoint"
    TAG_ENDPOINT = "tag-endpoint"
    DELETE_ENDPOINT = "delete-endpoint"
    DELETE_ENDPOINT_CONFIG = "delete-endpoint-config"
    DELETE_MODEL = "delete-model"
    DELETE_ARTIFACT = "delete-artifact"


@dataclass(frozen=True, slots=True, order=True)
class ArtifactPlace:
    """Where an artifact lies."""

    location: str  #: a folder or prefix, as a URI that ends in "/"
    name: str  #: below `location`


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What an artifact is."""

    digest: str  #: digest of the package; empty = the artifact was not made by `penstock package`
    size: int  #: bytes; a complete package has the same size wherever it lies


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedEndpointSpec:
    """The endpoint that the files describe."""

    name: str
    #: versioned name of its configuration, which covers all that the endpoint is made of
    config: str
    models: tuple[str, ...]  #: versioned names
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedEndpointObserved:
    """The endpoint as DescribeEndpoint shows it."""

    status: str  #: SageMaker's EndpointStatus
    config: str  #: the configuration that it serves, or is being updated to
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSpec:
    """Everything that the files describe."""

    artifacts: Mapping[ArtifactPlace, Content]
    endpoints: tuple[AppliedEndpointSpec, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanObserved:
    """What exists of it, and what earlier runs left."""

    artifacts: Mapping[
        ArtifactPlace, Content
    ]  #: at the specified places, and where models to be pruned read
    #: uploads of runs that ended before they were complete
    left_over: tuple[ArtifactPlace, ...] = ()
    endpoints: Mapping[str, AppliedEndpointObserved] = field(default_factory=dict)
    models: frozenset[str] = frozenset()
    configs: frozenset[str] = frozenset()
    stack_endpoints: frozenset[str] = frozenset()  #: endpoints with the tag of this stack
    #: model, or other reader of artifacts -> their URIs: an archive, a folder or a prefix
    reads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One thing to do."""

    action: Action
    name: str  #: name of the resource, or of the artifact below `location`
    reason: str
    location: str = ""
    size: int = 0  #: bytes to upload


@dataclass(frozen=True, slots=True)
class Plan:
    steps: tuple[PlanStep, ...]
    #: number of artifacts, models, configurations and endpoints that are as they should be
    unchanged: int

    def of(self, action: Action) -> tuple[PlanStep, ...]:
        return tuple(step for step in self.steps if step.action is action)


def plan(wish: PlanSpec, seen: PlanObserved, *, prune: bool = False) -> Plan:
    """The steps from `seen` to `wish`; none where nothing is missing."""
    models = _distinct(model for endpoint in wish.endpoints for model in endpoint.models)
    configs = _distinct(endpoint.config for endpoint in wish.endpoints)
    made = (
        _uploads(wish, seen)
        + _missing(Action.CREATE_MODEL, models, seen.models)
        + _missing(Action.CREATE_ENDPOINT_CONFIG, configs, seen.configs)
    )
    changes = [
        step for endpoint in wish.endpoints if (step := _endpoint_step(endpoint, seen)) is not None
    ]
    wanted = len(wish.artifacts) + len(models) + len(configs) + len(wish.endpoints)
    left_over = [
        PlanStep(Action.REMOVE_LEFT_OVER, place.name, "upload-not-finished", place.location)
        for place in sorted(seen.left_over)
    ]
    steps = left_over + made + changes + _tags(wish, seen)
    if prune:
        steps += _pruned(wish, seen)
    order = list(Action)
    return Plan(
        steps=tuple(sorted(steps, key=lambda step: order.index(step.action))),
        unchanged=wanted - len(made) - len(changes),
    )


def _uploads(wish: PlanSpec, seen: PlanObserved) -> list[PlanStep]:
    steps = []
    for place, content in sorted(wish.artifacts.items()):
        there = seen.artifacts.get(place)
        if there == content:
            continue
        reason = "not-there"
        if there is not None:
            # The digest is read from the file's head, so only the size shows that a copy is
            # incomplete.
            reason = "not-whole" if there.digest == content.digest else "other-content"
        steps.append(PlanStep(Action.UPLOAD, place.name, reason, place.location, content.size))
    return steps


def _missing(action: Action, names: list[str], there: frozenset[str]) -> list[PlanStep]:
    return [PlanStep(action, name, "not-there") for name in names if name not in there]


def _endpoint_step(wish: AppliedEndpointSpec, seen: PlanObserved) -> PlanStep | None:
    there = seen.endpoints.get(wish.name)
    if there is None:
        return PlanStep(Action.CREATE_ENDPOINT, wish.name, "not-there")
    if there.status == "Deleting":
        return PlanStep(Action.CREATE_ENDPOINT, wish.name, "being-deleted")
    if there.status == "Failed":
        return PlanStep(Action.CREATE_ENDPOINT, wish.name, "failed")
    if there.config != wish.config:
        return PlanStep(Action.UPDATE_ENDPOINT, wish.name, "other-config")
    return None


def _tags(wish: PlanSpec, seen: PlanObserved) -> list[PlanStep]:
    """Tags that the files do not name are left alone. Creating an endpoint tags it."""
    steps = []
    for endpoint in wish.endpoints:
        there = seen.endpoints.get(endpoint.name)
        if there is None or there.status in ("Deleting", "Failed"):
            continue
        if any(there.tags.get(key) != value for key, value in endpoint.tags.items()):
            steps.append(PlanStep(Action.TAG_ENDPOINT, endpoint.name, "other-tags"))
    return steps


def _pruned(wish: PlanSpec, seen: PlanObserved) -> list[PlanStep]:
    asked = {endpoint.name for endpoint in wish.endpoints}
    as_compared = {name.lower() for name in asked}  # names of endpoints ignore case
    gone = sorted(name for name in seen.stack_endpoints if name.lower() not in as_compared)
    configs = {endpoint.config for endpoint in wish.endpoints}
    models = {model for endpoint in wish.endpoints for model in endpoint.models}
    owners = [*sorted(asked), *gone]
    deleted = frozenset(made_for_any(seen.models - models, owners))
    steps = [PlanStep(Action.DELETE_ENDPOINT, name, "not-asked-for") for name in gone]
    for action, names in (
        (Action.DELETE_ENDPOINT_CONFIG, made_for_any(seen.configs - configs, owners)),
        (Action.DELETE_MODEL, deleted),
    ):
        steps += [PlanStep(action, name, "not-asked-for") for name in sorted(names)]
    return steps + _pruned_artifacts(wish, seen, deleted)


def made_for_any(names: Iterable[str], owners: Iterable[str]) -> list[str]:
    """The models or configurations among `names` that were made for one of the owners."""
    made_for = list(owners)
    return [name for name in names if any(is_version_of(name, owner) for owner in made_for)]


def _pruned_artifacts(
    wish: PlanSpec, seen: PlanObserved, deleted: frozenset[str]
) -> list[PlanStep]:
    """Our archives at the specified places, and those that deleted models were made of; none that
    another model still reads."""
    locations = {place.location for place in wish.artifacts}
    ours = deleted.union(*(endpoint.models for endpoint in wish.endpoints))
    kept = [uri for name, uris in seen.reads.items() if name not in ours for uri in uris]
    freed = [uri for name in deleted for uri in seen.reads.get(name, ())]
    steps = []
    for place, content in sorted(seen.artifacts.items(), key=lambda item: item[0]):
        if not content.digest or place in wish.artifacts or _is_read(place, kept):
            continue
        of_model = _is_read(place, freed)
        if of_model or place.location in locations:
            reason = "model-not-asked-for" if of_model else "not-asked-for"
            steps.append(PlanStep(Action.DELETE_ARTIFACT, place.name, reason, place.location))
    return steps


def _is_read(place: ArtifactPlace, uris: Iterable[str]) -> bool:
    """Whether one of the URIs is the artifact's, or a folder or prefix that contains it."""
    own = f"{place.location}{place.name}"
    return any(own == uri or own.startswith(f"{uri.rstrip('/')}/") for uri in uris)


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
