"""Cooldowns: the last activity is given time to take effect.

Application Auto Scaling's rules: while a scale-out is under way or cooling, a larger one may go on,
and what the first one added counts as part of it; nothing comes in. While a scale-in is under way
or cooling no other begins, and a scale-out goes at once. Time is in seconds, however often the
machine is asked.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.scaling.spec import Policy, StepPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """The last activity of a target."""

    was: int  #: capacity before
    to: int
    ended: float | None  #: wall seconds; None: under way
    cooldown_s: float  #: of the policy that asked for it, from its end

    @property
    def out(self) -> bool:
        return self.to > self.was

    def cooling(self, now: float) -> bool:
        """Under way, or so short a time ago that its effect isn't seen yet."""
        return self.ended is None or now < self.ended + self.cooldown_s


def of(policy: Policy, *, out: bool) -> float:
    """The cooldown that an activity of a policy has."""
    if isinstance(policy, StepPolicy):
        return policy.cooldown_s
    return policy.scale_out_cooldown_s if out else policy.scale_in_cooldown_s


def base(last: Scaled | None, capacity: int, *, now: float) -> int:
    """What a step's adjustment is relative to: a cooling scale-out's copies don't count yet."""
    if last is not None and last.out and last.cooling(now) and capacity == last.to:
        return last.was
    return capacity


def blocks(last: Scaled | None, capacity: int, wanted: int, *, now: float) -> str:
    """Why a change has to wait; empty where it may go on."""
    if last is None or not last.cooling(now) or wanted >= capacity:
        return ""  # a scale-out that is no larger than the last never gets here: it is no change
    return "scale-out-cooldown" if last.out else "scale-in-cooldown"
