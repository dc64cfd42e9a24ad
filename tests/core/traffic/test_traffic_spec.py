"""What may be asked of the traffic between regions."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.traffic import MANUAL, RegionSpec, TrafficSpec
from penstock.errors import CallerError

A, B, C = (RegionSpec(name=name) for name in "abc")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"regions": ()}, "no region is listed"),
        ({"regions": (A, A)}, "listed twice"),
        ({"regions": (RegionSpec(name=""),)}, "no name"),
        ({"mode": "auto"}, "mode is 'auto', not manual or automatic"),
        ({"home": "x"}, "home is 'x'"),
        ({"pinned": frozenset({"a", "x"})}, "pinned to what is no region"),
        ({"regions": (RegionSpec(name="a", ratio=-0.1),)}, "ratio_min <= ratio_max"),
        ({"regions": (RegionSpec(name="a", ratio=float("inf")),)}, "ratio_min <= ratio_max"),
        ({"regions": (RegionSpec(name="a", ratio=float("nan")),)}, "ratio_min <= ratio_max"),
        ({"regions": (RegionSpec(name="a", ratio_min=0.6, ratio_max=0.5),)}, "ratio_min <="),
        ({"regions": (RegionSpec(name="a", slots_max=-1),)}, "ratio_min <= ratio_max"),
        ({"regions": (RegionSpec(name="a", ratio=0.0),)}, "no region has a ratio above 0"),
        (
            {"regions": (RegionSpec(name="a", ratio=0.0), B), "pinned": frozenset({"a"})},
            "no region has a ratio above 0",
        ),
        (
            {"regions": (RegionSpec(name="a", ratio_min=0.6), RegionSpec(name="b", ratio_min=0.6))},
            "lower bounds sum to more than 1",
        ),
        (
            {"regions": (RegionSpec(name="a", ratio_max=0.4), RegionSpec(name="b", ratio_max=0.4))},
            "upper bounds sum to less than 1",
        ),
        ({"step_max": 0.0}, "step_max"),
        ({"settle_s": 0.0}, "step_max or settle_s"),
        ({"hold_max": -1}, "hold_max"),
    ],
)
def test_a_spec_that_contradicts_itself_is_refused_with_what_is_wrong(
    wrong: dict[str, Any], words: str
) -> None:
    with pytest.raises(CallerError) as caught:
        TrafficSpec(**({"regions": (A, B, C)} | wrong))
    assert caught.value.code == "invalid-traffic"
    assert words in caught.value.message
    assert caught.value.hint


def test_shares_are_against_the_sum_and_sum_to_1() -> None:
    spec = TrafficSpec(regions=(RegionSpec(name="a", ratio=3), RegionSpec(name="b", ratio=1), C))
    assert spec.ratios() == {"a": 0.6, "b": 0.2, "c": 0.2}


def test_a_region_that_an_endpoint_is_not_pinned_to_has_no_share() -> None:
    spec = TrafficSpec(regions=(A, B, C), pinned=frozenset({"a", "c"}))
    assert spec.ratios() == {"a": 0.5, "b": 0.0, "c": 0.5}


def test_shares_set_by_hand_stand_beside_those_that_stay() -> None:
    spec = TrafficSpec(regions=(A, B)).with_ratios({"a": 0.0}, mode=MANUAL)
    assert spec.mode == MANUAL
    assert spec.ratios() == {"a": 0.0, "b": 1.0}


def test_a_share_of_a_region_that_is_not_there_is_refused() -> None:
    with pytest.raises(CallerError, match="no region x"):
        TrafficSpec(regions=(A, B)).with_ratios({"x": 1.0})


def test_shares_that_a_person_types_are_all_that_there_are() -> None:
    """Whoever names two regions of three means that the third gets nothing."""
    spec = TrafficSpec(regions=(A, B, C)).shared({"a": 0.7, "b": 0.3}, mode=MANUAL)
    assert spec.ratios() == {"a": 0.7, "b": 0.3, "c": 0.0}
    assert spec.mode == MANUAL
    thirds = TrafficSpec(regions=(A, B, C)).shared(dict.fromkeys("abc", 0.33))
    assert sum(thirds.ratios().values()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("shares", "words", "hint"),
    [
        ({"a": 0.7, "b": 0.7}, "sum to 1.4, not to 1: a=0.7 b=0.7 c=0", "a=0.5 b=0.5"),
        ({"a": 7, "b": 3}, "sum to 10, not to 1: a=7 b=3 c=0", "a=0.7 b=0.3"),
        ({"a": 0.5}, "sum to 0.5, not to 1: a=0.5 b=0 c=0", "a=1"),
        ({"a": 0.98}, "sum to 0.98, not to 1", "a=1"),
        ({"a": 0.0}, "sum to 0, not to 1", "sum to 1"),
        ({"a": 0.5, "x": 0.5}, "no region x", "regions"),
    ],
)
def test_shares_that_do_not_sum_to_1_are_refused_with_what_to_type(
    shares: dict[str, float], words: str, hint: str
) -> None:
    with pytest.raises(CallerError) as caught:
        TrafficSpec(regions=(A, B, C)).shared(shares)
    assert caught.value.code == "invalid-traffic"
    assert words in caught.value.message
    assert hint in caught.value.hint


def test_a_share_of_a_region_that_an_endpoint_may_not_go_to_is_refused() -> None:
    spec = TrafficSpec(endpoint="e", regions=(A, B), pinned=frozenset({"a"}))
    assert spec.shared({"a": 1.0, "b": 0.0}).ratios() == {"a": 1.0, "b": 0.0}
    with pytest.raises(CallerError, match="b has a share, but the endpoint is pinned to a"):
        spec.shared({"a": 0.5, "b": 0.5})
