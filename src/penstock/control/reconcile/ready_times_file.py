"""Times to ready over a restart: a file in the state directory.

What the file says only makes the first forecasts after a start better, so one that can't be read or
written costs nothing else.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Final

import orjson

from penstock.core.endpoint.ready_times import ReadyTimes
from penstock.durable_files import replace_file

_log = logging.getLogger(__name__)

#: Far above what `ReadyTimes` holds: a file that is larger is not ours.
_BYTES_MAX: Final = 64 << 20


class ReadyTimesFile:
    """Of one server, which holds the lock on its state directory."""

    def __init__(self, path: Path, times: ReadyTimes) -> None:
        self._path = path
        self._times = times
        self._written = times.changes

    def read(self) -> None:
        """Adds what an earlier server measured."""
        try:
            if self._path.stat().st_size > _BYTES_MAX:
                raise ValueError("too large")
            rows: Any = orjson.loads(self._path.read_bytes())
            self._times.restore(rows if isinstance(rows, list) else ())
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            _log.warning(
                "%s can't be read, times to ready are measured anew: %s", self._path, error
            )
        self._written = self._times.changes

    def write(self) -> None:
        """Writes what has changed since; called on any one thread at a time."""
        changes = self._times.changes
        if changes == self._written:
            return
        try:
            replace_file(self._path, [orjson.dumps(self._times.rows())])
        except OSError as error:
            _log.warning("times to ready can't be kept: %s", error)
            return
        self._written = changes
