"""How much more this process's endpoints can take now, for orchestrators in other regions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.config import LimitConfig
from penstock.core.deployment.deployment import VariantRoutes
from penstock.core.request.admission import rows_together
from penstock.core.request.holding import HOLD
from penstock.core.routing.prefixes import TOKEN_BYTES
from penstock.core.traffic.push_room import CopyRoom, overfull, room_of
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.dispatch.endpoint_table import Endpoint


class TrafficLoads:
    """Reads the endpoints of one dispatcher; nothing is stored.

    It includes the load from other gateway processes, as instances report it.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        limits: LimitConfig,
        *,
        waiting: Callable[[str], int] = lambda _: 0,
        row_s: Callable[[str], float] = lambda _: 0.0,
    ) -> None:
        """
        Args:
            waiting: endpoint -> requests that wait for a copy in other processes.
            row_s: endpoint -> run time per row, used if this process has seen no answers of it.
        """
        self._dispatcher = dispatcher
        self._holds = limits.zero_capacity == HOLD
        self._waiting = waiting
        self._row_s = row_s

    @property
    def accepting(self) -> bool:
        """False once the server drains."""
        return self._dispatcher.accepting

    def room(self, name: str) -> int:
        """Requests that an endpoint takes now without letting them wait; 0 if it is unknown."""
        endpoint = self._dispatcher.table.endpoints.get(name)
        return self._room(endpoint, self._copies(endpoint)) if endpoint is not None else 0

    def all(self) -> dict[str, dict[str, Any]]:
        """Endpoint -> room, waiting, in_flight, copies, capacity_rps, cache_tokens; JSON-ready.
        `served_names` where it has any."""
        return {
            name: self._load(endpoint)
            for name, endpoint in self._dispatcher.table.endpoints.items()
            if not endpoint.routes.asynchronous
        }

    def _load(self, endpoint: Endpoint) -> dict[str, Any]:
        copies = self._copies(endpoint)
        waiting = self._waiting(endpoint.name)
        names = endpoint.routes.served_names
        return {
            "room": self._room(endpoint, copies),
            "waiting": endpoint.held_count + waiting + overfull(copies),
            "in_flight": endpoint.in_flight + endpoint.router.others() + waiting,
            "copies": len(copies),
            "capacity_rps": round(sum(copy.rate_rps for copy in copies), 3),
            "cache_tokens": _cache_tokens(endpoint),
            **({"served_names": dict(names)} if names else {}),
        }

    def _room(self, endpoint: Endpoint, copies: list[CopyRoom]) -> int:
        if not self._dispatcher.accepting:
            return 0
        return room_of(
            copies,
            waiting=endpoint.held_count + self._waiting(endpoint.name),
            holds=any(self._held(pool) for pool in endpoint.routes.variants),
        )

    def _held(self, pool: VariantRoutes) -> bool:
        return pool.zero_capacity == HOLD if pool.zero_capacity else self._holds

    def _copies(self, endpoint: Endpoint) -> list[CopyRoom]:
        pools = {pool.group: pool for pool in endpoint.routes.variants}
        lane_s, row_s = endpoint.admission.lane_s, 0.0
        if not lane_s:
            row_s = self._row_s(endpoint.name)
        found = []
        for state in endpoint.router.open_copies():
            pool = pools[state.group]
            lanes = pool.lanes
            if lane_s:
                rate_rps = lanes / lane_s
            else:  # a run of an engine has the sequences of all its lanes as rows
                rate_rps = (1 if endpoint.generates else lanes) / row_s if row_s > 0 else 0.0
            found.append(
                CopyRoom(
                    outstanding=state.outstanding + state.others,
                    outstanding_max=state.outstanding_max + state.others,
                    at_once=lanes * rows_together(pool.model),
                    rate_rps=rate_rps,
                    generates=endpoint.generates,
                )
            )
        return found


def _cache_tokens(endpoint: Endpoint) -> int:
    """Tokens of prompts that all engines together cache; 0 if any engine does not report it."""
    sizes = [state.cache_bytes for state in endpoint.router.open_copies()]
    return sum(sizes) // TOKEN_BYTES if all(sizes) else 0
