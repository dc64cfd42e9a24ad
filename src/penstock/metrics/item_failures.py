"""One bad item costs only itself: what failed in a loop over stored things, logged and counted.

Whoever goes through alarms, targets, schedules, jobs or rows takes each of them inside `apart`, or
tells `note` of what it caught itself. There is one account for each process, as there is one log:
rows are read where nobody has been given anything to count on.
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

#: What reading a row raises whose text is damaged, or of a version that is not known.
UNREADABLE: Final = (ValueError, TypeError, LookupError, AttributeError, CallerError)
#: An item that fails each second is logged once in so many of them.
LOG_EVERY_S: Final = 60.0
#: Items that are remembered for that; beyond it the earliest one is logged anew.
_LOGGED_MAX: Final = 1_000


class ItemFailures:
    """What failed, by the name of the loop. Safe in all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._logged: dict[tuple[str, str], float] = {}  #: -> monotonic s

    def note(self, loop: str, item: str, error: Exception) -> None:
        """Counts a failure, and logs it unless that item's was logged a moment ago."""
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
    """What is raised inside is this item's failure. `but`: what concerns all items, and is raised:
    a database that can't be reached is nobody's fault in particular."""
    try:
        yield
    except but:
        raise
    except Exception as error:
        note(loop, item, error)


def readable(
    loop: str, rows: Iterable[R], read: Callable[[R], T], name: Callable[[R], str]
) -> list[T]:
    """Those of the rows that can be read; the others are failures of the loop, by their names."""
    found: list[T] = []
    for row in rows:
        try:
            found.append(read(row))
        except UNREADABLE as error:
            note(loop, name(row), error)
    return found
