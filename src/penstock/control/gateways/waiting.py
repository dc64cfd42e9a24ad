"""How many requests wait for a copy, over all gateways."""

from __future__ import annotations

from collections.abc import Callable

Pool = tuple[str, str, str]  #: endpoint, variant, component


class WaitingSums:
    """Each gateway tells its own number; whoever scales hears the sum."""

    def __init__(self, on_waiting: Callable[[str, str, str, int], None]) -> None:
        self._on_waiting = on_waiting
        self._told: dict[Pool, dict[str, int]] = {}  #: by gateway; those that wait

    def told(self, source: str, endpoint: str, variant: str, component: str, count: int) -> None:
        pool = endpoint, variant, component
        by_source = self._told.setdefault(pool, {})
        if count:
            by_source[source] = count
        else:
            by_source.pop(source, None)
            if not by_source:
                del self._told[pool]
        self._on_waiting(endpoint, variant, component, sum(by_source.values()))

    def of(self, endpoint: str) -> int:
        """All that wait for copies of an endpoint in processes with a name."""
        return sum(
            count
            for pool, by_source in self._told.items()
            if pool[0] == endpoint
            for source, count in by_source.items()
            if source
        )

    def gone(self, source: str) -> None:
        """A gateway has ended, and with it whoever waited there."""
        for pool in [pool for pool, told in self._told.items() if source in told]:
            self.told(source, *pool, 0)
