"""The measured times to ready in a file of the state directory of one server, over a restart."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Final

import orjson

from penstock.core.endpoint.ready_times import ReadyTimes
from penstock.durable_files import replace_file

_log = logging.getLogger(__name__)

#: Far above the size of what `ReadyTimes` holds: a larger file is not ours.
_BYTES_MAX: Final = 64 << 20


class ReadyTimesFile:
    """Reads once, then writes what has changed.

    It only improves the first forecasts after a start, so a failure has no other effect.
    """

    def __init__(self, path: Path, times: ReadyTimes) -> None:
        self._path = path
        self._times = times
        self._written = times.changes

    def read(self) -> None:
        """Adds the times that an earlier server measured."""
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
        """Writes the times if they changed. One thread at a time may call it."""
        changes = self._times.changes
        if changes == self._written:
            return
        try:
            replace_file(self._path, [orjson.dumps(self._times.rows())])
        except OSError as error:
            _log.warning("times to ready can't be kept: %s", error)
            return
        self._written = changes
