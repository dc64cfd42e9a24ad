"""The words of alarms, letter by letter: people and programs read them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.kit.core_alarms import alarm, points

from penstock.core.alarms.evaluate import decide
from penstock.core.alarms.spec import (
    ALARM,
    INSUFFICIENT_DATA,
    OK,
    Datapoint,
    MetricQuery,
)
from penstock.core.alarms.words import moment, reason_data, stamp

SPEC = alarm(
    "p99.9",
    period_s=60,
    unit="Count",
    datapoints_to_alarm=2,
    comparison="GreaterThanOrEqualToThreshold",
)
T0 = 1_700_000_040  # 14/11/23 22:14:00


def text(row: str, state: str, rule: str = "missing", *, n: int = 3, m: int = 2) -> str:
    spec = replace(SPEC, treat_missing_data=rule, evaluation_periods=n, datapoints_to_alarm=m)
    seen = points(row, start=T0, period_s=60, within=1.25)
    return decide(spec, seen, state, now=T0 + 302.0).text


@pytest.mark.parametrize(
    ("row", "state", "rule", "expected"),
    [
        (
            "000XX", OK, "missing",
            "Threshold Crossed: 2 out of the last 3 datapoints [9.0 (14/11/23 22:18:00), 9.0 "
            "(14/11/23 22:17:00)] were greater than or equal to the threshold (5.0) (minimum 2 "
            "datapoints for OK -> ALARM transition).",
        ),
        (
            "XX00X", ALARM, "missing",
            "Threshold Crossed: 2 out of the last 3 datapoints [1.25 (14/11/23 22:17:00), 1.25 "
            "(14/11/23 22:16:00)] were not greater than or equal to the threshold (5.0) (minimum 2 "
            "datapoints for ALARM -> OK transition).",
        ),
        ("-----", OK, "missing", "Insufficient Data: 3 datapoints were unknown."),
        (
            "-----", OK, "breaching",
            "Threshold Crossed: no datapoints were received for 3 periods and 3 missing datapoints "
            "were treated as [Breaching].",
        ),
        (
            "-----", ALARM, "notBreaching",
            "Threshold Crossed: no datapoints were received for 3 periods and 3 missing datapoints "
            "were treated as [NonBreaching].",
        ),
        (
            "----X", OK, "breaching",
            "Threshold Crossed: 1 out of the last 3 datapoints [9.0 (14/11/23 22:18:00)] was "
            "greater than or equal to the threshold (5.0) and 2 missing datapoints were treated as "
            "[Breaching] (minimum 2 datapoints for OK -> ALARM transition).",
        ),
        (
            "-0--0", ALARM, "notBreaching",
            "Threshold Crossed: 2 out of the last 3 datapoints [1.25 (14/11/23 22:18:00), 1.25 "
            "(14/11/23 22:15:00)] were not greater than or equal to the threshold (5.0) and 1 "
            "missing datapoint was treated as [NonBreaching] (minimum 2 datapoints for ALARM -> OK "
            "transition).",
        ),
        (  # none lies on the side of the state
            "----X", ALARM, "notBreaching",
            "Threshold Crossed: 1 datapoint was received for 3 periods and 2 missing datapoints "
            "were treated as [NonBreaching].",
        ),
        (
            "----0", OK, "breaching",
            "Threshold Crossed: 1 datapoint was received for 3 periods and 2 missing datapoints "
            "were treated as [Breaching].",
        ),
        (
            "---X-", OK, "missing",
            "Threshold Crossed: 1 out of the last 3 datapoints [9.0 (14/11/23 22:17:00)] was "
            "greater than or equal to the threshold (5.0) and 2 newer datapoints were missing "
            "(minimum 2 datapoints for OK -> ALARM transition).",
        ),
    ],
)  # fmt: skip
def test_a_change_in_words(row: str, state: str, rule: str, expected: str) -> None:
    assert text(row, state, rule) == expected


def test_one_is_singular() -> None:
    assert text("--X", OK, n=1, m=1) == (
        "Threshold Crossed: 1 out of the last 1 datapoints [9.0 (14/11/23 22:16:00)] was greater "
        "than or equal to the threshold (5.0) (minimum 1 datapoint for OK -> ALARM transition)."
    )
    assert text("---", OK, n=1, m=1) == "Insufficient Data: 1 datapoint was unknown."
    assert text("---", OK, "breaching", n=1, m=1) == (
        "Threshold Crossed: no datapoints were received for 1 period and 1 missing datapoint was "
        "treated as [Breaching]."
    )


def test_of_many_datapoints_the_newest_five_are_listed() -> None:
    found = text("XXXXXXXX", OK, n=6, m=6)
    assert found.startswith(
        "Threshold Crossed: 6 out of the last 6 datapoints were greater than or equal to the "
        "threshold (5.0) (minimum 6 datapoints for OK -> ALARM transition). The most recent "
        "datapoints which crossed the threshold: [9.0 (14/11/23 22:21:00), 9.0 (14/11/23 22:20:00)"
    )
    assert found.count("(14/11/23") == 5


def test_the_data_of_a_percentile_with_missing_datapoints() -> None:
    there = [Datapoint(T0, 9.0, 7.0), Datapoint(T0 + 120, 8.5, 3.0)]
    data = reason_data(SPEC, there, [Datapoint(T0 + 60)], now=T0 + 181.5)
    assert data == {
        "version": "1.0",
        "queryDate": "2023-11-14T22:17:01.500+0000",
        "startDate": "2023-11-14T22:14:00.000+0000",
        "unit": "Count",
        "extendedStatistic": "p99.9",
        "period": 60,
        "recentDatapoints": [9.0, 8.5],
        "threshold": 5.0,
        "evaluatedDatapoints": [
            {"timestamp": "2023-11-14T22:16:00.000+0000", "sampleCount": 3.0, "value": 8.5},
            {"timestamp": "2023-11-14T22:15:00.000+0000"},
            {"timestamp": "2023-11-14T22:14:00.000+0000", "sampleCount": 7.0, "value": 9.0},
        ],
    }


def test_the_data_of_math_names_no_statistic_and_without_datapoints_no_start() -> None:
    math = replace(SPEC, queries=(MetricQuery(id="e1", expression="m1 * 2"),))
    assert reason_data(math, [], [Datapoint(T0)], now=T0 + 62.0) == {
        "version": "1.0",
        "queryDate": "2023-11-14T22:15:02.000+0000",
        "period": 60,
        "recentDatapoints": [],
        "threshold": 5.0,
        "evaluatedDatapoints": [{"timestamp": "2023-11-14T22:14:00.000+0000"}],
    }


def test_words_and_data_stay_within_what_the_service_allows() -> None:
    """1,023 characters and 4,000, even with a day of datapoints."""
    many = [Datapoint(T0 + 60 * i, 123_456_789.012_345_6 + i, 1.0) for i in range(1_442)]
    spec = replace(SPEC, evaluation_periods=1_440, datapoints_to_alarm=1_440)
    found = decide(spec, many, INSUFFICIENT_DATA, now=T0 + 1_442 * 60.0)
    assert found.state == ALARM
    assert len(found.text) <= 1_023
    assert len(str(found.data)) <= 4_000


# Moments in CloudWatch's two forms.


@pytest.mark.parametrize(
    ("at", "in_json", "in_words"),
    [
        (0, "1970-01-01T00:00:00.000+0000", "01/01/70 00:00:00"),
        (951_782_400, "2000-02-29T00:00:00.000+0000", "29/02/00 00:00:00"),
        (1_700_000_040, "2023-11-14T22:14:00.000+0000", "14/11/23 22:14:00"),
        (1_709_251_199, "2024-02-29T23:59:59.000+0000", "29/02/24 23:59:59"),
        (1_709_251_200, "2024-03-01T00:00:00.000+0000", "01/03/24 00:00:00"),
        (4_107_542_399, "2100-02-28T23:59:59.000+0000", "28/02/00 23:59:59"),
        (4_107_542_400, "2100-03-01T00:00:00.000+0000", "01/03/00 00:00:00"),
    ],
)
def test_a_moment_in_json_and_in_words(at: int, in_json: str, in_words: str) -> None:
    assert (moment(at), stamp(at)) == (in_json, in_words)


def test_json_has_milliseconds() -> None:
    assert moment(1_700_000_040.25) == "2023-11-14T22:14:00.250+0000"
    assert moment(0.999_9) == "1970-01-01T00:00:00.999+0000"
