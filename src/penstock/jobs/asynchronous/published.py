"""The CloudWatch metrics of asynchronous endpoints: what alarms and policies on a backlog watch.

SageMaker's names, in its namespace, by EndpointName. A backlog is published whether or not there is
one: that it is 0 is what lets an endpoint come down to no instances. Per instance it is not
published while there is none.
"""

from __future__ import annotations

from typing import Final

from penstock.metrics.catalogue import work_catalogue as catalogue
from penstock.metrics.counts.work_counts import WorkCounts
from penstock.metrics.series.series import metric_key
from penstock.metrics.series.statistics import StatisticSet
from penstock.metrics.series.store import MetricStore

NAMESPACE: Final = "AWS/SageMaker"
EVERY_S: Final = 10.0  #: as the concurrency of other endpoints


class Published:
    """Writes into the store of one server."""

    def __init__(self, store: MetricStore, work: WorkCounts) -> None:
        self._store = store
        self._work = work
        self._shown: dict[str, tuple[int, float]] = {}  #: endpoint -> backlog, age of the oldest
        self._due_at = 0.0
        self._counts: dict[tuple[str, str], StatisticSet] = {}  #: (endpoint, metric) -> since then

    def is_due(self, now: float) -> bool:
        """Whether it is time for `put` of every endpoint; once each `EVERY_S`."""
        if now < self._due_at:
            return False
        self._due_at = now + EVERY_S
        self.flush(now)
        return True

    def flush(self, now: float) -> None:
        """What was counted since the last time becomes datapoints."""
        for (endpoint, name), stats in self._counts.items():
            self._put(endpoint, name, stats, now, "Milliseconds" if "Time" in name else "Count")
        self._counts.clear()

    def at_once(self) -> None:
        """Something happened that is worth a point of its own."""
        self._due_at = 0.0

    def put(self, endpoint: str, *, backlog: int, ready: int, age_s: float, now: float) -> None:
        """What is there of an endpoint now. `age_s`: of its oldest request."""
        self._shown[endpoint] = backlog, age_s
        values = {
            "ApproximateBacklogSize": backlog,
            "HasBacklogWithoutCapacity": int(backlog > 0 and not ready),
        }
        for name, value in values.items():
            self._put(endpoint, name, StatisticSet.of(value), now, "Count")
        age = StatisticSet.of(age_s)
        self._put(endpoint, "ApproximateAgeOfOldestRequest", age, now, "Seconds")
        if ready:
            share = StatisticSet.of(backlog / ready)
            self._put(endpoint, "ApproximateBacklogSizePerInstance", share, now, "Count")

    def put_all(self, now: float) -> None:
        """Every endpoint was `put`: for the page at /metrics."""
        shown, self._shown = self._shown, {}
        backlogs = [((name,), float(backlog)) for name, (backlog, _) in shown.items()]
        ages = [((name,), age_s) for name, (_, age_s) in shown.items()]
        self._work.gauge(catalogue.ASYNC_BACKLOG, backlogs)
        self._work.gauge(catalogue.ASYNC_AGE, ages)
        self._work.keep(catalogue.ASYNC_ENDED, shown, catalogue.ASYNC_ENDS, now)

    def processed(self, endpoint: str, total_s: float) -> None:
        """A request was answered, and its output written, `total_s` after it was accepted."""
        self._work.count(catalogue.ASYNC_ENDED, endpoint, "completed")
        self._count(endpoint, "InvocationsProcessed", 1.0)
        self._count(endpoint, "TotalProcessingTime", 1e3 * total_s)

    def failed(self, endpoint: str, reason: str) -> None:
        """A request failed, or expired."""
        expired = reason == "expired"
        self._work.count(catalogue.ASYNC_ENDED, endpoint, "expired" if expired else "failed")
        self._count(endpoint, "ExpiredRequests" if expired else "InvocationFailures", 1.0)

    def given_up(self, endpoint: str) -> None:
        """The outcome of a request was never written: its place took nothing for too long."""
        self._count(endpoint, "OutcomesGivenUp", 1.0)

    def _count(self, endpoint: str, name: str, value: float) -> None:
        self._counts.setdefault((endpoint, name), StatisticSet()).add(value)

    def _put(self, endpoint: str, name: str, stats: StatisticSet, now: float, unit: str) -> None:
        key = metric_key(NAMESPACE, name, {"EndpointName": endpoint}, unit)
        self._store.put(key, now, stats, now=now, high_resolution=True)
