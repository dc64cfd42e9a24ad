"""What a formula is said to cost is no less than what the evaluator counts, and hardly more."""

from __future__ import annotations

import pytest
from hypothesis import given
from tests.metrics.test_metric_math import FORMULAS

from penstock.errors import CallerError
from penstock.metrics.math.estimate import Size, work_of
from penstock.metrics.math.evaluate import Evaluator, Formula
from penstock.metrics.math.expression import parse_expression
from penstock.metrics.math.time_series import TimeSeries

HOUR = dict.fromkeys(range(0, 3600, 60), 1.0)
READS = {
    "m1": TimeSeries("a", 60, HOUR),
    "m2": TimeSeries("b", 60, dict.fromkeys(range(0, 600, 60), 2.0)),
    "m3": TimeSeries("c", 300, dict.fromkeys(range(0, 3600, 300), 3.0)),
}
SIZES = {key: Size(series.period_s, len(series.values)) for key, series in READS.items()}


def counted(*texts: str) -> tuple[int, int]:
    """What the evaluator counts for all, and what was said before."""
    formulas = {f"e{n}": Formula(parse_expression(text), 60) for n, text in enumerate(texts)}
    evaluator = Evaluator(READS, formulas, lambda *_: list(READS.values()), start=0.0, end=3600.0)
    for query_id in formulas:
        evaluator.series_of(query_id)
    said = work_of(SIZES, formulas, lambda *_: tuple(SIZES.values()), start=0.0, end=3600.0)
    return evaluator._work, said


@pytest.mark.parametrize(
    "text",
    [
        "m1",
        "m1 + m2 * 2",
        "-m1",
        "SUM(METRICS())",
        "AVG(METRICS('m1')) + m3",
        "STDDEV([STDDEV(METRICS()), m1])",
        "FILL(METRICS(), 0)",
        "SUM(FILL(METRICS(), REPEAT)) / 2",
        "TIME_SERIES(1) + m1",
        "IF(m1 > 0, m2, 0)",
        "m1 / PERIOD(m1) * METRIC_COUNT(METRICS())",
        "FIRST(METRICS()) - LAST(METRICS())",
        "RATE(ABS(m1))",
        "SUM(SEARCH('x', 'Sum', 60)) + m1",
        "m1" + "+1" * 900,
    ],
)
def test_the_cost_of_a_formula_is_known_before(text: str) -> None:
    done, said = counted(text)
    assert done <= said <= 1.5 * done + 20


def test_formulas_that_use_each_other_cost_what_they_cost_once() -> None:
    done, said = counted("SUM(METRICS())", "e0 + e0", "e1 * 2")
    assert done <= said <= 1.5 * done + 20


def test_what_refers_to_itself_has_no_cost() -> None:
    formulas = {"e0": Formula(parse_expression("e0 + m1")), "e1": Formula(parse_expression("no"))}
    assert work_of(SIZES, formulas, lambda *_: (), start=0.0, end=60.0) < 200


def test_no_formula_costs_more_than_was_said() -> None:
    computed = 0

    @given(FORMULAS)
    def examples(text: str) -> None:
        nonlocal computed
        try:
            done, said = counted(text)
        except CallerError:
            return
        computed += 1
        assert done <= said

    examples()
    assert computed >= 5
