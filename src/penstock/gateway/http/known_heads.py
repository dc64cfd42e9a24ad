"""Heads that this server has read before, byte for byte: most clients send the same ones again.

A program that calls an endpoint differs from call to call in its body, and seldom in its head. What
the parser made of a head, and that it passed every check, follows from its bytes and from settings
that stay, so it need not be found out again. What else decides is looked at each time: room for the
body, whether the server stops, credentials (where they are asked for no head is kept).

Strangers fill this, so:

* A head is kept when it comes for the second time: those that never come again cost nothing here.
* Only heads of the headers in `PLAIN` are kept, and none with a query: no key, cookie or signature
  stays here for longer than its request lasts, whether or not this server asks for any.
* Heads are few and short, and what is used goes last: as long as others bring fewer than
  `HEADS_MAX` new ones between two uses, a head is not forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.gateway.http.call import Door

HEAD_END: Final = b"\r\n\r\n"
#: Longer heads are mostly signed ones, which differ each time.
HEAD_BYTES_MAX: Final = 512
#: A connection whose heads were not known so many times in a row has its heads looked up seldom:
#: looking is a fifth of what reading costs.
TRIES: Final = 4
TRY_EVERY: Final = 31
#: In each of two generations. A megabyte or two at most, were all of them made of short headers.
HEADS_MAX: Final = 128
#: What says nothing about who asks, and nothing that is judged.
PLAIN: Final = frozenset(
    (
        b"accept", b"accept-encoding", b"accept-language", b"cache-control", b"connection",
        b"content-length", b"content-type", b"host", b"pragma", b"user-agent",
    )
)  # fmt: skip
#: Cells that remember which heads came once; what falls into one cell forgets what was there.
CELLS: Final = 1024


class KnownHead(NamedTuple):
    """What is the same in all requests with this head."""

    body_bytes: int  #: as it announces them
    method: bytes
    url: bytes
    headers: Sequence[tuple[bytes, bytes]]
    content_type: bytes | None
    accept: bytes | None
    door: Door


class KnownHeads:
    """By the bytes of a head, its empty line included.

    Attributes:
        recent: what was learned or used since the generation began; the hot path reads it.
    """

    __slots__ = ("_before", "_came", "recent")

    def __init__(self) -> None:
        self.recent: dict[bytes, KnownHead] = {}
        self._before: dict[bytes, KnownHead] = {}  #: the generation before, minus what was used
        self._came = [0] * CELLS  #: hash of a head that came once; ~hash of one that is not kept

    def __len__(self) -> int:
        return len(self.recent) + len(self._before)

    def used_before(self, head: bytes) -> KnownHead | None:
        """A head that is not in `recent`."""
        known = self._before.pop(head, None)
        if known is not None:
            self._put(head, known)
        return known

    def wants(self, head: bytes) -> bool:
        """Whether a head that passed, and is not known, came before. Notes that it came."""
        mark = hash(head)
        cell = mark % CELLS
        before = self._came[cell]
        if before == mark:
            return True
        if before != ~mark:
            self._came[cell] = mark
        return False

    def keep(self, head: bytes, known: KnownHead) -> None:
        """Learns a head that is wanted, if it is a plain one."""
        if b"?" in known.url or any(name.lower() not in PLAIN for name, _ in known.headers):
            self._came[hash(head) % CELLS] = ~hash(head)
            return
        self._put(head, known)

    def _put(self, head: bytes, known: KnownHead) -> None:
        if len(self.recent) >= HEADS_MAX:
            self._before, self.recent = self.recent, {}
        self.recent[head] = known
