"""Which names of target models are accepted, and which files and folders are models. Pure.

A name is the path below the prefix, all of it, suffix included: the archive `a.tar.gz` and the
folder `a` are two models with two names, and so are `A.tar.gz` and `a.tar.gz`. Names are never
repaired nor decoded: a name is taken literally or refused. AWS allows 1 to 1024 printable
characters that do not begin with a space.

Names alone decide which files and folders are models. An index is only a view: a model that it
leaves out is still loaded when it is called. A folder that looks like a model is one, whatever lies
below it. Any other folder is a part of names, as `team` is in `team/a/model.tar.gz`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import unquote

from penstock.artifacts.files.paths import is_clutter, safe_path, shown
from penstock.errors import CallerError

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


_ARCHIVES: Final = (".tar.gz", ".tgz", ".tar", ".zip")
_MODEL_FILES: Final = (".onnx", ".pt2")
#: A folder with one of these files is a model even where archives lie beside them.
_MARKERS: Final = frozenset({"model.yaml", "pipeline.yaml", "config.pbtxt", "config.json"})
_WEIGHTS: Final = (*_MODEL_FILES, ".xml", ".safetensors", ".gguf")


def is_model_file(name: str) -> bool:
    """Whether a file outside all model folders is a model by itself."""
    return name.lower().endswith(_ARCHIVES + _MODEL_FILES)


def is_model_folder(files: Collection[str], folders: Collection[str]) -> bool:
    """Whether a folder with these entries is one model, not just a part of models' names."""
    if not _MARKERS.isdisjoint(files):
        return True
    if any(name.lower().endswith(_ARCHIVES) for name in files):
        return False
    # `code` is SageMaker's folder of user code.
    return "code" in folders or any(name.lower().endswith(_WEIGHTS) for name in files)


def is_part_of_names(paths: Collection[str]) -> bool:
    """Whether a folder with these files below it is no model and only holds archives that are.

    If it holds any other candidate for a model, its content has to decide.
    """
    files = [path for path in paths if "/" not in path]
    folders = {path.partition("/")[0] for path in paths if "/" in path}
    if is_model_folder(files, folders):
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
        folder = next((each for each in _parents(path) if is_model_folder(*_in(tree, each))), "")
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


def _in(tree: Mapping[str, tuple[set[str], set[str]]], folder: str) -> tuple[set[str], set[str]]:
    return tree.get(folder) or (set(), set())


def _parents(path: str) -> Iterator[str]:
    """The folders that contain a path, the topmost first."""
    return (path[:at] for at, char in enumerate(path) if char == "/")
