"""How the records of a span become batches: windows of records, full batches in each.

A row costs as much as the longest row of its batch, so rows of similar length share a batch. That
needs many rows at hand, and a window is how many: a larger one has less padding and needs more
memory. Both cuts depend only on the records of the span, never on the blocks they were read in, on
time, or on which copy runs them: a span that is done again runs the same batches, and so gives the
same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.core.jobs.spec import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSpec:
    #: some 500 batches of short texts: nearly all rows of a batch have one length, and one batch in
    #: ten has a new shape, which costs the model about half a millisecond
    records_max: int = 16_384
    #: records of the first window; each next one has twice as many; see `windows_of`
    records_first: int = 512
    #: bytes of the records as read; a longer record is a window of its own
    bytes_max: int = 8 << 20


#: For spans that are read while lanes run another one: 0.1 s of reading. In smaller windows two
#: batches of three had another shape than the one before (one of ten in large ones), each of which
#: costs a small model a tenth of the batch.
_RECORDS_FIRST_BEHIND: Final = 4096


def windows_of(span: Span) -> WindowSpec:
    """How a span is cut: while a job's first span is read, lanes have nothing to run yet."""
    if span.object == 0 and span.number == 0:
        return WindowSpec()
    return WindowSpec(records_first=_RECORDS_FIRST_BEHIND)


class Windows:
    """Finds the ends of windows as records come in."""

    __slots__ = ("_bytes", "_limit", "_records", "_spec")

    def __init__(self, spec: WindowSpec) -> None:
        self._spec = spec
        #: records that the open window may have
        self._limit = min(spec.records_first, spec.records_max)
        self._records = 0  #: records in the open window
        self._bytes = 0

    def add(self, sizes: Sequence[int]) -> list[int]:
        """Adds the next records, by their bytes. Returns how many of them lie before the end of
        each window that ends among them, ascending."""
        ends: list[int] = []
        records, total = self._records, self._bytes
        bytes_max = self._spec.bytes_max
        for at, size in enumerate(sizes):
            if records and total + size > bytes_max:
                ends.append(at)
                self._grow()
                records = total = 0
            records += 1
            total += size
            if records >= self._limit:
                ends.append(at + 1)
                self._grow()
                records = total = 0
        self._records, self._bytes = records, total
        return ends

    def _grow(self) -> None:
        self._limit = min(2 * self._limit, self._spec.records_max)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsSpec:
    """How many rows a batch of one model may have."""

    rows_max: int  #: at least 1
    tokens_max: int = 0  #: tokens of a batch, padding included; 0 = no limit by length


class RowBatch(NamedTuple):
    rows: tuple[int, ...]  #: indices in the window, longest row first
    length: int  #: length of the longest row


#: From this size on the number of rows is a multiple of it: kernels take rows in such groups.
_GROUP = 8


def rows_of_length(length: int, spec: RowsSpec) -> int:
    """How many rows of that length a full batch has."""
    if not spec.tokens_max:
        return spec.rows_max
    rows = min(spec.rows_max, spec.tokens_max // max(1, length))
    return max(1, rows - rows % _GROUP or rows)


def full_batches(
    lengths: Sequence[int], spec: RowsSpec, *, kinds: Sequence[int] | None = None
) -> list[RowBatch]:
    """The rows of a window, longest first, cut into full batches; the last one may be smaller.

    `kinds`: rows of two kinds never share a batch; None: all have one kind. Rows of one length keep
    their order.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    if kinds is None:
        return _cut(order, lengths, spec)
    by_kind: dict[int, list[int]] = {}
    for row in order:
        by_kind.setdefault(kinds[row], []).append(row)
    return [batch for kind in sorted(by_kind) for batch in _cut(by_kind[kind], lengths, spec)]


def _cut(order: list[int], lengths: Sequence[int], spec: RowsSpec) -> list[RowBatch]:
    batches = []
    at = 0
    while at < len(order):
        length = lengths[order[at]]
        end = at + rows_of_length(length, spec)
        batches.append(RowBatch(tuple(order[at:end]), length))
        at = end
    return batches
