"""Why an alarm is in its state, in CloudWatch's words: StateReason and StateReasonData.

Programs read both: the words and their order are CloudWatch's, as its notifications show them.
`moment` writes wall seconds as CloudWatch does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.core.alarms.spec import ALARM, BREACHING, AlarmSpec, Datapoint
from penstock.core.timetable.cron import time_of


def moment(at: float) -> str:
    """A time as JSON has it: 2023-11-14T22:14:00.000+0000."""
    seconds, rest = divmod(int(at * 1000), 1000)
    year, month, day, hour, minute, second = time_of(seconds)
    return f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{rest:03}+0000"


def stamp(at: int) -> str:
    """A time as a StateReason has it: 14/11/23 22:14:00."""
    year, month, day, hour, minute, second = time_of(at)
    return f"{day:02}/{month:02}/{year % 100:02} {hour:02}:{minute:02}:{second:02}"


_COMPARED: Final = {
    "GreaterThanOrEqualToThreshold": "greater than or equal to",
    "GreaterThanThreshold": "greater than",
    "LessThanThreshold": "less than",
    "LessThanOrEqualToThreshold": "less than or equal to",
}
#: Begins the reason of an alarm that can't be computed. The words are ours; CloudWatch has none.
NOT_COMPUTABLE: Final = "The alarm can't be evaluated: "
_LISTED_MAX: Final = 5  #: where there are more datapoints, only the most recent ones are listed
#: datapoints listed in StateReasonData, which may have at most 4,000 characters
_TOLD_MAX: Final = 50
_SIMPLE: Final = ("Average", "Sum", "Minimum", "Maximum", "SampleCount")


def insufficient(spec: AlarmSpec) -> str:
    """The reason where there is no datapoint, and nothing else is known."""
    return f"Insufficient Data: {_counted(spec.evaluation_periods, 'datapoint')} unknown."


def nothing_received(spec: AlarmSpec, treated: str) -> str:
    """The reason where there is no datapoint, and each missing one counts as `treated`."""
    periods = spec.evaluation_periods
    return (
        f"Threshold Crossed: no datapoints were received for {periods} period{_s(periods)} and "
        f"{_treated(periods, treated)}."
    )


def crossed(
    spec: AlarmSpec,
    state: str,
    shown: Sequence[Datapoint],
    *,
    received: int,
    missing: int = 0,
    treated: str = "",
) -> str:
    """The reason that names the datapoints that lead to `state`.

    Args:
        shown: datapoints on the side of the state, newest last; may be empty.
        received: number of datapoints that were evaluated.
        missing: number of further datapoints that the alarm would have needed.
        treated: how each missing datapoint counts; empty: missing ones count as nothing.
    """
    periods = spec.evaluation_periods
    if not shown:
        return (
            f"Threshold Crossed: {_counted(received, 'datapoint')} received for {periods} "
            f"period{_s(periods)} and {_treated(missing, treated)}."
        )
    newest = [f"{point.value} ({stamp(point.at)})" for point in reversed(shown[-_LISTED_MAX:])]
    listed = len(shown) <= _LISTED_MAX
    parts = [f"Threshold Crossed: {len(shown)} out of the last {periods} datapoints"]
    if listed:
        parts.append(f"[{', '.join(newest)}]")
    side = "" if state == ALARM else "not "
    parts.append(
        f"{_be(len(shown))} {side}{_COMPARED[spec.comparison]} the threshold ({spec.threshold})"
    )
    if missing:
        what = (
            _treated(missing, treated)
            if treated
            else f"{_counted(missing, 'newer datapoint')} missing"
        )
        parts.append(f"and {what}")
    if state == ALARM:
        least, way = spec.datapoints_to_alarm, "OK -> ALARM"
    else:
        least, way = periods - spec.datapoints_to_alarm + 1, "ALARM -> OK"
    parts.append(f"(minimum {least} datapoint{_s(least)} for {way} transition).")
    if not listed:
        parts.append(
            f"The most recent datapoints which crossed the threshold: [{', '.join(newest)}]."
        )
    return " ".join(parts)


def reason_data(
    spec: AlarmSpec, evaluated: Sequence[Datapoint], missing: Sequence[Datapoint], *, now: float
) -> dict[str, Any]:
    """The evaluated data as JSON, for programs.

    Args:
        evaluated: datapoints with values, newest last.
        missing: datapoints of the evaluated range that have no value.
    """
    told = evaluated[-_TOLD_MAX:]
    data: dict[str, Any] = {"version": "1.0", "queryDate": moment(now)}
    if told:
        data["startDate"] = moment(told[0].at)
    stat = spec.queries[0].stat if len(spec.queries) == 1 else None
    if stat is not None:
        if stat.unit:
            data["unit"] = stat.unit
        data["statistic" if stat.stat in _SIMPLE else "extendedStatistic"] = stat.stat
    data["period"] = spec.period_s
    data["recentDatapoints"] = [point.value for point in told]
    data["threshold"] = spec.threshold
    rows = sorted((*told, *missing[-_LISTED_MAX:]), key=lambda point: -point.at)
    data["evaluatedDatapoints"] = [_row(point) for point in rows[:_LISTED_MAX]]
    return data


def _row(point: Datapoint) -> dict[str, Any]:
    row: dict[str, Any] = {"timestamp": moment(point.at)}
    if point.value is not None:
        if point.sample_count:
            row["sampleCount"] = point.sample_count
        row["value"] = point.value
    return row


def _treated(count: int, treated: str) -> str:
    stands_for = "Breaching" if treated == BREACHING else "NonBreaching"
    return f"{_counted(count, 'missing datapoint')} treated as [{stands_for}]"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{_s(count)} {_be(count)}"


def _be(count: int) -> str:
    return "was" if count == 1 else "were"


def _s(count: int) -> str:
    return "" if count == 1 else "s"
