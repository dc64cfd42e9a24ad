"""apply.yaml: which packages there are, and which endpoints serve them from where.

    schema: 1
    stack: support                        # whose endpoints these are: `--prune` knows them by it
    packages: [embeddings/package.yaml]   # made first, into the folder `build`
    build: build
    location: s3://models/support/        # or a folder; each endpoint has one of its name below it
    endpoints:
      - name: embeddings
        mode: MultiModel
        instance_type: ml.local.large
        count: 2
        cache: Enabled
        environment: {THREADS: "1"}
        tags: {team: search}
        models:                           # by package (a pattern may stand there) or by kind
          - {package: "embed-*"}
          - {package: shared, version: "2", as: common.tar.gz}
      - name: shop
        package: shop
        version: latest
      - name: canary
        variants:
          - {name: old, package: shop, version: "2", weight: 9}
          - {name: new, package: shop, version: "3", weight: 1}

Any entry of a list may have a `for_each`, as in package.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.artifacts.description.yaml_keys import Keys
from penstock.core.apply.versioned_names import ENDPOINT_NAME
from penstock.errors import CallerError
from penstock.packaging.package_spec import LATEST, VERSION
from penstock.packaging.spec_file import SpecFile, relative_path

MULTI_MODEL = "MultiModel"
_MODES = ("SingleModel", MULTI_MODEL)
_CACHE = ("Enabled", "Disabled")
_BUCKET = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?:/.*)?\Z", re.DOTALL)
_ENVIRONMENT_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,1023}\Z")
#: SageMaker's bounds of tags and of instance counts are checked by the server.
_COUNT_MAX = 1_000
_WEIGHT_MAX = 1e6
_TAG_CHARS_MAX = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Target models: packages by a pattern of names, or by kind."""

    package: str = ""
    kind: str = ""
    version: str
    target: str  #: of one package: the TargetModel; empty = its name and .tar.gz
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantEntry:
    name: str
    package: str
    version: str
    weight: float
    instance_type: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointEntry:
    """One endpoint: `variants` with a package each, or one variant with many `models`."""

    name: str
    key: str
    location: str  #: URI that ends in "/"
    variants: tuple[VariantEntry, ...]
    models: tuple[Selection, ...] | None  #: None = a single-model endpoint
    cache: str
    image: str
    environment: dict[str, str]
    tags: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplySpec:
    file: SpecFile
    stack: str
    build: Path
    packages: tuple[Path, ...]  #: package files
    endpoints: tuple[EndpointEntry, ...]


def read_apply(path: Path) -> list[ApplySpec]:
    """The file; of a folder every *.yaml in it that has `endpoints`, by name.

    Raises CallerError: `spec-not-found`, `spec-unreadable`, `spec-invalid`.
    """
    if not path.is_dir():
        return [_apply(SpecFile(path))]
    files = [SpecFile(each) for each in sorted(path.glob("*.yaml"))]
    specs = [_apply(file) for file in files if "package" not in file.tree]
    if not specs:
        raise CallerError(
            "spec-not-found",
            f"the folder {path} has no apply file",
            hint="Put a YAML file with `stack` and `endpoints` there, or name one.",
        )
    return specs


def _apply(file: SpecFile) -> ApplySpec:
    keys = file.keys(file.tree)
    keys.integer("schema", 1, low=1, high=1, required=True)
    stack = keys.text("stack", required=True)
    if not ENDPOINT_NAME.fullmatch(stack):
        raise keys.wrong("stack", stack, "letters and digits, with hyphens between them")
    build = file.root / relative_path(keys.text("build", "build"), file.fail, "build")
    packages = tuple(
        file.root / relative_path(name, file.fail, f"packages[{at}]")
        for at, name in enumerate(keys.texts("packages"))
    )
    base = _location(file, keys)
    endpoints = tuple(_endpoints(file, keys, base))
    keys.done()
    names: set[str] = set()
    for endpoint in endpoints:
        if endpoint.name.lower() in names:
            raise file.fail(
                endpoint.key,
                f"the endpoint {endpoint.name} is there twice",
                "Names of endpoints are compared without case.",
            )
        names.add(endpoint.name.lower())
    return ApplySpec(file=file, stack=stack, build=build, packages=packages, endpoints=endpoints)


def _endpoints(file: SpecFile, keys: Keys, base: str) -> Iterator[EndpointEntry]:
    for raw, path in keys.mappings("endpoints"):
        for tree, values in file.expanded(raw, path):
            yield _endpoint(file, file.keys(tree, path), values, base, path)


def _endpoint(
    file: SpecFile, keys: Keys, values: dict[str, str], base: str, path: str
) -> EndpointEntry:
    name = keys.text("name", required=True)
    if not ENDPOINT_NAME.fullmatch(name):
        raise keys.wrong("name", name, "1 to 63 letters and digits, with hyphens between them")
    many = keys.choice("mode", _MODES, default=_MODES[0]) == MULTI_MODEL
    location = _location(file, keys, path) or (base and f"{base}{name}/")
    if not location:
        raise keys.wrong("location", None, "given here, or for all endpoints at the top")
    models = tuple(_selections(file, keys, values)) if many else None
    if many and not models:
        raise keys.wrong("models", None, "a list of packages, for an endpoint of many models")
    entry = EndpointEntry(
        name=name,
        key=path,
        location=location,
        models=models,
        variants=tuple(_variants(file, keys, values, many=many)),
        cache=keys.choice("cache", _CACHE, default=_CACHE[0]) if many else "",
        image=keys.text("image"),
        environment=_environment(keys),
        tags=_tags(keys),
    )
    keys.done()
    return entry


def _selections(file: SpecFile, keys: Keys, outer: dict[str, str]) -> Iterator[Selection]:
    for raw, path in keys.mappings("models"):
        for tree, _ in file.expanded(raw, path, values=outer):
            entry = file.keys(tree, path)
            package, kind = entry.text("package"), entry.text("kind")
            if bool(package) == bool(kind):
                raise entry.wrong("package", package or None, "given, or else kind; not both")
            target = entry.text("as")
            if target:
                target = relative_path(target, file.fail, f"{path}as")
                if kind or any(sign in package for sign in "*?["):
                    raise entry.wrong("as", target, "left out where there may be many packages")
            yield Selection(
                package=package, kind=kind, version=_version(entry), target=target, key=path
            )
            entry.done()


def _variants(
    file: SpecFile, keys: Keys, outer: dict[str, str], *, many: bool
) -> Iterator[VariantEntry]:
    kind = keys.text("instance_type", "ml.local.small")
    count = keys.integer("count", 1, low=1, high=_COUNT_MAX)
    if many:
        yield _variant("AllTraffic", "", "", 1.0, kind, count)
        return
    listed = keys.mappings("variants")
    if not listed:
        package = keys.text("package", required=True)
        yield _variant("AllTraffic", package, _version(keys), 1.0, kind, count)
    for raw, path in listed:
        for tree, _ in file.expanded(raw, path, values=outer):
            entry = file.keys(tree, path)
            weight = entry.number("weight", low=0.0, high=_WEIGHT_MAX)
            yield _variant(
                entry.text("name", required=True),
                entry.text("package", required=True),
                _version(entry),
                1.0 if weight is None else weight,
                entry.text("instance_type", kind),
                entry.integer("count", count, low=1, high=_COUNT_MAX),
            )
            entry.done()


def _variant(
    name: str, package: str, version: str, weight: float, instance_type: str, count: int
) -> VariantEntry:
    return VariantEntry(
        name=name,
        package=package,
        version=version,
        weight=weight,
        instance_type=instance_type,
        count=count,
    )


def _version(keys: Keys) -> str:
    version = keys.text("version", LATEST)
    if not VERSION.match(version):
        raise keys.wrong("version", version, f"a package's version, or {LATEST}, in quotes")
    return version


def _environment(keys: Keys) -> dict[str, str]:
    found = keys.text_map("environment")
    for name in found:
        if not _ENVIRONMENT_NAME.match(name):
            raise keys.wrong("environment", name, "names of letters, digits and underscores")
    return found


def _tags(keys: Keys) -> dict[str, str]:
    found = keys.text_map("tags")
    for name, value in found.items():
        if not name or max(len(name), len(value)) > _TAG_CHARS_MAX:
            raise keys.wrong("tags", name, f"at most {_TAG_CHARS_MAX} characters")
    return found


def _location(file: SpecFile, keys: Keys, path: str = "") -> str:
    """A bucket's prefix, or a folder: an absolute path, or one below the file's folder."""
    text, path = keys.text("location"), f"{path}location"
    if not text:
        return ""
    if text.startswith("s3://"):
        bucket, _, prefix = text.removeprefix("s3://").partition("/")
        if not _BUCKET.match(text):
            raise keys.wrong("location", text, "s3://BUCKET/PREFIX/ or a folder")
        prefix = relative_path(prefix, file.fail, path)
        return f"s3://{bucket}/{prefix}/" if prefix else f"s3://{bucket}/"
    if "://" in text:
        raise keys.wrong("location", text, "s3://BUCKET/PREFIX/ or a folder")
    if text.startswith("/"):
        folder = Path("/") / relative_path(text.lstrip("/"), file.fail, path)
    else:
        folder = file.root.resolve() / relative_path(text, file.fail, path)
    return folder.as_uri().rstrip("/") + "/"
