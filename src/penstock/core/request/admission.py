"""Whether a request is admitted: what can't be served in time is refused at once.

One `Admission` per endpoint and gateway process. It forecasts from what it has observed:

    wait   = requests outstanding beyond the lanes * lane time per request / lanes
    answer = wait + run time of one batch

and refuses when the deadline, or the bound on waiting, would be passed. A request's lane time is
its rows' share of each run that they were in: the time for which it kept a lane from others. Its
mean over all answers is right for copies of different speed too, for the faster ones answer more
often. The number of lanes divided by it is the answers per second of all copies together (Little's
law).

Where a lane is a slot for one request (an engine that batches continuously, a model that takes one
row) its lane time is the time in the slot, however many run beside it: the mean over answers. Where
rows share runs, it is the mean number of rows per request times the run time per row. The latter
falls at once and rises slowly: batches grow with the queue, so a longer queue would get the best
rate seen lately, and a request is refused only if even that rate could not serve it. A stall that
makes all runs of a fold slow is an outlier (`core/learned_times.py`) for the run time.

Observations are summed over `_FOLD_S` and then folded into the averages, so that a single batch
cannot swing the forecast and the hot path pays two additions. A forecast never refuses a request
that may go to an idle lane: otherwise nothing would run to correct the forecast. Nothing is
forecast before the first observation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from penstock.core.deployment.deployment import EndpointRoutes
from penstock.core.learned_times import OutlierFilter
from penstock.errors import CallerError

_FOLD_S = 0.1  #: s; several batches of any model for online serving, and a tenth of a retry
_FOLD_WEIGHT = 0.25  #: the average follows a changed run time within about half a second
_RISE_WEIGHT = 1 / 64  #: the average follows a worse rate only after several seconds
_ANSWERS_MAX = 32  #: answers in a mean: enough to contain long and short ones in proportion
_MICROSECONDS = 1e6
_RETRY_AFTER_S_UNKNOWN = 1.0  #: s, where nothing was observed yet
_RETRY_AFTER_S_MIN = 0.05  #: s; below this a client's own round trip decides


@dataclass(frozen=True, slots=True)
class AdmissionSpec:
    """Bounds for the requests that one gateway process admits; wrong values raise `CallerError`."""

    #: requests, >= 1. Each copy has its own limit: this one only stops a bug from growing for ever
    in_flight_max: int = 100_000
    queue_wait_s_max: float | None = None  #: a longer expected wait is refused; None = no bound
    #: rows of several requests run together; False: a lane is a slot for one request
    shares_runs: bool = True

    def __post_init__(self) -> None:
        if self.in_flight_max < 1:
            raise CallerError(
                "invalid-admission",
                f"admission.in_flight_max is {self.in_flight_max}; allowed: at least 1",
                hint="Correct admission.in_flight_max.",
            )
        if self.queue_wait_s_max is not None and self.queue_wait_s_max < 0:
            raise CallerError(
                "invalid-admission",
                f"admission.queue_wait_s_max is {self.queue_wait_s_max}; allowed: 0 s or more",
                hint="Correct admission.queue_wait_s_max.",
            )


def admission_spec(routes: EndpointRoutes) -> AdmissionSpec:
    """The bounds that follow from the batching of an endpoint's models.

    A request is admitted before its variant is chosen, so the loosest bound of all variants holds.
    """
    bounds = [_queue_wait_s_max(variant.model) for variant in routes.variants]
    known = [bound for bound in bounds if bound is not None]
    return AdmissionSpec(
        queue_wait_s_max=max(known) if known and len(known) == len(bounds) else None,
        shares_runs=any(rows_together(variant.model) > 1 for variant in routes.variants),
    )


def rows_together(model: Mapping[str, object]) -> int:
    """Rows of a model's queue that one lane runs together, by its description; at least 1."""
    rows = model.get("lane_rows_max", model.get("rows_max"))
    return max(rows, 1) if isinstance(rows, int) else 1


def _queue_wait_s_max(model: Mapping[str, object]) -> float | None:
    batching = model.get("batching")
    bound = batching.get("queue_wait_s_max") if isinstance(batching, dict) else None
    return float(bound) if isinstance(bound, int | float) else None


class Refusal(NamedTuple):
    """The request is to be answered now, with an error."""

    reason: str  #: in-flight-limit | queue-wait-limit | deadline-cannot-be-met | deadline-passed
    retry_after_s: float | None  #: None: the same request cannot pass later


_DEADLINE_PASSED = Refusal("deadline-passed", None)
_QUEUE_WAIT_LIMIT = "queue-wait-limit"
_DEADLINE_CANNOT_BE_MET = "deadline-cannot-be-met"
_FORECASTS = (_QUEUE_WAIT_LIMIT, _DEADLINE_CANNOT_BE_MET)


class Admission:
    """Learns how long runs take, and refuses in time."""

    __slots__ = (
        "_answers", "_fold_at", "_in_flight_max", "_lane_s", "_lane_us_sum", "_outliers",
        "_queue_wait_s_max", "_row_s", "_rows", "_rows_sum", "_run_s", "_run_us_sum", "_runs",
        "_shares_runs",
    )  # fmt: skip

    def __init__(self, spec: AdmissionSpec) -> None:
        self._in_flight_max = spec.in_flight_max
        self._queue_wait_s_max = spec.queue_wait_s_max
        self._shares_runs = spec.shares_runs
        self._outliers = OutlierFilter()
        self._run_s = 0.0  #: moving average of a run's time; 0 = nothing observed
        self._lane_s = 0.0  #: lane time per request
        self._row_s = 0.0  #: run time per row, at the best rate seen lately
        self._rows = 0.0  #: mean rows of a request
        self._answers = 0  #: answers that the means are made of
        self._run_us_sum = 0  #: us since the last fold
        self._rows_sum = 0
        self._lane_us_sum = 0
        self._runs = 0
        self._fold_at = 0.0

    def admit(
        self, *, outstanding: int, lanes: int, deadline: float | None, now: float
    ) -> Refusal | None:
        """None: admit. `outstanding` and `lanes` are sums over all copies that it may be sent to.

        If the result is a refusal, the caller asks `stands` whether it holds.
        """
        if deadline is not None and now >= deadline:
            return _DEADLINE_PASSED
        if outstanding >= self._in_flight_max:
            return Refusal("in-flight-limit", self._retry_after_s(outstanding, lanes))
        if outstanding < lanes or lanes < 1 or not self._run_s:
            return None
        wait_s = (outstanding - lanes + 1) * self._lane_s / lanes
        if self._queue_wait_s_max is not None and wait_s > self._queue_wait_s_max:
            over_s = wait_s - self._queue_wait_s_max
            return Refusal(_QUEUE_WAIT_LIMIT, max(over_s, _RETRY_AFTER_S_MIN))
        if deadline is not None and now + wait_s + self._run_s > deadline:
            over_s = now + wait_s + self._run_s - deadline
            return Refusal(_DEADLINE_CANNOT_BE_MET, max(over_s, _RETRY_AFTER_S_MIN))
        return None

    def stands(self, refusal: Refusal, *, may_begin: bool) -> bool:
        """Whether a refusal holds. `may_begin`: a copy that the request may go to has an idle lane,
        even if other copies (for other requests, or more loaded) have a queue."""
        return not may_begin or refusal.reason not in _FORECASTS

    def observe(self, run_us: int, rows: int, lane_us: int, now: float) -> None:
        """An answer came: its run of `rows` rows took `run_us`, of which `lane_us` were its own.

        Whole microseconds, as in frames. Call it once per answer, also for streams.
        """
        self._run_us_sum += run_us
        self._rows_sum += rows
        self._lane_us_sum += lane_us
        self._runs += 1
        if now >= self._fold_at:
            self._fold(now)

    def revise(self, spec: AdmissionSpec) -> None:
        """Sets new bounds; what was observed stays."""
        self._in_flight_max = spec.in_flight_max
        self._queue_wait_s_max = spec.queue_wait_s_max
        self._shares_runs = spec.shares_runs

    @property
    def lane_s(self) -> float:
        """Lane time per request; 0 = nothing observed yet. Lanes / lane time = answers/s."""
        return self._lane_s

    def snapshot(self) -> dict[str, float | int | None]:
        """JSON-ready state for `explain`."""
        return {
            "in_flight_max": self._in_flight_max,
            "queue_wait_s_max": self._queue_wait_s_max,
            "run_s": self._run_s,
            "lane_s": self._lane_s,
        }

    def check_invariants(self) -> None:
        """Raises AssertionError if the state contradicts itself; for tests and the twin."""
        assert min(self._run_s, self._lane_s) >= 0, "a run took negative time"
        assert self._answers >= 0, "fewer than no answers were seen"

    def _fold(self, now: float) -> None:
        runs = self._runs
        run_s = self._run_us_sum / (runs * _MICROSECONDS)
        lane_s = self._lane_us_sum / (runs * _MICROSECONDS)
        row_s = self._run_us_sum / (max(1, self._rows_sum) * _MICROSECONDS)
        self._answers = max(min(self._answers + runs, _ANSWERS_MAX), runs)
        weight = runs / self._answers
        if self._shares_runs:
            rows = lane_s / row_s if row_s else 1.0
            self._rows += (rows - self._rows) * weight
            run_s, anew = self._outliers.cut(run_s, self._run_s)
            if self._run_s and not anew:
                run_s = self._run_s + (run_s - self._run_s) * _FOLD_WEIGHT
            if self._run_s and row_s > self._row_s:
                row_s = self._row_s + (row_s - self._row_s) * _RISE_WEIGHT
            lane_s = self._rows * row_s
        else:
            run_s = self._run_s + (run_s - self._run_s) * weight
            lane_s = self._lane_s + (lane_s - self._lane_s) * weight
        self._run_s, self._row_s, self._lane_s = run_s, row_s, lane_s
        self._run_us_sum = self._rows_sum = self._lane_us_sum = self._runs = 0
        self._fold_at = now + _FOLD_S

    def _retry_after_s(self, outstanding: int, lanes: int) -> float:
        """s until about half of what is in flight has been answered."""
        if not self._run_s or lanes < 1:
            return _RETRY_AFTER_S_UNKNOWN
        return max(outstanding * self._lane_s / lanes / 2, _RETRY_AFTER_S_MIN)
