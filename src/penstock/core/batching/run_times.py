"""How long a copy's batches run, learned while it serves: per size of batch and padded length.

A *cell* is a bucket of lengths and a power of two of rows (1, 2, 3-4, 5-8, ...): what compilers
specialise for, and coarse enough to be seen often. Each keeps a moving mean (the latest sixteenth)
and its 99th percentile, followed by stochastic approximation (Robbins and Monro 1951): a longer run
raises it by a step, any other lowers it by a 99th of the step, which balances where one run in a
hundred is longer.

A cell that was not seen, or not lately, takes its estimate from others: an affine fit `a + b *
rows` through the seen cells of its bucket, each weighed by its runs. A single seen cell says
little, so a larger batch is assumed to cost in proportion to its rows and a smaller one as much as
the seen one. A bucket without any seen cell takes the estimates of the nearest shorter bucket,
longer in proportion to its length, or else of the nearest longer one as they are. All of these
rather overestimate, and the first run corrects them. Cells may be seeded with measurements, for
example a compile report's.
Before anything is known every estimate is 0: nothing is forecast.

One slow run counts as at most four times its cell's estimate, also the first of a cell for which
others let expect something; a change is believed with the fourth in a row (`learned_times.py`).

The first runs of a cell may be far too long (compilers warm up with the first shape they meet): if
one of the next few takes less than half of the mean, the cell restarts from it.

`ServiceLevel` uses them: when a batch leaves and how large it is, where the spec gives a latency
instead of knobs. The level is the 99th percentile of the time from an item's arrival to its batch's
end. Nine tenths of it are the batcher's *budget*; the rest is for what the batcher does not see
(reading and writing bodies, frames, the gateway).

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

Halves. Callers that ask again once they are answered end up in step: all of their requests run in
one batch, and the lane is idle until all have come back. Where what waits is all that there was of
late (a moving maximum of the rows that wait or run, seen as batches leave), and the lanes have been
idle for no longer than two runs, it is such callers' way back that they were idle for. Half of the
rows then runs first, if two halves take less than the whole batch and that way: the others run
while the first are answered and ask again. From then on the halves take turns.

A `wait_s_max` above 0 stays in force: then only the size is chosen. `rows_max` is always a ceiling.
"""

from __future__ import annotations

from typing import Any

from penstock.core.batching.spec import BatchSpec
from penstock.core.learned_times import OutlierFilter

_MEAN_WEIGHT = 1 / 16
#: first runs of a cell, in which a much shorter run shows that the earlier ones were warm-up
_FRESH_RUNS = 8
#: runs of a cell after which every fourth is enough: learning from one costs a microsecond
_KNOWN_RUNS = 64
#: runs of a cell that count in the fit: a moving mean knows no more than its latest ones
_WEIGHT_RUNS_MAX = 16
_STALE_RUNS = 1024  #: runs of the copy after which a cell without any of them is forgotten
#: runs between two fits: estimates of cells that are not seen need not follow each run
_FIT_EVERY_RUNS = 32
_FIRST_HIGH = 1.5  #: times the first run = the first percentile: as for a spread of a fifth
_STEP_MIN = 1 / 16  #: of the mean; keeps the percentile moving where all runs take the same time


class _Cell:
    __slots__ = ("deviation", "high_s", "mean_s", "outliers", "rows", "runs", "seen_at")

    def __init__(self, rows: float, run_s: float, seen_at: int, assumed_s: float = 0.0) -> None:
        """`assumed_s`: what the other cells let expect; 0 = nothing."""
        self.outliers = OutlierFilter()
        self.start(rows, self.outliers.cut(run_s, assumed_s)[0])
        self.seen_at = seen_at

    def start(self, rows: float, run_s: float) -> None:
        self.rows = rows  #: moving mean of the runs' rows
        self.runs = 1
        self.mean_s = run_s
        self.deviation = run_s / 4
        self.high_s = run_s * _FIRST_HIGH

    def learn(self, rows: int, run_s: float) -> None:
        self.runs += 1
        run_s, anew = self.outliers.cut(run_s, self.mean_s)
        if anew or (self.runs <= _FRESH_RUNS and run_s < self.mean_s / 2):
            self.start(rows, run_s)
            return
        error = run_s - self.mean_s
        self.mean_s += error * max(_MEAN_WEIGHT, 1 / self.runs)
        self.rows += (rows - self.rows) * _MEAN_WEIGHT
        self.deviation += (abs(error) - self.deviation) * _MEAN_WEIGHT
        step = max(self.deviation, self.mean_s * _STEP_MIN)
        self.high_s += step if run_s > self.high_s else -step / 99
        self.high_s = max(self.high_s, self.mean_s)


class RunTimes:
    """Estimates for one copy. `bucket` is an index into the spec's buckets; 0 without any."""

    __slots__ = (
        "_buckets", "_cells", "_rows_max", "_runs", "_saved_s", "_sizes", "high_s", "horizon_s",
        "mean_s",
    )  # fmt: skip

    def __init__(self, spec: BatchSpec) -> None:
        self._buckets = spec.buckets
        self._rows_max = spec.rows_max
        self._sizes = (spec.rows_max - 1).bit_length() + 1
        count = self._sizes * max(1, len(spec.buckets))
        self._cells: list[_Cell | None] = [None] * count
        self._runs = 0
        self._saved_s = [0.0] * max(1, len(spec.buckets))
        #: by cell, seen or not; `at` gives the index. The batcher reads it directly, for each
        #: batch.
        self.mean_s: list[float] = [0.0] * count
        self.high_s: list[float] = [0.0] * count
        #: s; at least the largest estimate: only deadlines nearer than this need the estimates
        self.horizon_s = 0.0
        for rows, length, run_s in spec.runs_measured:
            bucket = next((at for at, to in enumerate(spec.buckets) if to >= length), -1)
            cell = self.at(rows, bucket % max(1, len(spec.buckets)))
            self._cells[cell] = _Cell(rows, run_s, 0)
        if spec.runs_measured:
            self._estimate()

    def at(self, rows: int, bucket: int) -> int:
        """The cell of a batch of `rows` (1 to rows_max) rows."""
        return bucket * self._sizes + (rows - 1).bit_length()

    def learn(self, rows: int, bucket: int, run_s: float) -> None:
        """Learns from a batch that ran for `run_s`."""
        at = bucket * self._sizes + (rows - 1).bit_length()
        cell = self._cells[at]
        self._runs += 1
        known = cell is not None and cell.runs > _KNOWN_RUNS and not cell.outliers.in_a_row
        if known and self._runs & 3:
            return
        if cell is None:
            self._cells[at] = _Cell(rows, run_s, self._runs, self.mean_s[at])
            self._estimate()
        else:
            cell.learn(rows, run_s)
            cell.seen_at = self._runs
            self.mean_s[at], self.high_s[at] = cell.mean_s, cell.high_s
            self.horizon_s = max(self.horizon_s, cell.high_s)
            if not self._runs % _FIT_EVERY_RUNS:
                self._estimate()

    def saved_s(self, bucket: int) -> float:
        """Lane time that one batch of all rows saves against two batches; 0 = not known."""
        return self._saved_s[bucket]

    def rows_within(self, limit_s: float, bucket: int, rows_max: int) -> int:
        """The most rows, up to `rows_max`, whose mean run time is within `limit_s`; 0 if none.

        Sizes between two cells are interpolated.
        """
        mean_s, at = self.mean_s, bucket * self._sizes
        if mean_s[at] > limit_s:
            return 0
        rows, before_s = 1, mean_s[at]
        while rows < rows_max:
            at += 1
            after, after_s = min(2 * rows, self._rows_max), mean_s[at]
            if after_s > limit_s:
                share = (limit_s - before_s) / (after_s - before_s)
                return min(rows + int((after - rows) * share), rows_max)
            rows, before_s = after, after_s
        return rows_max

    def mean_between_s(self, rows: int, bucket: int) -> float:
        """The mean run time of `rows` rows, interpolated between the sizes of two cells."""
        at = self.at(rows, bucket)
        size = (rows - 1).bit_length()
        edge, edge_s = min(1 << size, self._rows_max), self.mean_s[at]
        if rows == edge:
            return edge_s
        before, before_s = 1 << (size - 1), self.mean_s[at - 1]
        return before_s + (edge_s - before_s) * (rows - before) / (edge - before)

    def snapshot(self) -> list[dict[str, Any]]:
        """The seen cells, JSON-ready."""
        return [
            {
                "bucket": self._buckets[at // self._sizes] if self._buckets else 0,
                "rows": min(1 << (at % self._sizes), self._rows_max),
                "runs": cell.runs,
                "run_s_mean": cell.mean_s,
                "run_s_p99": cell.high_s,
            }
            for at, cell in enumerate(self._cells)
            if cell is not None
        ]

    def check_invariants(self) -> None:
        """Raises AssertionError if the state contradicts itself; for tests and the twin."""
        for mean_s, high_s in zip(self.mean_s, self.high_s, strict=True):
            assert 0 <= mean_s <= high_s * (1 + 1e-9), "a percentile below its mean"
            assert high_s <= self.horizon_s, "an estimate beyond the horizon"

    # estimates for cells that were not seen

    def _estimate(self) -> None:
        """Fills in the cells that were not seen, and forgets those not seen for long."""
        newest = max(cell.seen_at for cell in self._cells if cell is not None)
        for at, cell in enumerate(self._cells):
            if cell is not None and cell.seen_at + _STALE_RUNS <= newest:
                self._cells[at] = None
        buckets = range(len(self._saved_s))
        seen = [bucket for bucket in buckets if any(self._of(bucket))]
        for bucket in seen:
            self._fit(bucket)
        for bucket in buckets:
            if bucket not in seen:
                shorter = [other for other in seen if other < bucket]
                self._take_over(bucket, shorter[-1] if shorter else seen[0])
        self.horizon_s = max(self.high_s)

    def _of(self, bucket: int) -> list[_Cell | None]:
        return self._cells[bucket * self._sizes : (bucket + 1) * self._sizes]

    def _fit(self, bucket: int) -> None:
        cells = [cell for cell in self._of(bucket) if cell is not None]
        ratio = max(cell.high_s / cell.mean_s if cell.mean_s else 1.0 for cell in cells)
        base_s, row_s = _affine(
            [(cell.rows, cell.mean_s, min(cell.runs, _WEIGHT_RUNS_MAX)) for cell in cells]
        )
        self._saved_s[bucket] = base_s if len(cells) > 1 else base_s / 2
        least = cells[0]
        for size, cell in enumerate(self._of(bucket)):
            at = bucket * self._sizes + size
            if cell is not None:
                self.mean_s[at], self.high_s[at] = cell.mean_s, cell.high_s
                continue
            rows = min(1 << size, self._rows_max)
            if len(cells) > 1:
                mean_s = base_s + row_s * rows
            else:
                mean_s = least.mean_s * max(1.0, rows / least.rows)
            self.mean_s[at], self.high_s[at] = mean_s, mean_s * ratio

    def _take_over(self, bucket: int, other: int) -> None:
        longer = bucket > other
        scale = self._buckets[bucket] / self._buckets[other] if longer else 1.0
        to, start = bucket * self._sizes, other * self._sizes
        for size in range(self._sizes):
            self.mean_s[to + size] = self.mean_s[start + size] * scale
            self.high_s[to + size] = self.high_s[start + size] * scale
        self._saved_s[bucket] = self._saved_s[other]


def _affine(points: list[tuple[float, float, int]]) -> tuple[float, float]:
    """Least squares `a + b * x` of (x, y, weight), with both at least 0; a single point gives only
    `a`."""
    count = sum(weight for _, _, weight in points)
    x_mean = sum(x * weight for x, _, weight in points) / count
    y_mean = sum(y * weight for _, y, weight in points) / count
    spread = sum((x - x_mean) ** 2 * weight for x, _, weight in points)
    common = sum((x - x_mean) * (y - y_mean) * weight for x, y, weight in points)
    slope = min(max(common / spread if spread else 0.0, 0.0), y_mean / x_mean)
    return y_mean - slope * x_mean, slope


_BUDGET_SHARE = 0.9
_RATE_SHARE_MIN = 0.8
_GAP_WEIGHT = 1 / 8
#: Fewer rows than these have nothing to gain: a batch costs as much as they do.
_HALVES_ROWS_MIN = 4
_ALL_SHARE = 0.8
_IDLE_RUNS_MAX = 2.0
_FORGET = 0.99


class ServiceLevel:
    """Wait and size for one copy. `bucket` is an index into the spec's buckets; 0 without any."""

    __slots__ = (
        "_arrived", "_budget_s", "_gap_s", "_rows_max", "_rows_open", "_runs", "_wait_s_max",
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
        self._rows_open = 0.0  #: moving maximum of the rows that wait or run

    def leaves(self, rows_open: int) -> None:
        """A batch is about to leave; so many rows wait or run."""
        self._rows_open = max(rows_open, self._rows_open * _FORGET)

    def half(self, bucket: int, rows: int, idle_s: float) -> int:
        """How many of the `rows` that wait are to run first, where nothing runs, and nothing did
        for `idle_s`; 0: all of them."""
        if rows < _HALVES_ROWS_MIN or rows < _ALL_SHARE * self._rows_open:
            return 0
        half = (rows + 1) // 2
        whole_s = self._runs.mean_between_s(rows, bucket)
        pays = 2 * self._runs.mean_between_s(half, bucket) < whole_s + idle_s
        return half if pays and idle_s <= _IDLE_RUNS_MAX * whole_s else 0

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
        return min(self._limits(bucket, oldest, rows))

    def why(self, bucket: int, oldest: float, rows: int, now: float) -> str:
        """Why that batch leaves now; empty before the time that `due` gives."""
        if self._wait_s_max > 0:
            return "waited-enough" if now >= oldest + self._wait_s_max else ""
        latest, pays = self._limits(bucket, oldest, rows)
        if now < min(latest, pays):
            return ""
        if latest < pays:
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

    def _limits(self, bucket: int, oldest: float, rows: int) -> tuple[float, float]:
        """(until when the level lets a batch wait, until when waiting pays)."""
        runs, arrived = self._runs, self._arrived[bucket]
        assert arrived is not None, "nothing arrived that could wait"
        high_s = runs.high_s[runs.at(min(rows, self._rows_max), bucket)]
        saved_s = runs.saved_s(bucket)
        pays_s = saved_s / rows if self._gap_s[bucket] * rows < saved_s else 0.0
        return oldest + (self._budget_s - high_s), arrived + pays_s
