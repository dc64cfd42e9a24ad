"""When a batch leaves and how large it is, where the spec gives a latency instead of knobs.

The level is the 99th percentile of the time from an item's arrival to its batch's end. Nine tenths
of it are the batcher's *budget*; the rest is for what the batcher does not see (reading and writing
bodies, frames, the gateway).

When. With a lane free, waiting for one more row delays the waiting rows and saves the lane time
that a batch of its own would cost. A batch waits as long as the delay of its rows, counted from the
last arrival, is below that saving (the break-even rule of ski rental). It does not wait at all
where the learned rate of arrivals says that the next row comes later than that. So a lone item on
an idle copy leaves at once, and under load delay and size grow with the rate. In any case the batch
leaves before its oldest item's 99th percentile would be over the budget.

How large. The batch takes all waiting rows if their mean run time ends within the budget of the
oldest. Otherwise it takes as many rows as end in time, provided that the smaller batch keeps four
fifths of the throughput of the larger one. Where it would not, or the oldest is late anyway, the
copy is behind, and larger batches end that soonest: in the twin a firm bound on the size lost the
level at four fifths of the load that the copy could carry, because small batches made it fall
further behind.

A `wait_s_max` above 0 stays in force: then only the size is chosen. `rows_max` is always a ceiling.
"""

from __future__ import annotations

from penstock.core.batching.run_times import RunTimes
from penstock.core.batching.spec import BatchSpec

_BUDGET_SHARE = 0.9
_RATE_SHARE_MIN = 0.8
_GAP_WEIGHT = 1 / 8


class ServiceLevel:
    """Wait and size for one copy. `bucket` is an index into the spec's buckets; 0 without any."""

    __slots__ = (
        "_arrived", "_budget_s", "_gap_s", "_rows_max", "_runs", "_wait_s_max",
    )  # fmt: skip

    def __init__(self, spec: BatchSpec, runs: RunTimes) -> None:
        assert spec.latency_s_p99_max is not None
        self._runs = runs
        self._budget_s = spec.latency_s_p99_max * _BUDGET_SHARE
        self._rows_max = spec.rows_max
        self._wait_s_max = spec.wait_s_max
        widths = max(1, len(spec.buckets))
        #: by bucket: when the last item arrived
        self._arrived: list[float | None] = [None] * widths
        #: by bucket: moving mean between arrivals, s; a longer gap counts as the budget
        self._gap_s = [self._budget_s] * widths

    def arrived(self, bucket: int, now: float) -> None:
        """An item was queued."""
        before, self._arrived[bucket] = self._arrived[bucket], now
        if before is not None:
            gap_s = min(now - before, self._budget_s)
            self._gap_s[bucket] += (gap_s - self._gap_s[bucket]) * _GAP_WEIGHT

    def due(self, bucket: int, oldest: float, rows: int) -> float:
        """When a batch of `rows` rows, whose oldest arrived at `oldest`, leaves for a free lane."""
        if self._wait_s_max > 0:
            return oldest + self._wait_s_max
        return min(self._latest(bucket, oldest, rows), self._pays_until(bucket, rows))

    def why(self, bucket: int, oldest: float, rows: int) -> str:
        """The reason code for the time that `due` gives."""
        if self._wait_s_max > 0:
            return "waited-enough"
        pays = self._pays_until(bucket, rows)
        if self._latest(bucket, oldest, rows) < pays:
            return "service-level"
        return "lane-free" if pays == self._arrived[bucket] else "waited-enough"

    def rows_max(self, bucket: int, waited_s: float, rows: int) -> int:
        """How many of the `rows` waiting rows to take; the oldest has waited `waited_s`."""
        runs, rows = self._runs, min(rows, self._rows_max)
        fits = runs.rows_within(self._budget_s - waited_s, bucket, rows)
        if not 0 < fits < rows:
            return rows
        fits_s, rows_s = runs.mean_between_s(fits, bucket), runs.mean_between_s(rows, bucket)
        keeps_rate = fits * rows_s >= _RATE_SHARE_MIN * rows * fits_s
        return fits if keeps_rate else rows

    def _latest(self, bucket: int, oldest: float, rows: int) -> float:
        cell = self._runs.at(min(rows, self._rows_max), bucket)
        return oldest + (self._budget_s - self._runs.high_s[cell])

    def _pays_until(self, bucket: int, rows: int) -> float:
        arrived, saved_s = self._arrived[bucket], self._runs.saved_s(bucket)
        assert arrived is not None, "nothing arrived that could wait"
        return arrived + (saved_s / rows if self._gap_s[bucket] * rows < saved_s else 0.0)
