"""The admin API of auto scaling: GET /admin/endpoints/{name}/scaling?at=SECONDS

Each scalable target of an endpoint with the timeline of its decisions, oldest first: the
observation, each policy's desired capacity, the decision and its reason. `at`: wall seconds at
which the timeline ends.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from penstock.api.admin.answers import error_answer
from penstock.errors import CallerError, PenstockError

#: (endpoint, wall seconds or None for now) -> its targets, each with its timeline
Explain = Callable[[str, float | None], Awaitable[list[dict[str, Any]]]]


def routes(explain: Explain) -> list[Route]:
    """The routes below /admin."""

    async def scaling(request: Request) -> Response:
        endpoint = request.path_params["name"]
        try:
            targets = await explain(endpoint, _moment(request.query_params.get("at", "")))
        except PenstockError as error:
            return error_answer(error)
        return JSONResponse({"endpoint": endpoint, "targets": targets})

    return [Route("/endpoints/{name}/scaling", scaling)]


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
