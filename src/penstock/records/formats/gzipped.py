"""Unpacks gzip streams in chunks of bounded size, so that memory is bounded for any content."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from typing import Any, Final

from penstock.errors import CallerError
from penstock.records.objects.sources import CHUNK_BYTES, ObjectBytes

_GZIP_WBITS: Final = 31  # zlib's code for a gzip header and trailer, and nothing else


class UnpackedBytes:
    """A packed object's content, read from its start; its size is known at its end."""

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
