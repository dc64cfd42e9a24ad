"""The orchestrator's own pages: traffic, changes to it, metrics, explanations.

GET  /penstock/v1/regions            the regions and their states
GET  /penstock/v1/ratios?endpoint=   shares of an endpoint's traffic, and the reasons for them
PUT  /penstock/v1/ratios             {"endpoint": "", "ratios": {"eu": 1}, "mode": "manual"}; ratios
                                     sum to 1, and a region that is not named gets none
GET  /admin/requests/{id}            where a request went, with its region's explanation
GET  /ping                           200 while a region can be reached, else 503 with the reason
GET  /metrics

`TrafficPage` renders /metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import orjson
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from penstock.api.admin.answers import answered, error_answer
from penstock.api.app import failed
from penstock.errors import CallerError, PenstockError
from penstock.metrics.catalogue import traffic_catalogue as catalogue
from penstock.metrics.catalogue.prometheus_families import (
    MetricPage,
    Row,
    counter,
    durations,
    gauge,
)
from penstock.orchestrator.recording import TrafficRecorder
from penstock.orchestrator.region import FOLLOWED, Region
from penstock.orchestrator.shares import TrafficShares
from penstock.wire import plain_json

#: Returns the entries of the routers' snapshots, one for each region.
Traffic = Callable[[], list[dict[str, Any]]]


class TrafficPage(MetricPage):
    """Renders `/metrics`; one per orchestrator."""

    def __init__(self, recorder: TrafficRecorder, regions: list[Region], traffic: Traffic) -> None:
        """`traffic`: snapshots of all routers."""
        #: all families but the process's own; these are also pushed
        self.collector: Collector = _TrafficCollector(recorder, regions, traffic)
        super().__init__(self.collector)


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


def build_traffic_app(
    shares: TrafficShares,
    recorder: TrafficRecorder,
    page: TrafficPage,
    check_ready: Callable[[], None],
) -> Any:
    """The application for every path without a door. `check_ready` raises why it is not ready."""

    async def regions(_request: Request) -> dict[str, Any]:
        return {"regions": shares.regions()}

    async def ratios(request: Request) -> dict[str, Any]:
        endpoint = request.query_params.get("endpoint")
        return {"traffic": shares.told(endpoint)}

    async def set_ratios(request: Request) -> dict[str, Any]:
        return shares.set_by_hand(**_asked(await request.body()))

    async def story(request: Request) -> dict[str, Any]:
        request_id = request.path_params["request_id"]
        found = await recorder.explain(request_id)
        if found is None:
            raise CallerError(
                "request-unknown",
                f"request {request_id[:64]!r} is not known, under way, or too long ago",
                hint="Ids are in the header x-amzn-RequestId of every answer.",
                status=404,
            )
        return found

    async def metrics(request: Request) -> Response:
        body, content_type = page.render(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    async def ping(_request: Request) -> Response:
        try:
            check_ready()
        except PenstockError as error:
            return error_answer(error)
        return PlainTextResponse("")

    return Starlette(
        routes=[
            Route("/penstock/v1/regions", answered(regions), methods=["GET"]),
            Route("/penstock/v1/ratios", answered(ratios), methods=["GET"]),
            Route("/penstock/v1/ratios", answered(set_ratios), methods=["PUT"]),
            Route("/admin/requests/{request_id}", answered(story), methods=["GET"]),
            Route("/metrics", metrics, methods=["GET"]),
            Route("/ping", ping, methods=["GET"]),
        ],
        exception_handlers={404: _not_found, Exception: failed},
    )


async def _not_found(request: Request, _error: Exception) -> Response:
    return JSONResponse(
        {
            "code": "not-found",
            "message": f"An orchestrator serves nothing at {request.method} {request.url.path}.",
            "hint": "It passes on what asks models; all else is asked of a region itself.",
        },
        status_code=404,
    )


def _asked(body: bytes) -> dict[str, Any]:
    """The members of a requested change. Raises CallerError (`traffic-invalid`)."""
    try:
        fields: Any = plain_json.loads(body)
    except orjson.JSONDecodeError as error:
        raise _wrong(f"it is not JSON: {error}") from error
    if not isinstance(fields, dict) or fields.keys() - {"endpoint", "ratios", "mode"}:
        raise _wrong("it is an object with the members endpoint, ratios and mode")
    endpoint, mode = fields.get("endpoint", ""), fields.get("mode")
    ratios = fields.get("ratios", {})
    if not isinstance(endpoint, str) or not (mode is None or isinstance(mode, str)):
        raise _wrong("endpoint and mode are texts")
    if not isinstance(ratios, dict) or not all(
        isinstance(one, int | float) and not isinstance(one, bool) and 0 <= one < 1e6
        for one in ratios.values()
    ):
        raise _wrong("ratios are numbers from 0 on, by region")
    return {"endpoint": endpoint, "ratios": {k: float(v) for k, v in ratios.items()}, "mode": mode}


def _wrong(what: str) -> CallerError:
    return CallerError(
        "traffic-invalid",
        f"The change of traffic can't be read: {what}.",
        hint='Send {"endpoint": "", "ratios": {"eu": 0.7, "us": 0.3}, "mode": "manual"}.',
    )
