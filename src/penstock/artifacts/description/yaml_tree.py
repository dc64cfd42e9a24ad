"""Untrusted YAML as a tree of plain values, read within bounds.

The file is read without aliases (they can grow a small file into a huge tree), without tags other
than YAML's plain ones, without repeated keys, and to a bounded size and depth. Knows no key.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

from penstock.artifacts.files.budget import too_large
from penstock.errors import CallerError
from penstock.file_schema import TEXT_CHARS_MAX, Reader

FILE_BYTES_MAX = 1024 * 1024  #: room for tens of thousands of labels
_DEPTH_MAX = 16


def read_tree(content: bytes | str, where: str) -> dict[str, Any]:
    """The mapping that the text holds. Raises `CallerError` (`model-yaml-invalid`)."""
    if len(content) > FILE_BYTES_MAX:
        raise too_large(where, f"{len(content)} bytes", FILE_BYTES_MAX)
    try:
        _refuse_deep_or_aliased(content)
        tree = yaml.load(content, Loader=_Loader)  # noqa: S506 - derived from the safe loader
    except CallerError:
        raise
    except (yaml.YAMLError, ValueError, TypeError, OverflowError, RecursionError) as error:
        cause = " ".join(str(error).split())[:300]
        raise CallerError(
            "model-yaml-invalid", f"{where}: {cause}", hint="Check the YAML of the file."
        ) from error
    if not isinstance(tree, dict):
        raise invalid(where, "", tree, "a mapping that begins with `schema: 1`")
    return tree


def artifact_file(where: str) -> Reader:
    """Reads what `read_tree` returned. Its errors are CallerError (`model-yaml-invalid`)."""

    def fail(_path: str, cause: str, hint: str) -> CallerError:
        return CallerError("model-yaml-invalid", f"{where}: {cause}", hint=hint)

    return Reader(where, fail)


def invalid(where: str, path: str, value: object, allowed: str) -> CallerError:
    """The one error of a wrong value in a model.yaml."""
    return artifact_file(where).wrong(path, value, allowed)


def _refuse_deep_or_aliased(content: bytes | str) -> None:
    depth = 0
    for event in yaml.parse(content, Loader=_BASE_LOADER):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError(f"aliases are not allowed ({_line(event.start_mark)})")
        if isinstance(event, yaml.ScalarEvent) and len(event.value) > TEXT_CHARS_MAX:
            line = _line(event.start_mark)
            raise yaml.YAMLError(f"a value of more than {TEXT_CHARS_MAX} characters ({line})")
        if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            depth += 1
            if depth > _DEPTH_MAX:
                raise yaml.YAMLError(f"nested deeper than {_DEPTH_MAX} levels")
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            depth -= 1


#: libyaml's parser where PyYAML was built with it: ten times faster on long label lists.
_BASE_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_BASE_LOADER):  # type: ignore[misc]
    """The safe loader, except that a repeated key is an error: YAML's takes the last value."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        keys = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                line = _line(key_node.start_mark)
                raise yaml.YAMLError(f"a key of type {type(key).__name__}; quote it ({line})")
            if key in keys:
                line = _line(key_node.start_mark)
                raise yaml.YAMLError(f"the key {key!a} is given twice ({line})")
            keys.add(key)
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return mapping


def _line(mark: Any) -> str:
    return "" if mark is None else f"line {mark.line + 1}"
