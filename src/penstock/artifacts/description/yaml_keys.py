"""Typed access to one mapping of a YAML tree, for errors that name the key's whole path.

YAML guesses types: `no` is a truth value and `1.10` a number. Nothing is converted back here; where
text is wanted, the error says to quote it.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from penstock.artifacts.files.paths import safe_path
from penstock.errors import CallerError

_ITEMS_MAX = 100_000
#: (path of the key, what is wrong, remedy) -> the error to raise.
Fail = Callable[[str, str, str], CallerError]
TEXT_CHARS_MAX = 4096


def invalid(where: str, path: str, value: object, allowed: str) -> CallerError:
    """The one error of a wrong value in a model.yaml."""
    return _model_yaml(where)(path, _is(path, value), f"It must be {allowed}.")


def _model_yaml(where: str) -> Fail:
    return lambda path, cause, hint: CallerError(
        "model-yaml-invalid", f"{where}: {cause}", hint=hint
    )


def _is(path: str, value: object) -> str:
    try:
        text = ascii(value)
    except ValueError:  # an integer of thousands of digits
        text = f"a huge {type(value).__name__}"
    text = text if len(text) <= 120 else f"{text[:117]}..."
    return f"{path} is {text}" if path else f"the file holds {text}"


class Keys:
    """The keys of one mapping, each of which is taken once; `done` refuses the others.

    `fail` makes the errors of files that are no model.yaml.
    """

    def __init__(
        self, mapping: dict[str, Any], *, where: str, path: str = "", fail: Fail | None = None
    ) -> None:
        self._left = dict(mapping)
        self._known: list[str] = []
        self._where = where
        self._path = path
        self._fail = fail or _model_yaml(where)

    def text(self, name: str, default: str = "", *, required: bool = False) -> str:
        value = self._take(name, required)
        if value is None:
            return default
        return self._checked_text(name, value)

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(
            self._checked_text(f"{name}[{at}]", value)
            for at, value in enumerate(self._list(name, required=False))
        )

    def text_map(self, name: str) -> dict[str, str]:
        value = self._take(name, required=False)
        if value is None:
            return {}
        if not isinstance(value, dict) or len(value) > _ITEMS_MAX:
            raise self.wrong(name, value, "a mapping of names to text")
        return {
            self._checked_text(name, key): self._checked_text(f"{name}.{key}", item, empty=True)
            for key, item in value.items()
        }

    def path(self, name: str, default: str = "") -> str:
        """A path below the artifact's root."""
        text = self.text(name, default)
        return safe_path(text, where=f"{self._where}: {self._path}{name}")

    def choice(
        self, name: str, allowed: Sequence[str], *, default: str = "", required: bool = False
    ) -> str:
        value = self._take(name, required)
        if value is None:
            return default
        if not isinstance(value, str) or value not in allowed:
            raise self.wrong(name, value, f"one of {', '.join(repr(item) for item in allowed)}")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._take(name, required=False)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, value, "true or false")
        return value

    def integer(
        self, name: str, default: int, *, low: int, high: int, required: bool = False
    ) -> int:
        value = self._take(name, required)
        return default if value is None else self._checked_integer(name, value, low, high)

    def integers(
        self, name: str, *, low: int, high: int, required: bool = False
    ) -> tuple[int, ...]:
        return tuple(
            self._checked_integer(f"{name}[{at}]", value, low, high)
            for at, value in enumerate(self._list(name, required))
        )

    def ascending(self, name: str, *, high: int) -> tuple[int, ...]:
        """Distinct integers from 1 to `high`, each above the one before it."""
        values = self.integers(name, low=1, high=high)
        if any(a >= b for a, b in itertools.pairwise(values)):
            raise self.wrong(name, list(values), "in ascending order, each value once")
        return values

    def number(self, name: str, *, low: float, high: float) -> float | None:
        value = self._take(name, required=False)
        if value is None:
            return None
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not low <= value <= high:  # false for NaN, too
            raise self.wrong(name, value, f"a number from {low:g} to {high:g}")
        return float(value)

    def section(self, name: str) -> Keys | None:
        value = self._take(name, required=False)
        return None if value is None else self._sub(name, value)

    def sections(self, name: str) -> list[Keys]:
        return [
            self._sub(f"{name}[{at}]", value)
            for at, value in enumerate(self._list(name, required=False))
        ]

    def mappings(self, name: str) -> list[tuple[dict[str, Any], str]]:
        """As `sections`, for whoever reads the mappings: each with the path of its keys."""
        found = []
        for at, value in enumerate(self._list(name, required=False)):
            if not isinstance(value, dict):
                raise self.wrong(f"{name}[{at}]", value, "a mapping")
            found.append((value, f"{self._path}{name}[{at}]."))
        return found

    def names(self) -> list[str]:
        """The keys that were not taken, of a mapping whose keys are the writer's own names."""
        return [self._checked_text("", name) for name in self._left]

    def done(self) -> None:
        if self._left:
            name, value = next(iter(self._left.items()))
            if name == "trusted":
                raise self.wrong(name, value, "left out: trust is given by the operator")
            near = difflib.get_close_matches(name, self._known, n=1)
            meant = f"Did you mean {near[0]}? " if near else ""
            raise self._fail(
                f"{self._path}{name}",
                f"unknown key {self._path}{name}",
                f"{meant}The keys here are: {', '.join(self._known)}.",
            )

    def wrong(self, name: str, value: object, allowed: str) -> CallerError:
        path = f"{self._path}{name}"
        return self._fail(path, _is(path, value), f"It must be {allowed}.")

    def _missing(self, name: str) -> CallerError:
        near = difflib.get_close_matches(name, self._left, n=1)
        if not near:
            return self.wrong(name, None, "given")
        hint = f"It must be given. Is {near[0]} meant to be it?"
        return self._fail(f"{self._path}{near[0]}", _is(f"{self._path}{name}", None), hint)

    def _take(self, name: str, required: bool) -> Any:
        self._known.append(name)
        if name not in self._left:
            if required:
                raise self._missing(name)
            return None
        value = self._left.pop(name)
        if value is None:
            raise self.wrong(name, None, "given a value, or left out")
        return value

    def _list(self, name: str, required: bool) -> list[Any]:
        value = self._take(name, required)
        if value is None:
            return []
        if not isinstance(value, list) or len(value) > _ITEMS_MAX:
            raise self.wrong(name, value, "a list")
        return value

    def _checked_text(self, name: str, value: object, *, empty: bool = False) -> str:
        if not isinstance(value, str):
            raise self.wrong(name, value, "text; put it in quotes")
        if (not value and not empty) or len(value) > TEXT_CHARS_MAX:
            raise self.wrong(name, value, f"text of 1 to {TEXT_CHARS_MAX} characters")
        if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
            raise self.wrong(name, value, "text without null and surrogate characters")
        return value

    def _checked_integer(self, name: str, value: object, low: int, high: int) -> int:
        if type(value) is not int or not low <= value <= high:
            raise self.wrong(name, value, f"an integer from {low} to {high}")
        return value

    def _sub(self, name: str, value: object) -> Keys:
        if not isinstance(value, dict):
            raise self.wrong(name, value, "a mapping")
        path = f"{self._path}{name}."
        return Keys(value, where=self._where, path=path, fail=self._fail)
