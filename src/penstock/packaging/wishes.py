"""From apply files and manifests to the desired state: artifacts in places, and API calls.

Every name follows from what it names, so two runs give the same result. This module does not check
what exists already.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.core.apply.plan import (
    AppliedEndpointSpec,
    ArtifactPlace,
    Content,
    PlanSpec,
    versioned_name,
)
from penstock.errors import CallerError
from penstock.packaging.apply_spec import MULTI_MODEL, ApplySpec, EndpointEntry, Selection
from penstock.packaging.manifest import Manifest, Package

#: Tag of every endpoint made by apply; `--prune` deletes no endpoint without it.
STACK_TAG = "penstock:stack"


@dataclass(slots=True)
class Deployment:
    """The desired state of several apply files."""

    artifacts: dict[ArtifactPlace, Content] = field(default_factory=dict)
    sources: dict[ArtifactPlace, Path] = field(default_factory=dict)  #: archives to upload
    endpoints: list[AppliedEndpointSpec] = field(default_factory=list)
    stacks: set[str] = field(default_factory=set)  #: stacks of the files, whose endpoints these are
    requests: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Members of CreateModel by ModelName, of CreateEndpointConfig by EndpointConfigName."""

    def wish(self) -> PlanSpec:
        return PlanSpec(artifacts=self.artifacts, endpoints=tuple(self.endpoints))

    def locations(self) -> list[str]:
        return sorted({place.location for place in self.artifacts})


def deployment(
    specs: Sequence[ApplySpec],
    manifests: Mapping[Path, Manifest],
    *,
    versions: Mapping[str, str] | None = None,
) -> Deployment:
    """The desired state of the files; `versions` of packages override those in the files.

    Raises CallerError `package-not-found`, `spec-invalid`.
    """
    made = Deployment()
    for spec in specs:
        made.stacks.add(spec.stack)
        for endpoint in spec.endpoints:
            _Maker(spec, manifests[spec.build], versions or {}, made).add(endpoint)
    names = [endpoint.name.lower() for endpoint in made.endpoints]
    for spec in specs:
        for endpoint in spec.endpoints:
            if names.count(endpoint.name.lower()) > 1:
                raise spec.file.fail(
                    spec.file.path_of(endpoint),
                    f"the endpoint {endpoint.name} is in several files",
                    "Ask for each endpoint in one file.",
                )
    return made


class _Maker:
    """Adds the endpoints of one file, one by one."""

    def __init__(
        self,
        spec: ApplySpec,
        manifest: Manifest,
        versions: Mapping[str, str],
        made: Deployment,
    ) -> None:
        self._spec = spec
        self._manifest = manifest
        self._versions = versions
        self._made = made

    def add(self, entry: EndpointEntry) -> None:
        variants: list[dict[str, Any]] = []
        models: list[str] = []
        for variant in entry.variants or ():
            if entry.models is not None:
                container = self._many(entry)
            else:
                package = self._find(variant.package, variant.version)
                container = {"ModelDataUrl": self._place(entry, package.file, package)}
            models.append(self._model(entry, container))
            variants.append(
                {
                    "VariantName": variant.name,
                    "ModelName": models[-1],
                    "InstanceType": variant.instance_type,
                    "InitialInstanceCount": variant.count,
                    "InitialVariantWeight": variant.weight,
                }
            )
        config = versioned_name(entry.name, _text(variants))
        self._made.requests[config] = {
            "EndpointConfigName": config,
            "ProductionVariants": variants,
        }
        tags = entry.tags | {STACK_TAG: self._spec.stack}
        self._made.endpoints.append(
            AppliedEndpointSpec(
                name=entry.name, config=config, models=tuple(dict.fromkeys(models)), tags=tags
            )
        )

    def _many(self, entry: EndpointEntry) -> dict[str, Any]:
        """Places all target models; the container has only the prefix, so that a new or replaced
        model changes no configuration."""
        for selection in entry.models or ():
            for name in self._names(selection):
                package = self._find(name, selection.version)
                target = selection.target or f"{name}.tar.gz"
                self._place(entry, target, package, selection)
        return {
            "Mode": MULTI_MODEL,
            "ModelDataUrl": entry.location,
            "MultiModelConfig": {"ModelCacheSetting": entry.cache},
        }

    def _model(self, entry: EndpointEntry, container: dict[str, Any]) -> str:
        if entry.image:
            container["Image"] = entry.image
        if entry.environment:
            container["Environment"] = entry.environment
        name = versioned_name(entry.name, _text(container))
        self._made.requests[name] = {"ModelName": name, "PrimaryContainer": container}
        return name

    def _names(self, selection: Selection) -> list[str]:
        if selection.kind:
            names = self._manifest.of_kind(selection.kind, selection.version)
        elif any(sign in selection.package for sign in "*?["):
            names = self._manifest.matching(selection.package)
        else:
            return [selection.package]
        if not names:
            what = f"of kind {selection.kind}" if selection.kind else f"named {selection.package}"
            raise CallerError(
                "package-not-found",
                f"{self._spec.file.path}: there are no packages {what} in {self._spec.build}",
                hint="Make them with 'penstock package', or name their file in `packages`.",
            )
        return names

    def _find(self, name: str, version: str) -> Package:
        return self._manifest.find(name, self._versions.get(name, version))

    def _place(
        self,
        entry: EndpointEntry,
        name: str,
        package: Package,
        selection: Selection | None = None,
    ) -> str:
        """Records that the package's archive belongs at this place; returns its URI."""
        place = ArtifactPlace(entry.location, name)
        content = Content(digest=package.digest, size=package.size)
        if self._made.artifacts.setdefault(place, content) != content:
            raise self._spec.file.fail(
                self._spec.file.path_of(selection or entry),
                f"two packages would lie at {entry.location}{name}",
                "Give one of them another name with `as`, or the endpoint another location.",
            )
        self._made.sources[place] = self._spec.build / package.file
        return f"{entry.location}{name}"


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True)
