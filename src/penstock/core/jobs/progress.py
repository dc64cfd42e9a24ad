"""How fast a job goes and when it will end; and which spans and outputs wait for storage.

The rate is that of the last `window_s`, so that it follows other work on the machine. The remaining
work is counted in bytes, since nobody has counted the records before they are read; the mean size
of the records read so far turns bytes into records.

`Stuck` holds what waits for a disk or a store to come back: when it is retried, and for how long.
These failures are not the data's fault, so they do not count as attempts: a person makes room on a
full disk, after minutes or hours. That may take a day; then the job fails, to alert somebody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.core.backoff import Backoff

_WINDOW_S: Final = 30.0
_SAMPLES_S_MIN: Final = 0.5  #: s between two samples


@dataclass(frozen=True, slots=True)
class JobPace:
    """The pace of a job. A field is None while it is not known yet."""

    records_per_s: float | None
    left_s: float | None


class JobProgress:
    """Progress of one job, since it was begun or taken up again."""

    def __init__(
        self, *, bytes_total: int, records: int = 0, bytes_in: int = 0, window_s: float = _WINDOW_S
    ) -> None:
        """`records` and `bytes_in`: totals of the spans that are done already."""
        self._bytes_total = bytes_total
        self.records_done = records
        self.bytes_done = bytes_in
        self._window_s = window_s
        self._under_way: dict[tuple[int, int], tuple[int, int]] = {}
        self._samples: deque[tuple[float, int]] = deque()

    def under_way(
        self, span: tuple[int, int], records: int, refused: int = 0, *, now: float
    ) -> None:
        """Updates the number of records that a running span has read."""
        self._under_way[span] = records, refused
        self._sample(now)

    def done(self, span: tuple[int, int], records: int, bytes_in: int, *, now: float) -> None:
        self._under_way.pop(span, None)
        self.records_done += records
        self.bytes_done += bytes_in
        self._sample(now)

    def not_done(self, span: tuple[int, int], *, now: float) -> None:
        """The span will be read again from its beginning."""
        if self._under_way.pop(span, None) is not None:
            self._samples.clear()
            self._sample(now)

    @property
    def records(self) -> int:
        """Records read so far, including those of running spans."""
        return self.records_done + sum(records for records, _ in self._under_way.values())

    @property
    def refused_under_way(self) -> int:
        return sum(refused for _, refused in self._under_way.values())

    @property
    def bytes_in(self) -> int:
        """Bytes read so far; for running spans estimated from their numbers of records."""
        if not self.records_done:
            return self.bytes_done
        more = (self.records - self.records_done) * self.bytes_done / self.records_done
        return min(self._bytes_total, self.bytes_done + int(more))

    def pace(self, *, now: float) -> JobPace:
        """The rate needs at least two samples within the window; before, nothing is known."""
        self._forget(now)
        if len(self._samples) < 2 or now <= self._samples[0][0]:
            return JobPace(None, None)
        first_at, first = self._samples[0]
        rate = (self.records - first) / (now - first_at)
        if rate <= 0 or not self.records_done or not self.bytes_done:
            return JobPace(rate, None)
        left = max(self._bytes_total - self.bytes_in, 0) * self.records_done / self.bytes_done
        return JobPace(rate, left / rate)

    def _sample(self, now: float) -> None:
        self._forget(now)
        if not self._samples or now - self._samples[-1][0] >= _SAMPLES_S_MIN:
            self._samples.append((now, self.records))

    def _forget(self, now: float) -> None:
        """Keeps one sample that is older than the window: the rate is measured from it."""
        while len(self._samples) > 2 and self._samples[1][0] <= now - self._window_s:
            self._samples.popleft()


#: longest wait of one span or output, since it was first found to wait
WAIT_S_MAX: Final = 86_400.0
_BACKOFF: Final = Backoff(0.5, 30.0)


class _Wait(NamedTuple):
    since: float  #: s
    tries: int
    message: str
    full: bool


class Stuck:
    """What waits for storage, by a key of the caller's: a span, an output."""

    def __init__(self) -> None:
        self._waits: dict[Hashable, _Wait] = {}

    def failed(self, key: Hashable, message: str, *, full: bool, now: float) -> float | None:
        """When to retry; None: it has waited for too long, and is forgotten.

        Args:
            full: it needs room on a disk: others would find none either.
        """
        before = self._waits.get(key)
        since = now if before is None else before.since
        tries = 1 if before is None else before.tries + 1
        if now >= since + WAIT_S_MAX:
            del self._waits[key]
            return None
        self._waits[key] = _Wait(since, tries, message, full)
        return now + _BACKOFF.pause_s(tries)

    def over(self, key: Hashable) -> None:
        """The wait is over, with or without success."""
        self._waits.pop(key, None)

    @property
    def full(self) -> bool:
        """Whether anything waits for room on a disk."""
        return any(one.full for one in self._waits.values())

    @property
    def message(self) -> str:
        """The message of the longest wait; empty: nothing waits."""
        return next(iter(self._waits.values())).message if self._waits else ""
