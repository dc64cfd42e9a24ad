"""The state of an alarm, row by row: datapoints as they lie in time, and what follows from them.

Rows are those of `tests.kit.core_alarms`. N is 3, so five periods are looked at.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.kit.core_alarms import RULES, alarm
from tests.kit.core_alarms import points as row_of

from penstock.core.alarms.evaluate import AlarmDecision, decide, not_computable
from penstock.core.alarms.spec import (
    ALARM,
    INSUFFICIENT_DATA,
    OK,
    Datapoint,
)

SPEC = alarm()
START = 1_000


def points(row: str, *, samples: float = 1.0) -> list[Datapoint]:
    return row_of(row, start=START, samples=samples)


def decided(
    row: str, rule: str, *, m: int = 3, n: int = 3, state: str = "kept", since: float = 0.0
) -> AlarmDecision:
    spec = replace(SPEC, treat_missing_data=rule, datapoints_to_alarm=m, evaluation_periods=n)
    return decide(spec, points(row), state, now=1_052.0, watched_since=since)


def states(row: str, *, m: int = 3, n: int = 3) -> list[str]:
    """Under each rule; `kept` where the alarm stays what it was."""
    return [decided(row, rule, m=m, n=n).state for rule in RULES]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        # CloudWatch's own table for 3 out of 3 (missing, ignore, breaching, notBreaching)
        ("0 - X - X", [OK, OK, OK, OK]),
        ("0 - - - -", [OK, OK, OK, OK]),
        ("- - - - -", [INSUFFICIENT_DATA, "kept", ALARM, OK]),
        ("0 X X - X", [ALARM, ALARM, ALARM, ALARM]),
        ("- - X - -", [ALARM, "kept", ALARM, OK]),
        # what its text says of alarms that come too early
        ("- - - - X", ["kept", "kept", ALARM, OK]),
        ("- - - X -", ["kept", "kept", ALARM, OK]),
        ("- - - X 0", [OK, OK, OK, OK]),
        ("- - X - 0", [OK, OK, OK, OK]),
        # the newest three decide when none is missing
        ("X X 0 0 0", [OK, OK, OK, OK]),
        ("0 0 X X X", [ALARM, ALARM, ALARM, ALARM]),
        ("X X X X 0", [OK, OK, OK, OK]),
        # older ones make up for late ones
        ("X X X - -", [ALARM, ALARM, ALARM, ALARM]),
        ("- X X X -", [ALARM, ALARM, ALARM, ALARM]),
        ("X X 0 - -", [OK, OK, OK, OK]),
        # an old one that breaches, and silence since
        ("X - - - -", [ALARM, "kept", ALARM, OK]),
        ("- - X X -", [ALARM, "kept", ALARM, OK]),
        ("- - - X X", ["kept", "kept", ALARM, OK]),
    ],
)  # fmt: skip
def test_three_out_of_three(row: str, expected: list[str]) -> None:
    assert states(row) == expected


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        # CloudWatch's own table for 2 out of 3
        ("0 - X - X", [ALARM, ALARM, ALARM, ALARM]),
        ("0 0 X 0 X", [ALARM, ALARM, ALARM, ALARM]),
        ("0 - X - -", [OK, OK, ALARM, OK]),
        ("- - - - 0", [OK, OK, ALARM, OK]),
        ("- - - X -", [ALARM, "kept", ALARM, OK]),
        # M are enough even where some of N never came
        ("- - - X X", [ALARM, ALARM, ALARM, ALARM]),
        ("X X 0 0 X", [OK, OK, OK, OK]),
        ("- - - - X", ["kept", "kept", ALARM, OK]),
    ],
)
def test_two_out_of_three(row: str, expected: list[str]) -> None:
    assert states(row, m=2) == expected


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("- - X", [ALARM, ALARM, ALARM, ALARM]),
        ("X - -", [ALARM, ALARM, ALARM, ALARM]),  # the newest there is, until it leaves the range
        ("X - 0", [OK, OK, OK, OK]),
        ("- - -", [INSUFFICIENT_DATA, "kept", ALARM, OK]),
    ],
)
def test_one_out_of_one(row: str, expected: list[str]) -> None:
    assert states(row, m=1, n=1) == expected


@pytest.mark.parametrize(
    ("comparison", "below", "at", "above"),
    [
        ("GreaterThanThreshold", OK, OK, ALARM),
        ("GreaterThanOrEqualToThreshold", OK, ALARM, ALARM),
        ("LessThanThreshold", ALARM, OK, OK),
        ("LessThanOrEqualToThreshold", ALARM, ALARM, OK),
    ],
)
def test_each_comparison_on_both_sides_of_the_threshold(
    comparison: str, below: str, at: str, above: str
) -> None:
    spec = replace(SPEC, comparison=comparison, evaluation_periods=1, datapoints_to_alarm=1)
    found = [
        decide(spec, [Datapoint(1_000, value)], "kept", now=1_012.0).state
        for value in (4.9, 5.0, 5.1)
    ]
    assert found == [below, at, above]


def test_each_decision_has_its_reason() -> None:
    rows = [
        ("0 0 0 0 0", "missing", OK, "within-threshold"),
        ("X X X X X", "missing", ALARM, "threshold-crossed"),
        ("- - - - -", "missing", INSUFFICIENT_DATA, "no-data"),
        ("- - - - -", "ignore", "kept", "no-data"),
        ("- - - - -", "breaching", ALARM, "missing-breach"),
        ("- - - - -", "notBreaching", OK, "missing-do-not-breach"),
        ("- - X - -", "missing", ALARM, "breached-then-silent"),
        ("- - X - -", "ignore", "kept", "missing-ignored"),
        ("- - - - X", "missing", "kept", "too-early"),
    ]
    for row, rule, state, reason in rows:
        found = decided(row, rule)
        assert (found.state, found.reason) == (state, reason), row


def test_a_state_that_stays_needs_no_words_but_has_its_values() -> None:
    assert decided("0 0 0 X X", "missing", state=OK) == AlarmDecision(
        state=OK, reason="within-threshold", values=(1.0, 9.0, 9.0)
    )


def test_a_change_says_what_was_evaluated() -> None:
    found = decided("- 0 X X X", "missing", state=OK)
    assert found.text == (
        "Threshold Crossed: 3 out of the last 3 datapoints [9.0 (01/01/70 00:17:20), "
        "9.0 (01/01/70 00:17:10), 9.0 (01/01/70 00:17:00)] were greater than the threshold (5.0) "
        "(minimum 3 datapoints for OK -> ALARM transition)."
    )
    assert found.values == (9.0, 9.0, 9.0)
    assert found.data == {
        "version": "1.0",
        "queryDate": "1970-01-01T00:17:32.000+0000",
        "startDate": "1970-01-01T00:17:00.000+0000",
        "statistic": "Average",
        "period": 10,
        "recentDatapoints": [9.0, 9.0, 9.0],
        "threshold": 5.0,
        "evaluatedDatapoints": [
            {"timestamp": "1970-01-01T00:17:20.000+0000", "sampleCount": 1.0, "value": 9.0},
            {"timestamp": "1970-01-01T00:17:10.000+0000", "sampleCount": 1.0, "value": 9.0},
            {"timestamp": "1970-01-01T00:17:00.000+0000", "sampleCount": 1.0, "value": 9.0},
        ],
    }


@pytest.mark.parametrize("rule", RULES)
def test_what_nobody_could_see_is_not_missing_for_an_alarm_that_had_a_state(rule: str) -> None:
    """The server was down until 1030: the first three periods may have had datapoints."""
    assert decided("- - - - -", rule, state=ALARM, since=1_030.0) == AlarmDecision(
        state=ALARM, reason="no-data", values=()
    )
    assert decided("- - - - X", rule, state=OK, since=1_030.0).state == OK
    # Datapoints decide at once where they can.
    assert decided("- - X X X", rule, state=OK, since=1_030.0).state == ALARM
    assert decided("- - - 0 0", rule, state=ALARM, since=1_030.0).state == OK
    # Once all periods began after the start, the rule is the alarm's own again.
    after = decided("- - - - -", rule, state=ALARM, since=1_000.0)
    assert [after.state] == [decided("- - - - -", rule, state=ALARM).state]


def test_an_alarm_without_a_state_follows_its_rule_even_after_a_start() -> None:
    found = decided("- - - - -", "notBreaching", state=INSUFFICIENT_DATA, since=1_030.0)
    assert found.state == OK


@pytest.mark.parametrize(
    ("stat", "sample_count", "state"),
    [
        ("p99", 999.0, OK),  # 10 samples beyond the percentile take 1,000
        ("p99", 1_000.0, ALARM),
        ("p50", 19.0, OK),
        ("p50", 20.0, ALARM),
        ("p10", 99.0, OK),
        ("p10", 100.0, ALARM),
        ("Average", 1.0, ALARM),
    ],
)
def test_a_percentile_of_few_samples_changes_nothing_if_asked_so(
    stat: str, sample_count: float, state: str
) -> None:
    few = points("XXXXX", samples=sample_count)
    ignoring = alarm(stat, low_samples="ignore")
    assert decide(ignoring, few, OK, now=1_052.0).state == state
    evaluating = alarm(stat)
    assert decide(evaluating, few, OK, now=1_052.0).state == ALARM


def test_few_samples_are_the_reason_that_is_told() -> None:
    spec = alarm("p99", low_samples="ignore")
    assert decide(spec, points("XXXXX"), OK, now=1_052.0).reason == "too-few-samples"


def test_of_what_can_not_be_computed_nothing_is_known_and_that_is_said() -> None:
    assert not_computable("m9 is no query.") == AlarmDecision(
        state="INSUFFICIENT_DATA",
        reason="not-computable",
        values=(),
        text="The alarm can't be evaluated: m9 is no query.",
    )
