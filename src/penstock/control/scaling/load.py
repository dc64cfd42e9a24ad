"""What is seen of a target's load: from the gateway's counts and the control plane's view."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from penstock.control.scaling.resources import CapacitySeen
from penstock.core.scaling.resource import ComponentId, VariantId
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.counts.totals import VariantTotals

Counts = Callable[[str], Mapping[str, int]]
#: (endpoint, variant, component) -> what the last starts of a copy took, in s; None: none was seen
StartS = Callable[[str, str, str], float | None]


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

    def __init__(self, registry: MetricRegistry, ready_counts: Counts, start_s: StartS) -> None:
        """`ready_counts`: endpoint -> variant -> instances that serve."""
        self._registry = registry
        self._ready_counts = ready_counts
        self._start_s = start_s

    def look(self, resource: VariantId | ComponentId, seen: CapacitySeen) -> LoadSeen:
        name = seen.endpoint, seen.variant
        return _seen(
            self._registry.in_flight(*name),
            self._registry.totals.get(name),
            ready=self._ready_counts(seen.endpoint).get(seen.variant, 0),
            time_to_ready_s=self._start_s(*name, ""),
        )


class ComponentLoad:
    """The load of inference components."""

    def __init__(self, registry: MetricRegistry, copy_counts: Counts, start_s: StartS) -> None:
        """`copy_counts`: endpoint -> component -> copies that are ready."""
        self._registry = registry
        self._copy_counts = copy_counts
        self._start_s = start_s

    def look(self, resource: VariantId | ComponentId, seen: CapacitySeen) -> LoadSeen:
        name = seen.endpoint, seen.variant
        return _seen(
            self._registry.in_flight(*name, seen.component),
            self._registry.components.get(name, {}).get(seen.component),
            ready=self._copy_counts(seen.endpoint).get(seen.component, 0),
            time_to_ready_s=self._start_s(*name, seen.component),
        )


def _seen(
    in_flight: int, totals: VariantTotals | None, *, ready: int, time_to_ready_s: float | None
) -> LoadSeen:
    return LoadSeen(
        ready=ready,
        in_flight=in_flight,
        arrivals=in_flight + (totals.arrivals if totals is not None else 0),
        errors=totals.failures if totals is not None else 0,
        time_to_ready_s=time_to_ready_s,
    )
