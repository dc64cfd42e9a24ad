"""The metrics of an orchestrator, as data; those of a server are in `catalogue.py`."""

from __future__ import annotations

from typing import Final

from penstock.metrics.catalogue.catalogue import DURATION_EDGES_S, PrometheusMetric

_BY_REGION: Final = ("endpoint", "region")

REQUESTS: Final = PrometheusMetric(
    "penstock_traffic_requests", "counter", (*_BY_REGION, "outcome"),
    "Requests by the region that answered and outcome: ok, caller-error, model-error, refused, "
    "internal-error, no-region, cancelled.",
)  # fmt: skip
SENT_AGAIN: Final = PrometheusMetric(
    "penstock_traffic_sent_again", "counter", ("reason",),
    "Attempts that ended without an answer for the client, whose request went on: "
    "region-unreachable, connection-lost, answer-malformed, region-silent, spilled, resumed and "
    "the like.",
)  # fmt: skip
DURATION: Final = PrometheusMetric(
    "penstock_traffic_duration_seconds", "histogram", _BY_REGION,
    "From a request's first byte to its answer's last byte, waiting here included.",
    DURATION_EDGES_S,
)  # fmt: skip
FIRST_BYTE: Final = PrometheusMetric(
    "penstock_traffic_first_byte_seconds", "histogram", _BY_REGION,
    "From a request's first byte to the first byte that a region answered.", DURATION_EDGES_S,
)  # fmt: skip
HELD: Final = PrometheusMetric(
    "penstock_traffic_held", "gauge", ("endpoint",), "Requests that wait for a region with room."
)
RATIO: Final = PrometheusMetric(
    "penstock_traffic_ratio", "gauge", _BY_REGION, "Share of the traffic that a region is to have."
)
ROOM: Final = PrometheusMetric(
    "penstock_traffic_room", "gauge", _BY_REGION, "Requests that may be sent to a region now."
)
IN_FLIGHT: Final = PrometheusMetric(
    "penstock_traffic_in_flight", "gauge", _BY_REGION, "Requests that a region has not answered."
)
FOLLOWED: Final = PrometheusMetric(
    "penstock_region_followed", "gauge", ("region",), "1 while a region tells what it could take."
)
WAY: Final = PrometheusMetric(
    "penstock_region_way_seconds", "gauge", ("region",), "To a region and back, at its shortest."
)

PROMETHEUS: Final = (
    REQUESTS, SENT_AGAIN, DURATION, FIRST_BYTE, HELD, RATIO, ROOM, IN_FLIGHT, FOLLOWED, WAY,
)  # fmt: skip
