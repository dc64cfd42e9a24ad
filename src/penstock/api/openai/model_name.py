"""Finds the member `model` of a large JSON object without building the rest.

Values are skipped token by token: strings at the speed of a search, so that a long prompt costs
little; brackets one by one, in steps between which others may be served. Nothing is checked that
does not matter for the name; the instance reads the body as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import orjson

#: Tokens between two steps: about a millisecond.
STEP_TOKENS: Final = 2_000
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
#: What stands between a string or bracket and the next.
_PLAIN: Final = re.compile(rb'[^"{}\[\]]*')
_COLON: Final = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*")
_OPENING, _CLOSING, _QUOTE = b"{[", b"}]", ord('"')
_KEY: Final = "model"


class ModelName:
    """`for _ in scan.steps(): ...`, then `value`: the last member of that name, as in JSON."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.value: Any = None  #: None for what is no string

    def steps(self) -> Iterator[None]:
        """Raises ValueError where strings and brackets show that this is no JSON object."""
        body, end = self._body, len(self._body)
        at, depth, tokens = _plain_end(body, 0), 0, 0
        if body[at : at + 1] != b"{":
            raise ValueError("the body is no JSON object")
        while at < end:
            tokens += 1
            if tokens % STEP_TOKENS == 0:
                yield
            character = body[at]
            if character == _QUOTE:
                string = _STRING.match(body, at)
                if string is None:
                    raise ValueError("a string has no end")
                at = string.end()
                if depth == 1:
                    colon = _COLON.match(body, at)
                    if colon is not None:
                        at = colon.end()
                        if _text(string[0]) == _KEY:
                            self._take(at)
            else:
                depth += 1 if character in _OPENING else -1
                at += 1
            at = _plain_end(body, at)
            if depth <= 0:
                break
        if depth != 0 or at < end:
            raise ValueError("brackets do not match")

    def _take(self, at: int) -> None:
        value = _STRING.match(self._body, at)
        self.value = _text(value[0]) if value is not None else None


def _plain_end(body: bytes, at: int) -> int:
    found = _PLAIN.match(body, at)
    return found.end() if found is not None else at


def _text(string: bytes) -> str:
    return str(orjson.loads(string)) if b"\\" in string else string[1:-1].decode()
