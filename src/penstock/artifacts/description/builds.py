"""builds.yaml: an artifact that holds a model in several builds, each in a folder of its own.

    schema: 1
    builds:
      - {folder: amx, needs: AVX512_CORE_AMX, target: cpu-bf16}
      - {folder: avx2, needs: AVX2, target: cpu-fp32}

Each folder is an artifact by itself. `core.builds` decides which one is loaded, on the machine
that loads it. The file lies at the artifact's root and is as untrusted as the rest of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import yaml
from msgspec import Meta

from penstock.artifacts.description.yaml_tree import FILE_BYTES_MAX, artifact_file, read_tree
from penstock.artifacts.files.budget import too_large
from penstock.artifacts.files.paths import safe_path
from penstock.core.models.instruction_sets import NAMES, Build, BuildChoice, choose
from penstock.errors import CallerError
from penstock.file_schema import Versioned, one_of

FILE_NAME = "builds.yaml"
_BUILDS_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildEntry:
    """One build of the model."""

    folder: str  #: name of the folder beside this file; it is an artifact by itself
    #: instruction set by oneDNN's name, or the machine's (aarch64, arm64); "" = any processor
    needs: Annotated[str, one_of(("", *NAMES, "aarch64", "arm64"))] = ""
    target: str = ""  #: compile target, shown to people only


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildsFile(Versioned):
    """A builds.yaml: an artifact that holds a model in several builds."""

    builds: Annotated[tuple[BuildEntry, ...], Meta(min_length=1)]


def read_builds(root: Path) -> tuple[Build, ...]:
    """The builds; () where the artifact has one form. Raises CallerError (`model-yaml-invalid`,
    `artifact-incomplete`, `artifact-path-unsafe`)."""
    path = root / FILE_NAME
    if not path.is_file():
        return ()
    size = path.stat().st_size
    if size > FILE_BYTES_MAX:
        raise too_large(FILE_NAME, f"{size} bytes", FILE_BYTES_MAX)
    file = artifact_file(FILE_NAME).read(BuildsFile, read_tree(path.read_bytes(), FILE_NAME))
    if len(file.builds) > _BUILDS_MAX:
        raise too_large(FILE_NAME, f"{len(file.builds)} builds", _BUILDS_MAX)
    return tuple(_build(root, each) for each in file.builds)


def chosen_build(root: Path, here: str) -> BuildChoice | None:
    """The build for this processor's instruction set `here`; None where there is no builds.yaml.

    Raises what `read_builds` raises, and CallerError (`no-build-for-processor`).
    """
    builds = read_builds(root)
    if not builds:
        return None
    choice = choose(builds, here)
    if choice is None:
        needed = ", ".join(f"{one.folder} ({one.needs})" for one in builds)
        raise CallerError(
            "no-build-for-processor",
            f"none of the artifact's builds runs on this processor ({here}): {needed}",
            hint="Compile one more, for a set that it has: penstock compile SRC --for avx2 ...",
        )
    return choice


def build_of(folder: Path, here: str) -> BuildChoice | None:
    """As `chosen_build`, for a folder that was chosen already; None where it is no build."""
    choice = chosen_build(folder.parent, here) if (folder.parent / FILE_NAME).is_file() else None
    return choice if choice is not None and choice.build.folder == folder.name else None


def write_builds(root: Path, builds: Sequence[Build]) -> None:
    """The builds.yaml that `read_builds` reads back."""
    entries = [
        {name: value for name in ("folder", "needs", "target") if (value := getattr(one, name))}
        for one in builds
    ]
    text = yaml.safe_dump({"schema": 1, "builds": entries}, sort_keys=False)
    (root / FILE_NAME).write_text(text, encoding="utf-8")


def _build(root: Path, entry: BuildEntry) -> Build:
    name = safe_path(entry.folder, where=f"{FILE_NAME}: folder")
    place = root / name
    if name != entry.folder or "/" in name or not place.is_dir() or place.is_symlink():
        raise CallerError(
            "artifact-incomplete",
            f"{FILE_NAME} names the build {entry.folder[:120]!r}, which is no folder beside it",
            hint="Pack every build's folder with the file, or take its line out.",
        )
    return Build(folder=name, needs=entry.needs, target=entry.target)
