"""A YAML file that a person writes: its tree, and errors that name file, line, key and remedy.

`${name}` in any text stands for a value: of a row of `for_each`, or of a template's `values`. Where
`${` itself is meant, `$${` is written. Paths are below one root folder, whatever the file says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from penstock.artifacts.description.yaml_keys import Fail, Keys
from penstock.artifacts.description.yaml_tree import FILE_BYTES_MAX, read_tree
from penstock.artifacts.files.paths import safe_path, shown
from penstock.errors import CallerError

#: `$${` is taken first, so that it is never the beginning of a value.
_VALUE = re.compile(r"\$\$\{|\$\{([^{}\n]{0,64})\}")
_VALUE_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}\Z")
_STEP = re.compile(r"\[(\d{1,9})\]|([^.\[\]]+)")
_ROWS_MAX = 100_000
_KEY = "for_each"


class SpecFile:
    """One file, read; `root` is the folder that its paths are relative to."""

    def __init__(self, path: Path, *, root: Path | None = None) -> None:
        """Raises CallerError `spec-not-found`, `spec-unreadable` or `spec-invalid`."""
        self.path = path
        self.root = root or path.parent
        self._content = _read(path)
        try:
            self.tree: dict[str, Any] = read_tree(self._content, str(path))
        except CallerError as error:
            raise CallerError("spec-invalid", error.message, hint=error.hint) from error

    def fail(self, key: str, cause: str, hint: str) -> CallerError:
        """The one error of a wrong key or value."""
        where = f"{self.path}:{self._line(key)}"
        return CallerError("spec-invalid", f"{where}: {cause}", hint=hint)

    def keys(self, tree: dict[str, Any], path: str = "") -> Keys:
        return Keys(tree, where=str(self.path), path=path, fail=self.fail)

    def expanded(
        self, tree: dict[str, Any], path: str = "", *, values: Mapping[str, str] | None = None
    ) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
        """A mapping once for each row of its `for_each`, or once: with the row's values put in.

        `values` are those of the mapping around it, whose texts they were put into already.
        """
        if _KEY not in tree:
            yield (
                (filled(tree, {}, self.fail, path) if values is None else tree),
                dict(values or {}),
            )
            return
        rest = {key: value for key, value in tree.items() if key != _KEY}
        for row in self._rows(tree[_KEY], f"{path}{_KEY}"):
            all_values = {**(values or {}), **row}
            yield filled(rest, all_values, self.fail, path), all_values

    def _rows(self, value: object, path: str) -> list[dict[str, str]]:
        """Those of a list, or of the list that another file has."""
        if not isinstance(value, dict):
            return self._listed_rows(value, path)
        keys = self.keys(value, f"{path}.")
        file = keys.text("file", required=True)
        keys.done()
        other = SpecFile(inside(self.root, file, self.fail, f"{path}.file"), root=self.root)
        top = other.keys({key: item for key, item in other.tree.items() if key != _KEY})
        top.integer("schema", 1, low=1, high=1)
        top.done()
        return other._listed_rows(other.tree.get(_KEY), _KEY)

    def _listed_rows(self, value: object, path: str) -> list[dict[str, str]]:
        if not isinstance(value, list) or not value or len(value) > _ROWS_MAX:
            allowed = "a list of texts or of mappings, or {file: NAME}"
            raise self.fail(path, f"{path} is no such list", f"It must be {allowed}.")
        return [self._row(row, f"{path}[{at}]") for at, row in enumerate(value)]

    def _row(self, row: object, path: str) -> dict[str, str]:
        if isinstance(row, str):
            row = {"each": row}
        keys = self.keys({path: row})
        values = keys.text_map(path)
        for name in values:
            if not _VALUE_NAME.match(name):
                raise keys.wrong(path, name, "named by small letters, digits and underscores")
        return values

    def _line(self, key: str) -> int:
        """Of the innermost part of the key's path that the file has."""
        node = yaml.compose(self._content, Loader=yaml.SafeLoader)
        line = 1
        for index, name in _STEP.findall(key):
            found = None
            if isinstance(node, yaml.SequenceNode) and index and int(index) < len(node.value):
                found = place = node.value[int(index)]
            elif isinstance(node, yaml.MappingNode) and name:
                pairs = [pair for pair in node.value if pair[0].value == name]
                place, found = pairs[0] if pairs else (None, None)
            if found is None:
                break
            node, line = found, place.start_mark.line + 1
        return int(line)


def filled(tree: Any, values: Mapping[str, str], fail: Fail, path: str = "") -> Any:
    """The tree with the values put into its texts; its keys stay as they are.

    A mapping with a `for_each` waits for values of its own, and stays as it is. `path` ends with
    what comes before a key, or in a whole path.
    """
    if isinstance(tree, str):
        return filled_text(tree, values, fail, path)
    if isinstance(tree, list):
        return [filled(item, values, fail, f"{path}[{at}]") for at, item in enumerate(tree)]
    if isinstance(tree, dict) and _KEY not in tree:
        dot = "." if path and not path.endswith(".") else ""
        return {key: filled(item, values, fail, f"{path}{dot}{key}") for key, item in tree.items()}
    return tree


def filled_text(text: str, values: Mapping[str, str], fail: Fail, path: str) -> str:
    """The text with its values. Raises by `fail` for a value that nothing gives."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name is None:
            return "${"
        if name not in values:
            given = ", ".join(values) or "none"
            cause = f"nothing gives a value to {shown('${' + name + '}')} in {path}"
            raise fail(path, cause, f"Values here: {given}. Write $${{ where ${{ is meant.")
        return values[name]

    return _VALUE.sub(value, text)


def inside(root: Path, name: str, fail: Fail, path: str) -> Path:
    """The file or folder `name` below `root`, its links followed; it exists.

    Raises by `fail` for names that leave the root, also by a link, and for what is not there.
    """
    relative = relative_path(name, fail, path)
    real_root = root.resolve()
    real = (real_root / relative).resolve()
    if not real.is_relative_to(real_root):
        raise fail(
            path,
            f"{path} is {shown(name)}, a link that leaves {root}",
            "Copy what it leads to, or give the folder above both with --root.",
        )
    if not real.exists():
        raise fail(path, f"{path} is {shown(name)}, which is not in {root}", "Check the spelling.")
    return real


def relative_path(name: str, fail: Fail, path: str) -> str:
    """A plain path below a folder; raises by `fail` for any other."""
    try:
        return safe_path(name, where=path)
    except CallerError as error:
        raise fail(path, error.message, "It must be a path below the file's folder.") from error


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise CallerError(
            "spec-not-found", f"there is no file {path}", hint="Name a YAML file."
        ) from None
    except OSError as error:
        raise CallerError(
            "spec-unreadable",
            f"{path} can't be read: {error.strerror}",
            hint="Name a YAML file that you may read.",
        ) from error
