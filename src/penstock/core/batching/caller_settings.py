"""How long a request may wait and before which others it goes, where its caller says so.

Triton's rules for the request parameters `priority` and `timeout`: priority 1 is the first level,
and one beyond the model's levels counts as none. A timeout counts only where the queue policy of
its level allows it (`allow_timeout_override`) and has a bound itself, which it never makes longer.
What then happens when it is over, the policy says as well: the request expires, or it lets others
go first.
"""

from __future__ import annotations

from penstock.core.batching.spec import BatchSpec, LevelPolicy


def level_of(asked: int, *, otherwise: int, levels: int) -> int:
    """The batcher's level, from 0. `asked`: the caller's, from 1; 0 = none, then `otherwise`."""
    return asked - 1 if 1 <= asked <= levels else otherwise


def policy_of(spec: BatchSpec, level: int) -> LevelPolicy:
    """How requests of this level wait."""
    if spec.levels:
        return spec.levels[min(level, len(spec.levels) - 1)]
    return LevelPolicy(wait_s_max=spec.queue_wait_s_max, timeout_override=spec.timeout_override)


def queue_wait_of(timeout_s: float, policy: LevelPolicy) -> float | None:
    """The bound of its wait, in s, where the caller makes it shorter; None = the policy's alone.

    `timeout_s`: 0 = the caller has named none.
    """
    bound = policy.wait_s_max
    if not timeout_s or not policy.timeout_override or bound is None or timeout_s >= bound:
        return None
    return timeout_s


def deadline_of(deadline: float | None, wait_s: float, *, now: float) -> float:
    """The time until which it may wait. `deadline`: of the request in any case."""
    ends = now + wait_s
    return ends if deadline is None else min(deadline, ends)
