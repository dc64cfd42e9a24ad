"""Sessions of a gateway's endpoints: opened and closed here, or at another gateway.

A request of a session finds its copy by itself (`Dispatcher.invoke`). This file handles calls
without a request, and reports of other gateways.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.clock import Clock
from penstock.core.routing import EndpointRouter, NoRoute
from penstock.core.routing.sessions import SESSION_IDLE_S_MAX, UNKNOWN
from penstock.gateway.dispatch import refusals
from penstock.gateway.dispatch.endpoint_table import Endpoint


class GatewaySessions:
    """The sessions of all endpoints of one gateway process."""

    #: Seconds after which an unused session expires.
    idle_s_max = SESSION_IDLE_S_MAX

    def __init__(self, clock: Clock, endpoints: Mapping[str, Endpoint]) -> None:
        self._now = clock.monotonic
        self._endpoints = endpoints

    def open(
        self,
        endpoint: str,
        session: str,
        variant: str | None = None,
        component: str | None = None,
    ) -> None:
        """Opens a session without a request. Raises PenstockError if no copy can take it."""
        opened = self._router(endpoint).open_session(
            session, variant=variant, component=component, now=self._now()
        )
        if isinstance(opened, NoRoute):
            raise refusals.no_route(endpoint, variant, opened, component)

    def close(self, endpoint: str, session: str) -> None:
        """Closes a session. Raises CallerError if it is unknown or has ended."""
        refusal = self._router(endpoint).close_session(session, now=self._now())
        if refusal is not None:
            raise refusals.no_route(endpoint, None, refusal)

    def find(self, endpoint: str, session: str) -> int | str:
        """The copy of a session, which counts as used now; or why there is none (`session-lost`,
        `session-unknown`)."""
        found = self._endpoints.get(endpoint)
        if found is None:
            return UNKNOWN.reason
        state = found.router.session(session, now=self._now())
        return state.reason if isinstance(state, NoRoute) else state.copy

    def adopt(self, endpoint: str, session: str, copy: int) -> None:
        """Adds a session that another gateway opened. Ignored if its endpoint or copy is
        unknown."""
        found = self._endpoints.get(endpoint)
        if found is not None:
            found.router.adopt_session(session, copy, now=self._now())

    def forget(self, endpoint: str, session: str) -> None:
        """Removes a session that another gateway closed."""
        found = self._endpoints.get(endpoint)
        if found is not None:
            found.router.forget_session(session, now=self._now())

    def _router(self, endpoint: str) -> EndpointRouter:
        found = self._endpoints.get(endpoint)
        if found is None:
            raise refusals.endpoint_not_found(endpoint)
        return found.router
