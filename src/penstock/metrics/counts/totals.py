"""The counts of one variant: since the start, and in the windows not yet published.

`VariantTotals` adds up deltas of all processes. Prometheus gets the numbers since the start; the
CloudWatch series get ten-second windows. No clock, no store.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Final, TypeVar

from msgspec import field

from penstock.metrics.counts.recorder import (
    CLOCK_BACK_S_MAX,
    STATUS_CANCELLED,
    GenerationCounts,
    VariantDelta,
)
from penstock.metrics.series.sketch import Sketch
from penstock.metrics.series.statistics import StatisticSet
from penstock.metrics.utilization.cost import VariantCost

Key = TypeVar("Key", bound=Hashable)

#: SageMaker publishes its high-resolution metrics at this interval.
WINDOW_S: Final = 10

OUTCOME_OK: Final = "ok"


class MetricWindow(GenerationCounts):
    """Ten seconds of one variant, to be written to the store."""

    invocations: int = 0  #: requests that ended or were refused; the next four are among them
    errors_4xx: int = 0
    errors_5xx: int = 0
    model_errors: int = 0
    no_capacity: int = 0
    #: one sample of 1/n per request, with n instances or copies
    per_unit: StatisticSet = field(default_factory=StatisticSet)
    model_latency_us: Sketch = field(default_factory=Sketch)
    overhead_us: Sketch = field(default_factory=Sketch)
    #: wall second -> requests in flight, summed over processes
    concurrency: dict[int, int] = field(default_factory=dict)

    def add(self, delta: VariantDelta, unit_count: int) -> None:
        """Adds a delta without its concurrency samples, which belong to seconds of their own."""
        invocations_before = self.invocations
        for (status, model_status, _), count in delta.outcomes.items():
            self._count(status, model_status, count)
        for (_, status, _), count in delta.refusals.items():
            self._count(status, 0, count)
        self.no_capacity += delta.no_capacity
        if self.invocations > invocations_before:
            share = 1 / max(1, unit_count)
            self.per_unit.add(share, self.invocations - invocations_before)
        self.model_latency_us.merge(delta.model_latency_us)
        self.overhead_us.merge(delta.overhead_us)
        self.add_generation(delta)

    def _count(self, status: int, model_status: int, count: int) -> None:
        self.invocations += count
        if model_status:
            self.model_errors += count
        answered = model_status or status  # a 424 for a model's 5xx counts as a 5xx
        if 400 <= answered < 500 and answered != STATUS_CANCELLED:
            self.errors_4xx += count
        elif answered >= 500:
            self.errors_5xx += count


class VariantTotals(GenerationCounts):
    """One variant, or one of its components, since the process started."""

    #: (door, outcome) -> requests; each request counts once
    requests: dict[tuple[str, str], int] = field(default_factory=dict)
    refusals: dict[str, int] = field(default_factory=dict)  #: reason -> requests
    #: reason -> number of times that routing excluded a copy for a while
    ejections: dict[str, int] = field(default_factory=dict)
    #: (what became of captured calls, reason) -> calls, or bytes
    captures: dict[tuple[str, str], int] = field(default_factory=dict)
    #: of a shadow variant: what became of sampled requests -> requests
    mirrors: dict[str, int] = field(default_factory=dict)
    #: (number of a rollout, what became of a pair of answers) -> pairs
    compared: dict[tuple[int, str], int] = field(default_factory=dict)
    failures: int = 0  #: requests that ended with an error that is not the caller's (5XX)
    batch_rows: dict[int, int] = field(default_factory=dict)  #: rows of the batch -> requests
    #: rows of the batch -> (batches, s that lanes ran them)
    runs: dict[int, tuple[float, float]] = field(default_factory=dict)
    answered_s: float = 0.0  #: the part of `total_s` that is of requests without an error
    #: wall second after which the last request that reached the model was counted; 0 = none was
    ran_at: float = 0.0
    #: source process -> requests in flight there
    in_flight: dict[str, int] = field(default_factory=dict)
    #: for an adapter reported by other processes: the component whose copies it shares
    base: str = ""
    unit_count: int = 1  #: instances of a variant, or copies of a component, that share requests
    total_s: Sketch = field(default_factory=Sketch)
    queue_s: Sketch = field(default_factory=Sketch)
    run_s: Sketch = field(default_factory=Sketch)
    cost: VariantCost = field(default_factory=VariantCost)  #: energy and money
    #: start -> window that is not over
    windows: dict[int, MetricWindow] = field(default_factory=dict)
    #: (start, window) that is over and waits until its point may be published
    unpublished: list[tuple[int, MetricWindow]] = field(default_factory=list)
    published_until: int = 0  #: windows before this wall second are in the store

    def add(self, delta: VariantDelta, *, since: float, samples: bool = True) -> None:
        """Adds a delta whose counts began at wall second `since`; with or without its `samples` of
        requests in flight."""
        for (status, model_status, door), count in delta.outcomes.items():
            _increase(self.requests, (door, outcome_of(status, model_status)), count)
            self.failures += count if (model_status or status) >= 500 else 0
        for (reason, status, door), count in delta.refusals.items():
            self.failures += count if status >= 500 else 0
            _increase(self.requests, (door, "refused"), count)
            _increase(self.refusals, reason, count)
        for reason, count in delta.ejections.items():
            _increase(self.ejections, reason, count)
        for key, count in delta.captures.items():
            _increase(self.captures, key, count)
        for outcome, count in delta.mirrors.items():
            _increase(self.mirrors, outcome, count)
        for pair, count in delta.compared.items():
            _increase(self.compared, pair, count)
        for rows, count in delta.batch_rows.items():
            _increase(self.batch_rows, rows, count)
        for rows, (batches, lanes_s) in delta.runs.items():
            before = self.runs.get(rows, (0.0, 0.0))
            self.runs[rows] = before[0] + batches, before[1] + lanes_s
        self.answered_s += delta.answered_s
        if delta.run_s.count:
            self.ran_at = max(self.ran_at, since)
        self.total_s.merge(delta.total_s)
        self.queue_s.merge(delta.queue_s)
        self.run_s.merge(delta.run_s)
        self.add_generation(delta)
        if delta.outcomes or delta.refusals or delta.no_capacity:
            self._window(since).add(delta, self.unit_count)
        if samples:
            self.add_samples(delta.concurrency)

    def add_samples(self, concurrency: Mapping[int, int]) -> None:
        """Adds samples of requests in flight alone: an adapter's are its base's load as well."""
        for second, in_flight in concurrency.items():
            # After its second was published, a sample can't be added to that second any more. As a
            # sample of its own it would look like a drop in load.
            if second >= self.published_until:
                _increase(self._window(second).concurrency, second, in_flight)

    def take_due(self, before: float) -> list[tuple[int, MetricWindow]]:
        """Removes and returns the windows that ended at or before wall second `before`."""
        due = sorted(start for start in self.windows if before >= start + WINDOW_S)
        until = int(before) // WINDOW_S * WINDOW_S
        if until > self.published_until or until <= self.published_until - CLOCK_BACK_S_MAX:
            self.published_until = until
        return [(start, self.windows.pop(start)) for start in due]

    def take_unpublished(
        self, point_end: Callable[[int], float], before: float
    ) -> list[tuple[int, MetricWindow]]:
        """Removes and returns the windows whose point is over; `point_end` gives the end of a
        point."""
        due = [one for one in self.unpublished if before >= point_end(one[0])]
        self.unpublished = [one for one in self.unpublished if before < point_end(one[0])]
        return due

    @property
    def arrivals(self) -> int:
        """Requests that ended or were refused, since the start."""
        return sum(self.requests.values())

    @property
    def answers(self) -> int:
        """Requests that got what they asked for, since the start."""
        return sum(count for (_, outcome), count in self.requests.items() if outcome == OUTCOME_OK)

    @property
    def tokens(self) -> float:
        """Tokens in and out, since the start."""
        return self.tokens_in.total + self.tokens_out.total

    def _window(self, at: float) -> MetricWindow:
        start = int(at) // WINDOW_S * WINDOW_S
        window = self.windows.get(start)
        if window is None:
            window = self.windows[start] = MetricWindow()
        return window


def outcome_of(status: int, model_status: int) -> str:
    """The outcome in one word, by the statuses."""
    if status == STATUS_CANCELLED:
        return "cancelled"
    if model_status:
        return "model-error"
    if status in (429, 503):
        return "refused"
    if status >= 500:
        return "internal-error"
    return "caller-error" if status >= 400 else OUTCOME_OK


def _increase(counts: dict[Key, int], key: Key, count: int) -> None:
    counts[key] = counts.get(key, 0) + count
