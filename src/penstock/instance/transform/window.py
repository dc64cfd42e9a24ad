"""A window of a span's records, from the blocks they were read in to the answers written."""

from __future__ import annotations

from threading import Event

from penstock.errors import PenstockError
from penstock.instance.engines.rows import WindowRows
from penstock.records.formats.block import RecordBlock


class SpanWindow:
    rows: WindowRows

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.first = 0  #: index of the first record in the span
        self.batches = 0
        self.left = 0  #: of them those that are not over
        self.counted = 0  #: records that progress was told of
        self.ran = Event()  #: all are
        self.refused: dict[int, PenstockError] = {}  #: by place in the window
        self._blocks: list[RecordBlock] = []

    def take(self, block: RecordBlock, begin: int, end: int) -> None:
        """The records of a block from one place on to before the other."""
        if begin == end:
            return
        if not self.records:
            self.first = block.first + begin
        self.records += block.records[begin:end]
        self._blocks.append(block)

    def numbers(self) -> range:
        """Of its records in the span."""
        return range(self.first, self.first + len(self.records))

    def offset_of(self, at: int) -> int:
        """Where the record at a place begins, in bytes from the object's start."""
        index = self.first + at
        block = next(each for each in reversed(self._blocks) if each.first <= index)
        return block.offset_of(index)
