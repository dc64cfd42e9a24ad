"""What the control plane needs of a gateway, as an interface that the gateway's dispatcher offers.

`api/composition` connects the two. Neither imports the other, since they may be separate processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.core.deployment.deployment import EndpointRoutes

#: (endpoint, variant, instance, event): called with each report of target models or of containers
ModelCounted = Callable[[str, str, str, dict[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingObserved:
    """How many requests wait for copies of a variant or of a component, and since when."""

    waiting: int  #: number of requests
    since: float  #: monotonic s


class RoutePublisher(Protocol):
    """Publishes to every gateway where copies are, and knows when a copy has nothing in flight."""

    async def connect(self, instance_id: str, address: str) -> None:
        """Opens the data connection; returns once requests can be sent. Raises `PenstockError`."""

    async def disconnect(self, instance_id: str) -> None:
        """Closes the connection; unanswered requests go elsewhere. Unknown ids are ignored."""

    def publish(self, routes: EndpointRoutes) -> None:
        """Replaces the routes of an endpoint. Copies that are no longer in them get no new
        requests; those in flight continue."""

    def withdraw(self, endpoint: str) -> None:
        """The endpoint was deleted. Unknown names are ignored."""

    def outstanding(self, copy: int) -> int:
        """Requests in flight on a copy that is in the routes; 0 for any other."""

    async def drained(self, copies: Iterable[int], timeout_s: float) -> bool:
        """Waits until no copy has a request in flight; False if `timeout_s` passed first."""
