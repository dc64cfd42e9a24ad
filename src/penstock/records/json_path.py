"""The JSONPath of InputFilter and OutputFilter: SageMaker's subset, and nothing more.

    $   .name   .*   ['name', 'name']   [0, -1]   [2:5]   [*]

A row of CSV is an array. Numbers and slices may be mixed in one bracket (`$[0,5:]`); a slice ends
before its second number, as in JsonPath, to which SageMaker's documentation refers. A path that can
only mean one value returns that value; several names of an object return an object, and any other
path that can mean several values returns an array. A missing value is an error, except below a
wildcard, a slice or several numbers, where it is left out.
(docs.aws.amazon.com/sagemaker/latest/dg/batch-transform-data-processing.html)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from penstock.errors import CallerError

_NAME: Final = re.compile(r"\.([^\s.\[\]'\"*()?@,:]+)")
_ANY: Final = re.compile(r"\.\*|\.?\[ *\* *\]")
_OPEN: Final = re.compile(r"\.?\[")
_QUOTED: Final = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_NUMBERS: Final = re.compile(r"\.?\[([ 0-9,:-]+)\]")
_SLICE: Final = re.compile(r"(-?[0-9]{1,9})? *: *(-?[0-9]{1,9})?")
_NUMBER: Final = re.compile(r"-?[0-9]{1,9}")

#: A step: a name, several names, numbers and slices, or a wildcard (None).
Step = str | tuple[str, ...] | tuple[int | slice, ...] | None


class NotThereError(LookupError):
    """A value lacks what a path names; the message says what."""


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A parsed path."""

    text: str
    steps: tuple[Step, ...]

    @property
    def is_all(self) -> bool:
        """Whether the path is `$`: the value unchanged."""
        return not self.steps

    def of(self, value: Any) -> Any:
        """The value of the path in `value`. Raises `NotThereError`."""
        if len(self.steps) == 1:  # the usual path; this runs for every record
            return _of_one(value, self.steps[0])
        found, one = [value], True
        for step in self.steps:
            if isinstance(step, tuple) and isinstance(step[0], str):
                found = [_members(node, step, lenient=not one) for node in found]
                continue
            several = step is None or (isinstance(step, tuple) and not _is_one(step))
            found = [below for node in found for below in _below(node, step, lenient=not one)]
            one = one and not several
        return found[0] if one else found


def parse(text: str, param: str) -> JsonPath:
    """Parses a path. Raises `CallerError` (`filter-invalid`) for one outside of the subset.

    Args:
        param: name of the parameter in the request.
    """
    rest = text.strip()
    if not rest.startswith("$"):
        raise _invalid(text, param, "it does not begin with $")
    rest = rest[1:]
    steps: list[Step] = []
    while rest:
        if steps and isinstance(steps[-1], tuple) and len(steps[-1]) > 1 and _is_names(steps[-1]):
            raise _invalid(text, param, "nothing can follow several names")
        step, length = _step(rest)
        if not length:
            raise _invalid(text, param, f"{rest[:40]!r} can't be read")
        steps.append(step)
        rest = rest[length:]
    return JsonPath(text, tuple(steps))


def _step(rest: str) -> tuple[Step, int]:
    """The first step of a text and its length; 0 if there is none."""
    if found := _ANY.match(rest):
        return None, found.end()
    if found := _NAME.match(rest):
        return found[1], found.end()
    names, length = _quoted_names(rest)
    if names:
        return (names[0] if len(names) == 1 else names), length
    if found := _NUMBERS.match(rest):
        numbers = [_number(part.strip()) for part in found[1].split(",")]
        if None not in numbers:
            return tuple(number for number in numbers if number is not None), found.end()
    return None, 0


def _quoted_names(rest: str) -> tuple[tuple[str, ...], int]:
    """`['name', "name"]` at the start of a text, and its length; none if the text differs."""
    opened = _OPEN.match(rest)
    at = opened.end() if opened else 0
    names: list[str] = []
    while at:
        found = _QUOTED.match(rest, _behind_spaces(rest, at))
        if found is None:
            break
        names.append(found[1] if found[1] is not None else found[2])
        at = _behind_spaces(rest, found.end()) + 1
        if rest[at - 1 : at] == "]":
            return tuple(names), at
        if rest[at - 1 : at] != ",":
            break
    return (), 0


def _behind_spaces(text: str, at: int) -> int:
    return len(text) - len(text[at:].lstrip())


def _number(text: str) -> int | slice | None:
    if _NUMBER.fullmatch(text):
        return int(text)
    if found := _SLICE.fullmatch(text):
        start, stop = found.groups()
        return slice(start and int(start), stop and int(stop))
    return None


def _is_names(step: tuple[Any, ...]) -> bool:
    return isinstance(step[0], str)


def _is_one(step: tuple[Any, ...]) -> bool:
    return len(step) == 1 and isinstance(step[0], int)


def _of_one(value: Any, step: Step) -> Any:
    if isinstance(step, str):
        return _member(value, step)
    if step is None:
        return _all(value)
    if _is_names(step):
        return _members(value, step, lenient=False)
    found = _elements(value, step)
    return found[0] if _is_one(step) else found


def _members(node: Any, names: tuple[Any, ...], *, lenient: bool) -> dict[str, Any]:
    if not isinstance(node, dict):
        if lenient:
            return {}
        raise NotThereError(f"{names[0]!r} of what is no object")
    if not lenient:
        for name in names:
            if name not in node:
                raise NotThereError(f"{name!r} is missing")
    return {name: node[name] for name in names if name in node}


def _below(node: Any, step: Step, *, lenient: bool) -> list[Any]:
    try:
        if step is None:
            return _all(node)
        if isinstance(step, str):
            return [_member(node, step)]
        return _elements(node, step)
    except NotThereError:
        if lenient:
            return []
        raise


def _all(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return list(node.values())
    if isinstance(node, list):
        return node
    raise NotThereError("* of what is neither an object nor an array")


def _member(node: Any, name: str) -> Any:
    if not isinstance(node, dict):
        raise NotThereError(f"{name!r} of what is no object")
    if name not in node:
        raise NotThereError(f"{name!r} is missing")
    return node[name]


def _elements(node: Any, numbers: tuple[Any, ...]) -> list[Any]:
    if not isinstance(node, list):
        raise NotThereError("a number of what is no array")
    found: list[Any] = []
    for number in numbers:
        if isinstance(number, slice):
            if number.start is not None and number.start >= len(node) > 0:
                raise NotThereError(f"it has {len(node)} elements, none from {number.start} on")
            found += node[number]
        elif -len(node) <= number < len(node):
            found.append(node[number])
        else:
            raise NotThereError(f"it has {len(node)} elements, none at {number}")
    return found


def _invalid(text: str, param: str, cause: str) -> CallerError:
    return CallerError(
        "filter-invalid",
        f"{param} {text[:80]!r} is not a JSONPath of the kind that is understood: {cause}",
        hint="Use $, .name, ['name', 'name'], [0, -1], [2:5] and *, for example $.features, "
        "$[1:] or $['id','SageMakerOutput'].",
        param=param,
    )
