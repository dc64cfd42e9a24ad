"""Whether a history of calls could have come from one endpoint that did one thing at a time.

The search is Wing and Gong's (J. Parallel Distrib. Comput. 17, 1993), with Lowe's memo of what was
tried (Concurrency Computat. 29, 2017): of the calls that no other has ended before, one is taken to
have happened next; where the endpoint could not have answered so, another one is tried. A call
whose outcome is unknown may have happened at any time after it began, or never.

The endpoint's own part: one that is being deleted is gone at some later moment, unasked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

#: None: there is none. Else its generation, and whether it is being deleted.
State = tuple[int, bool] | None

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Done:
    """One call. `outcome`: ok, exists, not-found, busy, unknown; a refusal is no call at all."""

    call: str  #: create, update, delete, describe
    began: float
    ended: float  #: of an unknown outcome: of no meaning
    outcome: str
    generation: int = 0  #: that was told with ok


def after(state: State, done: Done) -> Iterator[State]:
    """The states in which the call may have left the endpoint; none if it can't have been so."""
    outcomes = ("ok", "exists", "not-found", "busy") if done.outcome == UNKNOWN else (done.outcome,)
    for outcome in outcomes:
        told = done.generation if done.outcome != UNKNOWN else None
        match done.call, outcome, state:
            case "create", "ok", None:
                yield 1, False
            case "create", "exists", (_, _):
                yield state
            case "update", "ok", (generation, False) if told in (None, generation + 1):
                yield generation + 1, False
            case "update", "busy", (_, _):
                yield state
            case "delete", "ok", (generation, _):
                yield generation, True
            case "describe", "ok", (generation, _) if told in (None, generation):
                yield state
            case (("update" | "delete" | "describe"), "not-found", None):
                yield state


def by_itself(state: State) -> Iterator[State]:
    yield state
    if state is not None and state[1]:
        yield None


def is_linearizable(history: Iterable[Done]) -> bool:
    """Of one endpoint, which is not there at first."""
    calls = sorted(history, key=lambda done: done.began)
    ends = [math.inf if done.outcome == UNKNOWN else done.ended for done in calls]
    wanted = sum(1 << index for index, end in enumerate(ends) if end < math.inf)
    tried: set[tuple[int, State]] = set()
    paths: list[tuple[int, State]] = [(0, None)]
    while paths:
        happened, state = paths.pop()
        if happened & wanted == wanted:
            return True
        if (happened, state) in tried:
            continue
        tried.add((happened, state))
        for index in _next(calls, ends, happened):
            for before in by_itself(state):
                paths += [(happened | 1 << index, now) for now in after(before, calls[index])]
    return False


def _next(calls: Sequence[Done], ends: Sequence[float], happened: int) -> Iterator[int]:
    """Calls that may have happened next: begun before any other has ended."""
    left = [index for index in range(len(calls)) if not happened >> index & 1]
    first_end = min((ends[index] for index in left), default=math.inf)
    return (index for index in left if calls[index].began <= first_end)
