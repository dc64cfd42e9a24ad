"""Values of a pipeline's declaration that are filled in per request: `$find.products[0].name`.

A text that begins with `$` is a reference: a name (`request`, `piece`, `item` or a step) and a path
into its value. `${...}` inside a longer text inserts the value there; `$$` is a dollar sign. Every
path into null gives null, so a skipped step gives null and no error. A missing key is an error,
unless the reference ends in `?`. Knows no step and does no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import orjson

from penstock.errors import CallerError, ModelError

Scope = Mapping[str, Any]

#: The name of the caller's body in references.
REQUEST: Final = "request"
_PATH: Final = r"([a-z][a-z0-9_]*)((?:\.[A-Za-z_][A-Za-z0-9_-]*|\[\d{1,6}\])*)(\?)?"
_WHOLE: Final = re.compile(rf"\${_PATH}")
_INSIDE: Final = re.compile(rf"\$\$|\$\{{{_PATH}\}}")
_PARTS: Final = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]*)|\[(\d+)\]")


class Filled(Protocol):
    """A value that is made for each request, as by a `Template`."""

    @property
    def names(self) -> frozenset[str]:
        """The names that it refers to."""

    def fill(self, scope: Scope) -> Any:
        """Raises CallerError, or ModelError where a step's result lacks a key (`input-missing`)."""


class Template:
    """A value with references. `names`: the names that they refer to."""

    __slots__ = ("_make", "names")

    def __init__(self, value: Any) -> None:
        names: set[str] = set()
        self._make = _compiled(value, names)
        self.names = frozenset(names)

    def fill(self, scope: Scope) -> Any:
        """Raises CallerError, or ModelError where a step's result lacks a key (`input-missing`)."""
        return self._make(scope)


def _compiled(value: Any, names: set[str]) -> Callable[[Scope], Any]:
    if isinstance(value, str):
        return _text(value, names)
    if isinstance(value, dict):
        parts = {key: _compiled(item, names) for key, item in value.items()}
        return lambda scope: {key: make(scope) for key, make in parts.items()}
    if isinstance(value, list):
        items = [_compiled(item, names) for item in value]
        return lambda scope: [make(scope) for make in items]
    return lambda scope: value


def _text(text: str, names: set[str]) -> Callable[[Scope], Any]:
    """Raises ValueError for a reference that can't be read."""
    if text.startswith("$") and not text.startswith(("$$", "${")):
        whole = _WHOLE.fullmatch(text)
        if whole is None:
            raise ValueError(f"{text!r} is no reference; write $name.key[0], or $$ for a dollar")
        return _reference(whole, names)
    pieces: list[str | Callable[[Scope], Any]] = []
    at = 0
    for found in _INSIDE.finditer(text):
        pieces.append(text[at : found.start()])
        pieces.append("$" if found.group() == "$$" else _reference(found, names))
        at = found.end()
    pieces.append(text[at:])
    if all(isinstance(piece, str) for piece in pieces):
        plain = "".join(piece for piece in pieces if isinstance(piece, str))
        return lambda scope: plain
    return lambda scope: "".join(
        piece if isinstance(piece, str) else _words(piece(scope)) for piece in pieces
    )


def _words(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _reference(found: re.Match[str], names: set[str]) -> Callable[[Scope], Any]:
    name, path, optional = found.group(1), found.group(2), bool(found.group(3))
    names.add(name)
    keys: list[str | int] = [
        int(part.group(2)) if part.group(2) else part.group(1) for part in _PARTS.finditer(path)
    ]

    def value(scope: Scope) -> Any:
        here = scope[name]
        for key in keys:
            if here is None:
                return None
            try:
                here = here[key]
            except (KeyError, IndexError, TypeError):
                if optional:
                    return None
                words = f"{name}{path} is needed, and {name} has no {_shown(key)} there"
                if name == REQUEST:
                    raise CallerError("input-missing", words) from None
                # A result of a step is the model's fault, and not that of the caller.
                raise ModelError("input-missing", words) from None
        return here

    return value


def _shown(key: str | int) -> str:
    return f"item {key}" if isinstance(key, int) else f"key {key!r}"


_ENVIRONMENT: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]{0,1024}))?\}")


def from_environment(text: str, environment: Mapping[str, str]) -> str:
    """`${NAME}` and `${NAME:-default}` filled in when a pipeline is loaded. Raises KeyError."""

    def value(found: re.Match[str]) -> str:
        given = environment.get(found.group(1), found.group(2))
        if given is None:
            raise KeyError(found.group(1))
        return given

    return _ENVIRONMENT.sub(value, text)
