"""Where shares go by themselves, how fast, and that they come to rest."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.traffic import AUTOMATIC, MANUAL, RegionObserved, RegionSpec, TrafficSpec
from penstock.core.traffic.ratios import (
    DEAD_BAND,
    GAIN_MIN,
    RatioChange,
    RatioMemory,
    decide,
    within_bounds,
)


def region(name: str, ratio: float, **more: Any) -> RegionSpec:
    return RegionSpec(name=name, ratio=ratio, **more)


def spec(*regions: RegionSpec, **more: Any) -> TrafficSpec:
    told = regions or (region("a", 0.5), region("b", 0.5))
    return TrafficSpec(**({"regions": told, "mode": AUTOMATIC} | more))


def seen(name: str, room: int, in_flight: int, *, at: float = 10.0, **more: Any) -> RegionObserved:
    return RegionObserved(name=name, room=room, in_flight=in_flight, said_at=at, **more)


def rounded(ratios: dict[str, float]) -> dict[str, float]:
    return {name: round(ratio, 4) for name, ratio in ratios.items()}


def changes(found: tuple[RatioChange, ...]) -> list[tuple[str, float, float, str]]:
    return [(one.region, round(one.before, 4), round(one.after, 4), one.reason) for one in found]


def test_shares_follow_what_the_regions_can_take_on() -> None:
    decision = decide(spec(), [seen("a", 60, 20), seen("b", 0, 20)], now=10.0)
    assert decision.reason == "moved"
    assert rounded(decision.ratios) == {"a": 0.6, "b": 0.4}
    assert changes(decision.changes) == [
        ("a", 0.5, 0.6, "capacity"),
        ("b", 0.5, 0.4, "capacity"),
    ]


def test_a_share_moves_by_no_more_than_a_step_and_then_waits_for_its_effect() -> None:
    told = [seen("a", 60, 20), seen("b", 0, 20)]
    first = decide(spec(step_max=0.02, settle_s=2.0), told, now=10.0)
    assert rounded(first.ratios) == {"a": 0.52, "b": 0.48}
    moved = spec(step_max=0.02, settle_s=2.0).with_ratios(first.ratios)
    assert decide(moved, told, memory=first.memory, now=11.9).reason == "settling"
    second = decide(moved, told, memory=first.memory, now=12.0)
    assert rounded(second.ratios) == {"a": 0.54, "b": 0.46}


def test_small_differences_are_left_alone() -> None:
    decision = decide(spec(), [seen("a", 21, 20), seen("b", 20, 20)], now=10.0)
    assert (decision.reason, decision.changes) == ("steady", ())
    assert decision.ratios == {"a": 0.5, "b": 0.5}


def test_rates_count_more_than_slots_where_all_are_known() -> None:
    told = [seen("a", 20, 20, capacity_rps=30.0), seen("b", 20, 20, capacity_rps=10.0)]
    decision = decide(spec(step_max=1.0), told, now=10.0)
    assert rounded(decision.ratios) == {"a": 0.75, "b": 0.25}


def test_the_cheapest_regions_are_filled_first_and_not_to_the_brim() -> None:
    """Demand is 40 slots: the cheap region takes 32 of its 40, the dear one what is left."""
    regions = (region("cheap", 0.5, cost_per_hour=1.0), region("dear", 0.5, cost_per_hour=2.0))
    told = [seen("cheap", 20, 20), seen("dear", 20, 20)]
    decision = decide(spec(*regions, step_max=1.0), told, now=10.0)
    assert rounded(decision.ratios) == {"cheap": 0.8, "dear": 0.2}
    assert {one.reason for one in decision.changes} == {"cost"}


def test_beyond_that_all_share_by_what_they_can_take_on() -> None:
    regions = (region("cheap", 0.9, cost_per_hour=1.0), region("dear", 0.1, cost_per_hour=2.0))
    told = [seen("cheap", 0, 40), seen("dear", 0, 40)]
    decision = decide(spec(*regions, step_max=1.0), told, now=10.0)
    assert rounded(decision.ratios) == {"cheap": 0.5, "dear": 0.5}


@pytest.mark.parametrize(
    ("ill", "reason", "share"),
    [
        ({"waiting": 20, "in_flight": 60}, "queue", 0.4),
        ({"p99_s": 2.0}, "latency", 0.3333),
        ({"p99_s": 0.625}, "latency", 0.4444),
        ({"error_share": 0.26}, "errors", 0.3333),
        ({"error_share": 1.0}, "errors", 0.0),
    ],
)
def test_a_region_that_is_ill_gets_less_and_the_others_say_why(
    ill: dict[str, Any], reason: str, share: float
) -> None:
    told = [
        seen("a", 0, 40, p99_s=0.25),
        RegionObserved(
            **({"name": "b", "room": 0, "in_flight": 40, "p99_s": 0.25, "said_at": 10.0} | ill)
        ),
    ]
    decision = decide(spec(step_max=1.0), told, now=10.0)
    assert round(decision.ratios["b"], 4) == share
    assert {one.reason for one in decision.changes} == {reason}


def test_everyday_errors_and_a_p99_below_twice_the_best_move_nothing() -> None:
    told = [seen("a", 20, 20, p99_s=0.2), seen("b", 20, 20, p99_s=0.4, error_share=0.02)]
    assert decide(spec(), told, now=10.0).reason == "steady"


def test_shares_keep_to_their_bounds() -> None:
    regions = (region("a", 0.5, ratio_max=0.6), region("b", 0.5, ratio_min=0.3))
    told = [seen("a", 60, 20), seen("b", 0, 20)]
    assert rounded(decide(spec(*regions, step_max=1.0), told, now=10.0).ratios) == {
        "a": 0.6,
        "b": 0.4,
    }


def test_a_bound_on_slots_counts_as_what_the_region_can_take_on() -> None:
    regions = (region("a", 0.5, slots_max=20), region("b", 0.5))
    told = [seen("a", 60, 20), seen("b", 60, 20)]
    assert rounded(decide(spec(*regions, step_max=1.0), told, now=10.0).ratios) == {
        "a": 0.2,
        "b": 0.8,
    }


def test_shares_that_were_set_by_hand_never_move() -> None:
    told = [seen("a", 60, 20), seen("b", 0, 20)]
    decision = decide(spec(mode=MANUAL), told, memory=RatioMemory(gain=0.5), now=10.0)
    assert (decision.reason, decision.memory) == ("manual", RatioMemory())
    assert decision.ratios == {"a": 0.5, "b": 0.5}


@pytest.mark.parametrize(
    ("told", "closed", "reason"),
    [
        ([], (), "no-news"),
        ([seen("a", 60, 20)], (), "no-news"),
        ([seen("a", 60, 20), seen("b", 0, 20, at=7.0)], (), "no-news"),
        ([seen("a", 60, 20), seen("b", 0, 20)], ("b",), "no-news"),
        ([seen("a", 0, 0), seen("b", 0, 0)], (), "no-news"),
        ([seen("a", 60, 0), seen("b", 20, 0)], (), "idle"),
    ],
)
def test_nothing_moves_where_nothing_is_known(
    told: list[RegionObserved], closed: tuple[str, ...], reason: str
) -> None:
    decision = decide(spec(), told, closed=closed, now=10.0)
    assert (decision.reason, decision.ratios) == (reason, {"a": 0.5, "b": 0.5})


def test_a_region_that_is_out_of_use_keeps_its_share_for_its_return() -> None:
    regions = (region("a", 0.4), region("b", 0.4), region("c", 0.2))
    told = [seen("a", 60, 20), seen("b", 0, 20), seen("c", 0, 5)]
    decision = decide(spec(*regions, step_max=1.0), told, closed={"c"}, now=10.0)
    assert rounded(decision.ratios) == {"a": 0.6, "b": 0.2, "c": 0.2} | {
        "a": round(0.8 * 0.8, 4),
        "b": round(0.8 * 0.2, 4),
    }


def test_steps_are_halved_where_a_share_turns_round_and_grow_again_slowly() -> None:
    to_a = [seen("a", 60, 20), seen("b", 0, 20)]
    to_b = [seen("a", 0, 20), seen("b", 60, 20)]
    decision, gains = decide(spec(), to_a, now=10.0), []
    for told in (to_b, to_a, to_a, to_b, to_b, to_a, to_b, to_a, to_b, to_a):
        fresh = [seen(one.name, one.room, one.in_flight, at=1e6) for one in told]
        moved = spec().with_ratios(decision.ratios)
        decision = decide(moved, fresh, memory=decision.memory, now=1e6)
        decision = (
            decide(
                moved,
                fresh,
                memory=RatioMemory(None, decision.memory.gain, decision.memory.turns),
                now=1e6,
            )
            if decision.reason == "settling"
            else decision
        )
        gains.append(round(decision.memory.gain, 4))
    assert gains[:5] == [0.5, 0.25, 0.275, 0.1375, 0.1513]
    assert gains[-1] == GAIN_MIN


# properties

SHARES = st.lists(st.floats(0.0, 1.0), min_size=2, max_size=5).filter(lambda many: sum(many) > 0.01)


@given(
    wanted=st.lists(st.floats(-1.0, 2.0), min_size=2, max_size=5),
    least=st.floats(0.0, 0.2),
    most=st.floats(0.5, 1.0),
)
def test_shares_within_bounds_sum_to_the_total(
    wanted: list[float], least: float, most: float
) -> None:
    regions = [region(str(at), 1.0, ratio_min=least, ratio_max=most) for at in range(len(wanted))]
    found = within_bounds({str(at): one for at, one in enumerate(wanted)}, regions, 1.0)
    assert sum(found.values()) == pytest.approx(1.0)
    assert all(least <= one <= most for one in found.values())


@given(shares=SHARES, data=st.data())
def test_whatever_is_seen_shares_sum_to_1_keep_to_their_bounds_and_move_by_steps(
    shares: list[float], data: st.DataObject
) -> None:
    names = [str(at) for at in range(len(shares))]
    told = spec(*(region(name, share) for name, share in zip(names, shares, strict=True)))
    counts = st.integers(0, 200)
    news = [
        RegionObserved(
            name=name,
            room=data.draw(counts),
            in_flight=data.draw(counts),
            waiting=data.draw(counts),
            p99_s=data.draw(st.floats(0.0, 20.0)),
            error_share=data.draw(st.floats(0.0, 1.0)),
            capacity_rps=data.draw(st.sampled_from([0.0, 1.0, 300.0])),
            said_at=data.draw(st.sampled_from([0.0, 9.0])),
        )
        for name in names
    ]
    decision = decide(told, news, now=10.0)
    assert sum(decision.ratios.values()) == pytest.approx(1.0)
    assert all(-1e-12 <= one <= 1 + 1e-12 for one in decision.ratios.values())
    before = told.ratios()
    assert all(abs(decision.ratios[name] - before[name]) <= told.step_max + 1e-9 for name in names)
    assert bool(decision.changes) == (decision.reason == "moved")


# a plant: regions whose queues and latencies answer to the shares


def plant(
    slots: dict[str, int], service_s: dict[str, float]
) -> Callable[[dict[str, float], float], list[RegionObserved]]:
    """What regions of so many slots tell of themselves, at so many requests/s in all."""

    def told(ratios: dict[str, float], rate_rps: float, *, at: float = 0.0) -> list[RegionObserved]:
        news = []
        for name, count in slots.items():
            asked = rate_rps * ratios[name] * service_s[name]
            running = min(count, round(asked))
            waiting = round(max(0.0, asked - count))
            load = min(0.99, asked / count)
            slow = service_s[name] * (1.0 + load / (1.0 - load) / count + waiting / count)
            news.append(
                RegionObserved(
                    name=name,
                    room=count - running,
                    in_flight=running + waiting,
                    waiting=waiting,
                    p50_s=service_s[name],
                    p99_s=slow,
                    said_at=at,
                )
            )
        return news

    return told


def run(
    told: TrafficSpec,
    slots: dict[str, int],
    rates: list[float],
    service_s: dict[str, float] | None = None,
) -> list[dict[str, float]]:
    """Shares second by second."""
    world = plant(slots, service_s or dict.fromkeys(slots, 1.0))
    memory, history = RatioMemory(), []
    for second, rate in enumerate(rates):
        news = [
            RegionObserved(
                **{f: getattr(one, f) for f in one.__slots__} | {"said_at": float(second)}
            )
            for one in world(told.ratios(), rate)
        ]
        decision = decide(told, news, memory=memory, now=float(second))
        memory, told = decision.memory, told.with_ratios(decision.ratios)
        history.append(told.ratios())
    return history


@pytest.mark.parametrize("rate", [20.0, 60.0, 100.0, 140.0])
@pytest.mark.parametrize("seed", range(5))
def test_under_a_constant_load_shares_come_to_rest(rate: float, seed: int) -> None:
    """At 20 to 140 % of what the regions can do, from any shares, at two speeds."""
    rng = random.Random(seed)
    slots = {"a": 50, "b": 30, "c": 20}
    service_s = {"a": 1.0, "b": 1.0, "c": rng.choice([1.0, 2.0])}
    told = spec(*(region(name, rng.uniform(0.05, 1.0)) for name in slots))
    history = run(told, slots, [rate] * 300, service_s)
    at_rest = history[150:]
    swing = max(
        max(one[name] for one in at_rest) - min(one[name] for one in at_rest) for name in slots
    )
    assert swing <= DEAD_BAND


def test_after_a_step_of_capacity_shares_are_right_within_half_a_minute_and_do_not_overshoot() -> (
    None
):
    told = spec(region("a", 0.9), region("b", 0.1))
    shares = [one["a"] for one in run(told, {"a": 50, "b": 50}, [60.0] * 60)]
    assert shares == sorted(shares, reverse=True), "it turned round"
    assert all(abs(share - 0.5) <= DEAD_BAND for share in shares[30:])


def test_shares_rest_once_the_demand_is_known_and_move_again_when_they_are_far_off() -> None:
    """Off by 0.05 they are moved before that, and left alone behind it; by 0.15 they are moved."""

    def told(room_of_a: int, at: float) -> list[RegionObserved]:
        return [seen("a", room_of_a, 20, at=at), seen("b", 20, 20, at=at)]

    assert decide(spec(), told(29, 10.0), now=10.0).reason == "moved"
    memory = decide(spec(), told(20, 10.0), now=10.0).memory
    assert not memory.at_rest
    memory = decide(spec(), told(20, 25.0), memory=memory, now=25.0).memory
    assert memory.at_rest
    near = decide(spec(), told(29, 60.0), memory=memory, now=60.0)
    assert (near.reason, near.memory.at_rest) == ("steady", True)
    far = decide(spec(), told(54, 90.0), memory=near.memory, now=90.0)
    assert (far.reason, far.memory.at_rest) == ("moved", False)
    assert rounded(far.ratios) == {"a": 0.6, "b": 0.4}


def noisy(
    told: TrafficSpec, slots: int, rates: list[float], *, service_s: float, seed: int
) -> list[dict[str, float]]:
    """Shares, twice a second, of regions with so many slots each: requests come at Poisson times,
    so the number in flight does not stay what it is on average."""
    rng, memory, history = random.Random(seed), RatioMemory(), []
    for look, rate in enumerate(rates):
        now, news = look / 2, []
        for name, share in told.ratios().items():
            asked = rate * share * service_s
            in_flight = min(slots, round(rng.gauss(asked, asked**0.5))) if asked else 0
            in_flight = max(0, in_flight)
            news.append(seen(name, slots - in_flight, in_flight, at=now))
        decision = decide(told, news, memory=memory, now=now)
        memory, told = decision.memory, told.with_ratios(decision.ratios)
        history.append(told.ratios())
    return history


@pytest.mark.parametrize("seed", range(5))
def test_noise_moves_nothing_and_a_step_is_followed_within_20_s(seed: int) -> None:
    """16 slots in each region, answers in 0.18 s: 9 in flight on average, then 20."""
    told = spec(
        region("eu", 1 / 3, cost_per_hour=0.04),
        region("us", 1 / 3, cost_per_hour=0.05),
        region("ap", 1 / 3, cost_per_hour=0.06),
    )
    rates = [50.0] * 60 + [110.0] * 100
    shares = [one["eu"] for one in noisy(told, 16, rates, service_s=0.18, seed=seed)]
    before, after = shares[40:60], shares[100:]  # 20 s after the beginning, and after the step
    assert min(before) > 0.9
    assert max(after) - min(after) <= DEAD_BAND
    assert 0.5 < after[-1] < 0.8  # FILL of its slots takes 0.65 of the load
