"""Records that were read together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate


@dataclass(slots=True, kw_only=True)
class RecordBlock:
    """Records in their order. There is at least one, and not many times more bytes than a chunk."""

    records: list[bytes]  #: without separators
    first: int  #: index of the first record in its span, from 0
    start: int  #: byte of the (unpacked) object at which the first record begins
    raw: bytes = b""  #: lines only: the bytes with separators
    #: start of each record, except for lines: there only a refused record needs it, so it is
    #: computed on demand
    offsets: Sequence[int] = field(default=(), repr=False)

    def offset_of(self, index: int) -> int:
        """Byte of the object at which the record with this index in the span begins."""
        if not self.offsets:
            lines = self.raw.split(b"\n")
            self.offsets = list(accumulate((len(one) + 1 for one in lines), initial=self.start))
        return self.offsets[index - self.first]
