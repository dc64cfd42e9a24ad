"""The admin API of target models.

GET  /admin/endpoints/{name}/models?after=&limit=   all models, where each is loaded, and why
GET  /admin/endpoints/{name}/models/{model}         the history of one on every host, and what it
                                                    takes and gives
POST /admin/endpoints/{name}/models/{model}/load    answers when it is loaded, or with the error;
                                                    ?if_room=true: without evicting others
POST /admin/endpoints/{name}/models/{model}/unload  answers once it is idle and gone
POST /admin/endpoints/{name}/models/{model}/pin     no host evicts it until .../unpin

Models' names are percent-encoded; slashes may stay as they are.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from penstock.api.admin.answers import answered, limit_of
from penstock.control.target_models import PAGE_MAX, TargetModels

_MORE = "; next_after of the answer is the next page's after"
_MODEL = "/endpoints/{name}/models/{model:path}"


def routes(models: TargetModels) -> list[Route]:
    """The routes below /admin."""
    pages = _TargetModelPages(models)
    actions = ("load", "unload", "pin", "unpin")
    return [
        Route("/endpoints/{name}/models", answered(pages.index)),
        *(
            Route(f"{_MODEL}/{action}", answered(getattr(pages, action)), methods=["POST"])
            for action in actions
        ),
        Route(_MODEL, answered(pages.explain)),
    ]


class _TargetModelPages:
    """One method for each path; raises PenstockError."""

    def __init__(self, models: TargetModels) -> None:
        self._models = models

    async def index(self, request: Request) -> dict[str, Any]:
        asked = request.query_params
        limit = limit_of(request, "models", PAGE_MAX, more=_MORE)
        endpoint = request.path_params["name"]
        page = await self._models.index(endpoint, after=asked.get("after", ""), limit=limit)
        error = page.prefix_error
        return {
            "endpoint": endpoint,
            "models": [asdict(row) for row in page.rows],
            "next_after": page.next_after or None,
            "prefix_error": error.to_dict() if error is not None else None,
        }

    async def explain(self, request: Request) -> dict[str, Any]:
        return await self._models.explain(*_named(request))

    async def load(self, request: Request) -> dict[str, Any]:
        if_room = request.query_params.get("if_room", "") == "true"
        return {"hosts": await self._models.load(*_named(request), if_room=if_room)}

    async def unload(self, request: Request) -> dict[str, Any]:
        await self._models.unload(*_named(request))
        return {}

    async def pin(self, request: Request) -> dict[str, Any]:
        await self._models.pin(*_named(request), True)
        return {}

    async def unpin(self, request: Request) -> dict[str, Any]:
        await self._models.pin(*_named(request), False)
        return {}


def _named(request: Request) -> tuple[str, str]:
    return request.path_params["name"], request.path_params["model"]
