"""The counts of one variant: since the start, and in the windows not yet published.

`VariantTotals` adds up deltas of all processes. Prometheus gets the numbers since the start; the
CloudWatch series get ten-second windows. No clock, no store.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Final, TypeVar

from penstock.metrics.counts.generation_counts import GenerationCounts
from penstock.metrics.counts.recorder import CLOCK_BACK_S_MAX, STATUS_CANCELLED, VariantDelta
from penstock.metrics.series.sketch import Sketch
from penstock.metrics.series.statistics import StatisticSet
from penstock.metrics.utilization.cost import VariantCost

Key = TypeVar("Key", bound=Hashable)

#: SageMaker publishes its high-resolution metrics at this interval.
WINDOW_S: Final = 10

OUTCOME_OK: Final = "ok"


class MetricWindow(GenerationCounts):
    """Ten seconds of one variant, to be written to the store.

    Attributes:
        invocations: requests that ended or were refused.
        errors_4xx, errors_5xx, model_errors, no_capacity: how many of them.
        per_unit: one sample of 1/n per request, with n instances or copies.
        concurrency: wall second -> requests in flight, summed over processes.
    """

    __slots__ = (
        "concurrency", "errors_4xx", "errors_5xx", "invocations", "model_errors",
        "model_latency_us", "no_capacity", "overhead_us", "per_unit",
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.invocations = 0
        self.errors_4xx = 0
        self.errors_5xx = 0
        self.model_errors = 0
        self.no_capacity = 0
        self.per_unit = StatisticSet()
        self.model_latency_us = Sketch()
        self.overhead_us = Sketch()
        self.concurrency: dict[int, int] = {}

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
    """One variant, or one of its components, since the process started.

    Attributes:
        requests: (door, outcome) -> requests; each request counts once.
        refusals: reason -> requests.
        ejections: reason -> number of times that routing excluded a copy for a while.
        failures: requests that ended with an error that is not the caller's (5XX).
        batch_rows: rows of the batch -> requests.
        in_flight: source process -> requests in flight there.
        base: for an adapter reported by other processes: the component whose copies it shares.
        unit_count: instances of a variant, or copies of a component, that share the requests.
        total_s, queue_s, run_s: durations.
        cost: energy and money.
        windows: start -> window that is not over.
        unpublished: (start, window) that is over and waits until its point may be published.
    """

    __slots__ = (
        "base", "batch_rows", "cost", "ejections", "failures", "in_flight", "published_until",
        "queue_s", "refusals", "requests", "run_s", "total_s", "unit_count", "unpublished",
        "windows",
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.requests: dict[tuple[str, str], int] = {}
        self.refusals: dict[str, int] = {}
        self.ejections: dict[str, int] = {}
        self.failures = 0
        self.batch_rows: dict[int, int] = {}
        self.in_flight: dict[str, int] = {}
        self.base = ""
        self.unit_count = 1
        self.total_s = Sketch()
        self.queue_s = Sketch()
        self.run_s = Sketch()
        self.cost = VariantCost()
        self.windows: dict[int, MetricWindow] = {}
        self.unpublished: list[tuple[int, MetricWindow]] = []
        self.published_until = 0  #: windows before this wall second are in the store

    def add(self, delta: VariantDelta, *, since: float) -> None:
        """Adds a delta whose counts began at wall second `since`."""
        for (status, model_status, door), count in delta.outcomes.items():
            _increase(self.requests, (door, outcome_of(status, model_status)), count)
            self.failures += count if (model_status or status) >= 500 else 0
        for (reason, status, door), count in delta.refusals.items():
            self.failures += count if status >= 500 else 0
            _increase(self.requests, (door, "refused"), count)
            _increase(self.refusals, reason, count)
        for reason, count in delta.ejections.items():
            _increase(self.ejections, reason, count)
        for rows, count in delta.batch_rows.items():
            _increase(self.batch_rows, rows, count)
        self.total_s.merge(delta.total_s)
        self.queue_s.merge(delta.queue_s)
        self.run_s.merge(delta.run_s)
        self.add_generation(delta)
        if delta.outcomes or delta.refusals or delta.no_capacity:
            self._window(since).add(delta, self.unit_count)
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
