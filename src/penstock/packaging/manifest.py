"""manifest.json of a folder of packages: their names, their versions, and the latest of each.

It is replaced as a whole, and holds the only pointer to an archive: a package exists from the
moment at which the manifest names it.
"""

from __future__ import annotations

import fcntl
import fnmatch
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from penstock.artifacts.files.paths import safe_path
from penstock.core.request.storage_failures import storage_error
from penstock.durable_files import replace_file
from penstock.errors import CallerError, NotNowError
from penstock.packaging.archive import PackedFile
from penstock.packaging.package_spec import LATEST

FILE_NAME = "manifest.json"
_SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One version of one package, packed."""

    name: str
    version: str
    kind: str
    file: str  #: name of the archive, beside the manifest
    digest: str  #: digest of the contents
    sha256: str  #: SHA-256 of the archive's bytes
    size: int  #: bytes of the archive
    code_version: str = ""
    files: tuple[PackedFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """The versions of one package."""

    latest: str
    of: Mapping[str, Package]  #: version -> package

    def get(self, version: str) -> Package | None:
        return self.of.get(self.latest if version == LATEST else version)


@dataclass(frozen=True, slots=True)
class Manifest:
    packages: Mapping[str, Versions]

    def find(self, name: str, version: str) -> Package:
        """One version of a package. Raises CallerError `package-not-found`."""
        versions = self.packages.get(name)
        if versions is None:
            raise CallerError(
                "package-not-found",
                f"there is no package {name!r}",
                hint="Make it with 'penstock package', or name it in `packages`.",
            )
        found = versions.get(version)
        if found is None:
            raise CallerError(
                "package-not-found",
                f"there is no version {version!r} of the package {name}",
                hint=f"There are {', '.join(versions.of)}.",
            )
        return found

    def matching(self, pattern: str) -> list[str]:
        """Names of packages, sorted; `pattern` as in a shell."""
        return sorted(name for name in self.packages if fnmatch.fnmatchcase(name, pattern))

    def of_kind(self, kind: str, version: str) -> list[str]:
        """Names of the packages whose requested version is of this kind, sorted."""
        return sorted(
            name
            for name, versions in self.packages.items()
            if (package := versions.get(version)) and package.kind == kind
        )

    def with_package(self, package: Package) -> Manifest:
        """A manifest that includes this version; a new version is also the latest."""
        before = self.packages.get(package.name)
        known = dict(before.of) if before else {}
        if before and known.get(package.version) == package:
            return self
        latest = before.latest if before and package.version in known else package.version
        known[package.version] = package
        versions = Versions(latest=latest, of=known)
        return replace(self, packages={**self.packages, package.name: versions})


def load(folder: Path) -> Manifest:
    """The manifest of `folder`; an empty one where there is none.

    Raises CallerError `manifest-invalid`, and `manifest-unreadable` where the file may be whole, so
    that it must not be replaced.
    """
    path = folder / FILE_NAME
    try:
        return _decoded(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return Manifest({})
    except OSError as error:
        raise storage_error(
            error,
            "manifest-unreadable",
            f"{path} can't be read: {error.strerror or error}",
            hint="Check the permissions and the disk that holds it, then run it again.",
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, CallerError) as error:
        raise CallerError(
            "manifest-invalid",
            f"{path} is no manifest of packages: {error!r}",
            hint="Remove the folder and make the packages again.",
        ) from error


def save(folder: Path, manifest: Manifest) -> None:
    """Replaces the file. Raises OSError; then the old one is unchanged."""
    text = json.dumps(_encoded(manifest), indent=1, sort_keys=True) + "\n"
    replace_file(folder / FILE_NAME, (text.encode(),), mode=None)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Creates the folder and locks it: one process at a time may add packages, others wait."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise not_written(folder, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def not_written(folder: Path, error: OSError) -> NotNowError:
    return NotNowError(
        "package-not-written",
        f"packages can't be written to {folder}: {error.strerror or error}",
        hint="Free disk space, or correct the permissions of the folder.",
    )


def _encoded(manifest: Manifest) -> dict[str, Any]:
    return {
        "schema": _SCHEMA,
        "packages": {
            name: {
                "latest": versions.latest,
                "versions": {version: asdict(each) for version, each in versions.of.items()},
            }
            for name, versions in manifest.packages.items()
        },
    }


def _decoded(tree: dict[str, Any]) -> Manifest:
    if tree["schema"] != _SCHEMA:
        raise ValueError(f"schema {tree['schema']!r}")
    return Manifest(
        {
            name: Versions(
                latest=str(fields["latest"]),
                of={
                    version: _package(name, version, each)
                    for version, each in fields["versions"].items()
                },
            )
            for name, fields in tree["packages"].items()
        }
    )


def _package(name: str, version: str, fields: dict[str, Any]) -> Package:
    files = tuple(PackedFile(**file) for file in fields["files"])
    package = Package(**{**fields, "files": files})
    if "/" in package.file or safe_path(package.file, where=FILE_NAME) != package.file:
        raise ValueError(f"the file {package.file!r} does not lie beside the manifest")
    if (package.name, package.version) != (name, version):
        raise ValueError(f"{name} {version} is described as {package.name} {package.version}")
    return package
