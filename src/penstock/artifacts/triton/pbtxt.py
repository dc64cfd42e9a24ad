"""Protocol buffers' text format, as far as Triton's config.pbtxt uses it, into plain dictionaries.

There is no schema here: every field maps to the list of its values in the order of the file, so
`dims: [1, 2]` and `dims: 1 dims: 2` are the same, as the format demands. Extensions and `Any`
(`[name]`) are refused. The grammar is that of protobuf.dev/reference/protobuf/textformat-spec.

`Fields` gives typed access to a parsed message. A reader takes the fields that it knows; `done`
then refuses every field that nobody took, so that a misspelt or unsupported setting is an error
with its path and never silently ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias

from penstock.errors import CallerError

TEXT_BYTES_MAX = 1024 * 1024
DEPTH_MAX = 32
#: More digits than any number of 64 bits needs in any base; a longer text is no number.
_NUMBER_CHARS_MAX = 64


class Identifier(str):
    """A bare word: the name of an enum value, or `true`, `false`, `inf`, `nan`."""

    __slots__ = ()


Value: TypeAlias = "str | int | float | Message"
Message: TypeAlias = "dict[str, list[Value]]"

_TOKEN = re.compile(
    r"""
    (?P<skip>[ \t\r\n\f\v]+|\#[^\n]*)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<number>0[xX][0-9a-fA-F]+
        |(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]?)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<symbol>[{}<>\[\]:,;-])
    """,
    re.VERBOSE,
)
_ESCAPE = re.compile(
    rb"\\(?:(?P<plain>[abfnrtv\\'\"?])|x(?P<hex>[0-9a-fA-F]{1,2})|(?P<octal>[0-7]{1,3})"
    rb"|u(?P<u4>[0-9a-fA-F]{4})|U(?P<u8>[0-9a-fA-F]{8})|(?P<bad>.))",
    re.DOTALL,
)
_PLAIN_ESCAPES = {
    b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v",
    b"\\": b"\\", b"'": b"'", b'"': b'"', b"?": b"?",
}  # fmt: skip
_CLOSING = {"{": "}", "<": ">"}


def parse(text: str, *, where: str) -> Message:
    """Parses a whole text; `where` names the file in messages.

    Raises `CallerError` (`pbtxt-invalid`) with the line and what was expected there.
    """
    if len(text) > TEXT_BYTES_MAX:
        raise CallerError(
            "pbtxt-invalid",
            f"{where}: larger than {TEXT_BYTES_MAX} bytes",
            hint="A model configuration is a few hundred lines of text.",
        )
    parser = _TextFormatParser(text, where)
    return parser.message("", 0)


class _TextFormatParser:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text: str, where: str) -> None:
        self._text = text
        self._where = where
        self._tokens = self._split(text)  #: (kind, text, offset), ends with kind "end"
        self._next = 0

    def message(self, closing: str, depth: int) -> Message:
        """Fields up to the closing bracket, which is consumed; "" stands for the end of the
        text."""
        if depth > DEPTH_MAX:
            raise self._error(f"at most {DEPTH_MAX} levels of nesting")
        fields: Message = {}
        while True:
            kind, token, _ = self._tokens[self._next]
            if (kind == "end" and not closing) or (kind == "symbol" and token == closing):
                self._next += 1
                return fields
            if kind != "name":
                raise self._error(f"a field name or {closing or 'the end'!r}")
            self._next += 1
            fields.setdefault(token, []).extend(self._field(depth))
            self._accept(",") or self._accept(";")

    def _field(self, depth: int) -> list[Value]:
        has_colon = self._accept(":")
        if self._accept("["):
            return self._list(depth, messages_only=not has_colon)
        opening = self._accept("{") or self._accept("<")
        if opening:
            return [self.message(_CLOSING[opening], depth + 1)]
        if not has_colon:
            raise self._error("':' or '{'")
        return [self._scalar()]

    def _list(self, depth: int, *, messages_only: bool) -> list[Value]:
        values: list[Value] = []
        if self._accept("]"):
            return values
        while True:
            opening = self._accept("{") or self._accept("<")
            if opening:
                values.append(self.message(_CLOSING[opening], depth + 1))
            elif messages_only:
                raise self._error("'{' (a list without ':' holds messages)")
            else:
                values.append(self._scalar())
            if self._accept("]"):
                return values
            if not self._accept(","):
                raise self._error("',' or ']'")

    def _scalar(self) -> Value:
        kind, token, _ = self._tokens[self._next]
        if kind == "string":
            return self._string()
        negative = bool(self._accept("-"))
        kind, token, _ = self._tokens[self._next]
        if kind == "number":
            value = self._number(token)
            self._next += 1
            return -value if negative else value
        if kind == "name":
            if negative and token.lower() not in ("inf", "infinity", "nan"):
                raise self._error("a number after '-'")
            self._next += 1
            return -float(token) if negative else Identifier(token)
        raise self._error("a value")

    def _number(self, token: str) -> int | float:
        try:
            if len(token) > _NUMBER_CHARS_MAX:
                raise ValueError("too long")
            if token[:2] in ("0x", "0X"):
                return int(token, 16)
            if token.isdigit():
                return int(token, 8) if token.startswith("0") else int(token)
            return float(token.rstrip("fF"))
        except ValueError as error:
            raise self._error("a number") from error

    def _string(self) -> str:
        """Adjacent literals are one string; escapes make bytes, and all bytes must be UTF-8."""
        literals: list[bytes] = []
        while self._tokens[self._next][0] == "string":
            token = self._tokens[self._next][1]
            try:
                literals.append(_ESCAPE.sub(_unescape, token[1:-1].encode()))
            except ValueError as error:
                raise self._error("a valid string") from error
            self._next += 1
        try:
            return b"".join(literals).decode()
        except UnicodeDecodeError as error:
            self._next -= 1
            raise self._error("a string of UTF-8 text") from error

    def _accept(self, symbol: str) -> str:
        kind, token, _ = self._tokens[self._next]
        if kind == "symbol" and token == symbol:
            self._next += 1
            return token
        return ""

    def _split(self, text: str) -> list[tuple[str, str, int]]:
        tokens: list[tuple[str, str, int]] = []
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                self._tokens = [("end", text[at : at + 20], at)]
                self._next = 0
                raise self._error("something that the text format knows")
            kind = str(match.lastgroup)
            if kind != "skip":
                if kind == "number" and tokens and tokens[-1][0] == "number":
                    self._require_gap(tokens[-1], at)
                tokens.append((kind, match.group(), at))
            at = match.end()
        tokens.append(("end", "the end of the text", len(text)))
        return tokens

    def _require_gap(self, before: tuple[str, str, int], at: int) -> None:
        if before[2] + len(before[1]) == at:
            self._tokens, self._next = [before], 0
            raise self._error("a number")

    def _error(self, expected: str) -> CallerError:
        _, token, offset = self._tokens[self._next]
        line = self._text.count("\n", 0, offset) + 1
        return CallerError(
            "pbtxt-invalid",
            f"{self._where}, line {line}: expected {expected}, found {token[:40]!a}",
            hint="Check the file against Triton's model configuration format.",
        )


def _unescape(match: re.Match[bytes]) -> bytes:
    plain, hexadecimal, octal = match.group("plain", "hex", "octal")
    if plain is not None:
        return _PLAIN_ESCAPES[plain]
    if hexadecimal is not None:
        return bytes([int(hexadecimal, 16)])
    if octal is not None:
        return bytes([int(octal, 8)])  # ValueError above 0o377
    code = match.group("u4") or match.group("u8")
    if code is None:
        raise ValueError("unknown escape")
    return chr(int(code, 16)).encode()  # ValueError beyond Unicode and for surrogates


class Fields:
    """The fields of one message. `path` is its position: "" or "input[0]."."""

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

    def numbers(self, name: str) -> tuple[float, ...]:
        """All values of a field of numbers, with or without a fraction."""
        values = self._left.pop(name, [])
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise self.invalid(name, value, "a number")
        return tuple(float(value) for value in values)  # type: ignore[arg-type]

    def flags(self, name: str) -> tuple[bool, ...]:
        """All values of a repeated field of flags."""
        return tuple(self._flag(name, value) for value in self._left.pop(name, []))

    def flag(self, name: str) -> bool:
        value = self._one(name)
        return False if value is None else self._flag(name, value)

    def _flag(self, name: str, value: Value) -> bool:
        if value in ("true", "True", "t") or (type(value) is int and value == 1):
            return True
        if value in ("false", "False", "f") or (type(value) is int and value == 0):
            return False
        raise self.invalid(name, value, "true or false")

    def choice(self, name: str, allowed: Iterable[str], default: str) -> str:
        """The name of one value of an enumeration."""
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
        """Takes fields that have no effect here and need none; the calling code says why."""
        for name in names:
            self._left.pop(name, None)

    def refuse(self, name: str, cause: str, *, hint: str = "") -> None:
        """Raises if the field is given: it would change answers and is not supported. Given and
        empty, it asks for nothing."""
        given = self._left.pop(name, [])
        if any(value not in ("", 0, "false", "False", "f") for value in given):
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
