"""An environment that the artifact brings as an archive, as conda-pack and venv-pack make them.

One of conda holds a whole Python; one of venv holds packages for a Python of the machine that it
was made on, so it gets one of this machine, of the same minor version. Nothing in it is trusted or
run here: its Python's version is told by its folders, and its pyvenv.cfg is written anew. Links
that lead out of the archive are dropped.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.artifacts.archive.unpack import UnpackLimits, unpack
from penstock.artifacts.files.budget import Budget
from penstock.artifacts.files.model_files import inside
from penstock.errors import CallerError
from penstock.runtimes.environments import interpreters
from penstock.runtimes.environments.interpreters import Interpreter

#: An environment of conda with PyTorch has some 60,000 files.
_LIMITS: Final = UnpackLimits(
    members_max=400_000, ratio_max=1000.0, drops_links=True, drops_repeats=True
)
_LIB: Final = re.compile(r"python3\.(\d{1,2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedPython:
    """The Python of an unpacked environment."""

    python: Interpreter
    dirs: tuple[str, ...]  #: folders that it consists of


def digest_of(root: Path, file: str) -> str:
    """The SHA-256 of the archive. Raises CallerError where the artifact has no such file."""
    inside(root, file, key="packed_environment")
    with open(root / file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def unpacked(
    archive: Path,
    folder: Path,
    scratch: Path,
    *,
    bytes_max: int,
    seconds_max: float,
    cancelled: threading.Event,
    pythons: tuple[str, ...],
) -> PackedPython:
    """Unpacks into `folder`, which is empty. Raises CallerError for an archive that is unsafe or no
    environment, and NotNowError."""
    budget = Budget(archive.name, bytes_max=bytes_max, seconds_max=seconds_max, cancelled=cancelled)
    place = scratch / "unpacked"
    unpack(archive, place, budget=budget, limits=_LIMITS)
    for each in place.iterdir():
        shutil.move(str(each), folder / each.name)
    return _prepared(archive.name, folder, pythons)


def _prepared(name: str, folder: Path, pythons: tuple[str, ...]) -> PackedPython:
    minor = _minor(name, folder)
    if minor < interpreters.OLDEST[1]:
        raise interpreters.too_old(f"3.{minor}")
    program = folder / "bin" / "python"
    if (folder / "lib" / f"python3.{minor}" / "os.py").is_file():
        if not program.exists():
            shutil.copy2(folder / "bin" / f"python3.{minor}", program)
        own = interpreters.own()
        same = own.minor[1] == minor
        python = Interpreter(
            path=str(program),
            version=f"3.{minor}",
            suffix=own.suffix if same else "",
            prefix=str(folder),
        )
        return PackedPython(python=python, dirs=(str(folder),))
    base = interpreters.chosen(f"3.{minor}", pythons)
    (folder / "bin").mkdir(exist_ok=True)
    for each in ("python", "python3", f"python3.{minor}"):
        (folder / "bin" / each).unlink(missing_ok=True)
    program.symlink_to(base.path)
    config = folder / "pyvenv.cfg"
    config.unlink(missing_ok=True)
    config.write_text(
        f"home = {Path(base.path).parent}\n"
        f"include-system-site-packages = false\nversion = {base.version}\n"
    )
    return PackedPython(
        python=dataclasses.replace(base, path=str(program)), dirs=(str(folder), base.prefix)
    )


def _minor(name: str, folder: Path) -> int:
    for place in sorted((folder / "lib").glob("python3.*")):
        found = _LIB.fullmatch(place.name)
        if found and (place / "site-packages").is_dir():
            return int(found[1])
    raise CallerError(
        "environment-not-packed",
        f"{name} is no Python environment: it has no lib/python3.N/site-packages",
        hint="Pack it from within, by conda-pack or venv-pack, so that bin and lib are at the top.",
    )
