"""Which calls are captured, and when the records of captured calls are written to which file.

A record is opaque here and has a size. Records of one endpoint, variant, destination and hour share
a file, which is written when it is full, or when its first record has waited long enough. A written
file is complete and never touched again: so a process that is killed leaves whole lines, and a
store that only has whole objects (S3) is served like a folder.

Requests never wait for a store. The bytes that are held (records that wait, files being written,
streams under way) have a bound; a record beyond it is dropped and counted. One endpoint may hold a
part of the bound only, so a destination that is full or away costs the other endpoints nothing. Its
files are tried again, one at a time and ever more slowly, and dropped after some tries.

The driver calls `add` for a record, `written` or `failed` once for each `WriteFile`, `on_timer` at
`next_deadline()`, and before the end `stop`. All of them return actions to carry out.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from penstock.core.backoff import Backoff

# Reasons to write a file.
FILE_FULL: Final = "file-full"
WAITED_ENOUGH: Final = "waited-enough"
STOPPING: Final = "stopping"  #: also a reason to drop
TRIED_AGAIN: Final = "tried-again"

# Reasons to drop records.
QUEUE_FULL: Final = "queue-full"  #: as many bytes are held as may be, in all or of the endpoint
NOT_WRITTEN: Final = "not-written"  #: all tries to write the file have failed
ANSWER_TOO_LONG: Final = "answer-too-long"  #: a streamed answer, where a line has nothing else


def is_sampled(percentage: int, draw: float) -> bool:
    """Whether a call is captured. `draw`: a random number from 0 to below 1."""
    return draw * 100.0 < percentage


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureQueueSpec:
    """Bounds of the captured calls of one process."""

    bytes_max: int  #: of everything that is held
    endpoint_bytes_max: int  #: of that, for one endpoint's records at one destination
    file_bytes_max: int  #: a file with so many bytes of records is full
    file_records_max: int  #: ... or with so many records
    file_wait_s: float  #: a file is written when its first record has waited so long
    tries_max: int  #: a file that could not be written so often is dropped
    writes_max: int  #: files that are written at once
    backoff: Backoff  #: pauses after failed tries in a row


class FilePlace(NamedTuple):
    """What the records of a file have in common."""

    destination_uri: str
    endpoint: str
    variant: str
    hour: int  #: of the calls: hours since 1970, UTC


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Write these records as one object; report `written` or `failed` with its number."""

    number: int  #: of the file; another try has the same
    place: FilePlace
    records: tuple[Any, ...]  #: in the order of their calls' ends
    reason: str


@dataclass(frozen=True, slots=True)
class DropRecords:
    """These records are lost: count them."""

    records: tuple[Any, ...]
    reason: str


Action = WriteFile | DropRecords


@dataclass(slots=True)
class _File:
    number: int
    place: FilePlace
    first_at: float  #: when its first record came
    records: list[Any] = field(default_factory=list)
    size: int = 0
    tries: int = 0
    reason: str = ""


@dataclass(slots=True)
class _Destination:
    """The records of one endpoint for one destination."""

    size: int = 0
    due: deque[_File] = field(default_factory=deque)  #: to be written, oldest first
    writing: _File | None = None
    failures: int = 0  #: tries in a row that failed
    retry_at: float = 0.0  #: no try before this


class CaptureQueue:
    """The captured calls of one process that are not written yet."""

    def __init__(self, spec: CaptureQueueSpec) -> None:
        self._spec = spec
        self._open: dict[FilePlace, _File] = {}  #: files that take records, oldest first
        #: (URI, endpoint) -> its records; whose turn is next is first
        self._destinations: dict[tuple[str, str], _Destination] = {}
        self._writing: dict[int, _Destination] = {}
        self._size = 0  #: bytes that are held, those reserved included
        self._reserved = 0
        self._number = 0
        self._stopping = False

    @property
    def is_empty(self) -> bool:
        """Whether no record is held."""
        return not self._destinations

    def reserve(self, size: int) -> bool:
        """Takes room for a part of a stream that is under way. False: there is none."""
        if self._stopping or self._size + size > self._spec.bytes_max:
            return False
        self._size += size
        self._reserved += size
        return True

    def release(self, size: int) -> None:
        """Gives room back that was reserved."""
        self._size -= size
        self._reserved -= size

    def add(self, place: FilePlace, record: Any, size: int, *, now: float) -> list[Action]:
        """A call was captured. `size`: the bytes that its record holds, at
        least 1."""
        spec, key = self._spec, (place.destination_uri, place.endpoint)
        destination = self._destinations.get(key) or _Destination()
        if self._stopping:
            return [DropRecords((record,), STOPPING)]
        if self._size + size > spec.bytes_max or destination.size + size > spec.endpoint_bytes_max:
            return [DropRecords((record,), QUEUE_FULL)]
        self._destinations.setdefault(key, destination)
        file = self._open.get(place)
        if file is None:
            self._number += 1
            file = self._open[place] = _File(self._number, place, first_at=now)
        file.records.append(record)
        for one in (file, destination):
            one.size += size
        self._size += size
        if file.size < spec.file_bytes_max and len(file.records) < spec.file_records_max:
            return []
        self._close(file, FILE_FULL)
        return self._begin(now)

    def written(self, number: int, *, now: float) -> list[Action]:
        """The file is there, whole."""
        destination = self._writing.pop(number)
        self._forget(destination)
        destination.failures, destination.retry_at = 0, 0.0
        return self._begin(now)

    def failed(self, number: int, *, now: float) -> list[Action]:
        """The file could not be written, and nothing of it is there."""
        destination = self._writing.pop(number)
        file = destination.writing
        assert file is not None
        file.tries += 1
        destination.failures += 1
        pause_s = self._spec.backoff.pause_s(destination.failures)
        destination.retry_at = 0.0 if self._stopping else now + pause_s
        dropped: list[Action] = []
        if file.tries >= self._spec.tries_max or self._stopping:
            self._forget(destination)
            dropped = [DropRecords(tuple(file.records), NOT_WRITTEN)]
        else:
            file.reason, destination.writing = TRIED_AGAIN, None
            destination.due.appendleft(file)
        return dropped + self._begin(now)

    def on_timer(self, *, now: float) -> list[Action]:
        """Writes what has waited long enough, and tries again what failed."""
        for file in list(self._open.values()):
            if now >= file.first_at + self._spec.file_wait_s:
                self._close(file, WAITED_ENOUGH)
        return self._begin(now)

    def next_deadline(self) -> float | None:
        """When to call `on_timer`; None while nothing waits for a time. Ask after every call."""
        first = next(iter(self._open.values()), None)
        at = [] if first is None else [first.first_at + self._spec.file_wait_s]
        if len(self._writing) < self._spec.writes_max:
            at += [one.retry_at for one in self._destinations.values() if _waits(one)]
        return min(at, default=None)

    def stop(self, *, now: float) -> list[Action]:
        """Writes what there is, each file with one more try, and takes nothing more."""
        self._stopping = True
        for file in list(self._open.values()):
            self._close(file, STOPPING)
        for destination in self._destinations.values():
            destination.retry_at = 0.0
        return self._begin(now)

    def abandon(self) -> list[Action]:
        """There is no more time: everything that is not written is lost."""
        files = [one for destination in self._destinations.values() for one in destination.due]
        files += [one.writing for one in self._destinations.values() if one.writing is not None]
        self._destinations.clear()
        self._writing.clear()
        self._size = self._reserved
        return [DropRecords(tuple(one.records), STOPPING) for one in files]

    def snapshot(self) -> dict[str, Any]:
        """JSON-ready: what is held, in all and by endpoint."""
        return {
            "bytes": self._size,
            "endpoints": [
                {
                    "endpoint": endpoint,
                    "destination": destination,
                    "bytes": one.size,
                    "files_due": len(one.due) + (one.writing is not None),
                    "failures": one.failures,
                }
                for (destination, endpoint), one in sorted(self._destinations.items())
            ],
        }

    def check_invariants(self) -> None:
        """Raises AssertionError where the books are wrong."""
        sizes: dict[tuple[str, str], int] = dict.fromkeys(self._destinations, 0)
        for file in self._open.values():
            sizes[file.place[:2]] += file.size
        for key, destination in self._destinations.items():
            files = (*destination.due, *([destination.writing] if destination.writing else []))
            sizes[key] += sum(file.size for file in files)
            assert destination.size == sizes[key] > 0, key
            assert destination.size <= self._spec.endpoint_bytes_max
        assert sum(sizes.values()) + self._reserved == self._size <= self._spec.bytes_max
        writing = sum(one.writing is not None for one in self._destinations.values())
        assert len(self._writing) == writing <= self._spec.writes_max

    def _close(self, file: _File, reason: str) -> None:
        """The file takes no more records and is written next, or after those before it."""
        del self._open[file.place]
        file.reason = reason
        self._destinations[file.place[:2]].due.append(file)

    def _begin(self, now: float) -> list[Action]:
        """Files whose turn it is: one of each endpoint, in turns."""
        begun: list[Action] = []
        for key, destination in list(self._destinations.items()):
            if len(self._writing) >= self._spec.writes_max:
                break
            if not _waits(destination) or now < destination.retry_at:
                continue
            file = destination.writing = destination.due.popleft()
            # The others have their turn before.
            self._destinations[key] = self._destinations.pop(key)
            self._writing[file.number] = destination
            begun.append(WriteFile(file.number, file.place, tuple(file.records), file.reason))
        return begun

    def _forget(self, destination: _Destination) -> None:
        """The records of the file that was being written are not held any more."""
        file, destination.writing = destination.writing, None
        assert file is not None
        destination.size -= file.size
        self._size -= file.size
        if not destination.size:
            del self._destinations[file.place[:2]]


def _waits(destination: _Destination) -> bool:
    """Whether a file of it is to be written and none is being written."""
    return bool(destination.due) and destination.writing is None
