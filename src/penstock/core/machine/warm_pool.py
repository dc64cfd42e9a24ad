"""How many spare instance processes are started now, so that as many as wished stand ready.

A spare that is taken, or that died, is replaced: at once the first time, after a pause that doubles
where spares die before anybody took them. One at a time: a spare is for later, and must not slow
down what is being started for now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.core.backoff import Backoff

_BACKOFF: Final = Backoff(0.5, 30.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparesObserved:
    ready: int  #: stand ready
    starting: int  #: started, and not ready yet
    failures: int = 0  #: spares that died in a row, or could not be started
    failed_at: float = 0.0  #: the last of them


@dataclass(frozen=True, slots=True)
class SparesDecision:
    start: int
    stop: int  #: of those that stand ready, because fewer are wished
    next_deadline: float | None  #: when a pause is over


def decide(wished: int, observed: SparesObserved, *, now: float) -> SparesDecision:
    """What is done now."""
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
