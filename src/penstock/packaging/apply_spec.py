"""apply.yaml: a list of packages, and the endpoints that serve them.

    schema: 1
    stack: support                        # name of this group of endpoints, for `--prune`
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
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta, field

from penstock.core.apply.plan import ENDPOINT_NAME
from penstock.errors import CallerError
from penstock.file_schema import Keys, Version, matching, one_of
from penstock.packaging.package_spec import LATEST, VERSION, Name
from penstock.packaging.spec_file import Entry, SpecFile, relative_path

MULTI_MODEL = "MultiModel"
_MODES = ("SingleModel", MULTI_MODEL)
_CACHE = ("Enabled", "Disabled")
_BUCKET = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?:/.*)?\Z", re.DOTALL)
_ENVIRONMENT_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,1023}")
#: The server checks SageMaker's bounds of tags and of instance counts.
_COUNT_MAX = 1_000
_WEIGHT_MAX = 1e6
_TAG_CHARS_MAX = 256
_Count = Annotated[int, Meta(ge=1, le=_COUNT_MAX)]
_PackageVersion = Annotated[str, matching(VERSION, f"a package's version, or {LATEST}, in quotes")]
_EnvironmentName = Annotated[
    str, matching(_ENVIRONMENT_NAME, "names of letters, digits and underscores")
]


class Selection(Entry, kw_only=True):
    """Target models: packages by a pattern of names, or by kind."""

    package: str = ""  #: a name, or a pattern with * ? [ in it
    kind: str = ""  #: all packages of this kind, in place of `package`
    version: _PackageVersion = LATEST
    target: str = field(name="as", default="")  #: TargetModel of a single package; "" = NAME.tar.gz


class VariantEntry(Entry, kw_only=True):
    """One variant of an endpoint."""

    name: str
    package: str
    version: _PackageVersion = LATEST
    weight: Annotated[float, Meta(ge=0.0, le=_WEIGHT_MAX)] = 1.0
    instance_type: str = ""  #: left out = the endpoint's
    count: _Count = 0  #: instances; left out = the endpoint's


class EndpointEntry(Entry, kw_only=True):
    """One endpoint: of a package, of `variants` with a package each, or of many `models`.

    After reading, its location is a URI that ends in "/", it has at least one variant, all
    complete, and `models` if it serves many.
    """

    name: Name
    mode: Annotated[str, one_of(_MODES)] = _MODES[0]
    location: str = ""  #: as the file's `location`; left out = a folder of its name below that
    package: str = ""
    version: _PackageVersion = ""  #: left out = the latest
    variants: tuple[VariantEntry, ...] | None = None  #: in place of `package`
    models: tuple[Selection, ...] | None = None  #: target models of a MultiModel endpoint
    #: MultiModel: whether loaded models stay in memory; left out = Enabled
    cache: Annotated[str, one_of(_CACHE)] = ""
    instance_type: str = "ml.local.small"
    count: _Count = 1  #: number of instances
    image: str = ""
    environment: dict[_EnvironmentName, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)


class ApplyKeys(Keys, kw_only=True):
    """An apply file: which packages there are, and which endpoints serve them from where."""

    schema: Version
    #: name of the group of endpoints; `--prune` recognises the endpoints by it
    stack: Annotated[str, matching(ENDPOINT_NAME, "letters and digits, with hyphens between them")]
    build: str = "build"  #: folder in which packages are made
    packages: tuple[str, ...] = ()  #: package files; their packages are made first
    #: s3://BUCKET/PREFIX/, or a folder; each endpoint has a folder of its name below it
    location: str = ""
    endpoints: tuple[EndpointEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplySpec:
    file: SpecFile
    stack: str
    build: Path
    packages: tuple[Path, ...]
    endpoints: tuple[EndpointEntry, ...]


def read_apply(path: Path) -> list[ApplySpec]:
    """The file; or, for a folder, every *.yaml in it that has `endpoints`, by name.

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
    keys = file.read(ApplyKeys, file.tree)
    packages = tuple(
        file.root / relative_path(name, file.fail, f"packages[{at}]")
        for at, name in enumerate(keys.packages)
    )
    base = _location(file, keys.location, "location")
    names: set[str] = set()
    for endpoint in keys.endpoints:
        _complete(file, endpoint, base)
        if endpoint.name.lower() in names:
            raise file.fail(
                file.path_of(endpoint),
                f"the endpoint {endpoint.name} is there twice",
                "Names of endpoints are compared without case.",
            )
        names.add(endpoint.name.lower())
    return ApplySpec(
        file=file,
        stack=keys.stack,
        build=file.root / relative_path(keys.build, file.fail, "build"),
        packages=packages,
        endpoints=keys.endpoints,
    )


def _complete(file: SpecFile, entry: EndpointEntry, base: str) -> None:
    """Checks which keys fit together, and fills in defaults."""
    path = file.path_of(entry)
    own = _location(file, entry.location, f"{path}.location")
    entry.location = own or (base and f"{base}{entry.name}/")
    if not entry.location:
        allowed = "given here, or for all endpoints at the top"
        raise file.wrong(f"{path}.location", None, allowed)
    many = entry.mode == MULTI_MODEL
    if many:
        _refuse_beside(file, entry, f"mode: {MULTI_MODEL}", "package", "version", "variants")
    else:
        _refuse_beside(file, entry, f"mode: {entry.mode}", "models", "cache")
    if entry.variants:
        _refuse_beside(file, entry, "variants", "package", "version")
    elif not many and not entry.package:
        raise file.wrong(f"{path}.package", None, "given")
    if many and not entry.models:
        raise file.wrong(
            f"{path}.models", None, "a list of packages, for an endpoint of many models"
        )
    for selection in entry.models or ():
        _check_selection(file, selection)
    version = entry.version or LATEST
    entry.variants = entry.variants or (
        VariantEntry(name="AllTraffic", package=entry.package, version=version),
    )
    for variant in entry.variants:
        variant.instance_type = variant.instance_type or entry.instance_type
        variant.count = variant.count or entry.count
    entry.cache = entry.cache or _CACHE[0]
    for name, value in entry.tags.items():
        if max(len(name), len(value)) > _TAG_CHARS_MAX:
            raise file.wrong(f"{path}.tags", name, f"at most {_TAG_CHARS_MAX} characters")


def _refuse_beside(file: SpecFile, entry: EndpointEntry, beside: str, *names: str) -> None:
    for name in names:
        value = getattr(entry, name)
        if value not in (None, ""):
            shown = value if isinstance(value, str) else "a list"
            place = f"{file.path_of(entry)}.{name}"
            raise file.wrong(place, shown, f"left out beside {beside}")


def _check_selection(file: SpecFile, entry: Selection) -> None:
    path = file.path_of(entry)
    if bool(entry.package) == bool(entry.kind):
        allowed = "given, or else kind; not both"
        raise file.wrong(f"{path}.package", entry.package or None, allowed)
    if entry.target:
        entry.target = relative_path(entry.target, file.fail, f"{path}.as")
        if entry.kind or any(sign in entry.package for sign in "*?["):
            allowed = "left out where there may be many packages"
            raise file.wrong(f"{path}.as", entry.target, allowed)


def _location(file: SpecFile, text: str, path: str) -> str:
    """A bucket's prefix, or a folder: an absolute path, or one below the file's folder."""
    if not text:
        return ""
    if text.startswith("s3://"):
        bucket, _, prefix = text.removeprefix("s3://").partition("/")
        if not _BUCKET.match(text):
            raise file.wrong(path, text, "s3://BUCKET/PREFIX/ or a folder")
        prefix = relative_path(prefix, file.fail, path)
        return f"s3://{bucket}/{prefix}/" if prefix else f"s3://{bucket}/"
    if "://" in text:
        raise file.wrong(path, text, "s3://BUCKET/PREFIX/ or a folder")
    if text.startswith("/"):
        folder = Path("/") / relative_path(text.lstrip("/"), file.fail, path)
    else:
        folder = file.root.resolve() / relative_path(text, file.fail, path)
    return folder.as_uri().rstrip("/") + "/"
