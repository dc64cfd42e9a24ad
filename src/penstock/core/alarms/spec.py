"""What an alarm watches, and what it tells when it acts. The words are CloudWatch's."""

from __future__ import annotations

from dataclasses import dataclass

OK = "OK"
ALARM = "ALARM"
INSUFFICIENT_DATA = "INSUFFICIENT_DATA"
STATES = (OK, ALARM, INSUFFICIENT_DATA)

#: TreatMissingData
BREACHING = "breaching"
NOT_BREACHING = "notBreaching"
IGNORE = "ignore"
MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricStat:
    """One statistic of one metric, a datapoint a period."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]  #: sorted by name
    period_s: int
    stat: str  #: Average | Sum | Minimum | Maximum | SampleCount | p99 | tm… | …
    unit: str | None = None  #: None: every unit


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricQuery:
    """A statistic or an expression over other queries; exactly one of the two."""

    id: str  #: empty: an alarm's plain metric, which CloudWatch shows without a list of queries
    stat: MetricStat | None = None
    expression: str = ""
    label: str = ""
    period_s: int | None = None  #: of an expression's own series
    return_data: bool = True  #: of one query of an alarm only


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmSpec:
    """One alarm. A plain metric is a single query whose id is empty."""

    name: str
    queries: tuple[MetricQuery, ...]
    period_s: int  #: of the datapoints that are evaluated
    evaluation_periods: int  #: N
    datapoints_to_alarm: int  #: M
    threshold: float
    comparison: str  #: ComparisonOperator, as GreaterThanThreshold
    treat_missing_data: str = MISSING
    description: str = ""
    #: EvaluateLowSampleCountPercentile: evaluate | ignore; only a percentile's alarm has it
    low_samples: str = "evaluate"


@dataclass(frozen=True, slots=True)
class Datapoint:
    """One period of what an alarm watches."""

    at: int  #: wall second at which the period begins
    value: float | None = None  #: None: missing
    sample_count: float = 0.0  #: of a plain metric


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmFired:
    """An action is due: the alarm entered a state, or an autoscaling action's period came round."""

    alarm: AlarmSpec
    arn: str  #: of the alarm
    action: str  #: ARN, of a scaling policy where scaling is to act
    state: str
    values: tuple[float, ...]  #: datapoints that were evaluated, the newest last
    reason: str  #: StateReason
    at: float  #: wall seconds
