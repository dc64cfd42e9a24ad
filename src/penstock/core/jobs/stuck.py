"""What of a job waits for a disk or a store to come back: when it is tried again, and how long.

None of it is the data's fault, so it does not count as an attempt: a disk that is full is given
room by a person, after minutes or hours. A day is what that may take; then somebody is to be told
by a job that failed.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, NamedTuple

WAIT_S_MAX: Final = 86_400.0  #: of one thing, since it was first found to wait
BACKOFF_S_MIN: Final = 0.5  #: doubles each time
BACKOFF_S_MAX: Final = 30.0


class _Wait(NamedTuple):
    since: float  #: s
    tries: int
    message: str
    full: bool


class Stuck:
    """By a key of the caller's: a span, an output."""

    def __init__(self) -> None:
        self._waits: dict[Hashable, _Wait] = {}

    def failed(self, key: Hashable, message: str, *, full: bool, now: float) -> float | None:
        """When it is tried again; None: it has waited for too long, and is forgotten.

        Args:
            full: what it needs is room: others would find none either.
        """
        before = self._waits.get(key)
        since = now if before is None else before.since
        tries = 0 if before is None else before.tries + 1
        if now >= since + WAIT_S_MAX:
            del self._waits[key]
            return None
        self._waits[key] = _Wait(since, tries, message, full)
        return now + min(BACKOFF_S_MAX, BACKOFF_S_MIN * 2.0 ** min(tries, 16))

    def over(self, key: Hashable) -> None:
        """It waits no longer, whatever came of it."""
        self._waits.pop(key, None)

    @property
    def full(self) -> bool:
        """Whether something waits for room."""
        return any(one.full for one in self._waits.values())

    @property
    def message(self) -> str:
        """Of what has waited longest; empty: nothing waits."""
        return next(iter(self._waits.values())).message if self._waits else ""
