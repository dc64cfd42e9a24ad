"""Finds the member `model` of a large JSON object without building the rest.

Values are skipped token by token: strings at the speed of a search, so that a long prompt costs
little; brackets one by one, in steps between which other requests are served. Only what matters for
the name is checked; the instance parses the whole body.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import orjson

#: Tokens in one step, which takes about a millisecond.
STEP_TOKENS: Final = 2_000
#: More strings and brackets than any prompt has: a body of nothing but these would cost most.
TOKENS_MAX: Final = 1_000_000
#: Text up to the next string or bracket.
_PLAIN: Final = re.compile(rb'[^"{}\[\]]*')
_COLON: Final = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*")
_OPENING, _QUOTE = b"{[", ord('"')
_KEY: Final = "model"


class ModelScan:
    """`for _ in scan.steps(): ...`, then `value`: the last member of that name, as in JSON."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._tokens = 0
        self.value: Any = None  #: None until found, and for a value that is no string

    def steps(self) -> Iterator[None]:
        """Yields between steps. Raises ValueError if strings or brackets show that this is no
        object."""
        body, end = self._body, len(self._body)
        at, depth = _plain_end(body, 0), 0
        if body[at : at + 1] != b"{":
            raise ValueError("the body is no JSON object")
        named = False  #: whether the key `model` and its colon were just read
        while at < end:
            if self._counted():
                yield
            character = body[at]
            if character == _QUOTE:
                began = at
                while True:  # up to a quote without a backslash before it
                    at = body.find(b'"', at + 1)
                    if at < 0:
                        raise ValueError("a string has no end")
                    if body[at - 1] != _BACKSLASH or not _escaped(body, began, at):
                        break
                    if self._counted():
                        yield
                at += 1
                named = self._string(began, at, named) if depth == 1 else False
                if named:
                    at = _colon_end(body, at)
            else:
                depth += 1 if character in _OPENING else -1
                at += 1
                named = False
            at = _plain_end(body, at) if not named else at
            if named and body[at : at + 1] != b'"':
                named, self.value = False, None
                at = _plain_end(body, at)
            if depth <= 0:
                break
        if depth != 0 or at < end:
            raise ValueError("brackets do not match")

    def _counted(self) -> bool:
        """Whether a step ends here. Raises ValueError for too many tokens."""
        self._tokens += 1
        if self._tokens > TOKENS_MAX:
            raise ValueError(f"it has more than {TOKENS_MAX} strings and brackets")
        return self._tokens % STEP_TOKENS == 0

    def _string(self, began: int, end: int, named: bool) -> bool:
        """Takes a string of the object itself; True if it is the key `model`."""
        if named:
            self.value = _text(self._body[began:end])
            return False
        return _COLON.match(self._body, end) is not None and _text(self._body[began:end]) == _KEY


_BACKSLASH: Final = ord("\\")


def _escaped(body: bytes, began: int, at: int) -> bool:
    """Whether an odd number of backslashes precedes the quote at `at`.

    The search begins after the previous quote, so all calls together are linear in the string.
    """
    before = body.rfind(b'"', began, at)
    run = body[before + 1 : at]
    return (len(run) - len(run.rstrip(b"\\"))) % 2 == 1


def _colon_end(body: bytes, at: int) -> int:
    colon = _COLON.match(body, at)
    return colon.end() if colon is not None else at


def _plain_end(body: bytes, at: int) -> int:
    found = _PLAIN.match(body, at)
    return found.end() if found is not None else at


def _text(string: bytes) -> str:
    return str(orjson.loads(string)) if b"\\" in string else string[1:-1].decode()
