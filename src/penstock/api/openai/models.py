"""`/v1/models`: the endpoints that speak OpenAI's API, as its models."""

from __future__ import annotations

from typing import Any

from penstock.errors import CallerError
from penstock.gateway.dispatcher import Dispatcher

OWNER = "penstock"
#: Tasks whose answers the API has a form for.
TASKS = ("text-generation", "feature-extraction")


class OpenAiModels:
    """Reads the gateway's endpoints."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._created = int(dispatcher.clock.wall())  #: nobody tells a gateway when one was made

    def listed(self, only: str | None = None) -> dict[str, Any]:
        """All that speak the API, or the one that a path has named."""
        names = self._dispatcher.endpoint_names() if only is None else [only]
        return {"object": "list", "data": [self._card(name) for name in names if self._has(name)]}

    def card(self, name: str, only: str | None = None) -> dict[str, Any]:
        """One of them; none but `only`, which a path has named. Raises CallerError (404)."""
        if not self._has(name) or (only is not None and only.lower() != name.lower()):
            raise CallerError(
                "endpoint-not-found",
                f"The model '{name[:256]}' does not exist.",
                hint="GET /v1/models names those that do.",
                status=404,
            )
        return self._card(name)

    def _has(self, name: str) -> bool:
        routes = self._dispatcher.routes(name)
        return routes is not None and any(
            variant.model.get("task") in TASKS for variant in routes.variants
        )

    def _card(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._created, "owned_by": OWNER}
