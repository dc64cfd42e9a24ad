"""Reads the records of one span in blocks, in any format. Memory does not grow with the object."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from penstock.artifacts.sources.source import ArtifactSettings, shown_uri
from penstock.core.jobs.spec import (
    GZIP,
    LINE,
    RECORD_IO,
    TF_RECORD,
    InputObject,
    Span,
    TransformInput,
    is_parquet,
)
from penstock.errors import CallerError, PenstockError
from penstock.records.formats.frames import Forward, next_record_io, next_tf_record
from penstock.records.formats.lines import RecordBlock, line_blocks
from penstock.records.objects.sources import CHUNK_BYTES, ObjectBytes, open_object
from penstock.records.refusals import too_large

#: AWS's largest MaxPayloadInMB, which also applies where a job sets no limit.
RECORD_BYTES_MAX: Final = 100 * 1024 * 1024
_FRAMES: Final = {RECORD_IO: next_record_io, TF_RECORD: next_tf_record}


class RecordReader:
    """Reads one span once. For one thread."""

    def __init__(
        self,
        one: InputObject,
        span: Span,
        data: TransformInput,
        settings: ArtifactSettings,
        *,
        record_bytes_max: int = 0,
        whole_records: bool = True,
        refused: dict[int, PenstockError] | None = None,
    ) -> None:
        """
        Args:
            record_bytes_max: of one record, in its returned form; 0 = `RECORD_BYTES_MAX`.
            whole_records: False: of Parquet only the columns for the model are read.
            refused: gets rows of Parquet that are too large, before the block with an empty record
                in their place; None: they are an error, as in other formats.
        """
        self._whole_records = whole_records
        self._refused = refused
        self._object = one
        self._span = span
        self._data = data
        self._settings = settings
        self._bytes_max = record_bytes_max or RECORD_BYTES_MAX
        self._what = shown_uri(one.uri)

    def blocks(self) -> Iterator[RecordBlock]:
        """The records that begin in the span, in order.

        Close it (`contextlib.closing`) if it is not read to its end.

        Raises:
            CallerError: `record-too-large`, `input-changed`, also after the last record, and those
                of an unreadable source. Records read until then must not be committed.
            NotNowError: the network or a store failed; reading the span again may succeed.
        """
        with open_object(self._object, self._settings) as stored:
            if is_parquet(self._data.content_type):
                from penstock.records.formats.parquet import row_blocks  # noqa: PLC0415 - an extra

                yield from row_blocks(
                    stored,
                    self._span,
                    self._data.columns,
                    whole=self._whole_records or not self._data.columns,
                    record_bytes_max=self._bytes_max,
                    refused=self._refused,
                    what=self._what,
                )
                return
            packed = self._data.compression == GZIP
            source = UnpackedBytes(stored, self._what) if packed else stored
            if self._data.split == LINE:
                yield from line_blocks(
                    source, self._span_of(source), record_bytes_max=self._bytes_max, what=self._what
                )
            elif self._data.split in _FRAMES:
                yield from self._framed(source)
            else:
                yield from self._whole(source)

    def _span_of(self, source: ObjectBytes) -> Span:
        """The span in bytes of the unpacked content: a packed object is one span."""
        if self._data.compression == GZIP:
            return replace(self._span, start=0, stop=source.size)
        return self._span

    def _whole(self, source: ObjectBytes) -> Iterator[RecordBlock]:
        """The object is one record. An empty object has none."""
        pieces: list[bytes] = []
        size = 0
        for chunk in source.chunks(0, source.size):
            pieces.append(chunk)
            size += len(chunk)
            if size > self._bytes_max:
                raise too_large(self._what, 0, self._bytes_max)
        if pieces:
            yield RecordBlock(records=[b"".join(pieces)], first=0, start=0, offsets=(0,))

    def _framed(self, source: ObjectBytes) -> Iterator[RecordBlock]:
        stream = Forward(source.chunks(0, source.size))
        next_record = _FRAMES[self._data.split]
        first = 0
        more = True
        while more:
            records: list[bytes] = []
            offsets: list[int] = []
            begin = stream.at
            while more and stream.at - begin < CHUNK_BYTES:
                at = stream.at
                record = next_record(stream, record_bytes_max=self._bytes_max, what=self._what)
                if record is None:
                    more = False
                else:
                    records.append(record)
                    offsets.append(at)
            if records:
                yield RecordBlock(records=records, first=first, start=begin, offsets=tuple(offsets))
                first += len(records)


_GZIP_WBITS: Final = 31  # zlib's code for a gzip header and trailer, and nothing else


class UnpackedBytes:
    """A packed object's content, read from its start; its size is known at its end. It is unpacked
    in chunks of bounded size, so that memory is bounded for any content."""

    def __init__(self, source: ObjectBytes, what: str) -> None:
        self.size = sys.maxsize
        self._source = source
        self._what = what

    def chunks(self, start: int, stop: int, *, sure: int | None = None) -> Iterator[bytes]:
        assert start == 0
        return unpacked(self._source.chunks(0, self._source.size), self._what)


def unpacked(chunks: Iterator[bytes], what: str) -> Iterator[bytes]:
    """The content of all members of the stream. An empty stream has empty content.

    Raises:
        CallerError: `input-not-gzip`: it is something else, damaged or cut short.
    """
    inflater: Any = None
    members = 0
    for chunk in chunks:
        data = chunk
        while data:
            if inflater is None:
                if members:
                    data = data.lstrip(b"\0")  # padding from tapes and block devices
                    if not data:
                        break
                inflater = zlib.decompressobj(_GZIP_WBITS)
                members += 1
            try:
                content = inflater.decompress(data, CHUNK_BYTES)
            except zlib.error as error:
                raise _not_gzip(what, str(error)) from error
            if content:
                yield content
            if inflater.eof:
                data, inflater = inflater.unused_data, None
            else:
                data = inflater.unconsumed_tail
    if inflater is not None:
        yield from _rest(inflater, what)


def _rest(inflater: Any, what: str) -> Iterator[bytes]:
    """The bytes that zlib holds back until its input ends."""
    while not inflater.eof:
        try:
            held = inflater.decompress(b"", CHUNK_BYTES)
        except zlib.error as error:
            raise _not_gzip(what, str(error)) from error
        if not held:
            raise _not_gzip(what, "it is cut short")
        yield held


def _not_gzip(what: str, cause: str) -> CallerError:
    return CallerError(
        "input-not-gzip",
        f"{what}: it can't be unpacked: {cause}",
        hint="Upload it again, or leave CompressionType out if it is not compressed.",
    )
