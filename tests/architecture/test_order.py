"""Order in the tree: a class name exists once, no folder is crowded, imports have a direction."""

from __future__ import annotations

import ast
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
SOURCE = TESTS.parent / "src" / "penstock"
FILES_MAX = 24
FOLDERS = sorted(path.parent for path in SOURCE.rglob("__init__.py"))
#: How layers lie over one another is import-linter's to hold.
ROOMS = [folder for folder in FOLDERS if folder != SOURCE]


def _module_of(path: Path) -> str:
    """As in `core.request.retry`; a package is named for its folder."""
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


TREES = {_module_of(path): ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")}


def _imported(tree: ast.AST) -> set[str]:
    """Modules of Penstock that one names, wherever in it, for types alone, too."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("penstock."):
            package = (node.module or "").removeprefix("penstock.")
            for alias in node.names:
                inside = f"{package}.{alias.name}"
                found.add(inside if inside in TREES else package)
    return found


IMPORTS = {module: _imported(tree) for module, tree in TREES.items()}


@pytest.mark.parametrize("top", [SOURCE, TESTS], ids=["source", "tests"])
def test_a_class_name_exists_once(top: Path) -> None:
    places = defaultdict(list)
    for path in top.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(top)}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_a_name_of_a_test_file_exists_once() -> None:
    """Folders of tests are no packages: pytest imports the second of a name as the first."""
    places = defaultdict(list)
    for path in TESTS.rglob("test_*.py"):
        places[path.name].append(str(path.relative_to(TESTS)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_floor_holds_more_files_than_one_look_takes_in() -> None:
    counts = {str(folder.relative_to(SOURCE)): len(list(folder.glob("*.py"))) for folder in FOLDERS}
    assert {folder: count for folder, count in counts.items() if count > FILES_MAX} == {}


@pytest.mark.parametrize("folder", ROOMS, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_what_lies_in_a_folder_imports_one_way(folder: Path) -> None:
    """A file or a folder in it counts as one: a circle has no beginning to read from."""
    package = _module_of(folder / "__init__.py")
    inside = f"{package}."
    arrows: dict[str, set[str]] = defaultdict(set)
    for module, imported in IMPORTS.items():
        if module.startswith(inside) and module != package:
            child = module.removeprefix(inside).split(".")[0]
            for other in imported:
                if other.startswith(inside):
                    arrows[child].add(other.removeprefix(inside).split(".")[0])
            arrows[child].discard(child)
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as circle:
        names = circle.args[1]
        pytest.fail(f"imports of {package} run in a circle: {' <- '.join(names)}")


def test_each_folder_says_what_belongs_there() -> None:
    silent = [module for module, tree in TREES.items() if not ast.get_docstring(tree)]
    assert silent == []
