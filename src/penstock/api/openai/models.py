"""`/v1/models`: the endpoints that speak OpenAI's API, and their components, as its models."""

from __future__ import annotations

from typing import Any

from penstock.api.model_names import endpoint_of
from penstock.errors import CallerError
from penstock.gateway.dispatch.dispatcher import Dispatcher

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
        names = [one for name in names for one in self._models_of(name)]
        return {"object": "list", "data": [self._card(name) for name in names if self._has(name)]}

    def _models_of(self, name: str) -> list[str]:
        """An endpoint of components is one model for each of them."""
        routes = self._dispatcher.routes(name)
        if routes is None or not routes.takes_components:
            return [name]
        return [f"{name}:{one.component}" for one in routes.variants]

    def card(self, name: str, only: str | None = None) -> dict[str, Any]:
        """One of them, or a target model that is loaded. Raises CallerError (404).

        `only`: what a path has named; it is that endpoint's then.
        """
        others = only is not None and only.lower() != endpoint_of(name).lower()
        if others or not self._has(name):
            raise CallerError(
                "endpoint-not-found",
                f"The model '{name[:256]}' does not exist.",
                hint="GET /v1/models names those that do.",
                status=404,
            )
        return self._card(name)

    def _has(self, name: str) -> bool:
        endpoint, colon, target = name.partition(":")
        routes = self._dispatcher.routes(endpoint)
        takes_components = routes is not None and routes.takes_components
        if colon and not takes_components:  # what it does is known to its host alone
            return self._dispatcher.is_loaded(endpoint, target)
        return routes is not None and any(
            variant.model.get("task") in TASKS and variant.component == target
            for variant in routes.variants
        )

    def _card(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._created, "owned_by": OWNER}
