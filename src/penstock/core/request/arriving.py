"""How much of unfinished messages a connection has sent, where only two counts are known.

A library may deliver messages only as a whole. What the kernel counts are all bytes that a
connection has received; what its reader counts are the messages that were delivered. The difference
since a moment at which nothing was unfinished is what has come of messages that are not complete.

There is no such moment for a connection with several streams, but one for each stream: when its
last message was delivered. So bytes are counted from the oldest of these moments on, less all that
was delivered since. What surrounds messages is estimated, and rather too large: who has sent
nothing of a message is never taken for somebody who has.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

#: Bytes around a message: heads of frames, of the call and of encryption, and answers to our own.
MESSAGE_OVERHEAD_BYTES: Final = 512
OVERHEAD_PART: Final = 64  #: and one in so many of its bytes

Stream = TypeVar("Stream", bound=Hashable)


class ArrivingMessages(Generic[Stream]):
    """The streams of one connection that await a message. `received`: bytes that the connection has
    received so far."""

    def __init__(self) -> None:
        #: stream -> (`received`, bytes delivered) when it had sent nothing of its next message; the
        #: oldest first
        self._clean: dict[Stream, tuple[int, int]] = {}
        self._delivered = 0

    def __len__(self) -> int:
        return len(self._clean)

    @property
    def streams(self) -> list[Stream]:
        return list(self._clean)

    def awaits(self, stream: Stream, *, received: int) -> None:
        """A message of this stream is awaited, of which nothing has come."""
        self._clean.pop(stream, None)
        self._clean[stream] = received, self._delivered

    def delivered(self, size: int) -> None:
        """A message was delivered, of whichever stream; `size`: with its call's metadata, where it
        is the first of a call."""
        self._delivered += size + size // OVERHEAD_PART + MESSAGE_OVERHEAD_BYTES

    def ended(self, stream: Stream) -> None:
        """No message of it is awaited any more. Idempotent."""
        self._clean.pop(stream, None)

    def unfinished(self, *, received: int) -> int:
        """Bytes that have come of messages that are not complete."""
        if not self._clean:
            return 0
        received_before, delivered_before = next(iter(self._clean.values()))
        return max(0, received - received_before - (self._delivered - delivered_before))
