"""PutMetricData: stores samples of users' own metrics.

A call is checked as a whole before anything is stored.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from typing import Any, Final

from penstock.api.aws import Members
from penstock.api.cloudwatch.rules import (
    CloudWatchContext,
    dimensions_of,
    invalid_combination,
    invalid_value,
    missing,
    seconds,
)
from penstock.errors import NotNowError
from penstock.metrics.series.series import DAY_S, HOUR_S, MetricKey
from penstock.metrics.series.statistics import StatisticSet
from penstock.wire.aws.errors import AwsError

METRICS_MAX: Final = 1000
VALUES_MAX: Final = 150
PAST_S_MAX: Final = 14 * DAY_S
FUTURE_S_MAX: Final = 2 * HOUR_S
_VALUE_MAX: Final = 2.0**360

#: Namespaces of AWS and of SageMaker's agents; here the platform itself writes both.
_RESERVED: Final = ("AWS/", "/aws/sagemaker/")
_WRITES_PER_SLICE: Final = 100
_VALUES_PER_SLICE: Final = 1_000

#: A member that excludes Value -> the service's error for both together.
_REFUSED_WITH_VALUE: Final = {"Values": invalid_value, "StatisticValues": invalid_combination}

_Place = tuple[MetricKey, int, bool]  # key, wall second, high resolution


async def put_metric_data(context: CloudWatchContext, params: Members) -> Members:
    """Adds the samples. The answer is empty.

    The entities of EntityMetricData are dropped, their samples are stored.
    """
    now = context.clock.wall()
    namespace = params["Namespace"]
    if namespace.startswith(_RESERVED):
        raise invalid_value(
            f"The value {namespace} for parameter Namespace is invalid: "
            f"namespaces that begin with {' or '.join(_RESERVED)} are reserved."
        )
    data = list(_data(params))
    if not data:
        raise missing("MetricData")
    if len(data) > METRICS_MAX:
        raise invalid_value(
            f"The collection MetricData must not have a size greater than {METRICS_MAX}."
        )
    places: dict[_Place, StatisticSet] = {}
    values = 0
    for at, datum in data:
        place, stats = _parse(namespace, at, datum, now)
        places.setdefault(place, StatisticSet()).merge(stats)
        values += 1 + len(datum.get("Values") or ())
        if values > _VALUES_PER_SLICE:
            values = 0
            await asyncio.sleep(0)
    for number, ((key, second, high_resolution), stats) in enumerate(places.items(), 1):
        try:
            context.store.put(
                key, second, stats, now=now, high_resolution=high_resolution, user=True
            )
        except NotNowError as error:
            raise AwsError("LimitExceeded", f"{error.message} {error.hint}") from error
        if number % _WRITES_PER_SLICE == 0:
            await asyncio.sleep(0)
    return {}


def _data(params: Members) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each datum with its path."""
    for number, datum in enumerate(params.get("MetricData") or (), 1):
        yield f"MetricData.member.{number}", datum
    for group, entity in enumerate(params.get("EntityMetricData") or (), 1):
        for number, datum in enumerate(entity.get("MetricData") or (), 1):
            yield f"EntityMetricData.member.{group}.MetricData.member.{number}", datum


def _parse(
    namespace: str, at: str, datum: dict[str, Any], now: float
) -> tuple[_Place, StatisticSet]:
    name = datum["MetricName"]
    if not name.strip():
        raise invalid_value(f"The value for parameter {at}.MetricName must not be blank.")
    dimensions = dimensions_of(datum.get("Dimensions"), f"{at}.Dimensions")
    resolution_s = datum.get("StorageResolution")
    if resolution_s not in (None, 1, 60):
        raise invalid_value(
            f"The value {resolution_s} for parameter {at}.StorageResolution must be 1 or 60."
        )
    moment = datum.get("Timestamp")
    second = int(now if moment is None else _checked_time(seconds(moment), now, at))
    key = MetricKey(namespace, name, dimensions, datum.get("Unit") or "None")
    return (key, second, resolution_s == 1), _samples(at, datum)


def _checked_time(moment: float, now: float, at: str) -> float:
    if moment < now - PAST_S_MAX:
        raise invalid_value(
            f"The parameter {at}.Timestamp must specify a time within the past two weeks."
        )
    if moment > now + FUTURE_S_MAX:
        raise invalid_value(
            f"The parameter {at}.Timestamp must specify a time no more than two hours in the "
            "future."
        )
    return moment


def _samples(at: str, datum: dict[str, Any]) -> StatisticSet:
    forms = [form for form in ("Value", "Values", "StatisticValues") if datum.get(form) is not None]
    if len(forms) > 1 and "Value" in forms:
        refused = _REFUSED_WITH_VALUE[forms[1]]
        raise refused(
            f"The parameters {at}.Value and {at}.{forms[1]} are mutually exclusive and you have "
            "specified both."
        )
    if not forms:
        raise missing(f"{at}.Value")
    if datum.get("Counts") is not None and "Values" not in forms:
        raise invalid_combination(f"The parameter {at}.Counts needs {at}.Values.")
    if forms == ["Value"]:
        return StatisticSet.of(_number(datum["Value"], f"{at}.Value"))
    if forms == ["StatisticValues"]:
        return _statistic_values(datum["StatisticValues"], f"{at}.StatisticValues")
    # The service allows Values with StatisticValues; the values are more exact.
    return _values(datum["Values"], datum.get("Counts"), at)


def _values(values: list[float], counts: list[float] | None, at: str) -> StatisticSet:
    if not 1 <= len(values) <= VALUES_MAX:
        raise invalid_value(f"The collection {at}.Values must have a size from 1 to {VALUES_MAX}.")
    if counts is not None and len(counts) != len(values):
        raise invalid_value(f"The parameters {at}.Values and {at}.Counts must be of the same size.")
    stats = StatisticSet()
    for value, count in zip(values, counts or [1.0] * len(values), strict=True):
        if not _number(count, f"{at}.Counts") > 0:
            raise invalid_value(f"The value {count} for parameter {at}.Counts must be above 0.")
        stats.add(_number(value, f"{at}.Values"), count)
    return stats


def _statistic_values(fields: dict[str, float], at: str) -> StatisticSet:
    count, total, minimum, maximum = (
        _number(fields[name], f"{at}.{name}")
        for name in ("SampleCount", "Sum", "Minimum", "Maximum")
    )
    if count <= 0:
        raise invalid_value(f"The value {count} for parameter {at}.SampleCount must be above 0.")
    if minimum > maximum:
        raise invalid_value(f"The parameter {at}.Maximum must not be below {at}.Minimum.")
    return StatisticSet.from_values(count, total, minimum, maximum)


def _number(value: float, at: str) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise invalid_value(f"The value {number} for parameter {at} is invalid.")
    if abs(number) > _VALUE_MAX:
        raise invalid_value(f"The value {number} for parameter {at} must be within 2 to the 360.")
    return number
