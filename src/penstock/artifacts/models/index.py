"""Which names of target models are accepted, which files and folders are models, and the index of
those below a prefix.

A name is the path below the prefix, all of it, suffix included: the archive `a.tar.gz` and the
folder `a` are two models with two names, and so are `A.tar.gz` and `a.tar.gz`. Names are never
repaired nor decoded: a name is taken literally or refused. AWS allows 1 to 1024 printable
characters that do not begin with a space.

Names alone decide which files and folders are models. An index is only a view: a model that it
leaves out is still loaded when it is called. A folder that looks like a model is one, whatever lies
below it. Any other folder is a part of names, as `team` is in `team/a/model.tar.gz`.

For the index only names, sizes and times are read, and of a directory only the names: the caller
reads the facts of the files on the page of the index that it needs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from penstock.artifacts.files.budget import Budget
from penstock.artifacts.files.listing import Listing
from penstock.artifacts.files.paths import is_clutter, safe_path, shown
from penstock.artifacts.sources.object_store import listing_of, objects_below
from penstock.core.request.storage_failures import errno_passes
from penstock.errors import CallerError, NotNowError, PenstockError

CHARS_MAX: Final = 1024
#: Suffixes that programs give to unfinished files. Files that begin with a dot are hidden, and
#: mostly unfinished too.
_UNFINISHED: Final = (".part", ".partial", ".tmp", "~")
#: A name that still changes after this many rounds of percent-decoding is hostile.
_ROUNDS_MAX: Final = 8


def checked(name: str) -> str:
    """Returns `name` if it is a valid one. Raises `CallerError` (`target-model-invalid`).

    Percent signs are ordinary characters, but whatever a later reader might decode them to must be
    harmless as well.
    """
    _check(name, name)
    decoded = name
    for _ in range(_ROUNDS_MAX):
        before, decoded = decoded, unquote(decoded)
        if decoded == before:
            return name
        _check(decoded, name)
    raise _invalid(name, "it is percent-encoded again and again")


def is_left_out(path: str) -> bool:
    """Whether a path is hidden, temporary or clutter, so that no index shows it."""
    return is_clutter(path) or any(
        part.startswith(".") or part.endswith(_UNFINISHED) for part in path.split("/")
    )


def _check(name: str, given: str) -> None:
    if not 1 <= len(name) <= CHARS_MAX:
        raise _invalid(given, f"it has {len(name)} characters; 1 to {CHARS_MAX} are allowed")
    if name[0].isspace() or name[-1].isspace():
        raise _invalid(given, "it begins or ends with a space")
    if "�" in name:
        raise _invalid(given, "it contains undecodable characters")
    try:
        plain = safe_path(name, where="TargetModel")
    except CallerError as error:
        raise _invalid(given, error.message.rpartition(": ")[2]) from None
    if plain != name:
        raise _invalid(given, "it has an empty part or a '.' between two slashes, or at an end")
    if is_left_out(name):
        raise _invalid(given, "hidden and temporary names are no models")


def _invalid(name: str, cause: str) -> CallerError:
    return CallerError(
        "target-model-invalid",
        f"TargetModel {shown(name)} is refused: {cause}",
        hint="Give the path of the model below the prefix of CreateModel, as in "
        "customer-17.tar.gz or team/a/model.tar.gz.",
        param="TargetModel",
    )


#: Suffixes of archives.
ARCHIVES: Final = (".tar.gz", ".tgz", ".tar", ".zip")
_MODEL_FILES: Final = (".onnx", ".pt2")
_VERSION: Final = re.compile(r"[1-9][0-9]{0,17}")
#: A folder with one of these files is a model even where archives lie beside them.
_MARKERS: Final = frozenset({"model.yaml", "pipeline.yaml", "config.pbtxt", "config.json"})
_WEIGHTS: Final = (*_MODEL_FILES, ".xml", ".safetensors", ".gguf")


def own_name(target: str) -> str:
    """The name of a target model in its repository: without the folders above it, or suffix."""
    name = target.rpartition("/")[2]
    return name.removesuffix(suffix_of(target)) or name


def suffix_of(target: str) -> str:
    """The suffix of an archive; "" if it is none."""
    return next((one for one in ARCHIVES if target.lower().endswith(one)), "")


def is_model_file(name: str) -> bool:
    """Whether a file outside all model folders is a model by itself."""
    return name.lower().endswith(ARCHIVES + _MODEL_FILES)


def is_model_folder(
    files: Collection[str],
    folders: Collection[str],
    inside: Callable[[str], Collection[str]] = lambda folder: (),
) -> bool:
    """Whether a folder with these entries is one model, not just a part of models' names. `inside`
    gives the entries of one of its folders: a file in a version's folder is all that Triton needs.
    """
    if not _MARKERS.isdisjoint(files):
        return True
    if any(name.lower().endswith(ARCHIVES) for name in files):
        return False
    versions = sorted(name for name in folders if _VERSION.fullmatch(name))
    if any(not _version_files().isdisjoint(inside(version)) for version in versions):
        return True
    # `code` is SageMaker's folder of user code.
    return "code" in folders or any(name.lower().endswith(_WEIGHTS) for name in files)


@cache
def _version_files() -> frozenset[str]:
    from penstock.artifacts.triton.config import backends  # noqa: PLC0415 - few prefixes need it

    return frozenset(file for _, file in backends().values() if file)


def is_part_of_names(paths: Collection[str]) -> bool:
    """Whether a folder with these files below it is no model and only holds archives that are.

    If it holds any other candidate for a model, its content has to decide.
    """
    files = [path for path in paths if "/" not in path]
    folders = {path.partition("/")[0] for path in paths if "/" in path}
    under = [path.split("/") for path in paths if "/" in path]
    if is_model_folder(files, folders, lambda name: {own for top, own, *_ in under if top == name}):
        return False
    found = models_of(paths)
    return bool(found) and all(is_model_file(name) for name in found)


def models_of(paths: Iterable[str]) -> dict[str, list[str]]:
    """The models among files below a prefix: name -> paths of its files.

    Only buckets allow a file and a folder with the same name; the name then means the file.
    """
    paths = [path for path in paths if path]
    tree: dict[str, tuple[set[str], set[str]]] = {"": (set(), set())}
    for path in paths:
        if not is_left_out(path):
            _plant(path, tree)
    found: dict[str, list[str]] = {}
    for path in paths:
        folder = next((each for each in _parents(path) if _is_one(tree, each)), "")
        above, _, name = folder.rpartition("/")
        if folder and name not in _in(tree, above)[0]:
            found.setdefault(folder, []).append(path)
        elif not folder and is_model_file(path) and not is_left_out(path):
            found[path] = [path]
    return found


def _plant(path: str, tree: dict[str, tuple[set[str], set[str]]]) -> None:
    *folders, name = path.split("/")
    at = ""
    for folder in folders:
        tree[at][1].add(folder)
        at = f"{at}/{folder}" if at else folder
        tree.setdefault(at, (set(), set()))
    tree[at][0].add(name)


def _is_one(tree: Mapping[str, tuple[set[str], set[str]]], folder: str) -> bool:
    def inside(name: str) -> set[str]:
        files, folders = _in(tree, f"{folder}/{name}")
        return files | folders

    return is_model_folder(*_in(tree, folder), inside)


def _in(tree: Mapping[str, tuple[set[str], set[str]]], folder: str) -> tuple[set[str], set[str]]:
    return tree.get(folder) or (set(), set())


def _parents(path: str) -> Iterator[str]:
    """The folders that contain a path, the topmost first."""
    return (path[:at] for at, char in enumerate(path) if char == "/")


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
        if folder and is_model_folder(files, below, _reads(top / folder, real_top)):
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


def _reads(folder: Path, real_top: str) -> Callable[[str], Collection[str]]:
    def inside(name: str) -> Collection[str]:
        try:
            files, folders = _entries(folder / name, real_top)
        except OSError:
            return ()
        return {*files, *folders}

    return inside


def _is_model(folder: Path, real_top: str) -> bool:
    try:
        return is_model_folder(*_entries(folder, real_top), _reads(folder, real_top))
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
