"""What the control plane needs of a gateway, as an interface: the gateway's dispatcher offers it.

Both sides meet at composition. Neither imports the other: they are separate processes in principle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.core.deployment.deployment import EndpointRoutes

#: (endpoint, variant, instance, target model -> its counts): what a host told, once
ModelCounted = Callable[[str, str, str, dict[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingObserved:
    """Requests wait for copies of a variant, or of a component."""

    waiting: int  #: requests
    since: float  #: monotonic s


class RoutePublisher(Protocol):
    """Tells every gateway where copies are, and learns when a copy has nothing in flight."""

    async def connect(self, instance_id: str, address: str) -> None:
        """Opens the data connection; returns once requests can be sent. Raises `PenstockError`."""

    async def disconnect(self, instance_id: str) -> None:
        """Closes it; what the instance had not answered goes elsewhere. Unknown ids are ignored."""

    def publish(self, routes: EndpointRoutes) -> None:
        """Replaces all that is known of an endpoint. Copies it no longer names get no new
        requests; those in flight go on."""

    def withdraw(self, endpoint: str) -> None:
        """The endpoint is no more. Unknown names are ignored."""

    def outstanding(self, copy: int) -> int:
        """Requests in flight on a copy that is routed to; 0 for one that is not known."""

    async def drained(self, copies: Iterable[int], timeout_s: float) -> bool:
        """Waits until none of the copies has a request in flight; False when time ran out."""
