"""`/metrics` of a server that follows: its own process, and who leads.

What endpoints do is told by the server that leads, on its page: whoever scrapes all servers would
count it twice otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from penstock.metrics.catalogue.catalogue import PrometheusMetric
from penstock.metrics.catalogue.prometheus_families import gauge

STANDBY: Final = PrometheusMetric(
    "penstock_standby",
    "gauge",
    ("leader", "address"),
    "1 on a server that follows, with who leads as it sees it; empty while nobody does.",
)
PROMETHEUS: Final = (STANDBY,)


class StandbyPage(Collector):
    """Of one server while it follows."""

    def __init__(self, leader: Callable[[], tuple[str, str]]) -> None:
        """`leader`: name and address of who leads now; empty: nobody."""
        self._leader = leader
        self._collectors = CollectorRegistry(auto_describe=False)
        self._collectors.register(self)
        ProcessCollector(registry=self._collectors)
        GCCollector(registry=self._collectors)

    def collect(self) -> Iterator[Metric]:
        yield gauge(STANDBY, [(self._leader(), 1.0)])

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """(body, content type), in the format that the Accept header asks for."""
        encode, content_type = choose_encoder(accept)
        return encode(self._collectors), content_type
