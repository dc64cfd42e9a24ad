"""One bad item affects only itself: failures in loops over stored things are logged and counted.

A loop over alarms, targets, schedules, jobs or rows handles each item inside `apart`, or passes
what it caught to `note`. There is one account per process, as there is one log, because rows are
also read by code that has no counter.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from penstock.errors import CallerError, PenstockError

R = TypeVar("R")
T = TypeVar("T")

_log = logging.getLogger(__name__)

#: Errors when a row is read whose text is damaged, or of an unknown version.
UNREADABLE: Final = (ValueError, TypeError, LookupError, AttributeError, CallerError)
#: An item that fails each second is logged once in this time.
LOG_EVERY_S: Final = 60.0
#: Items that are remembered for that; beyond it the oldest one is logged anew.
_LOGGED_MAX: Final = 1_000


class ItemFailures:
    """Failures by the name of the loop. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        #: (loop, item) -> monotonic s of its last log line
        self._logged: dict[tuple[str, str], float] = {}

    def note(self, loop: str, item: str, error: Exception) -> None:
        """Counts a failure. Logs it unless that item's failure was logged a moment ago."""
        with self._lock:
            self._counts[loop] += 1
            now, logged_at = time.monotonic(), self._logged.get((loop, item))
            if logged_at is not None and now < logged_at + LOG_EVERY_S:
                return
            self._logged.pop((loop, item), None)
            self._logged[loop, item] = now
            if len(self._logged) > _LOGGED_MAX:
                del self._logged[next(iter(self._logged))]
        if isinstance(error, PenstockError):
            _log.warning("%s: %s: %s: %s", loop, item, error.code, error.message)
        else:
            _log.error("%s: %s failed; the others go on", loop, item, exc_info=error)

    def counts(self) -> dict[str, int]:
        """Loop -> failures since this process began."""
        with self._lock:
            return dict(self._counts)


_failures: Final = ItemFailures()
note = _failures.note
counts = _failures.counts


@contextmanager
def apart(loop: str, item: str, *, but: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """An exception inside is a failure of this item. `but`: exceptions that concern all items and
    are raised; an unreachable database, for example, is not one item's fault."""
    try:
        yield
    except but:
        raise
    except Exception as error:
        note(loop, item, error)


def readable(
    loop: str, rows: Iterable[R], read: Callable[[R], T], name: Callable[[R], str]
) -> list[T]:
    """The rows that can be read. Each other row counts as a failure of the loop, by its name."""
    found: list[T] = []
    for row in rows:
        try:
            found.append(read(row))
        except UNREADABLE as error:
            note(loop, name(row), error)
    return found
