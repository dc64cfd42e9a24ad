"""Typed access to a parsed text-format message: the schema that `pbtxt.py` does not have.

A reader takes the fields that it knows; `done` then refuses every field that nobody took, so that a
misspelt or unsupported setting is an error with its path and never silently without effect.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.artifacts.triton.pbtxt import Identifier, Message, Value
from penstock.errors import CallerError


class Fields:
    """The fields of one message. `path` is where it stands: "" or "input[0]."."""

    def __init__(self, message: Message, *, where: str, path: str = "") -> None:
        self._left = dict(message)
        self._where = where
        self._path = path

    def text(self, name: str, default: str = "") -> str:
        value = self._one(name)
        if value is None:
            return default
        if not isinstance(value, str) or isinstance(value, Identifier):
            raise self.invalid(name, value, "a string in quotes")
        return value

    def integer(self, name: str, default: int = 0, *, low: int = 0, high: int = 2**31 - 1) -> int:
        value = self._one(name)
        return default if value is None else self._checked_integer(name, value, low, high)

    def integers(self, name: str, *, low: int, high: int = 2**63 - 1) -> tuple[int, ...]:
        values = self._left.pop(name, [])
        return tuple(
            self._checked_integer(f"{name}[{at}]", value, low, high)
            for at, value in enumerate(values)
        )

    def flag(self, name: str) -> bool:
        value = self._one(name)
        if value is None:
            return False
        if value in ("true", "True", "t") or (type(value) is int and value == 1):
            return True
        if value in ("false", "False", "f") or (type(value) is int and value == 0):
            return False
        raise self.invalid(name, value, "true or false")

    def choice(self, name: str, allowed: Iterable[str], default: str) -> str:
        """One of an enumeration's names."""
        value = self._one(name)
        if value is None:
            return default
        names = tuple(allowed)
        if not isinstance(value, Identifier) or value not in names:
            raise self.invalid(name, value, f"one of {', '.join(names)}")
        return str(value)

    def message(self, name: str) -> Fields | None:
        value = self._one(name)
        return None if value is None else self._sub(name, value)

    def messages(self, name: str) -> list[Fields]:
        values = self._left.pop(name, [])
        return [self._sub(f"{name}[{at}]", value) for at, value in enumerate(values)]

    def has(self, name: str) -> bool:
        return name in self._left

    def ignore(self, *names: str) -> None:
        """Takes fields that have no effect here and need none; the caller says why."""
        for name in names:
            self._left.pop(name, None)

    def refuse(self, name: str, cause: str, *, hint: str = "") -> None:
        """Raises if the field is given: it would change answers and is not supported."""
        if self._left.pop(name, None) is not None:
            raise self.unsupported(name, cause, hint=hint)

    def done(self) -> None:
        if self._left:
            name = next(iter(self._left))
            raise CallerError(
                "triton-config-invalid",
                f"{self._where}: {self._path}{name} is not a field that Penstock knows here",
                hint="Check its spelling, or remove it if serving does not depend on it.",
            )

    def unsupported(self, name: str, cause: str, *, hint: str = "") -> CallerError:
        return CallerError(
            "triton-config-unsupported",
            f"{self._where}: {self._path}{name} is not supported: {cause}",
            hint=hint or "Remove it if the model gives the same answers without it.",
        )

    def invalid(self, name: str, value: object, allowed: str) -> CallerError:
        found = "a message" if isinstance(value, dict) else ascii(str(value)[:60])
        return CallerError(
            "triton-config-invalid",
            f"{self._where}: {self._path}{name} is {found}",
            hint=f"{name} must be {allowed}.",
        )

    def _one(self, name: str) -> Value | None:
        values = self._left.pop(name, None)
        if values is None:
            return None
        if len(values) != 1:
            raise CallerError(
                "triton-config-invalid",
                f"{self._where}: {self._path}{name} is given {len(values)} times",
                hint=f"Give {name} once.",
            )
        return values[0]

    def _checked_integer(self, name: str, value: Value, low: int, high: int) -> int:
        if not isinstance(value, int) or not low <= value <= high:
            raise self.invalid(name, value, f"an integer from {low} to {high}")
        return value

    def _sub(self, name: str, value: Value) -> Fields:
        if not isinstance(value, dict):
            raise self.invalid(name, value, "a message in braces")
        return Fields(value, where=self._where, path=f"{self._path}{name}.")
