"""A note on disk of the records of a span that are at work, read after the instance has died.

It has lines of JSON, each one write: `[number, [[begin, end], ...]]` when records begin (numbered
within their span, ends not included), `[number]` when they are over. Data that a process wrote
survives its crash; a power cut may lose it, and then nobody needs it. A full disk stops no span:
records that can't be noted are not noted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final

import orjson

from penstock.core.jobs.spec import Span
from penstock.records.parts import parts_folder

#: Most records in one line: many more than a window of records has.
_RECORDS_MAX: Final = 1 << 20


class AtWork:
    """The note of one run of a span. For any thread."""

    def __init__(self, parts_uri: str, span: Span) -> None:
        self._path = _path(parts_uri, span)
        self._numbers = count()
        self._file = -1
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, flags, 0o600)

    @contextmanager
    def working(self, records: Iterable[int]) -> Iterator[None]:
        """The records are at work while the block runs."""
        number = next(self._numbers)
        self._write([number, _ranges(sorted(records))])
        try:
            yield
        finally:
            self._write([number])

    def close(self) -> None:
        """The run is over and the process lives, so the note is removed."""
        if self._file >= 0:
            os.close(self._file)
            self._path.unlink(missing_ok=True)
        self._file = -1

    def _write(self, line: list[object]) -> None:
        if self._file >= 0:
            with suppress(OSError):
                os.write(self._file, orjson.dumps(line) + b"\n")


def take_at_work(parts_uri: str, span: Span) -> tuple[int, ...]:
    """The records that were at work when their process ended, ascending. Removes the note."""
    path = _path(parts_uri, span)
    found: dict[int, list[list[int]]] = {}
    with suppress(OSError):
        for line in path.read_bytes().split(b"\n"):
            with suppress(ValueError, TypeError):  # the last line may be incomplete
                number, *ranges = orjson.loads(line)
                found[number] = ranges[0] if ranges else []
    forget_at_work(parts_uri, span)
    records: set[int] = set()
    for begin, end in (one for ranges in found.values() for one in ranges):
        records.update(range(begin, min(end, begin + _RECORDS_MAX)))
    return tuple(sorted(records))


def forget_at_work(parts_uri: str, span: Span) -> None:
    """Removes a note that an earlier run may have left."""
    with suppress(OSError):
        _path(parts_uri, span).unlink(missing_ok=True)


def _path(parts_uri: str, span: Span) -> Path:
    return parts_folder(parts_uri) / f".at-work-{span.object:06d}-{span.number:06d}"


def _ranges(records: Sequence[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for one in records:
        if found and found[-1][1] == one:
            found[-1][1] = one + 1
        else:
            found.append([one, one + 1])
    return found
