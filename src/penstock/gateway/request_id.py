"""Request ids: unique over processes and restarts, made without randomness per request.

An id has the shape of a UUID (version 4, as AWS's do): 24 characters drawn once per process, then
the number of the request as 12 hexadecimal digits. So an id gives the request's number. Nothing
here knows what a request is.
"""

from __future__ import annotations

import uuid

PREFIX_CHARS = 24
_NUMBER_DIGITS = 12


class RequestIds:
    """Gives each request the next number; `text` makes the id that clients see."""

    __slots__ = ("count", "prefix", "prefix_bytes")

    def __init__(self, prefix: str | None = None) -> None:
        self.prefix = str(uuid.uuid4())[:PREFIX_CHARS] if prefix is None else prefix
        self.prefix_bytes = self.prefix.encode()
        self.count = 0  #: numbers given so far; the hot path increments it itself

    def next(self) -> int:
        self.count += 1
        return self.count

    def text(self, number: int) -> str:
        return f"{self.prefix}{number:012x}"

    def number(self, text: str) -> int | None:
        """The number in an id of this process; None for any other text."""
        digits = text[PREFIX_CHARS:]
        if text[:PREFIX_CHARS].lower() != self.prefix or len(digits) != _NUMBER_DIGITS:
            return None
        try:
            return int(digits, 16)
        except ValueError:
            return None
