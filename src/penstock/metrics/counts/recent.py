"""Latencies and failures of an endpoint's requests in the last seconds.

Totals only grow; this keeps their values of some seconds ago and reads the difference. An endpoint
that generates tokens is judged by the time to the first one, since the rest takes as long as the
requested length.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from penstock.metrics.counts.recorder import MICROSECONDS
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.series.sketch import Sketch

WINDOW_S: Final = 10.0
_RISE_WEIGHT: Final = 1 / 16


class RecentObserved(NamedTuple):
    """Figures of the last `WINDOW_S`; all 0 if nothing was answered."""

    p50_s: float = 0.0
    p99_s: float = 0.0
    #: share of finished requests that failed through no fault of the caller
    error_share: float = 0.0


class _Mark(NamedTuple):
    at: float
    total_s: Sketch
    first_token_us: Sketch
    run_s: float
    rows: int
    arrivals: int
    failures: int


class RecentRequests:
    """Reads one registry. Call `look` about each second; the other methods use its last figures."""

    def __init__(self, registry: MetricRegistry) -> None:
        self._registry = registry
        self._marks: dict[str, deque[_Mark]] = {}
        self._row_s: dict[str, float] = {}

    def look(self, endpoint: str, *, now: float) -> RecentObserved:
        """`now`: monotonic s."""
        marks = self._marks.setdefault(endpoint, deque())
        mark = self._mark(endpoint, now)
        while len(marks) > 1 and now - marks[1].at >= WINDOW_S:
            marks.popleft()
        marks.append(mark)
        first = marks[0]
        self._learn(endpoint, mark.run_s - first.run_s, mark.rows - first.rows)
        arrivals = mark.arrivals - first.arrivals
        if arrivals <= 0 or mark.total_s.count < first.total_s.count:
            return RecentObserved()
        tokens = mark.first_token_us.since(first.first_token_us)
        took, per_s = (
            (tokens, MICROSECONDS) if tokens.count > 0 else (mark.total_s.since(first.total_s), 1.0)
        )
        return RecentObserved(
            p50_s=_quantile(took, 0.5) / per_s,
            p99_s=_quantile(took, 0.99) / per_s,
            error_share=(mark.failures - first.failures) / arrivals,
        )

    def row_s(self, endpoint: str) -> float:
        """Run time per row at the best recent rate, in s; 0 = none was observed yet.

        It falls at once and rises slowly, because batches grow with the load (as in
        `core/request/admission.py`).
        """
        return self._row_s.get(endpoint, 0.0)

    def _learn(self, endpoint: str, run_s: float, rows: int) -> None:
        if rows <= 0 or run_s <= 0:
            return
        seen = run_s / rows
        before = self._row_s.get(endpoint, seen)
        self._row_s[endpoint] = min(seen, before + (seen - before) * _RISE_WEIGHT)

    def forget(self, endpoint: str) -> None:
        """The endpoint was deleted."""
        self._marks.pop(endpoint, None)
        self._row_s.pop(endpoint, None)

    def _mark(self, endpoint: str, now: float) -> _Mark:
        total_s, first_token_us, arrivals, failures = Sketch(), Sketch(), 0, 0
        run_s, rows = 0.0, 0
        for totals in self._registry.of(endpoint):
            total_s.merge(totals.total_s)
            first_token_us.merge(totals.first_token_us)
            run_s += totals.run_s.total
            rows += sum(size * count for size, count in totals.batch_rows.items())
            arrivals += totals.arrivals
            failures += totals.failures
        return _Mark(now, total_s, first_token_us, run_s, rows, arrivals, failures)


def _quantile(sketch: Sketch, q: float) -> float:
    return sketch.quantile(q) if sketch.count > 0 else 0.0
