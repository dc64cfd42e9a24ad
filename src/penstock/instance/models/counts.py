"""Counters of one target model on its host, from the first call to the end of its last load.

The hot path adds integers and appends numbers to a flat array. About once a second `take` makes a
`ModelDelta` of them, which is sent to the control plane once. Times are the host's, in s.
"""

from __future__ import annotations

from array import array
from typing import Any, Final

import numpy as np

from penstock.core.residency import NOTHING, Footprint
from penstock.errors import ModelError, PenstockError
from penstock.metrics.models.model_delta import ModelDelta
from penstock.wire import frames

_MICROSECONDS: Final = 1e6
_KIND_AT: Final = 4  #: byte of the kind in a frame's head, which `frames.HEAD` defines
_CACHE_HIT: Final = frames.BATCH_REASON_CODES["cache-hit"]
_MODEL_ERROR_STATUS: Final = ModelError("", "").status


class ModelCounts:
    """Counters of one target model. Per request, `hits` or `misses` grows by one, and later one of
    `answered` and `refused` is called, but neither if it is cancelled or given back."""

    __slots__ = (
        "_busy_s", "_busy_since", "_changed", "_delta", "_footprint", "_latency_us", "_run_us",
        "_seen_until", "cached", "hits", "misses", "resident",
    )  # fmt: skip

    def __init__(self) -> None:
        self.hits = 0  #: requests since the last delta that found it loaded
        self.misses = 0  #: requests since the last delta that had to wait for a load
        self.resident = False  #: True while it is loaded
        self.cached = False  #: whether it has a response cache
        self._delta = ModelDelta()
        self._changed = False
        self._latency_us = array("d")
        self._run_us = 0  #: run time of its present copy at the last `take`, us
        self._footprint = NOTHING
        self._seen_until = 0.0  #: until when its loaded time is counted
        self._busy_since: float | None = None
        self._busy_s = 0.0

    # Requests

    def busy(self, now: float) -> None:
        """It has unanswered requests from now on."""
        if self._busy_since is None:
            self._busy_since = now

    def idle(self, now: float) -> None:
        """It has answered all requests."""
        if self._busy_since is not None:
            self._busy_s += max(0.0, now - self._busy_since)
            self._busy_since = None

    def answered(self, frame: bytes) -> None:
        """Its copy has sent this final frame."""
        self._changed = True
        kind = frame[_KIND_AT]
        if kind in (frames.REPLY, frames.END):
            self._reply(*frames.REPLY_HEAD.unpack_from(frame, frames.HEAD.size))
        elif kind == frames.ERROR:
            self._error(frames.REPLY_HEAD.unpack_from(frame, frames.HEAD.size)[0])

    def _reply(
        self, _: int, rows: int, lane: int, reason: int, queue_us: int, run_us: int, lane_us: int
    ) -> None:
        delta = self._delta
        delta.answered += 1
        self._latency_us.append(queue_us + run_us)
        delta.queue_s += queue_us / _MICROSECONDS
        delta.model_s += run_us / _MICROSECONDS
        if rows:
            # its own share of the batch, by its rows; a time of 0 was too short to tell
            share = lane_us / run_us if lane_us and run_us else 1 / rows
            delta.executions += share
            delta.inferences += rows * share
        if self.cached:
            delta.cache_hits += reason == _CACHE_HIT
            delta.cache_misses += reason != _CACHE_HIT

    def refused(self, error: PenstockError) -> None:
        """Its host refused a request before a copy had it."""
        self._changed = True
        self._error(error.status)

    def _error(self, status: int) -> None:
        if status == _MODEL_ERROR_STATUS:
            self._delta.model_errors += 1
        else:
            self._delta.other_errors += 1

    def took(self, what: str, seconds: float) -> None:
        """`what`: `wait` (of a request, for a load), `download`, `load` or `unload`."""
        self._changed = True
        self._delta.sketch(f"{what}_us").add(max(0.0, seconds) * _MICROSECONDS)

    # Results of loads and unloads

    def loaded(self, footprint: Footprint, seconds: float, now: float) -> None:
        """It was loaded, and takes `footprint` from now on."""
        self.took("load", seconds)
        self.resident, self._seen_until = True, now
        self._footprint, self._run_us = footprint, 0

    def resized(self, footprint: Footprint, run_us: int, now: float) -> None:
        """It is still loaded, and takes `footprint` from now on."""
        self._see(run_us, now)
        if self.resident:
            self._footprint = footprint

    def load_failed(self) -> None:
        self._changed = True
        self._delta.loads_failed += 1

    def unloading(self, reason: str, run_us: int, now: float) -> None:
        """It takes no memory from now on. `run_us`: total of its copy, which has ended."""
        if self.resident:
            self._changed = True
            self._delta.unloads[reason] = self._delta.unloads.get(reason, 0) + 1
            self._see(run_us, now)
            self.idle(now)
            self.resident, self._footprint, self._run_us = False, NOTHING, 0

    # Reports

    def take(self, run_us: int, now: float, *, use: bool) -> dict[str, Any] | None:
        """All changes since the last call, JSON-ready; None if there are none.

        `run_us`: total of its copy so far; `use`: report its loaded time even if nothing else
        changed.
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
        """Adds its use up to now."""
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
