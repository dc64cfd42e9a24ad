"""Whether a request may come in at all: what can't be served in time is refused at once.

One `Admission` per endpoint and gateway process. It forecasts from what it has observed:

    wait   = requests outstanding beyond the lanes * run time per row / lanes
    answer = wait + run time of one batch

and refuses when the deadline, or the bound on waiting, would be passed. Observations are summed
over `_FOLD_S` and then folded into the averages, so that a single batch cannot swing the forecast
and the hot path pays two additions. The run time per row falls at once and rises slowly: batches
grow with the queue, so the best rate seen lately is what a longer queue would get, and only what
even that could not serve is refused. A forecast never refuses while a lane is idle: nothing would
run that could correct it. Nothing is forecast before the first observation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from penstock.core.deployment import EndpointRoutes
from penstock.errors import CallerError

_FOLD_S = 0.1  #: several batches of any model that online serving wants, a tenth of a retry
_FOLD_WEIGHT = 0.25  #: a changed run time is followed within about half a second
_RISE_WEIGHT = 1 / 64  #: a worse rate per row is believed after several seconds
_RETRY_AFTER_S_UNKNOWN = 1.0  #: where nothing was observed yet
_RETRY_AFTER_S_MIN = 0.05  #: below this a client's own round trip decides


@dataclass(frozen=True, slots=True)
class AdmissionSpec:
    """Bounds of what one gateway process lets in; wrong values raise `CallerError`."""

    in_flight_max: int  #: requests, >= 1
    queue_wait_s_max: float | None = (
        None  #: refuse what would wait longer than this; None = no bound
    )

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


def admission_spec(routes: EndpointRoutes, *, in_flight_max: int) -> AdmissionSpec:
    """The bounds that an endpoint's models set in their batching.

    A request is admitted before its variant is drawn, so the loosest bound of all variants holds.
    """
    bounds: list[float] = []
    for variant in routes.variants:
        batching = variant.model.get("batching")
        bound = batching.get("queue_wait_s_max") if isinstance(batching, dict) else None
        if not isinstance(bound, int | float):
            return AdmissionSpec(in_flight_max=in_flight_max)
        bounds.append(float(bound))
    return AdmissionSpec(in_flight_max=in_flight_max, queue_wait_s_max=max(bounds, default=None))


class Refusal(NamedTuple):
    """Answer the request now."""

    reason: str  #: in-flight-limit | queue-wait-limit | deadline-cannot-be-met | deadline-passed
    retry_after_s: float | None  #: None: the same request cannot pass later


_DEADLINE_PASSED = Refusal("deadline-passed", None)


class Admission:
    """Learns how long runs take, and says no in time."""

    __slots__ = (
        "_fold_at", "_in_flight_max", "_queue_wait_s_max", "_row_s", "_rows_sum", "_run_s",
        "_run_s_sum", "_runs",
    )  # fmt: skip

    def __init__(self, spec: AdmissionSpec) -> None:
        self._in_flight_max = spec.in_flight_max
        self._queue_wait_s_max = spec.queue_wait_s_max
        self._run_s = 0.0  #: moving average of a run's time; 0 = nothing observed
        self._row_s = 0.0  #: run time per row at the best rate seen lately
        self._run_s_sum = 0.0  #: since the last fold
        self._rows_sum = 0
        self._runs = 0
        self._fold_at = 0.0

    def admit(
        self, *, outstanding: int, lanes: int, deadline: float | None, now: float
    ) -> Refusal | None:
        """None: let it in. `outstanding` and `lanes` are those of all copies it may be sent to."""
        if deadline is not None and now >= deadline:
            return _DEADLINE_PASSED
        if outstanding >= self._in_flight_max:
            return Refusal("in-flight-limit", self._retry_after_s(outstanding, lanes))
        if outstanding < lanes or lanes < 1 or not self._run_s:
            return None
        wait_s = (outstanding - lanes + 1) * self._row_s / lanes
        if self._queue_wait_s_max is not None and wait_s > self._queue_wait_s_max:
            over_s = wait_s - self._queue_wait_s_max
            return Refusal("queue-wait-limit", max(over_s, _RETRY_AFTER_S_MIN))
        if deadline is not None and now + wait_s + self._run_s > deadline:
            over_s = now + wait_s + self._run_s - deadline
            return Refusal("deadline-cannot-be-met", max(over_s, _RETRY_AFTER_S_MIN))
        return None

    def observe(self, run_s: float, rows: int, now: float) -> None:
        """An answer came: its batch of `rows` rows ran for `run_s`. May be told once per reply."""
        self._run_s_sum += run_s
        self._rows_sum += rows
        self._runs += 1
        if now >= self._fold_at:
            self._fold(now)

    def revise(self, spec: AdmissionSpec) -> None:
        """New bounds; what was observed stays."""
        self._in_flight_max = spec.in_flight_max
        self._queue_wait_s_max = spec.queue_wait_s_max

    def snapshot(self) -> dict[str, float | int | None]:
        """JSON-ready state for `explain`."""
        return {
            "in_flight_max": self._in_flight_max,
            "queue_wait_s_max": self._queue_wait_s_max,
            "run_s": self._run_s,
            "row_s": self._row_s,
        }

    def check_invariants(self) -> None:
        """Raises AssertionError if the state contradicts itself; for tests and the twin."""
        assert min(self._run_s, self._row_s) >= 0, "a run took negative time"

    def _fold(self, now: float) -> None:
        run_s = self._run_s_sum / self._runs
        row_s = self._run_s_sum / max(1, self._rows_sum)
        if self._run_s:
            run_s = self._run_s + (run_s - self._run_s) * _FOLD_WEIGHT
            if row_s > self._row_s:
                row_s = self._row_s + (row_s - self._row_s) * _RISE_WEIGHT
        self._run_s, self._row_s = run_s, row_s
        self._run_s_sum = 0.0
        self._rows_sum = self._runs = 0
        self._fold_at = now + _FOLD_S

    def _retry_after_s(self, outstanding: int, lanes: int) -> float:
        """Until about half of what is in flight has been answered."""
        if not self._run_s or lanes < 1:
            return _RETRY_AFTER_S_UNKNOWN
        return max(outstanding * self._row_s / lanes / 2, _RETRY_AFTER_S_MIN)
