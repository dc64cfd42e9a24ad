"""The scaling of one target: alarms, observations, schedules and held requests in, actions out.

It asks the rules one after the other: what does each policy ask for (`tracking`, `step`), what
follows from them together (`choose`), may it happen now (bounds, suspension, cooldowns and evidence
in `choose`). Its driver calls a method for each event, carries out the actions in order, reports
the result of each `SetCapacity`, and asks for `next_deadline` after every call. The machine never
changes a count by itself: the count that counts is the one in `LoadObserved`.

Invariants (`check_invariants`): the requested count is within the bounds; only one change is made
at a time: while a `SetCapacity` is unanswered there is no other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from penstock.core.alarms.spec import AlarmFired
from penstock.core.scaling import actions as bounds
from penstock.core.scaling import activity, step, tracking
from penstock.core.scaling import choose as cooldown
from penstock.core.scaling.actions import (
    OUT_OF_REACH,
    Action,
    RunSchedule,
    ScalingDecision,
    ScalingStory,
    SetCapacity,
    SettleActivity,
    TellNotScaled,
    settled,
)
from penstock.core.scaling.choose import (
    PERIODS_KEPT,
    PolicyRequest,
    Scaled,
    choose,
)
from penstock.core.scaling.observed import LoadObserved, LoadWindow
from penstock.core.scaling.spec import Policy, ScalingSpec, ScheduledAction, StepPolicy

#: s after a count was out of reach: the machine is full, and will not be empty the next second.
OUT_OF_REACH_S: Final = 60.0


class TargetScaler:
    """One scalable target. `now` is wall seconds, as cooldowns and schedules are."""

    def __init__(self, spec: ScalingSpec) -> None:
        self._spec = spec
        self._window = LoadWindow()
        self._wishes: dict[str, PolicyRequest] = {}  #: by the policy's ARN
        self._looked_at_s: dict[str, float] = {}  #: policy's ARN -> s that its alarm covers
        self._schedules: dict[str, tuple[ScheduledAction, float]] = {}  #: name -> (action, due)
        self._last: Scaled | None = None
        self._open = ""  #: id of the activity under way; empty: none
        self._asked: SetCapacity | None = None  #: the `SetCapacity` without an answer
        self._blocked_until = 0.0
        #: bounds were changed, and the count was not checked since it may change again
        self._bounds_moved = False
        self._told: dict[str, str] = {}  #: policy's ARN -> the reason that was reported last
        self._story = ScalingStory()

    @property
    def spec(self) -> ScalingSpec:
        """The present spec of the target."""
        return self._spec

    # inputs

    def configure(
        self, spec: ScalingSpec, schedules: Iterable[tuple[ScheduledAction, float]]
    ) -> None:
        """Sets a new spec, and each schedule with its due time."""
        before, self._spec = self._spec.target, spec
        wanted = spec.target.capacity_min, spec.target.capacity_max
        if wanted != (before.capacity_min, before.capacity_max):
            self._bounds_moved = True
        self._schedules = {one.name: (one, due) for one, due in schedules}
        kept = {one.arn for one in spec.policies}
        for of_policies in (self._wishes, self._looked_at_s, self._told):
            for arn in [arn for arn in of_policies if arn not in kept]:
                del of_policies[arn]

    def restore(self, last: Scaled | None, open_activity: str = "") -> None:
        """Restores recorded state: the last activity, and its id while it is under way."""
        self._last = last
        self._open = open_activity
        self._asked = None

    def on_observed(self, observed: LoadObserved) -> list[Action]:
        """Handles an observation of the target; one each second."""
        self._window.add(observed)
        return [
            *self._settled(observed),
            *self._brought_within_bounds(observed),
            *self._fast(observed),
        ]

    def on_alarm(self, fired: AlarmFired, observed: LoadObserved) -> list[Action]:
        """An alarm's action is due for one of the policies; other ARNs are ignored."""
        self._window.add(observed)
        policy = self._spec.policy(fired.action)
        if policy is None:
            return []
        wish = self._wished(policy, fired, observed)
        self._wishes[policy.arn] = wish
        self._looked_at_s[policy.arn] = tracking.looked_at_s(fired)
        trigger = activity.alarm_cause(fired.alarm.name, fired.state, policy.name)
        choice = choose(
            self._spec.policies, self._wishes.values(), observed.capacity, now=observed.at
        )
        deciding = choice.wish
        if deciding is None or (choice.capacity == observed.capacity and wish.capacity is None):
            return self._nothing(observed, wish.reason, trigger, wish)
        if choice.capacity == observed.capacity:
            return self._nothing(
                observed, activity.stays(deciding.reason, choice.reason), trigger, wish
            )
        return self._change(observed, choice.capacity, deciding, trigger, wish)

    def capacity_wanted(self, observed: LoadObserved) -> list[Action]:
        """Requests are held and there is no copy: the first one is started at once."""
        self._window.add(observed)
        to = self._spec.target.bounded(1)
        trigger = activity.HELD_CAUSE
        if observed.capacity or self._asked is not None:
            return []
        against = self._against_out(observed) or ("" if to else "at-max-capacity")
        if against:
            return self._decided(observed, 0, against, trigger)
        cooldowns = [cooldown.of(one, out=True) for one in self._spec.policies]
        asked = SetCapacity(
            was=0,
            to=to,
            reason="requests-held",
            cause=trigger,
            cooldown_s=max(cooldowns, default=0.0),
        )
        return self._ask(observed, asked, trigger)

    def on_timer(self, observed: LoadObserved | None, *, now: float) -> list[Action]:
        """Runs due schedules, in their order. `observed`: None where the target is gone."""
        due = sorted((at, name) for name, (_, at) in self._schedules.items() if now >= at)
        actions: list[Action] = []
        for at, name in due:
            action, _ = self._schedules.pop(name)
            following = action.timetable.next_due(after=max(now, at))
            if following is not None:
                self._schedules[name] = action, following
            ran = self._run(action, following, observed, now)
            actions.append(ran)
            if ran.scale is not None and observed is not None:
                observed = replace(observed, capacity=ran.scale.to)
        return actions

    def next_deadline(self) -> float | None:
        """When to call `on_timer`, in wall seconds; None: nothing is scheduled."""
        return min((due for _, due in self._schedules.values()), default=None)

    def on_accepted(self, asked: SetCapacity, activity_id: str) -> list[Action]:
        """A `SetCapacity` was written, as the activity with this id."""
        former, self._open = self._open, activity_id
        self._asked = None
        self._last = Scaled(
            was=asked.base if asked.to > asked.was else asked.was,
            to=asked.to,
            ended=None,
            cooldown_s=asked.cooldown_s,
        )
        self._told.clear()
        if not former:
            return []
        dimension = self._spec.target.dimension
        return [
            SettleActivity(
                activity_id=former,
                status=activity.OVERRIDDEN,
                message=activity.overridden(dimension, asked.was, asked.to),
                reason="capacity-changed",
            )
        ]

    def on_refused(self, asked: SetCapacity) -> None:
        """A `SetCapacity` was not written: the count had changed, or must not change now. The next
        alarm decides anew; changed bounds are handled at the next observation."""
        self._asked = None
        self._bounds_moved |= asked.reason in bounds.REASONS

    # decisions

    def _wished(self, policy: Policy, fired: AlarmFired, observed: LoadObserved) -> PolicyRequest:
        capacity: int | None
        if isinstance(policy, StepPolicy):
            base = cooldown.base(self._last, observed.capacity, now=observed.at)
            capacity = step.wished(policy, fired, base)
            reason = "step-scaling" if capacity is not None else "no-step"
            # A step that was taken already asks for no more, and not for less.
            if capacity is not None and base < capacity < observed.capacity:
                capacity, reason = observed.capacity, "capacity-is-coming"
        else:
            capacity, reason = tracking.wished(policy, fired, observed.capacity, self._window)
        return PolicyRequest(
            policy=policy.name,
            arn=policy.arn,
            capacity=capacity,
            reason=reason,
            alarm=fired.alarm.name,
            state=fired.state,
            values=fired.values,
            at=observed.at,
            until=observed.at + PERIODS_KEPT * fired.alarm.period_s,
        )

    def _change(
        self,
        observed: LoadObserved,
        wanted: int,
        deciding: PolicyRequest,
        trigger: str,
        wish: PolicyRequest,
    ) -> list[Action]:
        target, capacity = self._spec.target, observed.capacity
        out = wanted > capacity
        to = min(wanted, target.capacity_max) if out else max(wanted, target.capacity_min)
        if (out and to <= capacity) or (not out and to >= capacity):
            reason = "at-max-capacity" if out else "at-min-capacity"
            return self._nothing(observed, reason, trigger, wish)
        against = (
            self._against_out(observed) if out else self._against_in(observed, to, deciding.arn)
        )
        if against:
            return self._nothing(observed, against, trigger, wish)
        policy = self._spec.policy(deciding.arn)
        assert policy is not None, "wishes of policies that are gone are dropped"
        asked = SetCapacity(
            was=capacity,
            to=to,
            reason=deciding.reason,
            cause=activity.alarm_cause(deciding.alarm, deciding.state, deciding.policy),
            policy=deciding.policy,
            cooldown_s=cooldown.of(policy, out=out),
            base=cooldown.base(self._last, capacity, now=observed.at),
        )
        return self._ask(observed, asked, trigger)

    def _against_out(self, observed: LoadObserved) -> str:
        if self._spec.target.suspended.scale_out:
            return "scale-out-suspended"
        if observed.at < self._blocked_until:
            return "capacity-out-of-reach"
        return self._against_any(observed)

    def _against_in(self, observed: LoadObserved, to: int, arn: str) -> str:
        if self._spec.target.suspended.scale_in:
            return "scale-in-suspended"
        waits = cooldown.blocks(self._last, observed.capacity, to, now=observed.at)
        since = observed.at - self._looked_at_s.get(arn, 0.0)
        return (
            waits
            or cooldown.against_scale_in(self._window, since=since, now=observed.at)
            or self._against_any(observed)
        )

    def _against_any(self, observed: LoadObserved) -> str:
        if self._asked is not None:
            return "change-under-way"
        return "" if observed.scalable else "update-in-progress"

    def _fast(self, observed: LoadObserved) -> list[Action]:
        """The fast path: scales out at once, for a policy on requests in flight."""
        target = self._spec.target
        policies = [one for one in self._spec.tracking() if one.of_concurrency]
        if not target.fast or not policies or not observed.capacity:
            return []
        policy = min(policies, key=lambda one: (one.target_value, one.name))
        wish = tracking.wished_fast(policy, self._window)
        if wish is None:
            return []
        wanted, reason = wish
        to = min(wanted, target.capacity_max)
        if to <= observed.capacity:
            return []
        trigger = activity.fast_cause(policy.name, observed.in_flight, observed.ready)
        against = self._against_out(observed)
        if against:
            return self._decided(observed, observed.capacity, against, trigger)
        asked = SetCapacity(
            was=observed.capacity,
            to=to,
            reason=reason,
            cause=trigger,
            policy=policy.name,
            cooldown_s=policy.scale_out_cooldown_s,
            base=cooldown.base(self._last, observed.capacity, now=observed.at),
        )
        return self._ask(observed, asked, trigger)

    def _brought_within_bounds(self, observed: LoadObserved) -> list[Action]:
        """Applies bounds that were changed during a rollout, once the count may change."""
        if not self._bounds_moved or not observed.scalable or self._asked is not None:
            return []
        self._bounds_moved = False
        asked = bounds.within(self._spec.target, observed.capacity)
        return [] if asked is None else self._ask(observed, asked, asked.cause)

    def _settled(self, observed: LoadObserved) -> list[Action]:
        """Reports the end of the activity under way, once it is observed."""
        last = self._last
        if not self._open or last is None:
            return []
        end = settled(self._open, last, observed, self._spec.target.dimension)
        if end is None:
            return []
        self._open = ""
        if end.reason == OUT_OF_REACH:
            self._blocked_until = observed.at + max(last.cooldown_s, OUT_OF_REACH_S)
        succeeded = end.status == activity.SUCCESSFUL
        self._last = replace(last, ended=observed.at) if succeeded else None
        return [end]

    def _run(
        self,
        action: ScheduledAction,
        following: float | None,
        observed: LoadObserved | None,
        now: float,
    ) -> RunSchedule:
        target = self._spec.target
        low = target.capacity_min if action.capacity_min is None else action.capacity_min
        high = target.capacity_max if action.capacity_max is None else action.capacity_max
        reason = "bounds-cross" if low > high else "schedule-due"
        if target.suspended.scheduled:
            reason = "schedule-suspended"
        scale = None
        if reason == "schedule-due":
            self._spec = replace(
                self._spec, target=replace(target, capacity_min=low, capacity_max=high)
            )
            self._bounds_moved = observed is None or not observed.scalable
            if observed is not None and observed.scalable:
                scale = bounds.within(self._spec.target, observed.capacity)
        if observed is not None:
            to = observed.capacity if scale is None else scale.to
            self._note(observed, to, reason, activity.schedule_cause(action.name))
        return RunSchedule(
            name=action.name,
            reason=reason,
            next_due=following,
            capacity_min=action.capacity_min,
            capacity_max=action.capacity_max,
            scale=scale,
        )

    # reports

    def _ask(self, observed: LoadObserved, asked: SetCapacity, trigger: str) -> list[Action]:
        self._asked = asked
        self._note(observed, asked.to, asked.reason, trigger)
        return [asked]

    def _nothing(
        self, observed: LoadObserved, reason: str, trigger: str, wish: PolicyRequest
    ) -> list[Action]:
        target = self._spec.target
        told = self._told.get(wish.arn)
        self._note(observed, observed.capacity, reason, trigger)
        if reason in activity.UNTOLD or told == reason:
            return []
        self._told[wish.arn] = reason
        return [
            TellNotScaled(
                reason=reason,
                cause=trigger,
                not_scaled=activity.NotScaled(
                    code=activity.code_of(reason),
                    capacity_min=target.capacity_min,
                    capacity_max=target.capacity_max,
                    capacity=observed.capacity,
                ),
            )
        ]

    def _decided(self, observed: LoadObserved, to: int, reason: str, trigger: str) -> list[Action]:
        self._note(observed, to, reason, trigger)
        return []

    def _note(self, observed: LoadObserved, to: int, reason: str, trigger: str) -> None:
        wishes = tuple(one for one in self._wishes.values() if observed.at < one.until)
        self._story.tell(observed, to, reason, trigger, wishes)

    def names(self, arn: str) -> bool:
        """Whether one of its policies has this ARN."""
        return self._spec.policy(arn) is not None

    def latest(self) -> LoadObserved | None:
        """The last observation."""
        return self._window.latest()

    def decisions(self) -> list[ScalingDecision]:
        """The decisions, oldest first; one that goes on is listed once, from its beginning."""
        return self._story.decisions()

    def snapshot(self) -> dict[str, Any]:
        """The present state, for people."""
        return {
            "open_activity": self._open or None,
            "last": None if self._last is None else (self._last.was, self._last.to),
            "last_ended": None if self._last is None else self._last.ended,
            "wishes": {one.policy: one.capacity for one in self._wishes.values()},
            "schedules": {name: due for name, (_, due) in self._schedules.items()},
            "out_of_reach_until": self._blocked_until or None,
        }

    def check_invariants(self) -> None:
        """Raises AssertionError."""
        asked, target = self._asked, self._spec.target
        if asked is not None and asked.to > asked.was:
            assert asked.to <= max(target.capacity_max, asked.was)
        if asked is not None and asked.to < asked.was:
            assert asked.to >= min(target.capacity_min, asked.was)
        known = {one.arn for one in self._spec.policies}
        assert set(self._wishes) <= known
        assert not self._open or self._last is not None
