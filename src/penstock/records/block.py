"""A run of records that were read together."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBlock:
    """Records in their order. It never has none, nor many times more bytes than a chunk read."""

    records: list[bytes]  #: without what parts them
    first: int  #: index of the first in its span, from 0
    start: int  #: where the first begins: byte of the object, unpacked if it is Gzip
    raw: bytes = b""  #: of lines: with what parts them
    offsets: tuple[int, ...] = ()  #: of others: where each begins

    def offset_of(self, index: int) -> int:
        """Where the record of this index in the span begins, in bytes from the object's start."""
        at = index - self.first
        if self.offsets:
            return self.offsets[at]
        # Lines: nobody asks but for a record that was refused, so nobody keeps it for the others.
        return self.start + sum(len(line) + 1 for line in self.raw.split(b"\n", at)[:at])
