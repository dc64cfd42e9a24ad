"""What the tests of alarms are told in: one on the metric `Queue`, and rows of its datapoints.

In a row `0` is a datapoint within the threshold of 5, `X` one that breaches it, `-` a missing one;
the newest is on the right.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.core.alarms.spec import AlarmSpec, Datapoint, MetricQuery, MetricStat

RULES = ("missing", "ignore", "breaching", "notBreaching")


def alarm(stat: str = "Average", *, period_s: int = 10, unit: str = "", **more: Any) -> AlarmSpec:
    """`more`: fields that differ from three datapoints of three above the threshold."""
    watched = MetricStat(
        namespace="Shop",
        name="Queue",
        dimensions=(),
        period_s=period_s,
        stat=stat,
        unit=unit or None,
    )
    spec = AlarmSpec(
        name="busy",
        queries=(MetricQuery(id="", stat=watched),),
        period_s=period_s,
        evaluation_periods=3,
        datapoints_to_alarm=3,
        threshold=5.0,
        comparison="GreaterThanThreshold",
    )
    return replace(spec, **more)


def points(
    row: str, *, start: int = 0, period_s: int = 10, within: float = 1.0, samples: float = 0.0
) -> list[Datapoint]:
    """The datapoints of a row; `samples` in each period that has one."""
    values = {"0": within, "X": 9.0, "-": None}
    return [
        Datapoint(start + period_s * place, values[letter], 0.0 if letter == "-" else samples)
        for place, letter in enumerate(row.replace(" ", ""))
    ]
