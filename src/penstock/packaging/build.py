"""From package files to archives and their manifest. Existing archives are not made again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.artifacts.archive.unpack import UnpackLimits, unpack
from penstock.artifacts.detection.detect import detect
from penstock.artifacts.files.budget import Budget
from penstock.errors import CallerError
from penstock.packaging import manifest
from penstock.packaging.archive import (
    BYTES_MAX,
    SECONDS_MAX,
    PackedFile,
    contents,
    digest_of,
    file_sha256,
    packed_files,
    write_archive,
)
from penstock.packaging.manifest import Manifest, Package
from penstock.packaging.package_spec import PackageSpec

#: Digests and zlib release Python's lock; more threads than this would only seek on the disk.
_THREADS = min(4, os.cpu_count() or 1)
_DRAFT = ".draft"
_DIGEST_CHARS = 12


@dataclass(frozen=True, slots=True)
class Built:
    package: Package
    state: str  #: new | unchanged | replaced


def build(specs: Sequence[PackageSpec], out: Path, *, replace_: bool = False) -> list[Built]:
    """Makes the packages in the folder `out` and adds all of them to its manifest at once.

    A version is made once: other contents under an existing version are an error, unless `replace_`
    is given. After a kill at any point it can be run again.

    Raises CallerError `spec-invalid`, `package-version-taken`, `manifest-invalid` or those of local
    artifacts; NotNowError `package-not-written`, `artifact-changed`.
    """
    with manifest.writing(out):
        before = manifest.load(out)
        try:
            for draft in out.glob(f"*{_DRAFT}"):
                draft.unlink()  # left by a killed run: this one has the lock
            with ThreadPoolExecutor(_THREADS) as pool:
                built = list(pool.map(lambda spec: _one(spec, out, before, replace_), specs))
            after = before
            for each in built:
                after = after.with_package(each.package)
            if after != before:
                manifest.save(out, after)
        except OSError as error:
            raise manifest.not_written(out, error) from error
    return built


def _one(spec: PackageSpec, out: Path, before: Manifest, replace_: bool) -> Built:
    files, code_version = contents(spec)
    packed = packed_files(files)
    digest = digest_of(packed)
    version, kind = spec.keys.version, spec.keys.kind
    known = before.packages.get(spec.name)
    there = known.of.get(version) if known else None
    if there is not None and there.digest != digest and not replace_:
        raise CallerError(
            "package-version-taken",
            f"{spec.name} {version} is there with other contents{_difference(there, packed)}",
            hint=f"Give a new version in {spec.file.path}, or replace this one with --replace.",
        )
    name = f"{spec.name}-{version}-{digest[:_DIGEST_CHARS]}.tar.gz"
    path = out / name
    if there is not None and there.digest == digest and _is_whole(path, there):
        changed = replace(there, kind=kind, code_version=code_version)
        return Built(changed, "unchanged" if changed == there else "replaced")
    draft = out / f"{name}{_DRAFT}"
    write_archive(draft, files, packed, digest=digest)
    package = Package(
        name=spec.name,
        version=version,
        kind=kind,
        file=name,
        digest=digest,
        sha256=file_sha256(draft),
        size=draft.stat().st_size,
        code_version=code_version,
        files=tuple(packed),
    )
    draft.replace(path)
    return Built(package, "new" if there is None else "replaced")


def _is_whole(path: Path, package: Package) -> bool:
    """Checks the size: after a power cut a file may exist without its bytes."""
    try:
        return path.stat().st_size == package.size
    except FileNotFoundError:
        return False


def _difference(there: Package, packed: Sequence[PackedFile]) -> str:
    """One file that differs between the two."""
    before = {file.path: file for file in there.files}
    after = {file.path: file for file in packed}
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) != after.get(path):
            return f": {path} differs"
    return ""


def check_served(package: Package, folder: Path) -> str:
    """The runtime with which a server would load this package.

    Raises CallerError like the server if it is no model (`artifact-layout-unknown` ...).
    """
    limits = UnpackLimits()
    with tempfile.TemporaryDirectory(prefix="penstock-package-") as top:
        root = Path(top, "model")
        budget = Budget(package.file, bytes_max=BYTES_MAX, seconds_max=SECONDS_MAX)
        unpack(folder / package.file, root, budget=budget, limits=limits)
        return detect(root).description.runtime
