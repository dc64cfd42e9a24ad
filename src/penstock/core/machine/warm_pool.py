"""How many spare instance processes to start now, so that the specified number is ready.

A spare that is used, or that died, is replaced: at once the first time, after a pause that doubles
where spares die unused. Spares start one at a time: they are for later, and must not slow down the
starts that are needed now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.core.backoff import Backoff

_BACKOFF: Final = Backoff(0.5, 30.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparesObserved:
    ready: int  #: spares that are ready
    starting: int  #: spares that are starting
    failures: int = 0  #: spares in a row that died or could not be started
    failed_at: float = 0.0  #: time of the last failure, s


@dataclass(frozen=True, slots=True)
class SparesDecision:
    start: int
    stop: int  #: of the ready spares, because fewer are needed
    next_deadline: float | None  #: when a pause is over


def decide(wished: int, observed: SparesObserved, *, now: float) -> SparesDecision:
    """How many spares to start or stop now."""
    there = observed.ready + observed.starting
    if there >= wished:
        return SparesDecision(0, min(there - wished, observed.ready), None)
    if observed.starting:
        return SparesDecision(0, 0, None)
    if observed.failures:
        due = observed.failed_at + _BACKOFF.pause_s(observed.failures)
        if now < due:
            return SparesDecision(0, 0, due)
    return SparesDecision(1, 0, None)
