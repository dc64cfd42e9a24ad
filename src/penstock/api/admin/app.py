"""The admin API: what operators ask and AWS has no call for, as JSON.

Read-only, but for target models (`target_models.py`).

GET /admin/copies                          every copy: where it runs, how it is, its load
GET /admin/costs                           money and energy of each variant, and per answer
GET /admin/spares                          instance processes that stand ready
GET /admin/usage                           what target models took of their instances, and what
                                           else could have been bought
GET /admin/alarms                          how each alarm came to its state
GET /admin/requests/{id}                   why one of the last requests went where it did
GET /admin/endpoints/{name}/copies/{copy}  its queue, batches, run times and settings
GET /admin/endpoints/{name}/ready-times    what its copies took to become ready, and will take
GET /admin/endpoints/{name}/activities     what was done for an endpoint, and why
GET /admin/endpoints/{name}/logs?lines=N   what its instances and models wrote
GET /admin/endpoints/{name}/scaling?at=S   why it has the capacity it has (`scaling.py`)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from penstock.api.admin import scaling, target_models
from penstock.api.admin.answers import error_answer, whole_number
from penstock.control.plane import ControlPlane
from penstock.control.store import Store
from penstock.control.target_models import TargetModels
from penstock.control.views import CopyView, InstanceView
from penstock.core.components.spec import component_of
from penstock.errors import CallerError, PenstockError

LINES_DEFAULT = 100
#: What a host of target models counts.
_MODELS = ("models_loaded", "model_loads", "model_hits", "model_misses")
LINES_MAX = 10_000
#: Read from the end of a log; longer tails are not for a terminal.
TAIL_BYTES_MAX = 4 << 20


@dataclass(frozen=True, slots=True)
class AdminServices:
    """What the admin API looks into."""

    plane: ControlPlane
    target_models: TargetModels
    explain: Callable[[str], dict[str, Any] | None]  #: request id -> its story
    gateway: Callable[[], dict[str, Any]]  #: the dispatcher's snapshot
    costs: Callable[[], list[dict[str, Any]]] = list  #: of each variant
    usage: Callable[[], list[dict[str, Any]]] = list  #: of each instance with target models
    scaling: scaling.Explain | None = None
    alarms: Callable[[], list[dict[str, Any]]] = list  #: how each came to its state


def routes(services: AdminServices) -> list[Route]:
    """The routes below /admin."""
    pages = _Pages(services)
    return [
        Route("/copies", pages.copies),
        Route("/costs", pages.costs),
        Route("/spares", pages.spares),
        Route("/usage", pages.usage),
        Route("/alarms", pages.alarms),
        Route("/requests/{request_id}", pages.request_story),
        Route("/endpoints/{name}/copies/{copy:int}", pages.copy_story),
        Route("/endpoints/{name}/ready-times", pages.ready_times),
        Route("/endpoints/{name}/activities", pages.activities),
        Route("/endpoints/{name}/logs", pages.logs),
        *target_models.routes(services.target_models),
        *(scaling.routes(services.scaling) if services.scaling is not None else ()),
    ]


class _Pages:
    """One method for each path."""

    def __init__(self, services: AdminServices) -> None:
        self._services = services
        self._plane = services.plane

    async def copies(self, _request: Request) -> Response:
        records = await self._plane.database.call(Store.all_endpoints)
        outstanding = _outstanding(self._services.gateway())
        found = [
            row
            for record in records
            for row in await _copies(self._services, record.name, outstanding)
        ]
        return JSONResponse({"copies": found})

    async def costs(self, _request: Request) -> Response:
        return JSONResponse({"costs": self._services.costs()})

    async def spares(self, _request: Request) -> Response:
        return JSONResponse({"spares": [asdict(one) for one in self._plane.spares()]})

    async def usage(self, _request: Request) -> Response:
        instances = self._services.usage()
        offers = self._plane.catalogue.offers({one["instance_type"] for one in instances})
        return JSONResponse(
            {
                "instances": instances,
                "offers": [
                    {
                        "name": kind.name,
                        "memory_bytes": kind.memory_bytes,
                        "price_per_hour": kind.price_per_hour,
                    }
                    for kind in offers
                ],
            }
        )

    async def alarms(self, _request: Request) -> Response:
        return JSONResponse({"alarms": self._services.alarms()})

    async def copy_story(self, request: Request) -> Response:
        endpoint, copy = request.path_params["name"], request.path_params["copy"]
        views = self._plane.instances(endpoint)
        instance = next(
            (one.instance_id for one in views if copy in [held.copy for held in one.copies]), None
        )
        try:
            story = await self._plane.explain_copy(instance, copy) if instance else {}
        except PenstockError as error:
            return error_answer(error)
        if not story:
            return error_answer(
                CallerError(
                    "copy-unknown",
                    f"endpoint {endpoint!r} has no copy {copy} that could be asked",
                    hint="GET /admin/copies lists them.",
                    status=404,
                )
            )
        story.pop("ok", None)  # of the control call, which says nothing here
        return JSONResponse({"endpoint": endpoint, "instance": instance} | story)

    async def request_story(self, request: Request) -> Response:
        request_id = request.path_params["request_id"]
        story = self._services.explain(request_id)
        if story is None:
            return error_answer(
                CallerError(
                    "request-unknown",
                    f"request {request_id!r} is not known, under way, or too long ago",
                    hint="Ids are in the header x-amzn-RequestId of every answer.",
                    status=404,
                )
            )
        return JSONResponse(story)

    async def ready_times(self, request: Request) -> Response:
        name = request.path_params["name"]
        try:
            await self._plane.database.call(Store.describe_endpoint, name)
        except PenstockError as error:
            return error_answer(error)
        components = {
            component: {
                "last": asdict(seen.last),
                "forecast_s": seen.forecast_s,
                "count": seen.count,
            }
            for component, seen in self._plane.ready_times.seen(name).items()
        }
        return JSONResponse({"endpoint": name, "components": components})

    async def activities(self, request: Request) -> Response:
        name = request.path_params["name"]
        rows = [
            {"at": one.at, "what": one.what, "reason": one.reason, "detail": one.detail}
            for one in self._plane.activities(name)
        ]
        if not rows:  # an endpoint that is gone may still have a story
            try:
                await self._plane.database.call(Store.describe_endpoint, name)
            except PenstockError as error:
                return error_answer(error)
        return JSONResponse({"endpoint": name, "activities": rows})

    async def logs(self, request: Request) -> Response:
        name = request.path_params["name"]
        try:
            lines = _lines(request.query_params.get("lines", str(LINES_DEFAULT)))
            await self._plane.database.call(Store.describe_endpoint, name)
        except PenstockError as error:
            return error_answer(error)
        found = [
            {"log": path.stem, "lines": await asyncio.to_thread(tail, path, lines)}
            for path in self._plane.log_paths(name)
        ]
        return JSONResponse({"endpoint": name, "logs": found})


async def _copies(
    services: AdminServices, endpoint: str, outstanding: dict[int, int]
) -> list[dict[str, Any]]:
    rows = []
    for view in services.plane.instances(endpoint):
        measured = await services.plane.instance_status(view.instance_id)
        rows += [
            _row(endpoint, view, copy, measured, outstanding) for copy in view.copies or (None,)
        ]
    return rows


def _row(
    endpoint: str,
    view: InstanceView,
    copy: CopyView | None,
    measured: dict[str, Any],
    outstanding: dict[int, int],
) -> dict[str, Any]:
    """A copy on its instance; None: the instance alone."""
    number = copy.copy if copy is not None else None
    loaded: dict[str, Any] = next(
        (one for one in measured.get("copies", ()) if one.get("copy") == number), {}
    )
    return {
        "copy": number,
        "endpoint": endpoint,
        "variant": view.variant,
        "component": component_of(copy.component) if copy is not None else "",
        "generation": view.generation,
        "instance": view.instance_id,
        "instance_type": view.instance_type,
        "state": copy.phase if copy is not None else view.phase,
        "outstanding": outstanding.get(number or 0, 0),
        "pid": view.pid,
        "worker_pids": [one["pid"] for one in loaded.get("workers", ())],
        "memory_bytes": measured.get("memory_bytes"),
        "memory_bytes_max": view.memory_bytes_max,
        "models": {key: loaded[key] for key in _MODELS if key in loaded} or None,
        "load_s": copy.load_s if copy is not None else 0.0,
        "time_to_ready": asdict(copy.took) if copy is not None and copy.took is not None else None,
        "proof": loaded.get("proof"),
    }


def _outstanding(gateway: dict[str, Any]) -> dict[int, int]:
    """Copy -> requests on it now, draining copies included."""
    routers = [endpoint["router"] for endpoint in gateway["endpoints"].values()]
    states = [state for router in routers for state in router["draining"]]
    states += [state for router in routers for one in router["variants"] for state in one["copies"]]
    return {state["copy"]: state["outstanding"] for state in states}


def tail(path: Path, lines: int) -> list[str]:
    """The last `lines` lines of a log, oldest first; none if there is no log yet."""
    try:
        with path.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(0, size - TAIL_BYTES_MAX))
            return log.read().decode("utf-8", "replace").splitlines()[-lines:]
    except FileNotFoundError:
        return []


def _lines(text: str) -> int:
    lines = whole_number(text, LINES_MAX)
    if lines is None:
        raise CallerError(
            "lines-invalid",
            f"lines={text[:32]!r} is not a number of lines",
            hint=f"Ask for 1 to {LINES_MAX}.",
        )
    return lines
