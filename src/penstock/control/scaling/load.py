"""What is seen of a target's load: from the gateway's counts and the control plane's view."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.control.scaling.resources import CapacitySeen
from penstock.control.views import InstanceView
from penstock.core.scaling.resource import ComponentId, VariantId
from penstock.metrics.registry import MetricRegistry


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSeen:
    """One look at a resource."""

    ready: int = 0  #: instances or copies that answer
    in_flight: int = 0  #: requests, queued and held ones included
    arrivals: int = 0  #: since the server's start
    errors: int = 0  #: of them, not the caller's
    time_to_ready_s: float | None = None  #: as the last starts took; None: none was measured


class LoadSource(Protocol):
    """Whoever counts requests and copies."""

    def look(self, resource: VariantId | ComponentId, seen: CapacitySeen) -> LoadSeen:
        """`seen` has the names as they were given when the resource was made."""


class VariantLoad:
    """The load of variants."""

    def __init__(
        self,
        registry: MetricRegistry,
        ready_counts: Callable[[str], Mapping[str, int]],
        instances: Callable[[str], Sequence[InstanceView]],
    ) -> None:
        """`ready_counts`: endpoint -> variant -> instances that serve; `instances`: all of one."""
        self._registry = registry
        self._ready_counts = ready_counts
        self._instances = instances

    def look(self, resource: VariantId | ComponentId, seen: CapacitySeen) -> LoadSeen:
        in_flight = self._registry.in_flight(seen.endpoint, seen.name)
        totals = self._registry.totals.get((seen.endpoint, seen.name))
        took_s = [
            one.load_s
            for one in self._instances(seen.endpoint)
            if one.variant == seen.name and one.load_s > 0
        ]
        return LoadSeen(
            ready=self._ready_counts(seen.endpoint).get(seen.name, 0),
            in_flight=in_flight,
            arrivals=in_flight + (totals.arrivals if totals is not None else 0),
            errors=totals.failures if totals is not None else 0,
            time_to_ready_s=max(took_s, default=None),
        )
