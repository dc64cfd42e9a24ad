"""Splits a stream of server-sent events, received in any pieces: each event keeps its bytes.

An event ends with an empty line; a line ends with LF, CR or CRLF (WHATWG HTML, 9.2.6). The fields
of an event are left to the reader.
"""

from __future__ import annotations

import re
from typing import Final

#: Bound of an event; a longer one is passed on in pieces, without waiting for its end.
EVENT_BYTES_MAX: Final = 1 << 20

#: Two line ends in a row, spelt out so that a CRLF is never read as two.
_BLANK_LINE: Final = re.compile(rb"\n\n|\n\r\n?|\r\n\n|\r\n\r\n?|\r\r\n?")
_BLANK_LINE_BYTES_MAX: Final = 4
#: A line that is neither empty nor a comment.
_FIELD: Final = re.compile(rb"(?:\A|[\r\n])[^:\r\n]")


class EventSplitter:
    """One stream. `feed` returns the events that are complete, `rest` the incomplete end."""

    __slots__ = ("_event_bytes_max", "_rest", "_searched")

    def __init__(self, event_bytes_max: int = EVENT_BYTES_MAX) -> None:
        self._event_bytes_max = event_bytes_max
        self._rest = bytearray()
        self._searched = 0  #: bytes of `_rest` without an event's end

    def feed(self, data: bytes) -> list[bytes]:
        """The events that `data` completes, each with the empty line that ends it.

        Other text is left out: empty lines that end nothing, and lone comments (which servers send
        to keep connections alive), since clients that parse each piece would fail on them.
        """
        if not self._rest and _is_one(data):
            return [data]
        self._rest += data
        events, begin = [], 0
        for end in _BLANK_LINE.finditer(self._rest, self._searched):
            event = bytes(self._rest[begin : end.end()])
            begin = end.end()
            if _FIELD.search(event):
                events.append(event)
        del self._rest[:begin]
        if len(self._rest) > self._event_bytes_max:
            events.append(self._take())
        self._searched = max(0, len(self._rest) - _BLANK_LINE_BYTES_MAX + 1)
        return events

    def rest(self) -> bytes:
        """The rest at the end of the stream; b"" where it is no event."""
        rest = self._take()
        return rest if _FIELD.search(rest) else b""

    def _take(self) -> bytes:
        taken = bytes(self._rest)
        self._rest.clear()
        self._searched = 0
        return taken


def _is_one(data: bytes) -> bool:
    """Whether it is surely one whole event, the form that most models here write."""
    return data[:5] == b"data:" and data.find(b"\n\n") == len(data) - 2 and b"\r" not in data
