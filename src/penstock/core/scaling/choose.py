"""Several policies on one target: one capacity of their wishes.

The largest wins out. To come in, every target-tracking policy that may scale in has to wish it, and
the largest of their wishes is taken; a step policy comes in by itself, as Application Auto Scaling
documents. A wish holds as long as its alarm goes on firing, not longer.

Cooldowns: the last activity is given time to take effect.

Application Auto Scaling's rules: while a scale-out is under way or cooling, a larger one may go on,
and what the first one added counts as part of it; nothing comes in. While a scale-in is under way
or cooling no other begins, and a scale-out goes at once. Time is in seconds, however often the
machine is asked.

A crash does not scale in: when a low metric may be believed.

Copies that are down have no requests in flight, and requests that fail at once are gone before they
are counted. So a metric is believed to be low only if all copies answered during all the time that
the alarm looked at, and if what arrived was answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.core.scaling.observed import LoadWindow
from penstock.core.scaling.spec import Policy, StepPolicy, TrackingPolicy

#: Alarms fire again each period while they last; a wish not renewed by then has lapsed.
PERIODS_KEPT: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRequest:
    """What one policy asks for."""

    policy: str  #: name
    arn: str
    capacity: int | None  #: None: nothing follows from its alarm
    reason: str
    alarm: str  #: name
    state: str  #: the alarm's
    values: tuple[float, ...]  #: of the alarm, the newest last
    at: float  #: wall seconds
    until: float  #: lapses then, unless the alarm fires again


@dataclass(frozen=True, slots=True)
class CountChoice:
    capacity: int
    wish: PolicyRequest | None  #: the one that decided; None: nothing changes
    reason: str


def choose(
    policies: Sequence[Policy], wishes: Iterable[PolicyRequest], capacity: int, *, now: float
) -> CountChoice:
    """The capacity that all wishes together come to; the present one if none asks for another."""
    live = sorted(
        (one for one in wishes if now < one.until and one.capacity is not None),
        key=lambda one: (-(one.capacity or 0), one.policy),
    )
    if not live:
        return CountChoice(capacity, None, "no-wish")
    largest = live[0]
    assert largest.capacity is not None
    if largest.capacity >= capacity:
        return CountChoice(largest.capacity, largest, largest.reason)
    asked = {one.arn for one in live}
    tracking = {one.arn for one in policies if isinstance(one, TrackingPolicy)}
    missing = [
        one.name
        for one in policies
        if isinstance(one, TrackingPolicy) and not one.disable_scale_in and one.arn not in asked
    ]
    if missing and largest.arn in tracking:
        stepping = [one for one in live if one.arn not in tracking]
        if not stepping:
            return CountChoice(capacity, largest, "not-all-policies-agree")
    return CountChoice(largest.capacity, largest, largest.reason)


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


#: Above it, a request in twenty fails: too many for chance, while a restart's few stay below.
ERROR_SHARE_MAX: Final = 0.05
STALE_AFTER_S: Final = 10.0  #: looks are a second apart


def against_scale_in(window: LoadWindow, *, since: float, now: float) -> str:
    """Why capacity must not be taken away for what was seen since then; empty where it may."""
    latest = window.latest()
    if latest is None or now >= latest.at + STALE_AFTER_S:
        return "observation-stale"
    if latest.short:
        return "copies-not-ready"
    if window.was_short(since):
        return "copies-were-not-ready"
    arrivals, errors = window.arrivals(since), window.errors(since)
    if errors and errors > ERROR_SHARE_MAX * arrivals:
        return "requests-fail"
    return ""
