"""Objects on this machine: files, folders, and names that begin with something."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from penstock.artifacts.budget import Budget
from penstock.artifacts.listing import Listing
from penstock.artifacts.local_files import list_local
from penstock.artifacts.paths import is_clutter, safe_path
from penstock.clock import SystemClock
from penstock.records.found import Found


def below(path: Path, budget: Budget, *, objects_max: int) -> list[Found]:
    """A file, all files of a folder, or where there is neither, all whose names begin so.

    Raises the errors of `list_local`.
    """
    if os.path.lexists(path):
        listing = _listed(path, budget, objects_max, within=None)
        return _found(listing, path.parent if listing.single else path, "")
    folder = path.parent
    found: list[Found] = []
    for name in _names(folder, path.name):
        listing = _listed(folder / name, budget, objects_max - len(found), within=folder)
        if listing.single:
            found += _found(listing, folder, "")
        else:
            found += _found(listing, folder / name, f"{name}/")
    if not found:
        _listed(path, budget, objects_max, within=None)  # raises: it is not there
    return found


def one(folder: Path, name: str, budget: Budget) -> list[Found]:
    """The file of this name, which no link may lead out of the folder for; none if it is one."""
    listing = _listed(folder / name, budget, 1, within=folder)
    [file] = listing.files
    return [Found(name, file_uri(folder / name), file.size, file.stamp)] if listing.single else []


def file_uri(path: Path) -> str:
    return f"file://{quote(str(path))}"


def _names(folder: Path, start: str) -> list[str]:
    try:
        names = sorted(name for name in os.listdir(folder) if name.startswith(start))
    except OSError:
        return []  # what can't be listed is told by whoever looks for the path itself
    return [safe_path(name, where=str(folder)) for name in names if not is_clutter(name)]


def _listed(path: Path, budget: Budget, objects_max: int, *, within: Path | None) -> Listing:
    return list_local(
        path, budget=budget, files_max=objects_max, clock=SystemClock(), within=within
    )


def _found(listing: Listing, top: Path, before: str) -> list[Found]:
    return [
        Found(before + file.name, file_uri(top / file.name), file.size, file.stamp)
        for file in listing.files
    ]
