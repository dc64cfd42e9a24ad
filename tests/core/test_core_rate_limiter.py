"""Which lanes run, where models share resources."""

from __future__ import annotations

import pytest

from penstock.core.batching.rate_limiter import GLOBAL, RateLimit, RateLimiter
from penstock.errors import ModelError


def needs(priority: int = 1, device: str = "0", **resources: int) -> RateLimit:
    return RateLimit(tuple(((device, name), count) for name, count in resources.items()), priority)


def limiter(copies: dict[str, int] | None = None, **lanes: RateLimit) -> RateLimiter:
    made = RateLimiter(copies or {})
    for lane, limit in lanes.items():
        made.add(lane, limit)
    return made


def test_there_are_as_many_copies_as_the_lane_needs_that_needs_most() -> None:
    made = limiter(a=needs(R=4), b=needs(R=5), c=needs(R=1), free=RateLimit())
    assert made.stage("b") == ["b"]
    assert made.stage("c") == []
    assert made.stage("free") == ["free"]  # it takes nothing from anybody
    assert made.stage("a") == []
    assert made.release("b", again=False) == ["c", "a"]


def test_the_first_in_turn_is_waited_for_even_where_others_would_fit() -> None:
    made = limiter({"R": 4}, large=needs(R=4), small=needs(R=2), other=needs(R=2))
    assert made.stage("small") == ["small"]
    assert made.stage("large") == []
    assert made.stage("other") == []
    assert made.release("small", again=False) == ["large"]
    assert made.release("large", again=False) == ["other"]


def test_priority_two_has_half_as_many_turns() -> None:
    made = limiter(a=needs(1, R=1), b=needs(2, R=1))
    ran = made.stage("a") + made.stage("b")
    for _ in range(60):
        ran += made.release(ran[-1], again=True)
    assert ran[:10] == ["a", "b", "a", "b", "a", "a", "b", "a", "a", "b"]
    assert abs(ran.count("a") - 2 * ran.count("b")) <= 2


def test_each_device_has_its_own_and_global_ones_are_shared() -> None:
    made = limiter({"R": 1, "R:1": 2, "G": 1}, a=needs(R=1), b=needs(device="1", R=2))
    assert made.stage("a") + made.stage("b") == ["a", "b"]
    for lane in ("c", "d"):
        made.add(lane, needs(device=GLOBAL, G=1))
    assert made.stage("c") + made.stage("d") == ["c"]
    assert made.remove("c") == ["d"]


def test_what_could_never_run_is_refused_by_name() -> None:
    made = limiter({"R": 3}, a=needs(R=3))
    with pytest.raises(ModelError, match="needs 4 of the resource 'R', and there are 3"):
        made.add("b", needs(R=4))
    with pytest.raises(ModelError, match="'S', and there are 0"):
        made.add("b", needs(S=1))
    with pytest.raises(ModelError, match="'R' is one of all devices here"):
        made.add("b", needs(device=GLOBAL, R=1))
    assert made.stage("a") == ["a"]
    assert made.remove("a") == []


def test_a_lane_that_leaves_while_it_waits_lets_others_go() -> None:
    made = limiter({"R": 2}, a=needs(R=1), large=needs(R=2), b=needs(R=1))
    assert made.stage("a") == ["a"]
    assert made.stage("large") + made.stage("b") == []
    assert made.remove("large") == ["b"]
