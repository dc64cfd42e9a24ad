"""The percentile sketch: its bound, its merge, its bytes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import CallerError
from penstock.metrics.sketch import BUCKETS_MAX, Sketch, sketch_of

LATENCIES = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=200)
ANY_SIGN = st.lists(
    st.floats(-1e6, 1e6).filter(lambda value: value == 0 or abs(value) > 1e-6),
    min_size=1,
    max_size=200,
)
#: So far apart that the lowest have to be folded together.
FAR_APART = st.lists(st.floats(1e-200, 1e200), max_size=30)


@given(ANY_SIGN, st.sampled_from([0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0]))
def test_every_quantile_is_within_one_per_cent(values: list[float], q: float) -> None:
    exact = sorted(values)[int(q * (len(values) - 1))]
    assert sketch_of(values).quantile(q) == pytest.approx(exact, rel=0.0101)


@given(LATENCIES)
def test_adding_many_at_once_is_adding_one_by_one(values: list[float]) -> None:
    many = Sketch()
    many.add_many(np.array(values))
    one_by_one = sketch_of(values)
    assert (many.count, many.minimum, many.maximum) == (len(values), min(values), max(values))
    assert many.total == pytest.approx(math.fsum(values))
    assert many.quantile(0.99) == pytest.approx(one_by_one.quantile(0.99), rel=0.0203)


@given(FAR_APART, FAR_APART, FAR_APART)
def test_the_order_of_merges_does_not_matter(
    first: list[float], second: list[float], third: list[float]
) -> None:
    left, right = sketch_of(first), sketch_of(second)
    left.merge(sketch_of(second))
    left.merge(sketch_of(third))
    right.merge(sketch_of(third))
    right.merge(sketch_of(first))
    assert left == right == sketch_of(first + second + third)


@given(FAR_APART, ANY_SIGN)
def test_bytes_give_back_the_same_sketch(first: list[float], second: list[float]) -> None:
    sketch = sketch_of(first + second)
    assert Sketch.from_bytes(sketch.to_bytes()) == sketch
    assert Sketch.from_bytes(sketch.to_bytes()).total == sketch.total


@given(FAR_APART)
def test_it_stays_small_whatever_comes(values: list[float]) -> None:
    sketch = sketch_of(values)
    for exponent in range(-300, 300):
        sketch.add(10.0**exponent)
    assert len(sketch) <= BUCKETS_MAX
    assert sketch.quantile(1.0) == pytest.approx(1e299)


def test_a_count_adds_a_value_that_often() -> None:
    sketch = Sketch()
    sketch.add(1.0, 9)
    sketch.add(100.0)
    assert (sketch.count, sketch.total) == (10, 109.0)
    assert sketch.quantile(0.89) == pytest.approx(1.0, rel=0.01)
    assert sketch.quantile(1.0) == pytest.approx(100.0, rel=0.01)


def test_zeros_and_negative_values_have_their_place() -> None:
    sketch = sketch_of([-10.0, -1.0, 0.0, 0.0, 1.0, 10.0])
    values = [value for value, _ in sketch.bins()]
    assert values == pytest.approx([-10.0, -1.0, 0.0, 1.0, 10.0], rel=0.01)
    counts = [sketch.count_at_most(edge) for edge in (-20, -5, 0, 5, 20)]
    assert counts == [0, 1, 4, 5, 6]


def test_an_empty_sketch_has_no_quantile() -> None:
    assert math.isnan(Sketch().quantile(0.5))
    assert Sketch.from_bytes(Sketch().to_bytes()) == Sketch()


@pytest.mark.parametrize(
    "data", [b"", b"\x01", b"\x02" + Sketch().to_bytes()[1:], sketch_of([1.0, 2.0]).to_bytes()[:-4]]
)
def test_torn_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(CallerError) as caught:
        Sketch.from_bytes(data)
    assert caught.value.code == "sketch-unreadable"
