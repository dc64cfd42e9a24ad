"""The percentile sketch: its bound, its merge, its bytes."""

from __future__ import annotations

import math
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import CallerError
from penstock.metrics.series.sketch import BUCKETS_MAX, Sketch

LATENCIES = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=200)
ANY_SIGN = st.lists(
    st.floats(-1e6, 1e6).filter(lambda value: value == 0 or abs(value) > 1e-6),
    min_size=1,
    max_size=200,
)
#: So far apart that the lowest have to be folded together.
FAR_APART = st.lists(st.floats(1e-200, 1e200), max_size=30)


def sketch_of(values: list[float]) -> Sketch:
    sketch = Sketch()
    for value in values:
        sketch.add(value)
    return sketch


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


#: From each bucket's upper edge to the next one's: 1 % to either side.
GAMMA = 1.01 / 0.99


def in_bucket(index: int) -> float:
    """A value that lies well inside the bucket with this index."""
    return GAMMA ** (index - 0.5)


@pytest.mark.parametrize(
    ("scattered", "first"),
    [([], 0), ([5000, -6000, 4], 100), ([-1, -1, -1], 0), ([0, 7, 7], 3000)],
)
def test_it_stays_small_whatever_comes(scattered: list[int], first: int) -> None:
    """3,000 buckets would be needed: the top 2,048 are kept, and all below counts as the lowest."""
    together = list(range(first, first + 3000))
    sketch = sketch_of(in_bucket(index) for index in scattered + together)
    top = max(scattered + together)
    kept = [max(index, top - BUCKETS_MAX + 1) for index in scattered + together]
    assert len(sketch) == len(set(kept)) <= BUCKETS_MAX
    assert sum(count for _, count in sketch.bins()) == sketch.count == len(kept)
    for q in (0.0001, 0.01, 0.3, 0.5, 0.9, 0.999):
        exact = in_bucket(sorted(kept)[int(q * (len(kept) - 1))])
        assert sketch.quantile(q) == pytest.approx(exact, rel=0.0101)


def test_buckets_are_folded_from_the_2049th_on() -> None:
    sketch = sketch_of([in_bucket(0), in_bucket(1), in_bucket(2047)])
    assert [count for _, count in sketch.bins()] == [1, 1, 1]
    sketch.add(in_bucket(2048))
    assert [count for _, count in sketch.bins()] == [2, 1, 1]
    assert next(sketch.bins())[0] == pytest.approx(in_bucket(1), rel=0.0101)
    sketch.add(in_bucket(-500))
    sketch.add(in_bucket(0), 3)
    sketch.add(in_bucket(2))
    assert [count for _, count in sketch.bins()] == [6, 1, 1, 1]
    assert (sketch.count, sketch.minimum) == (9, in_bucket(-500))


def test_what_is_too_low_is_counted_though_the_lowest_bucket_is_empty() -> None:
    sketch = sketch_of([in_bucket(3000)])
    sketch.add(in_bucket(10), 2)
    sketch.add(in_bucket(900))
    assert list(sketch.bins()) == [
        (pytest.approx(in_bucket(3000 - 2047), rel=0.0101), 3),
        (pytest.approx(in_bucket(3000), rel=0.0101), 1),
    ]


def test_negative_values_are_folded_like_others_and_by_themselves() -> None:
    sketch = sketch_of([-in_bucket(0), -in_bucket(1), -in_bucket(2048), in_bucket(0)])
    assert [count for _, count in sketch.bins()] == [1, 2, 1]
    assert len(sketch) == 3
    assert [value for value, _ in sketch.bins()] == pytest.approx(
        [-in_bucket(2048), -in_bucket(1), in_bucket(0)], rel=0.0101
    )


def test_many_at_once_are_folded_as_one_by_one() -> None:
    values = [in_bucket(index) for index in (-3000, -5, 0, 60, 60, 2100)]
    values += [0.0, 0.0, -2.5, -2.5, -1e-9]
    many = Sketch()
    many.add_many(np.array(values))
    assert many == sketch_of(values)
    assert many.total == pytest.approx(sum(values))
    many.add_many(np.array(values))
    assert many == sketch_of(values * 2)
    assert [count for _, count in many.bins()] == [4, 2, 4, 6, 4, 2]


@pytest.mark.parametrize("values", [[], [3.0], [0.0], [-3.0], [-3.0, 0.0]])
def test_few_at_once_are_added_as_one_by_one(values: list[float]) -> None:
    many = Sketch()
    many.add_many(np.array(values, dtype=np.float64))
    assert many == sketch_of(values)
    assert (many.count, many.total) == (len(values), sum(values))


def test_a_value_that_comes_again_is_counted_again() -> None:
    sketch = sketch_of([5.0, 5.0, 80.0])
    sketch.add(5.0, 4)
    assert list(sketch.bins()) == [(pytest.approx(5.0, rel=0.01), 6), (80.0, 1)]
    assert (sketch.count, sketch.total, len(sketch)) == (7, 110.0, 2)


def test_a_merge_adds_everything_and_leaves_the_other_as_it_is() -> None:
    left, right = sketch_of([-8.0, 0.0, 3.0]), sketch_of([-8.0, -1.0, 0.0, 0.0, 3.0, 90.0])
    left.merge(right)
    assert left == sketch_of([-8.0, -8.0, -1.0, 0.0, 0.0, 0.0, 3.0, 3.0, 90.0])
    assert (left.count, left.total) == (9, 79.0)
    assert right == sketch_of([-8.0, -1.0, 0.0, 0.0, 3.0, 90.0])
    right.merge(Sketch())
    assert (right.count, right.minimum, right.maximum) == (6, -8.0, 90.0)


def test_a_merge_folds_by_the_highest_of_both() -> None:
    low, high = sketch_of([in_bucket(0)]), sketch_of([in_bucket(2100)])
    low.merge(high)
    assert low == sketch_of([in_bucket(0), in_bucket(2100)])
    low.add(in_bucket(1))
    assert [count for _, count in low.bins()] == [2, 1]


def test_a_copy_goes_its_own_way() -> None:
    first = sketch_of([1.0, -1.0, 0.0])
    twin = first.copy()
    assert (twin, twin.total) == (first, 0.0)
    twin.add(7.0)
    assert (first.count, twin.count) == (3, 4)


def test_two_sketches_are_equal_if_all_but_their_totals_are() -> None:
    assert sketch_of([0.1, 0.2, 0.3]) == sketch_of([0.3, 0.2, 0.1])
    base = [-2.0, 0.0, 1.0, 2.0]
    for other in (
        [-2.0, 0.0, 1.0, 2.0, 2.0],
        [-2.0, 0.0, 1.5, 2.0],
        [-2.0, 1.0, 1.0, 2.0],
        [-2.0, -2.0, 1.0, 2.0],
        [-2.0, -1.0, 0.0, 2.0],
        [-2.001, 0.0, 1.0, 2.0],
        [-2.0, 0.0, 1.0, 2.001],
    ):
        assert sketch_of(base) != sketch_of(other)
    assert sketch_of(base) != base
    with pytest.raises(TypeError):
        hash(sketch_of(base))


@pytest.mark.parametrize(
    ("q", "value"),
    [(-1, 1.0), (0, 1.0), (0.2, 1.0), (0.25, 2.0), (0.5, 3.0), (0.74, 3.0), (0.75, 4.0), (1, 5.0),
     (2, 5.0)],
)  # fmt: skip
def test_a_quantile_is_the_value_at_its_rank(q: float, value: float) -> None:
    assert sketch_of([5.0, 4.0, 1.0, 2.0, 3.0]).quantile(q) == pytest.approx(value, rel=0.0101)


def test_extremes_are_exact_and_nothing_lies_beyond_them() -> None:
    for sign in (1.0, -1.0):
        sketch = sketch_of([sign * 1.0, sign * 1.001])
        assert (sketch.minimum, sketch.maximum) == (
            min(sign, sign * 1.001),
            max(sign, 1.001 * sign),
        )
        assert [sketch.quantile(q) for q in (0, 1)] == [sketch.minimum, sketch.maximum]
        for value, _ in sketch.bins():
            assert sketch.minimum <= value <= sketch.maximum


def test_the_lowest_and_the_highest_value_are_no_buckets_middle() -> None:
    low, high = GAMMA**9.01, GAMMA**20.99
    for sign in (1.0, -1.0):
        sketch = sketch_of([sign * low, sign * high])
        assert [sketch.quantile(q) for q in (-1, 0, 1, 2)] == sorted([sign * low, sign * high] * 2)
        assert sketch.quantile(0.001) != sketch.minimum
        assert sketch.quantile(0.999) != sketch.maximum


def test_a_bucket_is_read_at_the_value_with_the_least_error() -> None:
    """Its edges are 2 % apart, and what is told of it is 1 % from both."""
    sketch = sketch_of([1e-3, in_bucket(100), 1e3])
    value = sketch.quantile(0.5)
    assert value / GAMMA**99 == pytest.approx(1.01)
    assert value / GAMMA**100 == pytest.approx(0.99)


#: count up to an edge, of the buckets 10 (twice), 11 and 12 on either side and two zeros
EDGES = [
    (-(GAMMA**11.6), 0),
    (-(GAMMA**11.4), 1),
    (-(GAMMA**10.6), 1),
    (-(GAMMA**10.4), 2),
    (-(GAMMA**9.4), 4),
    (-(GAMMA**-50.0), 4),
    (-0.0, 6),
    (0.0, 6),
    (GAMMA**-50.0, 6),
    (GAMMA**9.4, 6),
    (GAMMA**9.6, 8),
    (GAMMA**10.4, 8),
    (GAMMA**10.6, 9),
    (GAMMA**11.6, 10),
    (1e9, 10),
]


@pytest.mark.parametrize(("edge", "count"), EDGES)
def test_an_edge_moves_by_one_per_cent_at_most_to_that_of_a_bucket(edge: float, count: int) -> None:
    sketch = sketch_of(sign * in_bucket(index) for index in (10, 10, 11, 12) for sign in (-1, 1))
    sketch.add(0.0, 2)
    assert sketch.count_at_most(edge) == count


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


def test_bytes_are_these() -> None:
    """What is kept in the database must be readable by the next version."""
    sketch = sketch_of([in_bucket(5), in_bucket(6), in_bucket(6), in_bucket(-3), -in_bucket(9), 0])
    sketch.total = 4.5
    sketch.minimum, sketch.maximum = -1.25, 2.5
    data = sketch.to_bytes()
    # version, count, total, minimum, maximum, zeros; buckets above and below zero
    assert struct.unpack_from("<BdddddII", data) == (1, 6, 4.5, -1.25, 2.5, 1, 3, 1)
    sides = zlib.decompress(data[49:])
    # steps from index to index, then the counts, and the same of the other side
    assert struct.unpack("=iiidddid", sides[:]) == (-3, 8, 1, 1, 1, 2, 9, 1)


def head(*, version: int = 1, count: float = 0, above: int = 0, below: int = 0) -> bytes:
    return struct.pack("<BdddddII", version, count, 0.0, 0.0, 0.0, 0.0, above, below)


def sides(*buckets: tuple[int, ...]) -> bytes:
    """Each side as steps; every bucket counts one."""
    parts = [
        struct.pack(f"={len(s)}i", *s) + struct.pack(f"={len(s)}d", *[1] * len(s)) for s in buckets
    ]
    return zlib.compress(b"".join(parts))


def test_bytes_of_another_process_are_read() -> None:
    sketch = Sketch.from_bytes(head(count=3, above=2, below=1) + sides((5, 2), (9,)))
    assert sketch._positive == {5: 1, 7: 1}
    assert sketch._negative == {9: 1}
    assert sketch.count == 3


def test_a_sketch_that_was_read_folds_on() -> None:
    sketch = Sketch.from_bytes(sketch_of([in_bucket(1000), in_bucket(2100)]).to_bytes())
    sketch.add(in_bucket(0))
    sketch.add(in_bucket(1))
    assert [count for _, count in sketch.bins()] == [2, 1, 1]


def test_as_many_buckets_as_a_sketch_may_have_are_read() -> None:
    full = sketch_of(sign * in_bucket(n) for n in range(BUCKETS_MAX) for sign in (-1, 1))
    assert len(full) == 2 * BUCKETS_MAX
    assert Sketch.from_bytes(full.to_bytes()) == full
    assert len(full.to_bytes()) < 2000, "neighbours take almost nothing"


def test_what_claims_no_buckets_is_not_unpacked_to_see_how_many_there_are() -> None:
    data = head() + zlib.compress(bytes(20_000_000))
    tracemalloc.start()
    with pytest.raises(CallerError):
        Sketch.from_bytes(data)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


ONE = head(count=1, above=1)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x01", id="no-head"),
        pytest.param(head(version=2) + sides(()), id="another-version"),
        pytest.param(head(version=0) + sides(()), id="no-version"),
        pytest.param(head(above=2049) + sides((1,) * 2049), id="too-many-above"),
        pytest.param(head(below=2049) + sides((), (1,) * 2049), id="too-many-below"),
        pytest.param(ONE + sides((5, 6)), id="more-than-it-says"),
        pytest.param(ONE + sides(()), id="less-than-it-says"),
        pytest.param(ONE + zlib.compress(bytes(13)), id="one-byte-more"),
        pytest.param(ONE + zlib.compress(bytes(11)), id="one-byte-less"),
        pytest.param(ONE + sides((5,))[:-1], id="without-its-checksum"),
        pytest.param(ONE + bytes(12), id="not-compressed"),
        pytest.param(ONE, id="without-buckets"),
    ],
)
def test_torn_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(CallerError) as caught:
        Sketch.from_bytes(data)
    assert caught.value.code == "sketch-unreadable"


def test_what_came_since_a_copy_was_made_has_quantiles_of_its_own() -> None:
    """The latencies of the last seconds, out of totals that grow for ever."""
    sketch = sketch_of([*range(1, 101), 0.0, -2.0])
    before = sketch.copy()
    for value in (5000.0, 6000.0, 7000.0, 0.0, -2.0, 50.0):
        sketch.add(value)
    since = sketch.since(before)
    assert (since.count, since.total) == (6, 18048.0)
    assert [value for value, count in since.bins() for _ in range(int(count))] == (
        pytest.approx([0, 0, 0, 5000, 6000, 7000], rel=0.011, abs=51)
    )
    assert since.quantile(0.9) == pytest.approx(6000, rel=0.02)
    assert sketch.since(sketch.copy()).count == 0
