"""A run of records that were read together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate


@dataclass(slots=True, kw_only=True)
class RecordBlock:
    """Records in their order. It never has none, nor many times more bytes than a chunk read."""

    records: list[bytes]  #: without what parts them
    first: int  #: index of the first in its span, from 0
    start: int  #: where the first begins: byte of the object, unpacked if it is Gzip
    raw: bytes = b""  #: of lines: with what parts them
    #: of others: where each begins; of lines nobody asks but for one that was refused, so they are
    #: found when somebody does
    offsets: Sequence[int] = field(default=(), repr=False)

    def offset_of(self, index: int) -> int:
        """Where the record of this index in the span begins, in bytes from the object's start."""
        if not self.offsets:
            lines = self.raw.split(b"\n")
            self.offsets = list(accumulate((len(one) + 1 for one in lines), initial=self.start))
        return self.offsets[index - self.first]
