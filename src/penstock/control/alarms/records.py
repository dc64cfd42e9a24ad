"""Alarms and their history as plain values, as rows and front doors exchange them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from penstock.core.alarms.spec import ALARM, INSUFFICIENT_DATA, OK, AlarmSpec, MetricQuery

#: kinds of history items
CONFIGURATION_UPDATE: Final = "ConfigurationUpdate"
STATE_UPDATE: Final = "StateUpdate"
ACTION: Final = "Action"

CREATED_REASON: Final = "Unchecked: Initial alarm creation"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmActions:
    """The actions on entering each state: ARNs, in the order given."""

    ok: tuple[str, ...] = ()
    alarm: tuple[str, ...] = ()
    insufficient_data: tuple[str, ...] = ()

    def of(self, state: str) -> tuple[str, ...]:
        return {OK: self.ok, ALARM: self.alarm, INSUFFICIENT_DATA: self.insufficient_data}[state]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmRecord:
    """One alarm. Its maker sets `spec`, `arn` and the actions; `rows.py` sets state and times.

    Times are wall seconds.
    """

    spec: AlarmSpec
    arn: str
    actions: AlarmActions = AlarmActions()
    actions_enabled: bool = True
    owner: str = ""  #: ARN of the policy that made it; empty: PutMetricAlarm made it
    #: members that the caller left at their defaults: DescribeAlarms does not show them
    omitted: tuple[str, ...] = ()
    state: str = INSUFFICIENT_DATA
    state_reason: str = CREATED_REASON
    state_reason_data: str = ""  #: JSON; empty: none
    state_updated: float = 0.0
    configuration_updated: float = 0.0
    revision: int = 0  #: grows with every change of any alarm
    unreadable: str = ""  #: why its row could not be read; empty: it was read

    @property
    def name(self) -> str:
        return self.spec.name


def unreadable_alarm(name: str, why: str, **known: Any) -> AlarmRecord:
    """A placeholder for an alarm whose row can't be read: it watches nothing and has no actions.

    `known`: other members of the record.
    """
    return AlarmRecord(
        spec=AlarmSpec(
            name=name,
            queries=(MetricQuery(id="unreadable"),),
            period_s=60,
            evaluation_periods=1,
            datapoints_to_alarm=1,
            threshold=0.0,
            comparison="GreaterThanThreshold",
        ),
        state=INSUFFICIENT_DATA,
        state_reason=f"The record of this alarm can't be read ({why[:200]}). Put it again, or "
        "delete it.",
        unreadable=why or "unreadable",
        **known,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryItem:
    """One event in the history of an alarm."""

    alarm: str
    at: float  #: wall seconds
    kind: str  #: ConfigurationUpdate | StateUpdate | Action
    summary: str
    data: str  #: JSON
    id: int = 0  #: counts up in the order of writing


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmQuery:
    """Filters of a list of alarms; an empty member filters nothing. Sorted by name."""

    names: tuple[str, ...] = ()
    prefix: str = ""
    state: str = ""
    action_prefix: str = ""
    after: str = ""  #: a name: the list begins after it
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryQuery:
    """Filters of a list of history items; an empty member filters nothing."""

    alarm: str = ""
    kind: str = ""
    since: float | None = None  #: wall seconds, inclusive
    until: float | None = None  #: wall seconds, inclusive
    newest_first: bool = True
    after: tuple[float, int] | None = None  #: (time, id) of an item: the list begins after it
    limit: int = 100
