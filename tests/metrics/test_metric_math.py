"""Metric math: the language, its arithmetic, its bounds."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import CallerError
from penstock.metrics.math.evaluate import Evaluator, Formula
from penstock.metrics.math.expression import parse_expression
from penstock.metrics.math.search import parse_search
from penstock.metrics.math.time_series import TimeSeries
from penstock.metrics.series.series import MetricName

A = TimeSeries("a", 60, {0: 1.0, 60: 2.0, 120: 3.0})
B = TimeSeries("b", 60, {0: 10.0, 120: 0.0, 180: 5.0})
C = TimeSeries("c", 60, {})


def evaluator(**formulas: str) -> Evaluator:
    return Evaluator(
        {"m1": A, "m2": B, "gone": C},
        {name: Formula(parse_expression(text)) for name, text in formulas.items()},
        lambda what, statistic, period_s: [A, B] if what == "both" else [],
        start=0,
        end=240,
    )


def compute(text: str) -> dict[int, float]:
    (series,) = evaluator(e=text).series_of("e")
    return series.values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("m1", {0: 1, 60: 2, 120: 3}),
        ("m1 + 2 * 3", {0: 7, 60: 8, 120: 9}),
        ("(m1 + 2) * 3", {0: 9, 60: 12, 120: 15}),
        ("-m1", {0: -1, 60: -2, 120: -3}),
        ("10 - m1 - 1", {0: 8, 60: 7, 120: 6}),
        ("m1 ^ 2 ^ 2", {0: 1, 60: 16, 120: 81}),
        ("-m1 ^ 2", {0: 1, 60: 4, 120: 9}),
        (".5e1 * m1", {0: 5, 60: 10, 120: 15}),
        # Only timestamps that both have.
        ("m1 + m2", {0: 11, 120: 3}),
        # A division by zero is no datapoint.
        ("m1 / m2", {0: 0.1}),
        ("m1 / 0", {}),
        ("(0 - m1) ^ 0.5", {}),
        ("m1 ^ 9999", {0: 1}),
        ("m1 > 1", {0: 0, 60: 1, 120: 1}),
        ("m1 >= 2 AND m1 < 3 || m1 == 1", {0: 1, 60: 1, 120: 0}),
        # Over a list, whoever has a datapoint takes part.
        ("SUM(METRICS())", {0: 11, 60: 2, 120: 3, 180: 5}),
        ("SUM([m1, m2])", {0: 11, 60: 2, 120: 3, 180: 5}),
        ("avg(METRICS('m'))", {0: 5.5, 60: 2, 120: 1.5, 180: 5}),
        ("MIN([m1,m2])", {0: 1, 60: 2, 120: 0, 180: 5}),
        ("MAX([m1,m2])", {0: 10, 60: 2, 120: 3, 180: 5}),
        # Of one series they are a number.
        ("m1 / SUM(m1)", {0: 1 / 6, 60: 2 / 6, 120: 3 / 6}),
        ("m1 - AVG(gone)", {}),
        ("m1 > AVG(gone)", {}),
        ("FILL(m2, 0)", {0: 10, 60: 0, 120: 0, 180: 5}),
        ("FILL(m2, REPEAT)", {0: 10, 60: 10, 120: 0, 180: 5}),
        ("FILL(m2, LINEAR)", {0: 10, 60: 5, 120: 0, 180: 5}),
        ("FILL(gone, 1)", {0: 1, 60: 1, 120: 1, 180: 1}),
        ("FILL(gone, REPEAT)", {}),
        ("SUM(FILL(METRICS(), 1))", {0: 12, 60: 4, 120: 4, 180: 7}),
        ("IF(m1 > 1, m1, 0)", {0: 0, 60: 2, 120: 3}),
        ("IF(m1 > 1, m2)", {120: 0}),
        ("IF(SUM(m1) > 5, m1, m2)", {0: 1, 60: 2, 120: 3}),
        ("TIME_SERIES(7)", {0: 7, 60: 7, 120: 7, 180: 7}),
        ("SUM(SEARCH('both', 'Sum', 60))", {0: 11, 60: 2, 120: 3, 180: 5}),
        ("m1 * METRIC_COUNT(METRICS())", {0: 3, 60: 6, 120: 9}),
        ("m1 / PERIOD(m1) * 60", {0: 1, 60: 2, 120: 3}),
        ("DIFF(m1)", {60: 1, 120: 1}),
        ("RATE(m2)", {120: -10 / 120, 180: 5 / 60}),
        ("RUNNING_SUM(m1)", {0: 1, 60: 3, 120: 6}),
        ("CEIL(m1 / 2) + FLOOR(m1 / 2) + ABS(0 - m1)", {0: 2, 60: 4, 120: 6}),
        ("LOG10(m2)", {0: 1, 180: pytest.approx(0.69897)}),
        ("FIRST(METRICS())", {0: 1, 60: 2, 120: 3}),
        ("LAST(METRICS())", {}),
        # A chain is no depth: as long as an expression may be.
        ("m1" + "+1" * 1000, {0: 1001, 60: 1002, 120: 1003}),
        ("1" + "*1" * 1000 + " * m1", {0: 1, 60: 2, 120: 3}),
        # What is too large for a number is no datapoint, wherever that shows.
        ("SUM([TIME_SERIES(1e308), TIME_SERIES(1e308)])", {}),
        ("AVG([TIME_SERIES(1e308), TIME_SERIES(1e308)])", {}),
        ("STDDEV([TIME_SERIES(1e308), TIME_SERIES(0-1e308)])", {}),
        ("SUM(TIME_SERIES(1e308)) + m1", {}),
        ("STDDEV([m1 * 1e150 * 1e150, m2])", {60: 0, 180: 0}),
        ("STDDEV([m1, m2])", {0: 4.5, 60: 0, 120: 1.5, 180: 0}),
        ("RUNNING_SUM(TIME_SERIES(1.7e308))", {0: 1.7e308}),
        ("CEIL(1e308 * 10) + m1", {}),
    ],
)
def test_what_an_expression_computes(text: str, expected: dict[int, float]) -> None:
    found = compute(text)
    assert list(found) == list(expected)
    assert found == pytest.approx(expected)


def test_a_list_is_computed_series_by_series() -> None:
    found = evaluator(e="METRICS('m') * 2").series_of("e")
    assert [(series.label, series.values[0]) for series in found] == [("a", 2.0), ("b", 20.0)]


def test_formulas_may_use_formulas() -> None:
    assert evaluator(e1="m1 * 2", e2="e1 + e1").series_of("e2")[0].values[60] == 8.0


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "end"),
        ("m1 +", "end"),
        ("m1 m2", "m2"),
        ("(m1", ")"),
        ("m1)", ")"),
        ("m1 $ 2", "$"),
        ("nobody + 1", "nobody"),
        ("import('os')", "IMPORT"),
        ("m1.__class__", "."),
        ("SUM()", "SUM"),
        ("SUM(1)", "SUM"),
        ("FILL(m1)", "FILL"),
        ("FILL(1, 2)", "FILL"),
        ("IF(METRICS(), 1, 2)", "IF"),
        ("METRICS(m1)", "METRICS"),
        ("METRICS() + METRICS()", "lists"),
        ("[1]", "numbers"),
        ("SEARCH('x')", "SEARCH"),
        ("'text'", "text"),
        ("5", "time series"),
        ("m1 * 1e999", "too large"),
        ("(" * 100 + "m1" + ")" * 100, "nested"),
        ("m1 + " * 1000 + "m1", "longer"),
        ("^".join(["2"] * 100), "nested"),
        ("(2^" * 30 + "m1" + ")" * 30, "nested"),
        ("PERIOD(SEARCH('both', 'Sum', 60))", "one time series"),
    ],
)
def test_what_can_not_be_computed_is_the_callers_error(text: str, named: str) -> None:
    with pytest.raises(CallerError, match="Invalid metrics expression") as caught:
        compute(text)
    assert caught.value.code == "expression-invalid"
    assert named in caught.value.message


def test_a_circle_is_told_in_full() -> None:
    with pytest.raises(CallerError) as caught:
        evaluator(a="b + 1", b="c", c="a").series_of("a")
    assert "a -> b -> c -> a refers to itself" in caught.value.message


def test_work_is_bounded() -> None:
    wide = Evaluator(
        {"m1": TimeSeries("m1", 1, {0: 1.0})},
        {f"e{i}": Formula(parse_expression("FILL(m1, 0) + 1")) for i in range(9)},
        lambda *_: [],
        start=0,
        end=100_000,
    )
    for i in range(3):  # filled, added to, told: three steps of 100,000 datapoints each
        wide.series_of(f"e{i}")
    with pytest.raises(CallerError, match="more than 1000000 datapoints"):
        wide.series_of("e3")
    endless = Evaluator(
        {"m1": A}, {"e": Formula(parse_expression("FILL(m1, 0)"))}, lambda *_: [], start=0, end=1e9
    )
    with pytest.raises(CallerError, match="exceeds the limit"):
        endless.series_of("e")


MANY = {f"m{i}": TimeSeries("m", 60, dict.fromkeys(range(0, 60_000, 60), 1.0)) for i in range(200)}


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("FILL(METRICS(), 0)", 5_961_600),  # 69 days of minutes: 200 times 99,360 datapoints
        ("STDDEV(FILL(METRICS(), REPEAT))", 5_961_600),
        ("SUM(METRICS() * 2 * 2 * 2 * 2)", 60_000),
        (f"STDDEV([{','.join(['STDDEV(METRICS())'] * 5)}])", 60_000),
    ],
)
def test_work_beyond_the_bound_is_refused_before_it_is_done(text: str, end: int) -> None:
    """What it would compute is never held: no step that goes beyond the bound is begun."""
    wide = Evaluator(MANY, {"e": Formula(parse_expression(text))}, lambda *_: [], start=0, end=end)
    tracemalloc.start()
    try:
        with pytest.raises(CallerError, match="more than 1000000 datapoints"):
            wide.series_of("e")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100 * 1024 * 1024


def test_a_series_that_is_told_again_and_again_is_work_too() -> None:
    """Each of 500 formulas may name the same series, and each answer holds it once more."""
    ids = [f"e{i}" for i in range(400)]
    listed = Formula(parse_expression("[m1, m2, m3]"))
    again = Evaluator(MANY, dict.fromkeys(ids, listed), lambda *_: [], start=0, end=60_000)
    with pytest.raises(CallerError, match="more than 1000000 datapoints"):
        list(map(again.series_of, ids))


def test_formulas_that_lean_on_each_other_never_exhaust_the_stack() -> None:
    deep = "IF(1, " * 18 + "(1 < 1 + 1 * 1 ^ {})" + ", m1)" * 18
    formulas = {f"e{i}": deep.format(f"e{i + 1}") for i in range(19)} | {"e19": "m1"}
    with pytest.raises(CallerError, match="nested deeper"):
        evaluator(**formulas).series_of("e0")


LETTERS = st.text(alphabet="m12+-*/^()[],.<>=&|'\"eE SUMFILLIREPAT_", max_size=60)
NUMBERS = st.sampled_from(["m1", "m2", "1", "0", "2.5", "1e9", "AVG(METRICS())", "RATE(m1)"])
#: Most letters are no formula; these are, but for one that is a list where a number should be.
FORMULAS = LETTERS | st.recursive(
    NUMBERS,
    lambda inner: (
        st.builds("({}{}{})".format, inner, st.sampled_from([*"+-*/^<=", " > ", " AND "]), inner)
        | st.builds("IF({}, {}, [m1, m2])".format, inner, inner)
        | st.builds("FILL({}, REPEAT)".format, inner)
        | st.builds("-{}".format, inner)
    ),
    max_leaves=8,
)


def test_any_text_is_computed_or_refused() -> None:
    computed = refused = 0

    @given(FORMULAS)
    def examples(text: str) -> None:
        nonlocal computed, refused
        try:
            series = evaluator(e=text).series_of("e")
        except CallerError:  # nothing else may come out
            refused += 1
        else:
            computed += 1
            assert [item for item in series if not isinstance(item, TimeSeries)] == []

    examples()
    print(f"{computed} computed, {refused} refused")
    assert min(computed, refused) >= 5


METRICS = {
    "shop": MetricName("AWS/SageMaker", "Invocations", (("EndpointName", "shop"),)),
    "shop-de": MetricName("AWS/SageMaker", "ModelLatency", (("EndpointName", "shop-de"),)),
    "own": MetricName("Own", "Invocations", ()),
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("invocations", ["shop", "own"]),
        ("{AWS/SageMaker,EndpointName}", ["shop", "shop-de"]),
        ('{"AWS/SageMaker", EndpointName} latency', ["shop-de"]),
        ("{Own}", ["own"]),
        ("{AWS/SageMaker}", []),
        ('EndpointName="shop"', ["shop"]),
        ("EndpointName=shop", ["shop", "shop-de"]),
        ("EndpointName=(x OR shop-de)", ["shop-de"]),
        ('Namespace="Own" OR MetricName="ModelLatency"', ["shop-de", "own"]),
        ("invocations AND NOT EndpointName=shop", ["own"]),
        ("shop (latency OR nothing)", ["shop-de"]),
    ],
)
def test_what_a_search_finds(text: str, expected: list[str]) -> None:
    matches = parse_search(text)
    assert [name for name, metric in METRICS.items() if matches(metric)] == expected


@pytest.mark.parametrize("text", ["", "a OR", "(a", "a)", "=b", "a=", 'a="b', "NOT", "(" * 99])
def test_a_search_that_can_not_be_read_is_refused(text: str) -> None:
    with pytest.raises(CallerError) as caught:
        parse_search(text)
    assert caught.value.code == "expression-invalid"
