"""Which state follows from an alarm's datapoints: M out of N, and how missing ones count.

The rules are CloudWatch's ("Configuring how CloudWatch alarms treat missing data" in its user
guide). The evaluation range has two periods more than N, so that an older datapoint can stand in
for one that is late. If at least N datapoints are there, the newest N decide and nothing is
missing. Otherwise every datapoint that is there counts, and the rule for missing data fills the
rest:

* breaching, notBreaching: each missing datapoint counts as such.
* missing, ignore: one datapoint that does not breach makes the alarm OK. If all breach, the alarm
  is ALARM once the oldest of them is at least M periods old ("missing"), or keeps its state
  ("ignore"). Younger ones decide nothing yet: the next datapoint may lie on the other side.
* no datapoint at all: INSUFFICIENT_DATA ("missing"), or the state is kept ("ignore").

Our own addition: datapoints that are absent because the server was down are not missing. An alarm
that had a state then keeps it until datapoints decide, or enough periods have passed since.

When an alarm is evaluated next, and which range of time is then evaluated.

Periods are whole multiples of their length since the epoch, and only complete ones count. As in
CloudWatch, an alarm is evaluated more often than its period is long: datapoints may come late.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.core.alarms import words
from penstock.core.alarms.spec import (
    ALARM,
    BREACHING,
    IGNORE,
    INSUFFICIENT_DATA,
    NOT_BREACHING,
    OK,
    AlarmSpec,
    Datapoint,
)

#: Periods that are looked at beyond N; CloudWatch documents a range of 5 for N = 3.
EXTRA_PERIODS: Final = 2

COMPARISONS: Final[dict[str, Callable[[float, float], bool]]] = {
    "GreaterThanOrEqualToThreshold": operator.ge,
    "GreaterThanThreshold": operator.gt,
    "LessThanThreshold": operator.lt,
    "LessThanOrEqualToThreshold": operator.le,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmDecision:
    """The state that an alarm should have; `text` and `data` are empty where it does not change."""

    state: str
    reason: str  #: kebab-case
    values: tuple[float, ...]  #: the evaluated values, newest last
    text: str = ""  #: StateReason
    data: dict[str, Any] = field(default_factory=dict)  #: StateReasonData


def decide(
    spec: AlarmSpec,
    datapoints: Sequence[Datapoint],
    state: str,
    *,
    now: float,
    watched_since: float = 0.0,
) -> AlarmDecision:
    """The state after `state`.

    Args:
        datapoints: one for each period of the evaluation range (N and `EXTRA_PERIODS`), the newest
            last; missing ones without a value.
        now: wall s.
        watched_since: periods that began before this wall second may have had datapoints that
            nobody kept.
    """
    return _Evaluation(spec, datapoints, state, now).decided(watched_since)


def not_computable(why: str) -> AlarmDecision:
    """The alarm's metric can't be read or computed: the state is unknown, and the text says so."""
    return AlarmDecision(
        state=INSUFFICIENT_DATA,
        reason="not-computable",
        values=(),
        text=f"{words.NOT_COMPUTABLE}{why}",
    )


class _Evaluation:
    """One look at one alarm."""

    def __init__(
        self, spec: AlarmSpec, datapoints: Sequence[Datapoint], state: str, now: float
    ) -> None:
        self._spec = spec
        self._state = state
        self._now = now
        self._range = datapoints
        there = [point for point in datapoints if point.value is not None]
        self._used = there[-spec.evaluation_periods :]
        self._missing = spec.evaluation_periods - len(self._used)
        compare = COMPARISONS[spec.comparison]
        self._breaching = [
            point
            for point in self._used
            if point.value is not None and compare(point.value, spec.threshold)
        ]

    def decided(self, watched_since: float) -> AlarmDecision:
        spec, rule = self._spec, self._spec.treat_missing_data
        if any(_has_too_few_samples(spec, point) for point in self._used):
            return self._kept("too-few-samples")
        if len(self._breaching) >= spec.datapoints_to_alarm:
            return self._entered(ALARM, "threshold-crossed")
        if not self._missing:
            return self._entered(OK, "within-threshold")
        if self._state != INSUFFICIENT_DATA and any(
            point.value is None and point.at < watched_since for point in self._range
        ):
            rule = IGNORE
        if rule == BREACHING and (len(self._breaching) + self._missing >= spec.datapoints_to_alarm):
            return self._entered(ALARM, "missing-breach", treated=rule)
        if rule in (BREACHING, NOT_BREACHING):
            return self._entered(OK, "missing-do-not-breach", treated=rule)
        return self._unfilled(rule)

    def _unfilled(self, rule: str) -> AlarmDecision:
        """The decision where missing datapoints count as nothing."""
        spec = self._spec
        if not self._used:
            if rule == IGNORE:
                return self._kept("no-data")
            return self._entered(INSUFFICIENT_DATA, "no-data")
        if len(self._breaching) < len(self._used):
            return self._entered(OK, "within-threshold")
        oldest = next(i for i, point in enumerate(self._range) if point.value is not None)
        age = len(self._range) - oldest  # in periods; the newest datapoint has age 1
        if age < spec.datapoints_to_alarm:
            return self._kept("too-early")
        if rule == IGNORE:
            return self._kept("missing-ignored")
        return self._entered(ALARM, "breached-then-silent")

    def _kept(self, reason: str) -> AlarmDecision:
        return AlarmDecision(state=self._state, reason=reason, values=self._values())

    def _entered(self, state: str, reason: str, *, treated: str = "") -> AlarmDecision:
        if state == self._state:
            return self._kept(reason)
        without = [point for point in self._range if point.value is None]
        return AlarmDecision(
            state=state,
            reason=reason,
            values=self._values(),
            text=self._text(state, reason, treated),
            data=words.reason_data(
                self._spec, self._used, without if self._missing else (), now=self._now
            ),
        )

    def _text(self, state: str, reason: str, treated: str) -> str:
        spec = self._spec
        if state == INSUFFICIENT_DATA:
            return words.insufficient(spec)
        if not self._used:
            return words.nothing_received(spec, treated)
        breaching = set(self._breaching)
        shown = [point for point in self._used if (point in breaching) == (state == ALARM)]
        unfilled = reason == "breached-then-silent"
        return words.crossed(
            spec,
            state,
            shown,
            received=len(self._used),
            missing=self._missing if treated or unfilled else 0,
            treated=treated,
        )

    def _values(self) -> tuple[float, ...]:
        return tuple(point.value for point in self._used if point.value is not None)


def _has_too_few_samples(spec: AlarmSpec, point: Datapoint) -> bool:
    """CloudWatch calls a percentile significant with 10 samples beyond it, on its nearer side."""
    stat = spec.queries[0].stat if len(spec.queries) == 1 else None
    if spec.low_samples != IGNORE or stat is None or stat.stat[:1] != "p":
        return False
    share = float(stat.stat[1:]) / 100
    beyond = min(share, 1.0 - share)
    return point.sample_count * beyond < 10.0


#: s after a period's end. A window of ten seconds is published within 1 s of its end; 1 s more is
#: for delivery.
SETTLE_S: Final = 2.0
#: The same for periods of one second, which are there as soon as they have ended.
SETTLE_FAST_S: Final = 0.5
_HIGH_RESOLUTION_S: Final = 10
_STANDARD_S: Final = 60
_SELDOM_S: Final = 3600
_DAY_S: Final = 86_400

_SCALING: Final = (":autoscaling:", ":application-autoscaling:")


def interval_s(spec: AlarmSpec) -> int:
    """s between evaluations: 60; 10 for periods below a minute; 3,600 for those above a day."""
    if spec.period_s < _HIGH_RESOLUTION_S:
        return spec.period_s
    if spec.period_s < _STANDARD_S:
        return _HIGH_RESOLUTION_S
    return _SELDOM_S if spec.period_s * spec.evaluation_periods > _DAY_S else _STANDARD_S


def next_look(spec: AlarmSpec, *, now: float) -> float:
    """The first moment after `now` (wall s) at which to evaluate."""
    interval, settle = interval_s(spec), _settle_s(spec)
    return (math.floor((now - settle) / interval) + 1) * interval + settle


def evaluation_range(spec: AlarmSpec, *, now: float) -> tuple[int, int]:
    """[start, end) in wall seconds: N periods and the extra ones, up to the last complete one."""
    end = math.floor((now - _settle_s(spec)) / spec.period_s) * spec.period_s
    return end - (spec.evaluation_periods + EXTRA_PERIODS) * spec.period_s, end


def repeats(action: str) -> bool:
    """Whether an action repeats while its state lasts.

    Actions of scaling policies do, so that a step policy acts again after its cooldown.
    """
    return (
        action.startswith("arn:")
        and ":scalingPolicy:" in action
        and any(service in action for service in _SCALING)
    )


def next_repeat(spec: AlarmSpec, *, acted_at: float) -> float:
    """When a repeated action is due again: each period, and each minute of longer ones."""
    return acted_at + min(spec.period_s, _STANDARD_S)


def _settle_s(spec: AlarmSpec) -> float:
    return SETTLE_S if spec.period_s >= _HIGH_RESOLUTION_S else SETTLE_FAST_S
