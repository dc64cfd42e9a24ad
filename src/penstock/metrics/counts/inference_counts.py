"""What Triton's statistics and metrics say of one model, from the totals of its variants.

Triton's words: an inference is one row, an execution one run of the model, whoever shares it. A
request's reply names the rows of its whole batch and its own share of the lane's time, so sums of
shares give both. A request that was cut into several runs names only the last of them: its count is
an estimate.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.metrics.counts.totals import OUTCOME_OK, VariantTotals

#: Our outcome -> Triton's reason of a failure.
_REASONS = {
    "refused": "REJECTED",
    "cancelled": "CANCELED",
    "model-error": "BACKEND",
    "caller-error": "OTHER",
    "internal-error": "OTHER",
}


def _no_failures() -> dict[str, int]:
    return dict.fromkeys(_REASONS.values(), 0)


@dataclass(slots=True)
class InferenceCounts:
    """Since the start of the server."""

    succeeded: int = 0
    failed: dict[str, int] = field(default_factory=_no_failures)  #: Triton's reason -> requests
    succeeded_s: float = 0.0  #: from the first byte of a request to the last one of its answer
    failed_s: float = 0.0
    ran: int = 0  #: requests that reached the model
    queue_s: float = 0.0  #: of them
    run_s: float = 0.0  #: of them
    ran_at: float = 0.0  #: wall s of the last one, to the second; 0 = none
    #: rows of a batch -> (executions, s)
    runs: dict[int, tuple[float, float]] = field(default_factory=dict)

    def add(self, totals: VariantTotals) -> None:
        for (_, outcome), count in totals.requests.items():
            if outcome == OUTCOME_OK:
                self.succeeded += count
            else:
                self.failed[_REASONS[outcome]] += count
        self.succeeded_s += totals.answered_s
        self.failed_s += max(0.0, totals.total_s.total - totals.answered_s)
        self.ran += int(totals.run_s.count)
        self.queue_s += totals.queue_s.total
        self.run_s += totals.run_s.total
        self.ran_at = max(self.ran_at, totals.ran_at)
        for rows, (executions, lanes_s) in totals.runs.items():
            before = self.runs.get(rows, (0.0, 0.0))
            self.runs[rows] = before[0] + executions, before[1] + lanes_s

    @property
    def executions(self) -> int:
        return round(sum(executions for executions, _ in self.runs.values()))

    @property
    def inferences(self) -> int:
        return round(sum(rows * executions for rows, (executions, _) in self.runs.items()))


def inference_counts(variants: Iterable[VariantTotals]) -> InferenceCounts:
    counts = InferenceCounts()
    for totals in variants:
        counts.add(totals)
    return counts
