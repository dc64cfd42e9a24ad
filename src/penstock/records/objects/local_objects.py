"""Objects on this machine: files, folders, and names with a common beginning."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from penstock.artifacts.files.budget import Budget
from penstock.artifacts.files.listing import Listing
from penstock.artifacts.files.paths import is_clutter, safe_path
from penstock.artifacts.sources.local_files import list_local
from penstock.artifacts.sources.places import Fence, LocalPlace
from penstock.clock import SystemClock


class FoundObject(NamedTuple):
    key: str  #: safe relative path
    uri: str  #: for opening it again
    size: int
    stamp: str


def below(place: LocalPlace, budget: Budget, *, objects_max: int) -> list[FoundObject]:
    """A file, or all files of a folder, or all files whose names begin with the path.

    Raises the errors of `list_local`.
    """
    path, fence = place.path, place.fence
    if os.path.lexists(path):
        listing = _listed(path, budget, objects_max, fence)
        return _found(listing, path.parent if listing.single else path, "")
    folder = path.parent
    found: list[FoundObject] = []
    for name in _names(folder, path.name):
        left = objects_max - len(found)
        listing = _listed(folder / name, budget, left, fence.inside(folder))
        if listing.single:
            found += _found(listing, folder, "")
        else:
            found += _found(listing, folder / name, f"{name}/")
    if not found:
        _listed(path, budget, objects_max, fence)  # raises, because the path does not exist
    return found


def one(place: LocalPlace, name: str, budget: Budget) -> list[FoundObject]:
    """The file of this name, or nothing if it is none. No link may lead out of the folder."""
    path = place.path / name
    listing = _listed(path, budget, 1, place.fence.inside(place.path))
    [file] = listing.files
    return [FoundObject(name, file_uri(path), file.size, file.stamp)] if listing.single else []


def file_uri(path: Path) -> str:
    return f"file://{quote(str(path))}"


def _names(folder: Path, start: str) -> list[str]:
    try:
        names = sorted(name for name in os.listdir(folder) if name.startswith(start))
    except OSError:
        return []  # the listing of the path itself reports why it can't be listed
    return [safe_path(name, where=str(folder)) for name in names if not is_clutter(name)]


def _listed(path: Path, budget: Budget, objects_max: int, fence: Fence) -> Listing:
    return list_local(path, budget=budget, files_max=objects_max, clock=SystemClock(), fence=fence)


def _found(listing: Listing, top: Path, before: str) -> list[FoundObject]:
    return [
        FoundObject(before + file.name, file_uri(top / file.name), file.size, file.stamp)
        for file in listing.files
    ]
