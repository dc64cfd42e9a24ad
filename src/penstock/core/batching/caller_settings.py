"""How long a request may wait and before which others it goes, where its caller says so.

Triton's rules for the request parameters `priority` and `timeout`: priority 1 is the first level,
and one beyond the model's levels counts as none; a timeout bounds the wait in the queue of a model
whose queue has a bound, and never makes that bound longer.
"""

from __future__ import annotations


def level_of(asked: int, *, otherwise: int, levels: int) -> int:
    """The batcher's level, from 0. `asked`: the caller's, from 1; 0 = none, then `otherwise`."""
    return asked - 1 if 1 <= asked <= levels else otherwise


def deadline_of(
    deadline: float | None, timeout_s: float, *, queue_wait_s_max: float | None, now: float
) -> float | None:
    """`deadline`: of the request in any case. `timeout_s`: 0 = the caller has named none."""
    if not timeout_s or queue_wait_s_max is None or timeout_s >= queue_wait_s_max:
        return deadline
    ends = now + timeout_s
    return ends if deadline is None else min(deadline, ends)
