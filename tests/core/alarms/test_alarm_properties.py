"""What holds of every row of datapoints, whatever an alarm's numbers and its rule."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.kit.core_alarms import RULES, alarm, points

from penstock.core.alarms.evaluate import EXTRA_PERIODS, decide
from penstock.core.alarms.spec import (
    ALARM,
    INSUFFICIENT_DATA,
    OK,
    AlarmSpec,
)

SPEC = alarm("Sum", evaluation_periods=1, datapoints_to_alarm=1)


@st.composite
def cases(draw: st.DrawFn) -> tuple[AlarmSpec, str]:
    """An alarm, and a row as long as its evaluation range."""
    n = draw(st.integers(1, 6))
    spec = replace(
        SPEC,
        evaluation_periods=n,
        datapoints_to_alarm=draw(st.integers(1, n)),
        treat_missing_data=draw(st.sampled_from(RULES)),
    )
    length = n + EXTRA_PERIODS
    return spec, draw(st.text("0X-", min_size=length, max_size=length))


def state(spec: AlarmSpec, row: str, before: str = "kept", *, since: float = 0.0) -> str:
    return decide(spec, points(row), before, now=10.0 * len(row) + 2, watched_since=since).state


@given(cases())
def test_with_enough_datapoints_the_rule_for_missing_ones_does_not_matter(
    case: tuple[AlarmSpec, str],
) -> None:
    spec, row = case
    there = row.replace("-", "")
    if len(there) < spec.evaluation_periods:
        return
    newest = there[-spec.evaluation_periods :]
    expected = ALARM if newest.count("X") >= spec.datapoints_to_alarm else OK
    assert {state(replace(spec, treat_missing_data=rule), row) for rule in RULES} == {expected}


@given(cases(), st.data())
def test_one_datapoint_more_that_breaches_never_leads_away_from_alarm(
    case: tuple[AlarmSpec, str], data: st.DataObject
) -> None:
    spec, row = case
    places = [place for place, letter in enumerate(row) if letter == "0"]
    if not places:
        return
    place = data.draw(st.sampled_from(places))
    worse = f"{row[:place]}X{row[place + 1 :]}"
    rank = (OK, "kept", ALARM)
    assert rank.index(state(spec, worse)) >= rank.index(state(spec, row))


@given(cases())
def test_insufficient_data_means_that_there_is_none(case: tuple[AlarmSpec, str]) -> None:
    spec, row = case
    found = state(spec, row)
    assert (found == INSUFFICIENT_DATA) == (
        set(row) == {"-"} and spec.treat_missing_data == "missing"
    )


@given(cases(), st.sampled_from((OK, ALARM, INSUFFICIENT_DATA)))
def test_the_same_datapoints_lead_to_the_same_state_again(
    case: tuple[AlarmSpec, str], before: str
) -> None:
    """A state that was entered is kept by the very look that led to it: alarms don't flap alone."""
    spec, row = case
    entered = state(spec, row, before)
    assert state(spec, row, entered) == entered


@given(cases(), st.sampled_from((OK, ALARM)))
def test_silence_alone_never_moves_an_alarm_that_nobody_could_watch(
    case: tuple[AlarmSpec, str], before: str
) -> None:
    spec, row = case
    silent = "-" * len(row)
    assert state(spec, silent, before, since=10.0 * len(row)) == before
