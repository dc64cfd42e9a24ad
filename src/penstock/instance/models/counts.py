"""What is counted of one target model on its host, from the first call to the last second loaded.

The hot path adds integers and appends numbers to a flat array; about once a second `take` makes a
`ModelDelta` of them, which is then told to the control plane, once. Times are the host's, in s.
"""

from __future__ import annotations

import struct
from array import array
from typing import Any, Final

import numpy as np

from penstock.core.residency import NOTHING, Footprint
from penstock.errors import ModelError, PenstockError
from penstock.metrics.models.model_delta import ModelDelta
from penstock.wire import frames

_MICROSECONDS: Final = 1e6
_KIND_AT: Final = 4  #: of a frame's head, which `frames.HEAD` lays out
#: status, and behind it batch rows, lane and reason unread: queue and run in microseconds
_REPLY_TIMES: Final = struct.Struct("<H4xII")
_MODEL_ERROR_STATUS: Final = ModelError("", "").status


class ModelCounts:
    """Of one target model. Per request: `hits` or `misses` grows by one, and later one of
    `answered` and `refused` is called; nothing, where it is cancelled or given back."""

    __slots__ = (
        "_busy_s", "_busy_since", "_changed", "_delta", "_footprint", "_latency_us", "_run_us",
        "_seen_until", "hits", "misses", "resident",
    )  # fmt: skip

    def __init__(self) -> None:
        self.hits = 0  #: requests that found it loaded, since the last delta
        self.misses = 0  #: requests that had to wait for a load, likewise
        self.resident = False  #: it is loaded
        self._delta = ModelDelta()
        self._changed = False
        self._latency_us = array("d")
        self._run_us = 0  #: of its present copy, as last taken
        self._footprint = NOTHING
        self._seen_until = 0.0  #: the time that it is loaded is counted up to here
        self._busy_since: float | None = None
        self._busy_s = 0.0

    # requests

    def busy(self, now: float) -> None:
        """It has something to answer, from now on."""
        if self._busy_since is None:
            self._busy_since = now

    def idle(self, now: float) -> None:
        """It has answered everything."""
        if self._busy_since is not None:
            self._busy_s += max(0.0, now - self._busy_since)
            self._busy_since = None

    def answered(self, frame: bytes) -> None:
        """By its copy, with this last frame."""
        self._changed = True
        kind = frame[_KIND_AT]
        if kind in (frames.REPLY, frames.END):
            _, queue_us, run_us = _REPLY_TIMES.unpack_from(frame, frames.HEAD.size)
            self._delta.answered += 1
            self._latency_us.append(queue_us + run_us)
        elif kind == frames.ERROR:
            status, _, _ = _REPLY_TIMES.unpack_from(frame, frames.HEAD.size)
            self._error(status)

    def refused(self, error: PenstockError) -> None:
        """By its host, before a copy had it."""
        self._changed = True
        self._error(error.status)

    def _error(self, status: int) -> None:
        if status == _MODEL_ERROR_STATUS:
            self._delta.model_errors += 1
        else:
            self._delta.other_errors += 1

    def waited(self, seconds: float) -> None:
        """A request need not wait for a load any longer."""
        self._changed = True
        self._delta.sketch("wait_us").add(max(0.0, seconds) * _MICROSECONDS)

    # what came of loads and unloads

    def downloaded(self, seconds: float) -> None:
        self._changed = True
        self._delta.sketch("download_us").add(max(0.0, seconds) * _MICROSECONDS)

    def loaded(self, footprint: Footprint, seconds: float, now: float) -> None:
        """It takes `footprint` from now on."""
        self._changed = True
        self._delta.sketch("load_us").add(max(0.0, seconds) * _MICROSECONDS)
        self.resident, self._seen_until = True, now
        self._footprint, self._run_us = footprint, 0

    def resized(self, footprint: Footprint, run_us: int, now: float) -> None:
        """While it is loaded: it takes `footprint` from now on."""
        self._see(run_us, now)
        if self.resident:
            self._footprint = footprint

    def load_failed(self) -> None:
        self._changed = True
        self._delta.loads_failed += 1

    def unloading(self, reason: str, run_us: int, now: float) -> None:
        """It takes nothing from now on. `run_us`: of its copy, which is over."""
        if self.resident:
            self._changed = True
            self._delta.unloads[reason] = self._delta.unloads.get(reason, 0) + 1
            self._see(run_us, now)
            self.idle(now)
            self.resident, self._footprint, self._run_us = False, NOTHING, 0

    def unloaded(self, seconds: float) -> None:
        """Its end took so long."""
        self._changed = True
        self._delta.sketch("unload_us").add(max(0.0, seconds) * _MICROSECONDS)

    # what is told

    def take(self, run_us: int, now: float, *, use: bool) -> dict[str, Any] | None:
        """All since the last call, JSON-ready; None where that is nothing.

        `run_us`: of its copy so far; `use`: that it was loaded is worth telling by itself.
        """
        changed = self._changed or bool(self.hits or self.misses) or run_us != self._run_us
        if not changed and not (use and self.resident):
            return None
        self._see(run_us, now)
        delta, self._delta = self._delta, ModelDelta()
        delta.hits, self.hits = self.hits, 0
        delta.misses, self.misses = self.misses, 0
        if self._latency_us:
            delta.sketch("latency_us").add_many(np.array(self._latency_us, dtype=np.float64))
            del self._latency_us[:]
        self._changed = False
        return delta.to_dict() | {
            "resident": self.resident,
            "host_bytes": self._footprint.host_bytes,
            "accelerator_bytes": self._footprint.accelerator_bytes,
        }

    def _see(self, run_us: int, now: float) -> None:
        """Counts what it used up to now."""
        if not self.resident:
            return
        delta = self._delta
        seconds = max(0.0, now - self._seen_until)
        busy_s = self._busy_s
        if self._busy_since is not None:
            busy_s += max(0.0, now - self._busy_since)
            self._busy_since = now
        self._busy_s, self._seen_until = 0.0, now
        delta.run_s += (run_us - self._run_us) / _MICROSECONDS
        delta.resident_s += seconds
        delta.idle_s += max(0.0, seconds - busy_s)
        delta.byte_s += seconds * self._footprint.host_bytes
        delta.accelerator_byte_s += seconds * self._footprint.accelerator_bytes
        self._run_us = run_us
