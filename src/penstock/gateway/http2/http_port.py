"""What the HTTP/2 connections of an HTTP port share.

The limits, the memory for bodies and the count of connections are the port's own, whichever
protocol a client speaks.
"""

from __future__ import annotations

import logging
from typing import Final

from penstock.core.request.head_check import FIELDS_MAX
from penstock.gateway.http.listener_state import BodySender, ListenerState
from penstock.gateway.http2.listener_state import HeldConnection
from penstock.wire.http2.hpack import FIELD_BYTES, Field
from penstock.wire.http2.request_head import check_sent
from penstock.wire.http2.spec import Http2Spec

log = logging.getLogger(__name__)

#: Room in a list of fields for the names of the four pseudo fields and the scheme.
_PSEUDO_BYTES: Final = 64
_HEADS_MAX: Final = 256
_HEAD_BYTES_MAX: Final = 1024  #: of a head that is kept
#: Control characters, which no value may have (RFC 9110, 5.5), become spaces.
_PRINTABLE: Final = bytes(
    byte if byte == 9 or (byte >= 32 and byte != 127) else 32 for byte in range(256)
)


class HttpPort:
    """The shared state of one listener's HTTP/2 connections (see `Http2Shared`)."""

    def __init__(self, listener: ListenerState) -> None:
        limits = listener.limits
        self.http = listener
        # As HTTP/1.1's bound, which counts fewer bytes for a field; `read_head` counts those.
        self.spec = Http2Spec(
            header_list_bytes_max=limits.head_bytes_max
            + FIELD_BYTES * (FIELDS_MAX + 4)
            + _PSEUDO_BYTES
        )
        self.monotonic = listener.monotonic
        self.head_timeout_s = limits.head_timeout_s
        self._heads: dict[bytes, tuple[Field, ...]] = {}  #: while the date is the same
        self._common_head = b""
        self._common: list[Field] = []
        self._request_id: Field = b"", b""  #: of no request: the beginning of all ids

    # For connections

    def admit(self, connection: HeldConnection) -> bool:
        return self.http.admit(connection)

    def forget(self, connection: HeldConnection) -> None:
        self.http.forget(connection)

    def flush_soon(self, connection: HeldConnection) -> None:
        self.http.flush_soon(connection.flush)

    # Memory for bodies

    def take(self, sender: BodySender, size: int) -> bool:
        """Takes memory for a part of a body. False: there is no room.

        `sender` itself may be refused to make room, even where this returns True."""
        bodies = self.http.bodies
        if bodies.take(size):
            return True
        self.http.make_room(size, sender.peer)
        return bodies.take(size)

    def give(self, size: int) -> None:
        self.http.bodies.give(size)

    def unfinished(self, sender: BodySender, size: int) -> None:
        self.http.unfinished.grown(sender, sender.peer, size, now=self.monotonic())

    def finished(self, sender: BodySender, peer: str) -> None:
        self.http.unfinished.ended(sender, peer)

    # Heads of answers

    def fields(self, head: bytes) -> tuple[Field, ...]:
        """The fields of an answer's head, as doors write it: status line and header lines.

        Date and server are among them, and `request_id` comes behind them.
        """
        if self._common_head is not self.http.common_head:
            self._common_head = self.http.common_head
            *self._common, self._request_id = _fields(self._common_head)
            self._heads.clear()
        return self._heads.get(head) or self._learn(head)

    def request_id(self, number: int) -> Field:
        name, prefix = self._request_id
        return name, prefix + b"%012x" % number

    def _learn(self, head: bytes) -> tuple[Field, ...]:
        status, _, rest = head.partition(b"\r\n")
        fields = ((b":status", status.split(b" ", 2)[1]), *_fields(rest), *self._common)
        if len(head) <= _HEAD_BYTES_MAX:
            if len(self._heads) >= _HEADS_MAX:
                self._heads.clear()
            self._heads[head] = fields
        return fields


def _fields(lines: bytes) -> list[Field]:
    """Header lines as fields, without those of HTTP/1.1 connections (RFC 9113, 8.2.2).

    A value from a model or an application must not make its answer one that can't be sent.
    """
    fields = []
    for line in lines.split(b"\r\n"):
        name, _, value = line.partition(b":")
        field = name.lower(), value.translate(_PRINTABLE).strip(b" \t")
        if line:
            try:
                check_sent((field,))
            except ValueError as error:
                log.warning("a header of an answer is left out: %s", error)
            else:
                fields.append(field)
    return fields
