"""Lines of text from chunks of bytes, many at once.

A line ends at a newline character; a carriage return before it belongs to the end, as in files from
Windows. Empty lines are records like others, so line n of the output is the answer to line n of the
input. The last line may lack its end; a newline at the very end begins no line.

A `RecordBlock` has records that were read together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from penstock.core.jobs.spec import Span
from penstock.records.objects.sources import ObjectBytes
from penstock.records.refusals import too_large


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


def line_blocks(
    source: ObjectBytes, span: Span, *, record_bytes_max: int, what: str
) -> Iterator[RecordBlock]:
    """The lines that begin in the span. Raises `CallerError` (`record-too-large`)."""
    begin = max(0, span.start - 1)  # the newline before a line may be the byte before the span
    chunks = source.chunks(begin, source.size, sure=span.stop)
    found = _first_line(chunks, begin, span, record_bytes_max, what)
    if found is None:
        return
    start, rest = found
    yield from _lines(rest, chunks, start, span.stop, record_bytes_max, what)


def _first_line(
    chunks: Iterator[bytes], begin: int, span: Span, record_bytes_max: int, what: str
) -> tuple[int, bytes] | None:
    """The start of the first line, and the bytes read of it; None if none begins in the span."""
    if span.start == 0:
        return 0, b""
    at = begin
    for chunk in chunks:
        newline = chunk.find(b"\n")
        if newline >= 0:
            start = at + newline + 1
            return (start, chunk[newline + 1 :]) if start < span.stop else None
        at += len(chunk)
        if at >= span.stop:
            return None
        if at - begin > record_bytes_max + 1:
            raise too_large(what, begin, record_bytes_max)
    return None


def _lines(
    rest: bytes, chunks: Iterator[bytes], start: int, stop: int, record_bytes_max: int, what: str
) -> Iterator[RecordBlock]:
    """Lines from `start` on, where a line begins; `rest` is already read."""
    pending: list[bytes] = []  #: pieces of a line whose end is not read yet
    pending_bytes = 0
    at = start  #: position of the chunk
    first = 0
    done = start >= stop
    while not done:
        chunk, rest = rest or next(chunks, b""), b""
        if not chunk:
            # A last line without its end; if it is empty, it is no line.
            raw = b"".join(pending)
            end = len(raw)
            done = True
        else:
            # The first newline at the span's end or after it ends the last line that began before.
            last = chunk.find(b"\n", max(0, stop - 1 - at))
            done = last >= 0
            cut = (last if done else chunk.rfind(b"\n")) + 1
            if not cut:
                pending.append(chunk)
                pending_bytes += len(chunk)
                at += len(chunk)
                if pending_bytes > record_bytes_max + 2:
                    raise too_large(what, start, record_bytes_max)
                continue
            raw = b"".join((*pending, chunk[:cut]))
            end = at + cut - start
            pending, at = [chunk[cut:]] if cut < len(chunk) else [], at + len(chunk)
            pending_bytes = len(chunk) - cut
        if raw:
            block = _block(raw, start, first)
            _check_sizes(block, record_bytes_max, what)
            yield block
            first += len(block.records)
        start += end


def _block(raw: bytes, start: int, first: int) -> RecordBlock:
    # Each step passes over the bytes once, however many lines they have.
    plain = raw.replace(b"\r\n", b"\n") if b"\r" in raw else raw
    records = plain.split(b"\n")
    if raw.endswith(b"\n"):
        records.pop()
    return RecordBlock(records=records, first=first, start=start, raw=raw)


def _check_sizes(block: RecordBlock, record_bytes_max: int, what: str) -> None:
    if len(block.raw) <= record_bytes_max:
        return
    for index, record in enumerate(block.records, block.first):
        if len(record) > record_bytes_max:
            raise too_large(what, block.offset_of(index), record_bytes_max)
