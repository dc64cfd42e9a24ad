"""The names of the models below a prefix; for a bucket their files as well.

Only names, sizes and times are read, and of a directory only the names: the caller reads the facts
of the files on the page of the index that it needs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.artifacts.files.budget import Budget
from penstock.artifacts.files.listing import Listing
from penstock.artifacts.models.names import (
    checked,
    is_left_out,
    is_model_file,
    is_model_folder,
    models_of,
)
from penstock.artifacts.sources.object_store import listing_of, objects_below
from penstock.core.request.storage_failures import errno_passes
from penstock.errors import CallerError, NotNowError, PenstockError


def names_in_folder(top: Path, budget: Budget) -> Iterator[str]:
    """The models below a directory, in no order. Links that lead out of it are left out.

    Raises `CallerError` (`artifact-not-found`, `artifact-access-denied`), `NotNowError` where the
    disk fails (`artifact-unreadable`).
    """
    real_top = os.path.realpath(top)
    folders = [""]
    while folders:
        folder = folders.pop()
        budget.check()
        try:
            files, below = _entries(top / folder, real_top)
        except OSError as error:
            if not folder or errno_passes(error.errno):
                raise _unlistable(top, error) from error
            continue  # the folder vanished or is not ours to read: its models are not served either
        if folder and is_model_folder(files, below):
            yield folder
            continue
        at = f"{folder}/" if folder else ""
        for name in files:
            if is_model_file(name) and _is_name(at + name):
                yield at + name
        for name, is_link in below.items():
            if not _is_name(at + name):
                continue
            if not is_link:
                folders.append(at + name)
            # A link to a folder may be a model. Followed further, it could lead round and round.
            elif _is_model(top / (at + name), real_top):
                yield at + name


def in_bucket(store: Any, prefix: str, budget: Budget) -> dict[str, Listing]:
    """The models below a bucket's prefix, each with the listing that `look` would make of it."""
    objects = dict(objects_below(store, prefix, budget=budget))
    folders = {name[:at] for name in objects for at, char in enumerate(name) if char == "/"}
    marks = {name for name in folders & objects.keys() if objects[name]["size"] == 0}
    models = {}
    for name, paths in models_of(sorted(objects.keys() - marks)).items():
        if not _is_name(name):
            continue
        single = paths == [name]
        cut = name.rfind("/") + 1 if single else len(name) + 1
        parts = {path[cut:]: objects[path] for path in paths}
        models[name] = listing_of(store, parts, single=single, budget=budget)
    return models


def _entries(folder: Path, real_top: str) -> tuple[list[str], dict[str, bool]]:
    """Names of the files in a folder, and its folders: name -> whether it is a link. Raises
    OSError."""
    files, folders = [], {}
    with os.scandir(folder) as found:
        for entry in found:
            if is_left_out(entry.name) or not _stays(entry, real_top):
                continue
            # `DirEntry.is_dir` raises for a link to itself; `os.path` says that it is no folder.
            if os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir():
                folders[entry.name] = entry.is_symlink()
            else:
                files.append(entry.name)
    return files, folders


def _is_model(folder: Path, real_top: str) -> bool:
    try:
        return is_model_folder(*_entries(folder, real_top))
    except OSError:
        return False


def _stays(entry: os.DirEntry[str], real_top: str) -> bool:
    return not entry.is_symlink() or os.path.realpath(entry.path).startswith(real_top + os.sep)


def _is_name(path: str) -> bool:
    try:
        return checked(path) == path
    except CallerError:
        return False


def _unlistable(top: Path, error: OSError) -> PenstockError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return CallerError(
            "artifact-not-found",
            f"{top} is no directory on this machine",
            hint="A prefix of target models is a directory; a path is one of the server's machine.",
        )
    if errno_passes(error.errno):
        return NotNowError(
            "artifact-unreadable",
            f"{top} can't be read for now: {error.strerror}",
            hint="Check the disk that holds it.",
        )
    return CallerError(
        "artifact-access-denied",
        f"the server may not read {top}: {error.strerror}",
        hint="Give the user that runs the server read access to the directory.",
    )
