"""A YAML file written by a person: its tree, and errors that name file, line, key and remedy.

`${name}` in any text is replaced by a value: of a row of `for_each`, or of a template's `values`.
`$${` is written for a literal `${`. Paths are always below one root folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from msgspec import Meta, inspect

from penstock.artifacts.description.yaml_tree import FILE_BYTES_MAX, read_tree
from penstock.artifacts.files.paths import safe_path, shown
from penstock.errors import CallerError
from penstock.file_schema import (
    Fail,
    Keys,
    Reader,
    Version,
    in_words,
    information,
    matching,
)

#: `$${` comes first, so that it never begins a value.
_VALUE = re.compile(r"\$\$\{|\$\{([^{}\n]{0,64})\}")
_VALUE_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}\Z")
_STEP = re.compile(r"\[(\d{1,9})\]|([^.\[\]]+)")
_ROWS_MAX = 100_000
_KEY = "for_each"
EntryT = TypeVar("EntryT", bound="Entry")


_Row = dict[
    Annotated[str, matching(_VALUE_NAME, "named by small letters, digits and underscores")], str
]
_ListedRows = Annotated[tuple[str | _Row, ...], Meta(min_length=1, max_length=_ROWS_MAX)]


class RowsIn(Keys):
    """Rows from another file."""

    file: str  #: path below the root; its key `for_each` is the list


class RowsFile(Keys):
    """A file of rows for other files."""

    for_each: _ListedRows
    schema: Version = 1


_Rows = Annotated[_ListedRows | RowsIn, in_words("a list of texts or of mappings, or {file: NAME}")]


class Entry(Keys):
    """A mapping that may have a `for_each`; it then stands for one mapping per row, with its
    values."""

    #: rows of values, or texts, each named `each`; or the file that contains them
    for_each: _Rows | None = None


class SpecFile(Reader):
    """One file; its paths are relative to `root`."""

    def __init__(self, path: Path, *, root: Path | None = None) -> None:
        """Raises CallerError `spec-not-found`, `spec-unreadable` or `spec-invalid`."""
        super().__init__(str(path), self._at_line)
        self.path = path
        self.root = root or path.parent
        self._content = _read(path)
        self._row: dict[str, str] | None = None  #: the row of the mapping that is being read
        self._entries: dict[int, tuple[object, str, dict[str, str]]] = {}
        try:
            self.tree: dict[str, Any] = read_tree(self._content, str(path))
        except CallerError as error:
            raise CallerError("spec-invalid", error.message, hint=error.hint) from error

    def read_each(self, kind: type[EntryT]) -> Iterator[EntryT]:
        """The file's mapping for each of its rows."""
        yield from self._each(information(kind), self.tree, "")

    def path_of(self, entry: Entry) -> str:
        """The entry's place in the file, for errors."""
        return self._entries[id(entry)][1]

    def row_of(self, entry: Entry) -> dict[str, str]:
        """The values that replaced `${...}` in its texts."""
        return self._entries[id(entry)][2]

    def items(self, info: inspect.Type, values: list[Any], path: str) -> Iterator[Any]:
        for at, value in enumerate(values):
            place = f"{path}[{at}]"
            if isinstance(info, inspect.StructType) and isinstance(value, dict):
                yield from self._each(info, value, place)
            else:
                yield self.value(info, value, place)

    def _each(self, info: inspect.Type, tree: dict[str, Any], path: str) -> Iterator[Any]:
        outer = self._row
        for filled_tree, row in self._expanded(tree, path):
            self._row = row
            entry = self.value(info, filled_tree, path)
            self._row = outer
            self._entries[id(entry)] = entry, path, row
            yield entry

    def _expanded(
        self, tree: dict[str, Any], path: str
    ) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
        """The mapping with the row's values, once for each row of its `for_each`, or once without
        one.

        The values of the surrounding mapping are in its texts already.
        """
        outer = self._row
        if _KEY not in tree:
            yield (filled(tree, {}, self.fail, path) if outer is None else tree), dict(outer or {})
            return
        rest = {key: value for key, value in tree.items() if key != _KEY}
        for row in self._rows(tree[_KEY], f"{path}.{_KEY}" if path else _KEY):
            values = {**(outer or {}), **row}
            yield filled(rest, values, self.fail, path), values

    def _rows(self, value: object, path: str) -> list[dict[str, str]]:
        """The rows of a list, or of the list in another file."""
        rows = self.value(information(_Rows), value, path)
        if isinstance(rows, RowsIn):
            place = inside(self.root, rows.file, self.fail, f"{path}.file")
            other = SpecFile(place, root=self.root)
            rows = other.read(RowsFile, other.tree).for_each
        return [{"each": row} if isinstance(row, str) else row for row in rows]

    def _at_line(self, key: str, cause: str, hint: str) -> CallerError:
        """The error for a wrong key or value, with its line."""
        where = f"{self.path}:{self._line(key)}"
        return CallerError("spec-invalid", f"{where}: {cause}", hint=hint)

    def _line(self, key: str) -> int:
        """The line of the innermost part of the key's path that the file has."""
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
    """The tree with the values put into its texts; its keys stay unchanged.

    A mapping with a `for_each` gets its values later, and stays unchanged.
    """
    if isinstance(tree, str):
        return filled_text(tree, values, fail, path)
    if isinstance(tree, list):
        return [filled(item, values, fail, f"{path}[{at}]") for at, item in enumerate(tree)]
    if isinstance(tree, dict) and _KEY not in tree:
        start = f"{path}." if path else ""
        return {key: filled(item, values, fail, f"{start}{key}") for key, item in tree.items()}
    return tree


def filled_text(text: str, values: Mapping[str, str], fail: Fail, path: str) -> str:
    """The text with its values. Raises by `fail` for a name without a value."""

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
    """The existing file or folder `name` below `root`, with links followed.

    Raises by `fail` for names that leave the root, by links too, and for missing files.
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
