"""The orchestrator's page at /metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from penstock.metrics.catalogue import traffic_catalogue as catalogue
from penstock.metrics.catalogue.prometheus_families import Row, counter, durations, gauge
from penstock.orchestrator.recording import TrafficRecorder
from penstock.orchestrator.region import FOLLOWED, Region

#: What a router's snapshot tells of a region, as it is told here.
Traffic = Callable[[], list[dict[str, Any]]]


class TrafficPage:
    """Renders `/metrics`; one per orchestrator."""

    def __init__(self, recorder: TrafficRecorder, regions: list[Region], traffic: Traffic) -> None:
        """`traffic`: snapshots of all routers."""
        #: of what is pushed, too: all but the process's own families
        self.collector: Collector = _TrafficCollector(recorder, regions, traffic)
        self._collectors = CollectorRegistry(auto_describe=False)
        self._collectors.register(self.collector)
        ProcessCollector(registry=self._collectors)
        GCCollector(registry=self._collectors)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """(body, content type), in the format that the Accept header asks for."""
        encode, content_type = choose_encoder(accept)
        return encode(self._collectors), content_type


class _TrafficCollector(Collector):
    """Families of `traffic_catalogue.PROMETHEUS`, in its order."""

    def __init__(self, recorder: TrafficRecorder, regions: list[Region], traffic: Traffic) -> None:
        self._recorder = recorder
        self._regions = regions
        self._traffic = traffic

    def collect(self) -> Iterator[Metric]:
        recorder = self._recorder
        traffic = self._traffic()
        yield counter(catalogue.REQUESTS, recorder.requests.items())
        yield counter(catalogue.SENT_AGAIN, (((why,), n) for why, n in recorder.again.items()))
        yield durations(catalogue.DURATION, recorder.took_s.items())
        yield durations(catalogue.FIRST_BYTE, recorder.first_byte_s.items())
        yield gauge(catalogue.HELD, (((_name(one),), one["held"]) for one in traffic))
        yield gauge(catalogue.RATIO, self._of_regions(traffic, "ratio"))
        yield gauge(catalogue.ROOM, self._of_regions(traffic, "room"))
        yield gauge(catalogue.IN_FLIGHT, self._of_regions(traffic, "in_flight"))
        yield gauge(
            catalogue.FOLLOWED,
            (((one.name,), float(one.state == FOLLOWED)) for one in self._regions),
        )
        yield gauge(catalogue.WAY, (((one.name,), one.way_s) for one in self._regions))

    def _of_regions(self, traffic: list[dict[str, Any]], what: str) -> Iterator[Row]:
        for one in traffic:
            for region in one["regions"]:
                yield (_name(one), region["region"]), region[what]


def _name(traffic: dict[str, Any]) -> str:
    return traffic["endpoint"] or "(none)"
