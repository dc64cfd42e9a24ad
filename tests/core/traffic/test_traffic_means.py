"""What one look at regions adds to the looks before: means, and whether the demand has changed."""

from __future__ import annotations

import pytest

from penstock.core.traffic import RegionObserved, RegionSpec, TrafficSpec
from penstock.core.traffic.moving_averages import MovingAverages, measure

SPEC = TrafficSpec(regions=(RegionSpec(name="a", ratio=1.0), RegionSpec(name="b", ratio=1.0)))


def news(in_flight: int, *, room: int = 0, capacity_rps: float = 0.0) -> list[RegionObserved]:
    """Of two regions that are alike."""
    return [
        RegionObserved(
            name=name, room=room, in_flight=in_flight, said_at=0.0, capacity_rps=capacity_rps
        )
        for name in ("a", "b")
    ]


def looks(
    *in_flight: int, every_s: float = 0.5, means: MovingAverages | None = None
) -> list[MovingAverages]:
    """What is known after each look, from 0 s on or after `means`."""
    seen, known = [], means or MovingAverages()
    begin = 0.0 if means is None or means.seen_at is None else means.seen_at + every_s
    for at, count in enumerate(in_flight):
        _, known = measure(SPEC, news(count), known, now=begin + at * every_s)
        seen.append(known)
    return seen


def test_the_first_look_is_all_there_is() -> None:
    measured, means = measure(SPEC, news(10, room=30), MovingAverages(), now=7.0)
    assert [(one.spec.name, one.power, one.why) for one in measured] == [
        ("a", 40.0, ""),
        ("b", 40.0, ""),
    ]
    assert (means.demand, means.quick, means.changed_at) == (20.0, 20.0, 7.0)


def test_it_does_not_matter_how_often_one_looks() -> None:
    seldom = looks(10, 12, every_s=4.0)[-1]
    often = looks(10, *[12] * 8, every_s=0.5)[-1]
    assert often.quick == pytest.approx(seldom.quick)
    assert dict(often.slots) == pytest.approx(dict(seldom.slots))


def test_counts_that_jump_as_poisson_counts_do_are_no_change() -> None:
    """40 in flight, give or take 6."""
    known = looks(*[20, 23, 17, 20, 23, 17] * 20)
    assert {each.changed_at for each in known} == {0.0}
    assert all(abs(each.demand - 40.0) < 2.0 for each in known[60:])


def test_a_step_is_noticed_within_a_second_and_what_came_before_is_forgotten() -> None:
    before = looks(*[10] * 120)[-1]
    after = looks(*[20] * 20, means=before)
    assert before.seen_at == 59.5
    assert after[1].changed_at > 59.5
    assert after[9].demand == pytest.approx(40.0, rel=0.1)  # 5 s after it
    assert after[19].demand == pytest.approx(40.0, rel=0.01)


def test_the_demand_is_known_15_s_after_it_has_changed() -> None:
    known = looks(*[10] * 31)[-1]
    assert known.seen_at == 15.0
    assert not known.sure(14.9)
    assert known.sure(15.0)


def test_answers_that_take_long_are_looked_at_for_longer() -> None:
    """40 slots that answer 8 a second take 5 s for each: a quick mean is one of 25 s there."""
    means = MovingAverages()
    for at, count in enumerate([20] * 60 + [28] * 4):
        _, means = measure(SPEC, news(count, room=40 - count, capacity_rps=8.0), means, now=at / 2)
    assert means.changed_at == 0.0
    assert means.quick == pytest.approx(8.0 + 3.2 * 0.077, rel=0.01)  # answers/s with slots busy
    plain = looks(*[20] * 60, *[28] * 4)[-1]
    assert plain.changed_at > 29.5


def test_a_region_of_which_there_was_no_news_begins_anew() -> None:
    _, means = measure(SPEC, news(10, room=30), MovingAverages(), now=0.0)
    _, means = measure(SPEC, news(10, room=30)[:1], means, now=1.0)
    assert means.slots == (("a", 40.0),)
    measured, _ = measure(SPEC, news(10, room=10), means, now=1.5)
    assert measured[0].power > 30.0
    assert measured[1].power == 20.0
