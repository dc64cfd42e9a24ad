"""Several policies on one target: the one capacity that follows, and when it may be set.

The largest request wins out. To come in, every target-tracking policy that may scale in must ask
for it, and the largest of their requests is taken; a step policy comes in by itself, as Application
Auto Scaling documents. A request holds only as long as its alarm keeps firing.

Cooldowns give the last activity time to take effect, by Application Auto Scaling's rules. While a
scale-out is under way or cooling, a larger one may happen, and what the first one added counts as
part of it; nothing comes in. While a scale-in is under way or cooling no other begins, and a
scale-out happens at once. Time is in seconds, however often the machine is called.

A crash must not scale in. Copies that are down have no requests in flight, and requests that fail
at once are gone before they are counted. So a low metric is trusted only if all copies answered
during the whole time that the alarm covers, and if the requests that arrived were answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.core.scaling.observed import LoadWindow
from penstock.core.scaling.spec import Policy, StepPolicy, TrackingPolicy

#: Alarms fire again each period while they last; a request not renewed after this many has lapsed.
PERIODS_KEPT: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRequest:
    """The capacity that one policy asks for."""

    policy: str  #: name
    arn: str
    capacity: int | None  #: None: its alarm asks for no change
    reason: str
    alarm: str  #: name
    state: str  #: state of the alarm
    values: tuple[float, ...]  #: the alarm's datapoints, newest last
    at: float  #: wall s
    until: float  #: wall s; it lapses then, unless the alarm fires again


@dataclass(frozen=True, slots=True)
class CountChoice:
    capacity: int
    wish: PolicyRequest | None  #: the request that decided; None: nothing changes
    reason: str


def choose(
    policies: Sequence[Policy], wishes: Iterable[PolicyRequest], capacity: int, *, now: float
) -> CountChoice:
    """The capacity that follows from all requests; the present one if none asks for another."""
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
    if missing and all(one.arn in tracking for one in live):
        return CountChoice(capacity, largest, "not-all-policies-agree")
    return CountChoice(largest.capacity, largest, largest.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """The last activity of a target."""

    was: int  #: capacity before
    to: int
    ended: float | None  #: wall s; None: under way
    cooldown_s: float  #: s from its end, by the policy that asked for it

    @property
    def out(self) -> bool:
        return self.to > self.was

    def cooling(self, now: float) -> bool:
        """Whether it is under way, or ended so recently that its effect can't be observed yet."""
        return self.ended is None or now < self.ended + self.cooldown_s


def of(policy: Policy, *, out: bool) -> float:
    """The cooldown of an activity of this policy."""
    if isinstance(policy, StepPolicy):
        return policy.cooldown_s
    return policy.scale_out_cooldown_s if out else policy.scale_in_cooldown_s


def base(last: Scaled | None, capacity: int, *, now: float) -> int:
    """The base of a step's adjustment: copies of a cooling scale-out don't count in it."""
    if last is not None and last.out and last.cooling(now) and capacity == last.to:
        return last.was
    return capacity


def blocks(last: Scaled | None, capacity: int, wanted: int, *, now: float) -> str:
    """Why a change must wait; empty where it may happen."""
    if last is None or not last.cooling(now) or wanted >= capacity:
        return ""  # a scale-out no larger than the last changes nothing, and never gets here
    return "scale-out-cooldown" if last.out else "scale-in-cooldown"


#: Share of failed requests above which load is not trusted: too many for chance, while the few of a
#: restart stay below.
ERROR_SHARE_MAX: Final = 0.05
STALE_AFTER_S: Final = 10.0  #: s; observations are a second apart


def against_scale_in(window: LoadWindow, *, since: float, now: float) -> str:
    """Why capacity must not be reduced, by observations since then; empty where it may."""
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
