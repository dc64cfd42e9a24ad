"""`core/resources.py`: what fits, and what is missing where it does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.resources import NO_RESOURCES, ComputeResources


def of(memory_bytes: int = 0, cores: float = 0.0, accelerators: int = 0) -> ComputeResources:
    return ComputeResources(memory_bytes=memory_bytes, cores=cores, accelerators=accelerators)


HALVES = st.builds(
    of, st.integers(-8, 8), st.integers(-8, 8).map(lambda at: at / 2), st.integers(-8, 8)
)


def test_each_is_added_and_taken_away_by_itself() -> None:
    assert of(8, 2.0, 1) + of(1, 0.5, 2) == of(9, 2.5, 3)
    assert of(8, 2.0, 1) - of(1, 0.5, 2) == of(7, 1.5, -1)
    assert of(8, 0.5, 1).at_least(of(1, 2.0, 2)) == of(8, 2.0, 2)
    assert of(8, 0.5, 1).at_most(of(1, 2.0, 2)) == of(1, 0.5, 1)
    assert of(0, 0.0, 0) == NO_RESOURCES


@pytest.mark.parametrize(
    ("asked", "missing"),
    [
        (of(8, 2.0, 1), ()),
        (of(9, 2.0, 1), ("memory",)),
        (of(8, 2.5, 1), ("cores",)),
        (of(8, 2.0, 2), ("accelerators",)),
        (of(9, 2.5, 2), ("accelerators", "memory", "cores")),
    ],
)
def test_what_is_missing_is_named_the_scarcest_first(
    asked: ComputeResources, missing: tuple[str, ...]
) -> None:
    free = of(8, 2.0, 1)
    assert asked.missing(free) == missing
    assert asked.fits(free) == (not missing)


def test_what_is_not_asked_for_is_shared_however_little_is_left() -> None:
    assert NO_RESOURCES.missing(of(-1, -1.0, -1)) == ()
    assert of(1).missing(of(1, -1.0, -1)) == ()
    assert of(1, 0.5, 1).missing(of(-1, -1.0, -1)) == ("accelerators", "memory", "cores")


def test_fractions_of_cores_that_make_a_whole_one_fit_on_it() -> None:
    """1 - 0.9 is a little less than 0.1, in floats."""
    left = of(cores=1.0) - of(cores=0.9)
    assert left.cores < 0.1
    assert of(cores=0.1).fits(left)
    assert not of(cores=0.101).fits(left)


def test_an_order_by_accelerators_then_memory_then_cores() -> None:
    assert of(8, 2.0, 1).by_scarcity() == (1, 8, 2.0)


@given(HALVES, HALVES)
def test_what_fits_leaves_nothing_less_than_nothing(
    asked: ComputeResources, free: ComputeResources
) -> None:
    asked = asked.at_least(NO_RESOURCES)
    left = free - asked
    assert left + asked == free
    short = {
        name
        for name, more, rest in (
            ("memory", asked.memory_bytes, left.memory_bytes),
            ("cores", asked.cores, left.cores),
            ("accelerators", asked.accelerators, left.accelerators),
        )
        if more and rest < 0
    }
    assert set(asked.missing(free)) == short
