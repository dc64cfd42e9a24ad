"""Logs as the admin API reads them: the last lines of each, and what was written since.

A log that grows too large is moved or copied aside, to its name with `.1` (`fleet/log_file.py`),
and goes on from its beginning. Whoever follows it has a cursor, which says how much of which file
was read, so nothing is lost then: the rest is read from the file that was put aside. A cursor holds
over restarts of the server, and new logs are read from their beginning. Only whole lines are read.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from penstock.errors import CallerError

#: Most bytes read of a log at once: a longer piece is of no use in a terminal.
PIECE_BYTES_MAX: Final = 4 << 20


class _Place(NamedTuple):
    """How far a log was read."""

    inode: int = 0
    aside_at: int = 0  #: when the file beside it was written, in ns: it changes with each rotation
    offset: int = 0


_Cursor = dict[str, _Place]  #: by the file of each log


async def tails(paths: Iterable[Path], lines: int) -> list[dict[str, Any]]:
    """The last `lines` lines of each log, oldest first."""
    found, _ = await tails_and_cursor(paths, lines)
    return found


async def tails_and_cursor(paths: Iterable[Path], lines: int) -> tuple[list[dict[str, Any]], str]:
    """As `tails`, and a cursor for `since`."""
    cursor: _Cursor = {}
    found = []
    for path in paths:
        read, at = await asyncio.to_thread(_tail, path, lines)
        found.append({"log": path.stem, "lines": read})
        cursor[str(path)] = at
    return found, _written(cursor)


async def since(paths: Iterable[Path], cursor: str) -> tuple[list[dict[str, Any]], str]:
    """What the logs got since a cursor, and the next one. Raises CallerError (`cursor-invalid`)."""
    before = _read(cursor)
    after: _Cursor = {}
    found = []
    for path in paths:
        known = before.get(str(path), _Place())
        read, after[str(path)] = await asyncio.to_thread(_news, path, known)
        if read:
            found.append({"log": path.stem, "lines": read})
    return found, _written(after)


def _aside(path: Path) -> Path:
    return path.with_name(path.name + ".1")


def _tail(path: Path, lines: int) -> tuple[list[str], _Place]:
    """No lines if there is no log yet."""
    size, inode, _ = _facts(path)
    older, _, aside_at = _facts(_aside(path))
    start = max(0, size - PIECE_BYTES_MAX)
    data = _bytes(path, start, size - start)
    whole = data.rfind(b"\n") + 1
    found = _lines(data)
    if len(found) < lines and start == 0:
        begin = max(0, older - PIECE_BYTES_MAX)
        found = _lines(_bytes(_aside(path), begin, older - begin)) + found
    return found[-lines:], _Place(inode, aside_at, start + whole)


def _news(path: Path, known: _Place) -> tuple[list[str], _Place]:
    size, inode, _ = _facts(path)
    older, _, aside_at = _facts(_aside(path))
    offset, rest = max(0, known.offset), list[str]()
    if known.inode and (inode != known.inode or size < offset or aside_at != known.aside_at):
        if inode == known.inode and size >= older:
            aside_at = known.aside_at  # it was copied, and is not emptied yet
        else:
            rest = _lines(_bytes(_aside(path), offset, min(PIECE_BYTES_MAX, older - offset)))
            offset = 0
    data = _bytes(path, offset, min(PIECE_BYTES_MAX, size - offset))
    whole = data.rfind(b"\n") + 1
    return rest + _lines(data[:whole]), _Place(inode, aside_at, offset + whole)


def _facts(path: Path) -> tuple[int, int, int]:
    """(size, inode, time of the last change in ns); zeros where there is no such file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0, 0, 0
    return status.st_size, status.st_ino, status.st_mtime_ns


def _bytes(path: Path, offset: int, count: int) -> bytes:
    if count <= 0:
        return b""
    try:
        with path.open("rb") as log:
            log.seek(offset)
            return log.read(count)
    except FileNotFoundError:
        return b""


def _lines(data: bytes) -> list[str]:
    return data.decode("utf-8", "replace").splitlines()


def _written(cursor: _Cursor) -> str:
    return base64.urlsafe_b64encode(json.dumps(cursor).encode()).decode()


def _read(text: str) -> _Cursor:
    try:
        told = json.loads(base64.urlsafe_b64decode(text))
        return {str(file): _Place(*map(int, place)) for file, place in told.items()}
    except (ValueError, TypeError, AttributeError):
        raise CallerError(
            "cursor-invalid", "since= is no cursor", hint="Give the `next` of the answer before."
        ) from None
