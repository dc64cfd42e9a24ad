"""Reads and checks the parts of one object: outputs, errors and summaries."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, Final

import orjson

from penstock.core.jobs.spec import Span
from penstock.errors import InternalError
from penstock.records.parts import PartSummary, damaged, part_path, read_footer

_CHUNK_BYTES: Final = 1024 * 1024


class Parts:
    """The parts of all spans of one object, in their order.

    All methods raise `InternalError` (`part-missing`, `part-damaged`).
    """

    def __init__(self, parts_uri: str, spans: Iterable[Span]) -> None:
        self._uri = parts_uri
        self.spans: Final = sorted(spans, key=lambda span: span.number)

    def refused(self) -> int:
        return sum(self.summary(span).refused for span in self.spans)

    def summary(self, span: Span) -> PartSummary:
        with self._opened(span) as file:
            return read_footer(file)

    def outputs(self) -> Iterator[bytes]:
        """Bytes of all outputs. The checksum of a part is compared at its end."""
        for span in self.spans:
            with self._opened(span) as file:
                summary = read_footer(file)
                crc32 = 0
                for chunk in _chunks(file, summary.bytes_out):
                    crc32 = zlib.crc32(chunk, crc32)
                    yield chunk
                for chunk in _chunks(file, summary.errors_bytes):
                    crc32 = zlib.crc32(chunk, crc32)
                if crc32 != summary.crc32:
                    raise damaged(file, "its checksum is another one")

    def lines(self, span: Span) -> Iterator[bytes]:
        """Outputs of one span, where each is a line."""
        with self._opened(span) as file:
            left = read_footer(file).bytes_out
            while left > 0:
                line = file.readline(left)
                left -= len(line)
                yield line

    def errors(self, span: Span) -> Iterator[dict[str, Any]]:
        """The errors, in the form of `PartWriter.refuse`."""
        with self._opened(span) as file:
            summary = read_footer(file)
            file.seek(summary.bytes_out)
            for _ in range(summary.refused):
                try:
                    told: dict[str, Any] = orjson.loads(file.readline())
                except orjson.JSONDecodeError:
                    raise damaged(file, "an error of it can't be read") from None
                yield told

    def error_lines(self) -> Iterator[bytes]:
        """The errors as lines of JSON, with records counted from the object's start."""
        before = 0
        for span in self.spans:
            for told in self.errors(span):
                line = {
                    "record": before + told["index"],
                    "offset": told["offset"],
                    "error": told["error"],
                }
                yield orjson.dumps(line) + b"\n"
            before += self.summary(span).records

    def _opened(self, span: Span) -> BinaryIO:
        try:
            return open(part_path(self._uri, span.object, span.number), "rb")
        except FileNotFoundError as error:
            raise InternalError(
                "part-missing",
                f"part {span.number} of object {span.object} of a job's output is gone",
                hint="Something removed it from the server's state directory. Start the job again.",
            ) from error


def _chunks(file: BinaryIO, size: int) -> Iterator[bytes]:
    while size and (chunk := file.read(min(size, _CHUNK_BYTES))):
        size -= len(chunk)
        yield chunk
