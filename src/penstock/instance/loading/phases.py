"""What a copy does while it is loaded, for the people who wait for it.

The names of the phases are what `penstock deploy` prints. Whoever does the work says so through
`LoadContext.phase`; no decision depends on it.
"""

from __future__ import annotations

from typing import Final

from penstock.clock import Clock
from penstock.runtimes.base import INSTALLING

FETCHING: Final = "fetching"  #: the artifact, or it is looked up in the cache
COMPILING: Final = "compiling"  #: weights without a graph
LOADING: Final = "loading"
WARMING_UP: Final = "warming up"
NAMES: Final = (FETCHING, INSTALLING, COMPILING, LOADING, WARMING_UP)


class LoadPhases:
    """The phase of each copy that an instance loads. `enter` may be called on any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._phases: dict[int, tuple[str, float]] = {}  #: copy -> its phase, and since when

    def __contains__(self, copy: int) -> bool:
        return copy in self._phases

    def begin(self, copy: int, phase: str) -> None:
        self._phases[copy] = phase, self._clock.monotonic()

    def enter(self, copy: int, phase: str) -> None:
        """Without effect once the copy is no longer being loaded."""
        before = self._phases.get(copy)
        if before is not None and before[0] != phase:
            self._phases[copy] = phase, self._clock.monotonic()

    def end(self, copy: int) -> None:
        self._phases.pop(copy, None)

    def to_list(self) -> list[dict[str, object]]:
        """For the instance's status, by copy."""
        now = self._clock.monotonic()
        return [
            {"copy": copy, "phase": phase, "phase_s": now - since}
            for copy, (phase, since) in sorted(self._phases.items())
        ]
