"""CloudWatch's rules about parameters, and its errors for breaking them.

The service model already checked types, required members, lengths and enums. These are the rules
that the model can't express. Operations take a context, which is here, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from penstock.clock import Clock
from penstock.control.alarms.driver import AlarmsDriver
from penstock.control.store.store_thread import StoreThread
from penstock.metrics.series.store import MetricStore
from penstock.wire.aws.errors import AwsError

DIMENSIONS_MAX: Final = 30
_ID: Final = re.compile(r"[a-z][a-zA-Z0-9_]*", re.ASCII)
_SECONDS_BELOW_A_MINUTE: Final = (1, 5, 10, 20, 30)
_PERIOD_S_MAX: Final = 31_536_000  # a year; the longest that is kept is fifteen months


@dataclass(frozen=True, slots=True)
class CloudWatchContext:
    """The context of one call. All regions that a server answers for share the store."""

    store: MetricStore
    database: StoreThread
    alarms: AlarmsDriver
    clock: Clock
    region: str
    account_id: str


def seconds(moment: datetime | float) -> float:
    """Wall seconds of a timestamp, in either form of the protocols."""
    return moment.timestamp() if isinstance(moment, datetime) else float(moment)


def invalid_value(message: str) -> AwsError:
    return AwsError("InvalidParameterValue", message)


def invalid_combination(message: str) -> AwsError:
    return AwsError("InvalidParameterCombination", message)


def missing(parameter: str) -> AwsError:
    return AwsError("MissingParameter", f"The parameter {parameter} is required.")


def validation_error(message: str) -> AwsError:
    return AwsError("ValidationError", message)


def period_fault(period_s: int) -> str:
    """The fault of a period; empty if it is valid."""
    if period_s in _SECONDS_BELOW_A_MINUTE:
        return ""
    if period_s < 1 or period_s % 60:
        return (
            f"The value {period_s} for parameter Period is invalid. "
            "Period must be 1, 5, 10, 20, 30, or a multiple of 60."
        )
    if period_s > _PERIOD_S_MAX:
        return f"The parameter Period must be less than or equal to {_PERIOD_S_MAX}."
    return ""


def dimensions_of(rows: Iterable[dict[str, Any]] | None, at: str) -> tuple[tuple[str, str], ...]:
    """Dimensions in a canonical order, so that equal metrics compare as equal.

    Raises:
        AwsError: InvalidParameterValue: too many, a name twice, or a name that AWS refuses.
    """
    pairs = [(str(row["Name"]), str(row["Value"])) for row in rows or ()]
    if len(pairs) > DIMENSIONS_MAX:
        raise invalid_value(
            f"The collection {at} must not have a size greater than {DIMENSIONS_MAX}."
        )
    if len({name for name, _ in pairs}) < len(pairs):
        raise invalid_value(f"No dimension name may appear more than once in {at}.")
    for number, (name, value) in enumerate(pairs, 1):
        for part, text in (("Name", name), ("Value", value)):
            if not text.strip() or not text.isascii() or not text.isprintable():
                raise invalid_value(
                    f"The value for parameter {at}.member.{number}.{part} must be printable ASCII "
                    "with at least one character that is not a space."
                )
        if name.startswith(":"):
            raise invalid_value(
                f"The value {name} for parameter {at}.member.{number}.Name must not begin with ':'."
            )
    return tuple(sorted(pairs))


def metric_of(stat: dict[str, Any], at: str) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    """Namespace, name and dimensions of a MetricStat. Raises AwsError."""
    metric = stat["Metric"]
    for name in ("Namespace", "MetricName"):
        if not metric.get(name):
            raise validation_error(f"The parameter {at}.MetricStat.Metric.{name} is required.")
    dimensions = dimensions_of(metric.get("Dimensions"), f"{at}.MetricStat.Metric.Dimensions")
    return metric["Namespace"], metric["MetricName"], dimensions


def check_query(row: dict[str, Any], at: str) -> None:
    """Refuses an entry of MetricDataQueries or Metrics whose Id is invalid, or that has not either
    a metric or an expression. Raises AwsError."""
    if not _ID.fullmatch(row["Id"]):
        raise validation_error(
            f"The value {row['Id']} for parameter {at}.Id must begin with a lowercase letter and "
            "contain only letters, digits and underscores."
        )
    if (row.get("MetricStat") is None) == (row.get("Expression") is None):
        raise validation_error(
            f"Exactly one of {at}.MetricStat and {at}.Expression must be specified."
        )
