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
    """What is done on entering a state: ARNs, in the order given."""

    ok: tuple[str, ...] = ()
    alarm: tuple[str, ...] = ()
    insufficient_data: tuple[str, ...] = ()

    def of(self, state: str) -> tuple[str, ...]:
        return {OK: self.ok, ALARM: self.alarm, INSUFFICIENT_DATA: self.insufficient_data}[state]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmRecord:
    """One alarm. Whoever makes one gives `spec`, `arn` and actions; state and times are the rows'.

    Times are wall seconds.
    """

    spec: AlarmSpec
    arn: str
    actions: AlarmActions = AlarmActions()
    actions_enabled: bool = True
    owner: str = ""  #: ARN of the policy that made it; empty: a caller of PutMetricAlarm
    #: members that the caller left to their defaults, which are not shown either
    omitted: tuple[str, ...] = ()
    state: str = INSUFFICIENT_DATA
    state_reason: str = CREATED_REASON
    state_reason_data: str = ""  #: JSON; empty: none
    state_updated: float = 0.0
    configuration_updated: float = 0.0
    revision: int = 0  #: grows with every change of any alarm
    unreadable: str = ""  #: why its row could not be read; empty: it could

    @property
    def name(self) -> str:
        return self.spec.name


def unreadable_alarm(name: str, why: str, **known: Any) -> AlarmRecord:
    """Stands for an alarm whose row can't be read: it watches nothing and does nothing.

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
    """One thing that happened to an alarm."""

    alarm: str
    at: float  #: wall seconds
    kind: str  #: ConfigurationUpdate | StateUpdate | Action
    summary: str
    data: str  #: JSON
    id: int = 0  #: in the order of writing


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmQuery:
    """Which alarms a list holds; empty members admit all. In the order of names."""

    names: tuple[str, ...] = ()
    prefix: str = ""
    state: str = ""
    action_prefix: str = ""
    after: str = ""  #: a name: the list begins behind it
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryQuery:
    """Which history items a list holds; empty members admit all."""

    alarm: str = ""
    kind: str = ""
    since: float | None = None  #: wall seconds, inclusive
    until: float | None = None  #: inclusive
    newest_first: bool = True
    after: tuple[float, int] | None = None  #: (time, id) of an item: the list begins behind it
    limit: int = 100
