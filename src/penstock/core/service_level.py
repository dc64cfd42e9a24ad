"""When a batch leaves and how large it is, where a latency is given instead of knobs.

The level is the 99th percentile of the time from an item's arrival to its batch's end. Nine tenths
of it are the batcher's *budget*; the rest is left to what the batcher does not see (reading and
writing bodies, frames, the gateway).

When. With a lane free, waiting for one more row delays the rows that wait and saves the lane time
that a batch of its own would cost. A batch waits as long as the delay of its rows, counted from the
last arrival, is below that saving (the break-even rule of ski rental), and not at all where at the
learned rate of arrivals the next one is not expected by then. So a lone item on an idle copy leaves
at once, and under load delay and size grow with the rate. And whatever pays, the batch leaves at
the moment after which its oldest item's 99th percentile would be over the budget.

How large. An item that comes just after a batch left waits for a lane first, so a size is good in
the long run if (1 + 1/lanes) of its run time is within the budget. A batch takes at most that many
rows, or as many as still end within the budget of its oldest item, if that is more. Where the
oldest is late anyway and a full batch waits, the copy is behind: then it takes `rows_max`, because
the best rate ends that soonest.

A `wait_s_max` above 0 stands: then only the size is chosen. `rows_max` is a ceiling always.
"""

from __future__ import annotations

from penstock.core.batch_spec import BatchSpec
from penstock.core.run_times import RunTimes

_BUDGET_SHARE = 0.9
_GAP_WEIGHT = 1 / 8


class ServiceLevel:
    """The choices for one copy. `bucket` is an index into the spec's buckets; 0 without any."""

    __slots__ = (
        "_arrived", "_budget_s", "_gap_s", "_rows_max", "_runs", "_steady_s", "_wait_s_max",
    )  # fmt: skip

    def __init__(self, spec: BatchSpec, runs: RunTimes) -> None:
        assert spec.latency_s_p99_max is not None
        self._runs = runs
        self._budget_s = spec.latency_s_p99_max * _BUDGET_SHARE
        self._steady_s = self._budget_s / (1 + 1 / spec.lanes)
        self._rows_max = spec.rows_max
        self._wait_s_max = spec.wait_s_max
        widths = max(1, len(spec.buckets))
        self._arrived: list[float | None] = [None] * widths  #: the last item
        #: moving mean between arrivals, s; a gap beyond the budget says no more than that
        self._gap_s = [self._budget_s] * widths

    def arrived(self, bucket: int, now: float) -> None:
        """An item was queued."""
        before, self._arrived[bucket] = self._arrived[bucket], now
        if before is not None:
            gap_s = min(now - before, self._budget_s)
            self._gap_s[bucket] += (gap_s - self._gap_s[bucket]) * _GAP_WEIGHT

    def due(self, bucket: int, oldest: float, rows: int) -> float:
        """When a batch of `rows` rows, the oldest there since `oldest`, leaves for a free lane."""
        if self._wait_s_max > 0:
            return oldest + self._wait_s_max
        return min(self._latest(bucket, oldest, rows), self._pays_until(bucket, rows))

    def why(self, bucket: int, oldest: float, rows: int) -> str:
        """The reason code of `due`."""
        if self._wait_s_max > 0:
            return "waited-enough"
        pays = self._pays_until(bucket, rows)
        if self._latest(bucket, oldest, rows) < pays:
            return "service-level"
        return "lane-free" if pays == self._arrived[bucket] else "waited-enough"

    def rows_max(self, bucket: int, waited_s: float, rows: int) -> int:
        """How many of the `rows` waiting rows a batch takes whose oldest has `waited_s`."""
        left_s = self._budget_s - waited_s
        fits = self._runs.rows_within(left_s, bucket, self._rows_max)
        if not fits and rows >= self._rows_max:
            return self._rows_max
        return max(1, fits, self._runs.rows_within(self._steady_s, bucket, self._rows_max))

    def _latest(self, bucket: int, oldest: float, rows: int) -> float:
        cell = self._runs.at(min(rows, self._rows_max), bucket)
        return oldest + (self._budget_s - self._runs.high_s[cell])

    def _pays_until(self, bucket: int, rows: int) -> float:
        arrived, saved_s = self._arrived[bucket], self._runs.saved_s(bucket)
        assert arrived is not None, "nothing arrived that could wait"
        return arrived + (saved_s / rows if self._gap_s[bucket] * rows < saved_s else 0.0)
