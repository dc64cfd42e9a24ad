"""The admin API of transform jobs: what SageMaker's calls about them have no member for.

GET /admin/jobs?limit=N              the latest, each with its progress, its cost, and the
                                     instances that it holds now
GET /admin/jobs/{name}/logs?lines=N  what its instances and its model wrote
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.requests import Request
from starlette.routing import Route

from penstock.api.admin.answers import answered, whole_number
from penstock.api.admin.tails import lines_of, tail
from penstock.control.plane import ControlPlane
from penstock.control.reconcile.views import InstanceView
from penstock.control.store.records import ListQuery
from penstock.errors import CallerError
from penstock.jobs.transform import transactions
from penstock.jobs.transform.capacity import deployment_name
from penstock.jobs.transform.driver import TransformDriver
from penstock.jobs.transform.records import GOING, JobRecord

LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1000


def routes(driver: TransformDriver, plane: ControlPlane) -> list[Route]:
    """The routes below /admin."""
    pages = _JobPages(driver, plane)
    return [
        Route("/jobs", answered(pages.index)),
        Route("/jobs/{name}/logs", answered(pages.logs)),
    ]


class _JobPages:
    """One method for each path; raises PenstockError."""

    def __init__(self, driver: TransformDriver, plane: ControlPlane) -> None:
        self._driver = driver
        self._plane = plane

    async def index(self, request: Request) -> dict[str, Any]:
        text = request.query_params.get("limit", str(LIMIT_DEFAULT))
        limit = whole_number(text, LIMIT_MAX)
        if limit is None:
            raise CallerError(
                "limit-invalid",
                f"limit={text[:32]!r} is not a number of jobs",
                hint=f"Ask for 1 to {LIMIT_MAX}.",
            )
        query = ListQuery(max_results=limit)
        page = await self._plane.database.call(transactions.page, query)
        return {"jobs": [await self._row(record) for record in page.items]}

    async def logs(self, request: Request) -> dict[str, Any]:
        name = request.path_params["name"]
        lines = lines_of(request)
        record = await self._plane.database.call(transactions.describe, name)
        return {
            "job": record.name,
            "logs": [
                {"log": path.stem, "lines": await asyncio.to_thread(tail, path, lines)}
                for path in self._plane.log_paths(deployment_name(record.name))
            ],
        }

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
