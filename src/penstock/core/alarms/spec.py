"""What an alarm watches, and what it reports when it acts. The words are CloudWatch's."""

from __future__ import annotations

from dataclasses import dataclass

OK = "OK"
ALARM = "ALARM"
INSUFFICIENT_DATA = "INSUFFICIENT_DATA"
STATES = (OK, ALARM, INSUFFICIENT_DATA)

#: values of TreatMissingData
BREACHING = "breaching"
NOT_BREACHING = "notBreaching"
IGNORE = "ignore"
MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricStat:
    """One statistic of one metric, with one datapoint per period."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]  #: sorted by name
    period_s: int
    stat: str  #: Average | Sum | Minimum | Maximum | SampleCount | p99 | tm… | …
    unit: str | None = None  #: None: any unit


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricQuery:
    """Either a statistic or an expression over other queries, never both."""

    id: str  #: empty for an alarm's plain metric, which CloudWatch shows without a list of queries
    stat: MetricStat | None = None
    expression: str = ""
    label: str = ""
    period_s: int | None = None  #: period of the series that an expression makes
    return_data: bool = True  #: exactly one query of an alarm has True


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmSpec:
    """One alarm. A plain metric is a single query whose id is empty."""

    name: str
    queries: tuple[MetricQuery, ...]
    period_s: int  #: period of the evaluated datapoints
    evaluation_periods: int  #: N
    datapoints_to_alarm: int  #: M
    threshold: float
    comparison: str  #: a ComparisonOperator, such as GreaterThanThreshold
    treat_missing_data: str = MISSING
    description: str = ""
    #: EvaluateLowSampleCountPercentile: evaluate | ignore; only used by alarms on a percentile
    low_samples: str = "evaluate"


@dataclass(frozen=True, slots=True)
class Datapoint:
    """One period of an alarm's metric."""

    at: int  #: wall second at which the period begins
    value: float | None = None  #: None: missing
    sample_count: float = 0.0  #: samples in the period, of a plain metric only


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmFired:
    """An action is due: the alarm entered a state, or a scaling action repeats after its period."""

    alarm: AlarmSpec
    arn: str  #: ARN of the alarm
    action: str  #: ARN of the action; of a scaling policy where it is to scale
    state: str
    values: tuple[float, ...]  #: the evaluated datapoints, newest last
    reason: str  #: StateReason
    at: float  #: wall s
