"""Pickers: each chooses one copy among those that are left.

Each gets one or more copies that may be routed to (healthy, not draining) and returns one that has
room, or None if all are full.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from penstock.core.routing.copies import CopyState


def least_outstanding(copies: Sequence[CopyState]) -> CopyState | None:
    """The copy with the fewest outstanding requests; ties go to the least recently picked.

    Requests of other gateways count as well, as last reported by the copy's instance.

    Full knowledge of every copy's count beats sampling two of them: a gateway has few enough copies
    to look at all (in simulation 0.93 against 0.81 utilisation at the same promise, 8 per host).
    """
    best: CopyState | None = None
    fewest = latest = 0
    for state in copies:
        outstanding = state.outstanding
        if outstanding >= state.outstanding_max:
            continue
        outstanding += state.others
        if (
            best is None
            or outstanding < fewest
            or (outstanding == fewest and state.picked < latest)
        ):
            best = state
            fewest = outstanding
            latest = state.picked
    return best


def least_wait(copies: Sequence[CopyState]) -> CopyState | None:
    """As `least_outstanding`, where a request takes longer on some copies: the copy that would
    finish one more request first."""
    best: CopyState | None = None
    shortest: tuple[float, int] = (0.0, 0)
    for state in copies:
        if state.outstanding < state.outstanding_max:
            wait = (state.outstanding + state.others + 1) * state.cost, state.picked
            if best is None or wait < shortest:
                best = state
                shortest = wait
    return best


def least_together(copies: Sequence[CopyState]) -> CopyState | None:
    """As `least_outstanding`, where copies share their queue with others: compares all requests in
    the queue, whichever copy they name."""
    best: CopyState | None = None
    fewest: tuple[int, int] = (0, 0)
    for state in copies:
        together = sum(one.outstanding + one.others for one in state.beside or (state,))
        if state.outstanding >= state.outstanding_max:
            continue
        if together < state.limit and (best is None or (together, state.picked) < fewest):
            best = state
            fewest = together, state.picked
    return best


def uniform(copies: Sequence[CopyState], rng: random.Random) -> CopyState | None:
    """Any copy with room, all equally likely."""
    state = copies[int(rng.random() * len(copies))]
    if state.outstanding < state.outstanding_max:
        return state
    # A second draw among those with room keeps them equally likely: each had the same first chance.
    roomy = [state for state in copies if state.outstanding < state.outstanding_max]
    return roomy[int(rng.random() * len(roomy))] if roomy else None


def least_recent(copies: Sequence[CopyState]) -> CopyState | None:
    """Round robin: the copy with room that was picked longest ago.

    Copies that come, go or are full need no stored position: the one not picked for longest is
    next.
    """
    best: CopyState | None = None
    for state in copies:
        if state.outstanding < state.outstanding_max and (
            best is None or state.picked < best.picked
        ):
            best = state
    return best
