"""Reads a given number of bytes at a time from chunks."""

from __future__ import annotations

from collections.abc import Iterator


class Forward:
    """A cursor over chunks. It holds the requested bytes and one chunk."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._chunk = b""
        self._used = 0  #: consumed bytes of the chunk
        self.at = 0  #: bytes taken so far

    def take(self, size: int) -> bytes:
        """The next bytes; fewer only at the end. The caller bounds `size`."""
        data = self._chunk[self._used : self._used + size]
        self._used += len(data)
        if len(data) < size:
            pieces, have = [data], len(data)
            while have < size and (chunk := next(self._chunks, b"")):
                self._chunk = chunk
                self._used = min(len(chunk), size - have)
                pieces.append(chunk[: self._used])
                have += self._used
            data = b"".join(pieces)
        self.at += len(data)
        return data
