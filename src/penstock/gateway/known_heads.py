"""Heads that this server has read before, byte for byte: most clients send the same ones again.

A program that calls an endpoint differs from call to call in its body, and seldom in its head. What
the parser made of a head, and that it passed every check, follows from its bytes alone, so it need
not be found out again. Kept are only plain heads: without credentials, without any header that a
check or a door reads apart from the usual ones, of requests that came whole in one read.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.gateway.call import Door

HEAD_END: Final = b"\r\n\r\n"
#: Longer heads are mostly signed ones, which differ each time.
HEAD_BYTES_MAX: Final = 512
#: A few megabytes at most, were all of them made of one-letter headers.
HEADS_MAX: Final = 256


class KnownHead(NamedTuple):
    """What is the same in all requests with this head."""

    body_bytes: int  #: as it announces them
    method: bytes
    url: bytes
    headers: list[tuple[bytes, bytes]]  #: shared by the requests: nobody may change it
    content_type: bytes | None
    accept: bytes | None
    door: Door


class KnownHeads(dict[bytes, KnownHead]):
    """By the bytes of a head, its empty line included. Bounded; strangers fill it."""

    def keep(self, head: bytes, known: KnownHead) -> None:
        if len(self) >= HEADS_MAX:
            self.clear()
        self[head] = known
