"""Counts of a server's work besides requests: the rows of `work_catalogue`.

The code that does the work counts what has ended, and reports from time to time what exists. Names
of removed things leave as those of endpoints do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from prometheus_client.metrics_core import Metric

from penstock.metrics.catalogue import work_catalogue as catalogue
from penstock.metrics.catalogue.catalogue import PrometheusMetric
from penstock.metrics.catalogue.prometheus_families import Row, counter, durations, gauge
from penstock.metrics.counts.departures import Departures
from penstock.metrics.series.sketch import Sketch

Labels = tuple[str, ...]


class WorkCounts:
    """The counts of one server."""

    def __init__(self) -> None:
        self._counts: dict[PrometheusMetric, dict[Labels, float]] = {
            # Rows exist before anything ends, so that a first failure shows as an increase.
            catalogue.JOBS_ENDED: dict.fromkeys(((end,) for end in catalogue.JOB_ENDS), 0.0),
            catalogue.NOTIFICATIONS: dict.fromkeys(
                ((end,) for end in catalogue.NOTIFICATION_TRIES), 0.0
            ),
        }
        self._gauges: dict[PrometheusMetric, Callable[[], Iterable[Row]]] = {}
        self._database_s = Sketch()
        self._departures = Departures()

    def count(self, metric: PrometheusMetric, *labels: str, times: int = 1) -> None:
        """Adds `times` to a counter."""
        rows = self._counts.setdefault(metric, {})
        rows[labels] = rows.get(labels, 0.0) + times

    def gauge(self, metric: PrometheusMetric, rows: Iterable[Row]) -> None:
        """Replaces all rows of a gauge."""
        kept = tuple(rows)
        self._gauges[metric] = lambda: kept

    def gauge_from(self, metric: PrometheusMetric, rows: Callable[[], Iterable[Row]]) -> None:
        """Sets a function that gives a gauge's rows whenever the page is made."""
        self._gauges[metric] = rows

    def keep(
        self, metric: PrometheusMetric, names: Collection[str], ends: Iterable[str], now: float
    ) -> None:
        """Says which names exist at wall time `now`. A name is the first label of a counter; each
        has a row for every end. Rows of other names are removed."""
        rows = self._counts.setdefault(metric, {})
        for name in names:
            self._departures.back((metric.name, name))
            for end in ends:
                rows.setdefault((name, end), 0.0)
        for name in {labels[0] for labels in rows}.difference(names):
            self._departures.leave((metric.name, name), now)
        for pool in self._departures.due(now):
            if pool[0] == metric.name:
                for labels in [labels for labels in rows if labels[0] == pool[1]]:
                    del rows[labels]
                self._departures.dropped(pool)

    def database_called(self, took_s: float, failure: str) -> None:
        """`failure`: the code of the database's error; empty: the call succeeded."""
        self._database_s.add(took_s)
        self.gauge(catalogue.DATABASE_UP, [((), float(not failure))])
        if failure:
            self.count(catalogue.DATABASE_ERRORS, failure)

    def families(self) -> Iterator[Metric]:
        """All families in the order of the catalogue; one without data has no rows."""
        for metric in catalogue.PROMETHEUS:
            if metric.kind == "counter":
                yield counter(metric, self._counts.get(metric, {}).items())
            elif metric.kind == "gauge":
                rows = self._gauges.get(metric)
                yield gauge(metric, rows() if rows is not None else ())
            else:
                yield durations(metric, [((), self._database_s)])
