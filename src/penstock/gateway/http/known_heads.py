"""A cache of request heads by their exact bytes: most clients send the same ones again.

A program that calls an endpoint changes the body from call to call, and seldom the head. The
parser's result and the checks that a head passed depend only on its bytes and on fixed settings, so
they can be reused. Everything else is checked each time: room for the body, whether the server
stops, credentials (a server that asks for credentials keeps no heads).

Anybody can fill this cache, so:

* A head is kept when it comes for the second time: heads that come once cost nothing here.
* Only heads with no other headers than `PLAIN` are kept, and none with a query: no key, cookie or
  signature stays here longer than its request, whether or not this server asks for any.
* There are few heads, and they are short. The longest unused goes first: a head stays as long as
  others add fewer than `HEADS_MAX` new ones between two of its uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.gateway.http.call import Door

HEAD_END: Final = b"\r\n\r\n"
#: Longer heads are usually signed ones, which differ each time.
HEAD_BYTES_MAX: Final = 512
#: After so many unknown heads in a row, a connection looks its heads up only seldom: a lookup costs
#: a fifth of a read.
TRIES: Final = 4
TRY_EVERY: Final = 31
#: Heads in each of two generations: one or two megabytes at most, even if all headers are short.
HEADS_MAX: Final = 128
#: Headers that do not identify the caller and that no check reads.
PLAIN: Final = frozenset(
    (
        b"accept", b"accept-encoding", b"accept-language", b"cache-control", b"connection",
        b"content-length", b"content-type", b"host", b"pragma", b"user-agent",
    )
)  # fmt: skip
#: Cells that remember heads that came once; two heads in one cell overwrite each other.
CELLS: Final = 1024


class KnownHead(NamedTuple):
    """The values that all requests with this head share."""

    body_bytes: int  #: the Content-Length
    method: bytes
    url: bytes
    headers: Sequence[tuple[bytes, bytes]]
    content_type: bytes | None
    accept: bytes | None
    door: Door


class KnownHeads:
    """The cache; the key is the bytes of a head, its empty line included.

    Attributes:
        recent: heads added or used since the generation began; the hot path reads it.
    """

    __slots__ = ("_before", "_came", "recent")

    def __init__(self) -> None:
        self.recent: dict[bytes, KnownHead] = {}
        #: the generation before, without heads that were used since
        self._before: dict[bytes, KnownHead] = {}
        #: hash of a head that came once; ~hash of one that must not be kept
        self._came = [0] * CELLS

    def __len__(self) -> int:
        return len(self.recent) + len(self._before)

    def used_before(self, head: bytes) -> KnownHead | None:
        """Looks up a head that is not in `recent`."""
        known = self._before.pop(head, None)
        if known is not None:
            self._put(head, known)
        return known

    def wants(self, head: bytes) -> bool:
        """Whether an unknown head that passed all checks came before. Notes that it came."""
        mark = hash(head)
        cell = mark % CELLS
        before = self._came[cell]
        if before == mark:
            return True
        if before != ~mark:
            self._came[cell] = mark
        return False

    def keep(self, head: bytes, known: KnownHead) -> None:
        """Adds a head for which `wants` was true, if it has only plain headers."""
        if b"?" in known.url or any(name.lower() not in PLAIN for name, _ in known.headers):
            self._came[hash(head) % CELLS] = ~hash(head)
            return
        self._put(head, known)

    def _put(self, head: bytes, known: KnownHead) -> None:
        if len(self.recent) >= HEADS_MAX:
            self._before, self.recent = self.recent, {}
        self.recent[head] = known
