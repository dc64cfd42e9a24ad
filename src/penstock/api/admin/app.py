"""The admin API: what operators need and AWS has no call for, as JSON.

It is read-only, except for target models (`target_models.py`), schedules (`schedules.py`) and
rollouts (`rollouts.py`, `target_rollouts.py`).

GET /admin/copies                          every copy: its instance, state and load
GET /admin/gateways                        processes that share the ports; none: one serves alone
GET /admin/costs                           money and energy of each variant, and per answer
GET /admin/spares                          instance processes that stand ready
GET /admin/usage                           what target models used of their instances, and what
                                           else could have been bought
GET /admin/alarms                          why each alarm is in its state
GET /admin/capture                         captured calls that are not written yet, by process,
                                           and destinations that can't be written
GET /admin/asynchronous                    asynchronous requests: how many, and what they
                                           wait for
GET /admin/requests/{id}                   why one of the last requests went where it did
GET /admin/endpoints/{name}/copies/{copy}  its queue, batches, run times and settings
GET /admin/endpoints/{name}/ready-times    what its copies took to become ready, and will take
GET /admin/endpoints/{name}/activities     what was done for an endpoint, and why
GET /admin/endpoints/{name}/deploying      what each copy does until it is ready, and the last line
                                           of its logs
GET /admin/endpoints/{name}/models-served  its models as their instances describe them, and where
                                           their files are
GET /admin/endpoints/{name}/logs?lines=N   what its instances and models wrote; with `since` and the
                                           `next` of an answer: what came after it
GET /admin/jobs?limit=N                    the latest transform jobs, each with its progress, its
                                           cost, and the instances that it holds now
GET /admin/jobs/{name}/logs?lines=N        what a job's instances and its model wrote
GET /admin/endpoints/{name}/scaling?at=S   why it has the capacity it has; S: the wall second at
                                           which the timeline ends
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from penstock.api.admin import rollouts, schedules, target_models, target_rollouts
from penstock.api.admin.answers import answered, limit_of, lines_of, whole_number
from penstock.api.admin.deploying import deploying
from penstock.api.admin.logs import since, tails_and_cursor
from penstock.control.plane import ControlPlane
from penstock.control.reconcile.views import CopyView, InstanceView
from penstock.control.store.records import ListQuery
from penstock.control.store.store import Store
from penstock.control.target_models import TargetModels
from penstock.core.deployment.capacity_spec import component_of
from penstock.errors import CallerError, PenstockError
from penstock.jobs.schedules.driver import SchedulesDriver
from penstock.jobs.transform import transactions
from penstock.jobs.transform.capacity import deployment_name
from penstock.jobs.transform.driver import TransformDriver
from penstock.jobs.transform.records import GOING, JobRecord
from penstock.wire.aws.http import HttpRequest

#: Bound of copies' numbers: they count up from 1 and never get so far.
_COPY_MAX = 2**31
JOBS_MAX = 1000
#: Counters that a host of target models reports.
_MODELS = ("models_loaded", "model_loads", "model_hits", "model_misses")


@dataclass(frozen=True, slots=True)
class AdminServices:
    """The parts of the server that the admin API reads."""

    plane: ControlPlane
    target_models: TargetModels
    explain: Callable[[str], Awaitable[dict[str, Any] | None]]  #: request id -> its trace
    gateway: Callable[[], dict[str, Any]]  #: the dispatcher's snapshot
    #: (endpoint, wall seconds or None for now) -> its targets, each with its timeline
    scaling: Callable[[str, float | None], Awaitable[list[dict[str, Any]]]]
    schedules: SchedulesDriver
    transform: TransformDriver
    costs: Callable[[], list[dict[str, Any]]] = list
    usage: Callable[[], list[dict[str, Any]]] = list  #: use of each instance with target models
    alarms: Callable[[], list[dict[str, Any]]] = list  #: how each alarm came to its state
    asynchronous: Callable[[], list[dict[str, Any]]] = list  #: the queue of each endpoint
    #: captured calls that are not written yet, of each process; None: nothing is captured
    captured: Callable[[], Awaitable[list[dict[str, Any]]]] | None = None
    #: gateway processes, where there are several
    gateways: Callable[[], list[dict[str, Any]]] = list
    #: id of the key that a request carries; empty = none
    key_of: Callable[[HttpRequest], str] = lambda http: ""


def routes(services: AdminServices) -> list[Route]:
    """The routes below /admin."""
    pages, jobs = _AdminPages(services), _JobPages(services.transform, services.plane)
    found = {
        "/copies": pages.copies,
        "/gateways": pages.gateways,
        "/costs": pages.costs,
        "/spares": pages.spares,
        "/usage": pages.usage,
        "/alarms": pages.alarms,
        "/asynchronous": pages.asynchronous,
        "/capture": pages.capture,
        "/requests/{request_id}": pages.request_story,
        "/endpoints/{name}/copies/{copy}": pages.copy_story,
        "/endpoints/{name}/ready-times": pages.ready_times,
        "/endpoints/{name}/activities": pages.activities,
        "/endpoints/{name}/deploying": pages.deploying,
        "/endpoints/{name}/models-served": pages.models_served,
        "/endpoints/{name}/logs": pages.logs,
        "/endpoints/{name}/scaling": pages.scaling,
        "/jobs": jobs.index,
        "/jobs/{name}/logs": jobs.logs,
    }
    return [
        *(Route(path, answered(page)) for path, page in found.items()),
        *target_rollouts.routes(services.plane, services.target_models),
        *target_models.routes(services.target_models),
        *schedules.routes(services.schedules, services.key_of),
        *rollouts.routes(services.plane),
    ]


class _AdminPages:
    """One method for each path; raises PenstockError."""

    def __init__(self, services: AdminServices) -> None:
        self._services = services
        self._plane = services.plane

    async def copies(self, _request: Request) -> dict[str, Any]:
        records = await self._plane.database.call(Store.all_endpoints)
        seen = _seen(self._services.gateway())
        found = [
            row for record in records for row in await _copies(self._services, record.name, seen)
        ]
        return {"copies": found}

    async def gateways(self, _request: Request) -> dict[str, Any]:
        return {"gateways": self._services.gateways()}

    async def costs(self, _request: Request) -> dict[str, Any]:
        return {"costs": self._services.costs()}

    async def asynchronous(self, _request: Request) -> dict[str, Any]:
        return {"queues": self._services.asynchronous()}

    async def capture(self, _request: Request) -> dict[str, Any]:
        captured = self._services.captured
        return {"processes": [] if captured is None else await captured()}

    async def spares(self, _request: Request) -> dict[str, Any]:
        return {"spares": [asdict(one) for one in self._plane.spares()]}

    async def usage(self, _request: Request) -> dict[str, Any]:
        instances = self._services.usage()
        offers = self._plane.catalogue.offers({one["instance_type"] for one in instances})
        return {
            "instances": instances,
            "offers": [
                {
                    "name": kind.name,
                    "memory_bytes": kind.resources.memory_bytes,
                    "price_per_hour": kind.price_per_hour,
                }
                for kind in offers
            ],
        }

    async def alarms(self, _request: Request) -> dict[str, Any]:
        return {"alarms": self._services.alarms()}

    async def copy_story(self, request: Request) -> dict[str, Any]:
        endpoint, asked = request.path_params["name"], request.path_params["copy"]
        copy = whole_number(asked, _COPY_MAX)
        views = self._plane.instances(endpoint) if copy is not None else []
        instance = next(
            (one.instance_id for one in views if copy in [held.copy for held in one.copies]), None
        )
        story = await self._plane.explain_copy(instance, copy) if instance and copy else {}
        if not story:
            raise CallerError(
                "copy-unknown",
                f"endpoint {endpoint!r} has no copy {asked[:32]} that could be asked",
                hint="GET /admin/copies lists them.",
                status=404,
            )
        story.pop("ok", None)  # a field of the control channel, without meaning here
        return {"endpoint": endpoint, "instance": instance} | story

    async def request_story(self, request: Request) -> dict[str, Any]:
        request_id = request.path_params["request_id"]
        story = await self._services.explain(request_id)
        if story is None:
            raise CallerError(
                "request-unknown",
                f"request {request_id!r} is not known, under way, or too long ago",
                hint="Ids are in the header x-amzn-RequestId of every answer.",
                status=404,
            )
        return await self._with_place(story)

    async def _with_place(self, story: dict[str, Any]) -> dict[str, Any]:
        """Adds the type of the instance that answered, and the build that its copy has loaded,
        where they still exist."""
        route = story.get("route") or {}
        views = self._plane.instances(str(story.get("endpoint")))
        view = next((one for one in views if one.instance_id == route.get("instance_id")), None)
        if view is None:
            return story
        try:
            copy = await self._plane.explain_copy(view.instance_id, int(route["copy"]))
        except PenstockError:
            copy = {}
        told = {"route": route | {"instance_type": view.instance_type}}
        return story | told | {key: copy[key] for key in ("build",) if key in copy}

    async def ready_times(self, request: Request) -> dict[str, Any]:
        name = request.path_params["name"]
        await self._plane.database.call(Store.describe_endpoint, name)
        components = {
            component: {
                "last": asdict(seen.last),
                "forecast_s": seen.forecast_s,
                "count": seen.count,
            }
            for component, seen in self._plane.ready_times.seen(name).items()
        }
        return {"endpoint": name, "components": components}

    async def activities(self, request: Request) -> dict[str, Any]:
        name = request.path_params["name"]
        rows = [
            {"at": one.at, "what": one.what, "reason": one.reason, "detail": one.detail}
            for one in self._plane.activities(name)
        ]
        if not rows:  # a deleted endpoint may still have activities
            await self._plane.database.call(Store.describe_endpoint, name)
        return {"endpoint": name, "activities": rows}

    async def deploying(self, request: Request) -> dict[str, Any]:
        return await deploying(self._plane, request.path_params["name"])

    async def models_served(self, request: Request) -> dict[str, Any]:
        """One row for each variant or component that has a loaded copy; the endpoint's other names,
        each with the target that it stands for."""
        name = request.path_params["name"]
        record = await self._plane.database.call(Store.describe_endpoint, name)
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for view in self._plane.instances(name):
            for copy in view.copies:
                key = view.variant, component_of(copy.component)
                if copy.model and key not in found:
                    found[key] = {"variant": key[0], "component": key[1], "model": copy.model}
        logs = [str(path) for path in self._plane.log_paths(name)]
        return {
            "endpoint": name,
            "models": list(found.values()),
            "names": record.served_names,
            "logs": logs,
        }

    async def logs(self, request: Request) -> dict[str, Any]:
        name, lines = request.path_params["name"], lines_of(request)
        await self._plane.database.call(Store.describe_endpoint, name)
        return {"endpoint": name} | await _logs(request, self._plane.log_paths(name), lines)

    async def scaling(self, request: Request) -> dict[str, Any]:
        """The scalable targets with the timelines of their decisions, oldest first: what was
        observed, each policy's desired capacity, the decision and its reason."""
        endpoint, at = request.path_params["name"], _moment(request.query_params.get("at", ""))
        return {"endpoint": endpoint, "targets": await self._services.scaling(endpoint, at)}


class _JobPages:
    """One method for each path; raises PenstockError."""

    def __init__(self, driver: TransformDriver, plane: ControlPlane) -> None:
        self._driver = driver
        self._plane = plane

    async def index(self, request: Request) -> dict[str, Any]:
        query = ListQuery(max_results=limit_of(request, "jobs", JOBS_MAX))
        page = await self._plane.database.call(transactions.page, query)
        return {"jobs": [await self._row(record) for record in page.items]}

    async def logs(self, request: Request) -> dict[str, Any]:
        lines = lines_of(request)
        record = await self._plane.database.call(transactions.describe, request.path_params["name"])
        paths = self._plane.log_paths(deployment_name(record.name))
        return {"job": record.name} | await _logs(request, paths, lines)

    async def _row(self, record: JobRecord) -> dict[str, Any]:
        going = record.status in GOING
        views = self._plane.instances(deployment_name(record.name)) if going else []
        return {
            "job": record.name,
            "status": record.status,
            "owner": record.spec.owner,
            "instance_type": record.spec.instance_type,
            "created": record.created,
            "started": record.started,
            "ended": record.ended,
            "progress": self._driver.progress(record),
            "instances": [await self._instance(view) for view in views],
        }

    async def _instance(self, view: InstanceView) -> dict[str, Any]:
        measured = await self._plane.instance_status(view.instance_id)
        return {
            "instance": view.instance_id,
            "instance_type": view.instance_type,
            "state": view.states[0],
            "pid": view.pid,
            "memory_bytes": measured.get("memory_bytes"),
            "memory_bytes_max": view.resources.memory_bytes,
        }


async def _logs(request: Request, paths: list[Path], lines: int) -> dict[str, Any]:
    """The last lines, or with `since` those that came after; `next` is for the next request."""
    cursor = request.query_params.get("since", "")
    if cursor:
        found, following = await since(paths, cursor)
    else:
        found, following = await tails_and_cursor(paths, lines)
    return {"logs": found, "next": following}


def _moment(text: str) -> float | None:
    if not text:
        return None
    try:
        moment = float(text)
    except ValueError:
        moment = math.nan
    if not math.isfinite(moment):
        raise CallerError(
            "at-invalid", f"at={text[:32]!r} is not a time", hint="Give seconds since the epoch."
        )
    return moment


async def _copies(
    services: AdminServices, endpoint: str, seen: dict[int, dict[str, Any]]
) -> list[dict[str, Any]]:
    rows = []
    for view in services.plane.instances(endpoint):
        measured = await services.plane.instance_status(view.instance_id)
        rows += [_row(endpoint, view, copy, measured, seen) for copy in view.copies or (None,)]
    return rows


def _row(
    endpoint: str,
    view: InstanceView,
    copy: CopyView | None,
    measured: dict[str, Any],
    seen: dict[int, dict[str, Any]],
) -> dict[str, Any]:
    """The row of a copy on its instance; where `copy` is None, of the instance alone."""
    number = copy.copy if copy is not None else None
    routed = seen.get(number or 0, {})
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
        "phase": next(
            (one["phase"] for one in measured.get("loading", ()) if one["copy"] == number), None
        ),
        "outstanding": routed.get("outstanding", 0) + routed.get("others", 0),
        "request_cost": routed.get("cost"),
        "outlier": routed.get("outlier"),
        "pid": view.pid,
        "worker_pids": [one["pid"] for one in loaded.get("workers", ())],
        "memory_bytes": measured.get("memory_bytes"),
        "memory_bytes_max": view.resources.memory_bytes,
        "models": {key: loaded[key] for key in _MODELS if key in loaded} or None,
        "load_s": copy.load_s if copy is not None else 0.0,
        "time_to_ready": asdict(copy.took) if copy is not None and copy.took is not None else None,
        "proof": loaded.get("proof"),
        "build": loaded.get("build"),
    }


def _shadows(endpoints: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one["shadow"] for one in endpoints if "shadow" in one]


def _seen(gateway: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Copy -> its state in the router, draining copies included."""
    endpoints = gateway["endpoints"].values()
    routers = [one["router"] for one in (*endpoints, *_shadows(endpoints))]
    states = [state for router in routers for state in router["draining"]]
    states += [state for router in routers for one in router["variants"] for state in one["copies"]]
    return {state["copy"]: state for state in states}
