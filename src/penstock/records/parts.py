"""The results of one span, in one file: whole or missing, and equal if written again.

A part has the outputs as they will be in the object's output, then a line of JSON for each refused
record, then a footer: a line of JSON, its length and a mark. It is written under a unique name,
synced to the disk and renamed, so that two writers of one span (one of them believed dead) can't
mix their bytes.

`Parts` reads and checks the parts of one object: outputs, errors and summaries.
"""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import unquote, urlsplit

import orjson

from penstock.artifacts.files.budget import disk_errors
from penstock.core.jobs.spec import LINE, Span, TransformOutput, is_parquet
from penstock.durable_files import sync
from penstock.errors import InternalError

_TAIL: Final = struct.Struct("<I8s")
_MARK: Final = b"PNSTPRT1"
_BUFFER_BYTES: Final = 1024 * 1024
#: Bound of a footer, which has a few numbers.
_FOOTER_BYTES_MAX: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSummary:
    """The footer of a part."""

    object: int
    span: int
    records: int  #: number of input records, answered or refused
    refused: int
    bytes_in: int
    bytes_out: int  #: size of the outputs, separators included
    errors_bytes: int
    crc32: int  #: over outputs and errors


class PartWriter:
    """Takes the results of a span's records, in order. For one thread.

    All methods raise NotNowError (`artifact-disk-full` ...) where the disk fails. Then, and
    whenever the span is given up, call `abandon`.
    """

    def __init__(self, parts_uri: str, span: Span, output: TransformOutput) -> None:
        self._path = part_path(parts_uri, span.object, span.number)
        self._span = span
        # Rows of a table stay lines until the object's output is made from them.
        self._end = b"\n" if output.assemble == LINE or is_parquet(output.accept) else b""
        self._records = 0
        self._refused = 0
        self._bytes_out = 0
        self._crc32 = 0
        self._errors: BinaryIO | None = None  #: created with the first refused record
        with self._disk():
            folder = self._path.parent
            if not folder.is_dir():
                folder.mkdir(parents=True, exist_ok=True)
                sync(folder.parent)  # else a power cut could remove it, with all parts in it
            descriptor, draft = tempfile.mkstemp(prefix=".draft-", dir=folder)
            self._draft = Path(draft)
            self._file = open(descriptor, "wb", buffering=_BUFFER_BYTES)  # noqa: SIM115

    def write(self, outputs: Iterable[bytes], *, records: int | None = None) -> None:
        """Writes outputs of the next records. With AssembleWith Line each ends with one newline,
        which may be the answer's own; without it, answers follow each other unchanged.

        Args:
            records: number of records that they answer; None: each answers one.
        """
        end = self._end
        answers = [one.removesuffix(end) for one in outputs] if end else list(outputs)
        self._records += len(answers) if records is None else records
        data = end.join(answers) + end if answers else b""
        self._bytes_out += len(data)
        self._crc32 = zlib.crc32(data, self._crc32)
        with self._disk():
            self._file.write(data)

    def refuse(self, index: int, record_offset: int, error: Mapping[str, Any]) -> None:
        """Writes an error for the next record, which has no output.

        Args:
            index: number of the record in the span, from 0.
            record_offset: byte of the object at which it begins.
            error: its error, in the form of `PenstockError.to_dict`.
        """
        line = orjson.dumps({"index": index, "offset": record_offset, "error": dict(error)}) + b"\n"
        self._records += 1
        self._refused += 1
        with self._disk():
            if self._errors is None:
                # It has no name, so it needs no clean-up.
                self._errors = tempfile.TemporaryFile(dir=self._path.parent)  # noqa: SIM115
            self._errors.write(line)

    def commit(self) -> PartSummary:
        """Makes the part from everything written, replacing one that exists. It survives a power
        cut."""
        with self._disk():
            errors_bytes = self._append_errors()
            summary = PartSummary(
                object=self._span.object,
                span=self._span.number,
                records=self._records,
                refused=self._refused,
                bytes_in=self._span.stop - self._span.start,
                bytes_out=self._bytes_out,
                errors_bytes=errors_bytes,
                crc32=self._crc32,
            )
            footer = orjson.dumps(asdict(summary)) + b"\n"
            self._file.write(footer + _TAIL.pack(len(footer), _MARK))
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._draft.replace(self._path)
            sync(self._path.parent)
        return summary

    def abandon(self) -> None:
        """Removes everything. Harmless after `commit`, and twice."""
        if self._errors is not None:
            self._errors.close()
        with suppress(OSError):  # data that a full disk did not take is still in the file's buffer
            self._file.close()
        with suppress(OSError):
            self._draft.unlink(missing_ok=True)

    def _append_errors(self) -> int:
        if self._errors is None:
            return 0
        size = self._errors.tell()
        self._errors.seek(0)
        while chunk := self._errors.read(_BUFFER_BYTES):
            self._crc32 = zlib.crc32(chunk, self._crc32)
            self._file.write(chunk)
        self._errors.close()
        return size

    def _disk(self) -> Any:
        return disk_errors("a part of the job's output", self._path.parent)


def part_path(parts_uri: str, one: int, span: int) -> Path:
    return parts_folder(parts_uri) / f"{one:06d}-{span:06d}.part"


def parts_folder(parts_uri: str) -> Path:
    """The folder of parts on this machine: only the server's own processes write and read it."""
    parts = urlsplit(parts_uri)
    assert parts.scheme == "file", parts_uri
    return Path(unquote(parts.path))


def part_summary(parts_uri: str, one: int, span: int) -> PartSummary | None:
    """The summary of a committed part; None if there is none.

    Raises:
        InternalError: `part-damaged`.
    """
    try:
        with open(part_path(parts_uri, one, span), "rb") as file:
            return read_footer(file)
    except FileNotFoundError:
        return None


def read_footer(file: BinaryIO) -> PartSummary:
    """The summary at the end of a part. Leaves the file at its start."""
    size = file.seek(0, os.SEEK_END)
    footer_bytes, mark = 0, b""
    if size >= _TAIL.size:
        file.seek(size - _TAIL.size)
        footer_bytes, mark = _TAIL.unpack(file.read(_TAIL.size))
    rest = size - _TAIL.size - footer_bytes
    if mark != _MARK or footer_bytes > _FOOTER_BYTES_MAX or rest < 0:
        raise damaged(file, "it has no footer")
    file.seek(rest)
    summary = PartSummary(**orjson.loads(file.read(footer_bytes)))
    if summary.bytes_out + summary.errors_bytes != rest:
        raise damaged(file, f"it has {rest} bytes before its footer")
    file.seek(0)
    return summary


def damaged(file: BinaryIO, how: str) -> InternalError:
    return InternalError(
        "part-damaged",
        f"the part {getattr(file, 'name', '')} of a job's output is damaged: {how}",
        hint="Check the disk that holds the server's state, then start the job again.",
    )


def forget(parts_uri: str) -> None:
    """Removes all parts of a job, uncommitted ones too. Harmless twice."""
    shutil.rmtree(parts_folder(parts_uri), ignore_errors=True)


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
