"""What a package holds: each of its files by the path that it has in the archive.

Files come from below the root folder of the package file and from nowhere else. A link is taken as
the file that it leads to; one that leads out of the folder that is listed is refused. What desktop
systems, Python and git leave in folders is left out, as it is when a server takes a folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from penstock.artifacts.files.budget import Budget
from penstock.artifacts.files.listing import SourceFile
from penstock.artifacts.sources.local_files import list_local
from penstock.clock import SystemClock
from penstock.packaging.package_spec import LATEST, Code, PackageSpec, Placed
from penstock.packaging.spec_file import filled_text, inside, relative_path

_FILES_MAX = 20_000  #: what a server unpacks of one archive
BYTES_MAX = 256 * 1024**3
SECONDS_MAX = 24 * 3600.0
_TEMPLATE_BYTES_MAX = 1024 * 1024
_NUMBERED = re.compile(r"\d{1,9}(?:\.\d{1,9}){0,7}\Z")


def contents(spec: PackageSpec) -> tuple[list[SourceFile], str]:
    """The files, sorted by path, and the version of the code among them ("" without code).

    Raises CallerError `spec-invalid` for what is wrong with the file, and those of local artifacts
    (`artifact-link-refused`, `artifact-access-denied` ...) for what is wrong with a source.
    """
    found: list[SourceFile] = []
    code_version = ""
    for placed in spec.files:
        found += _files(spec, placed)
    if spec.code is not None:
        code_version = _code_version(spec, spec.code)
        folder = f"{spec.code.folder}/{code_version}"
        found += _files(spec, Placed(source=folder, to=f"{spec.code.to}/", key="code."))
    known = {
        "package": spec.name,
        "version": spec.version,
        "kind": spec.kind,
        "code_version": code_version,
    }
    for placed in spec.templates:
        found.append(_template(spec, placed, known | placed.values))
    files = sorted(found, key=lambda file: file.name)
    _check_paths(spec, files)
    return files, code_version


def _files(spec: PackageSpec, placed: Placed) -> Iterator[SourceFile]:
    fail = spec.file.fail
    real = inside(spec.file.root, placed.source, fail, f"{placed.key}from")
    to = relative_path(placed.to, fail, f"{placed.key}to")
    budget = Budget(placed.source, bytes_max=BYTES_MAX, seconds_max=SECONDS_MAX)
    listing = list_local(real, budget=budget, files_max=_FILES_MAX, clock=SystemClock())
    for file in listing.files:
        path = to
        if not listing.single or placed.to.endswith("/"):
            path = f"{to}/{file.name}" if to else file.name
        yield SourceFile(
            name=relative_path(path, fail, f"{placed.key}to"),
            size=file.size,
            stamp=file.stamp,
            executable=file.executable,
            chunks=file.chunks,
        )


def _template(spec: PackageSpec, placed: Placed, values: dict[str, str]) -> SourceFile:
    fail = spec.file.fail
    key = f"{placed.key}from"
    real = inside(spec.file.root, placed.source, fail, key)
    to = relative_path(placed.to, fail, f"{placed.key}to")
    if not real.is_file() or real.stat().st_size > _TEMPLATE_BYTES_MAX:
        raise fail(
            key, f"{placed.source} is no file of at most 1 MiB", "Put large files under files."
        )
    try:
        text = real.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise fail(
            key, f"{placed.source} can't be read as text: {error}", "Write UTF-8."
        ) from error
    content = filled_text(text, values, fail, key).encode()
    return SourceFile(name=to, size=len(content), stamp="", chunks=lambda: iter((content,)))


def _code_version(spec: PackageSpec, code: Code) -> str:
    """The version asked for; latest is the highest by its numbers, not by its letters."""
    folder = inside(spec.file.root, code.folder, spec.file.fail, "code.from")
    if code.version != LATEST:
        return code.version
    found = [path.name for path in _folders(folder) if _NUMBERED.match(path.name)]
    if not found:
        raise spec.file.fail(
            "code.from",
            f"{code.folder} has no folder that is named as a version, such as 1.2",
            "Put each version of the code into a folder of its number.",
        )
    return max(found, key=lambda name: ([int(part) for part in name.split(".")], name))


def _folders(folder: Path) -> Iterable[Path]:
    return (path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else ()


def _check_paths(spec: PackageSpec, files: list[SourceFile]) -> None:
    """Each path once, and none both a file and a folder."""
    names = {file.name for file in files}
    for at, file in enumerate(files):
        parents = {str(parent) for parent in Path(file.name).parents}
        if not file.name or (at and files[at - 1].name == file.name) or names & parents:
            raise spec.file.fail(
                "files",
                f"the package {spec.name} has {file.name!r} twice, or as a file and a folder",
                "Each file needs a path of its own; a folder's `to` is the folder it becomes.",
            )
