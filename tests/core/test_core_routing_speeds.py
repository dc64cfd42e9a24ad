"""`core/routing/speeds.py`: what is learned of kinds of instances, and what routing makes of it."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.deployment.deployment import (
    LEAST_OUTSTANDING_REQUESTS,
    PREFIX_AWARE,
    RANDOM,
    CopyRoute,
    EndpointRoutes,
    VariantRoutes,
)
from penstock.core.routing import CopyState, EndpointRouter, Routed
from penstock.core.routing.pickers import least_outstanding, least_wait
from penstock.core.routing.rebalance import CopyLoad, GiveBack, level
from penstock.core.routing.speeds import KindSpeeds


def learned(
    rates: dict[str, float], *, rounds: int, speeds: KindSpeeds | None = None, start: float = 0.0
) -> KindSpeeds:
    """Each kind in turn answers, after as long as its rate says."""
    speeds = speeds or KindSpeeds(rates)
    for turn in range(rounds):
        for kind, rate in rates.items():
            speeds.answered(kind, 1.0 / rate, now=start + turn / 100)
            speeds.check_invariants()
    return speeds


def costs(speeds: KindSpeeds, *kinds: str) -> list[float]:
    return [round(speeds.cost(kind), 2) for kind in kinds]


def test_kinds_cost_the_same_until_each_is_known() -> None:
    assert learned({"fast": 30.0, "slow": 10.0}, rounds=31).equal
    only = KindSpeeds(("fast", "slow"))
    for at in range(500):
        only.answered("fast", 0.1, now=float(at))
    assert only.equal
    assert only.snapshot()["slow"] == {"cost": 1.0, "answers_per_busy_s": None, "known": False}


def test_a_kind_costs_what_its_answers_take_of_the_fastest() -> None:
    """Three to one is six steps and a third of a quarter of a doubling: 2 ** (6 / 4)."""
    speeds = learned({"fast": 30.0, "slow": 10.0}, rounds=500)
    assert costs(speeds, "fast", "slow") == [1.0, 2.83]
    assert not speeds.equal


def test_what_is_learned_changes_by_a_step_at_a_time() -> None:
    speeds = KindSpeeds(("fast", "slow"))
    seen = [1.0]
    for turn in range(400):
        for kind, took_s in (("fast", 0.01), ("slow", 0.08)):
            changed = speeds.answered(kind, took_s, now=float(turn) / 100)
            if changed:
                seen.append(speeds.cost("slow"))
    steps = [after / before for before, after in itertools.pairwise(seen)]
    assert steps
    assert all(step == pytest.approx(2**0.25) for step in steps)


@pytest.mark.parametrize(("rate", "cost"), [(10.0, 1.0), (9.0, 1.0), (1.0, 8.0), (0.001, 8.0)])
def test_small_differences_count_for_nothing_and_large_ones_are_bounded(
    rate: float, cost: float
) -> None:
    speeds = learned({"fast": 10.0, "slow": rate}, rounds=1000)
    assert costs(speeds, "fast", "slow") == [1.0, cost]


def test_between_two_steps_it_does_not_go_to_and_fro() -> None:
    """An estimate that wavers around the middle between two steps keeps the one that it has."""
    speeds = learned({"fast": 10.0, "slow": 10.0 / 2**0.625}, rounds=300)
    before = speeds.cost("slow")
    rng = random.Random(1)
    changes = 0
    for turn in range(3000):
        for kind, took_s in (("fast", 0.1), ("slow", 0.1 * 2**0.625)):
            noisy = took_s * rng.uniform(0.8, 1.2)
            changes += speeds.answered(kind, noisy, now=3.0 + turn / 100)
    assert (changes, speeds.cost("slow")) == (0, before)


def test_who_was_slow_for_a_while_becomes_as_fast_as_the_others_again() -> None:
    speeds = learned({"a": 10.0, "b": 2.0}, rounds=600)
    assert costs(speeds, "a", "b") == [1.0, 4.76]
    learned({"a": 10.0, "b": 10.0}, rounds=3000, speeds=speeds, start=6.0)
    assert speeds.equal


def test_a_kind_that_is_not_asked_is_tried_again_by_and_by() -> None:
    """One step nearer to equal every half minute in which it answers nothing."""
    speeds = learned({"a": 10.0, "b": 2.0}, rounds=600)  # its last answer came at 5.99 s
    for at in range(6, 35):
        for _ in range(16):
            speeds.answered("a", 0.1, now=float(at))
    assert costs(speeds, "b") == [4.76]
    for _ in range(16):
        speeds.answered("a", 0.1, now=36.0)
    assert costs(speeds, "b") == [4.0]
    for at in range(37, 400):
        for _ in range(16):
            speeds.answered("a", 0.1, now=float(at))
    assert speeds.equal


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.0, 100.0)), max_size=400))
def test_whatever_answers_come_costs_stay_within_bounds(answers: list[tuple[str, float]]) -> None:
    speeds, now = KindSpeeds("abc"), 0.0
    for kind, took_s in answers:
        now += took_s
        before = [speeds.cost(one) for one in "abc"]
        changed = speeds.answered(kind, took_s, now=now)
        speeds.check_invariants()
        assert changed == (before != [speeds.cost(one) for one in "abc"])


# routing


def routes(
    *kinds: str, strategy: str = LEAST_OUTSTANDING_REQUESTS, multi_model: bool = False
) -> EndpointRoutes:
    copies = tuple(
        CopyRoute(copy=at, instance_id=f"i-{at}", outstanding_max=100, kind=kind)
        for at, kind in enumerate(kinds, 1)
    )
    variant = VariantRoutes(
        name="blue",
        weight=1.0,
        strategy=strategy,
        copies=copies,
        multi_model=multi_model,
        prefix_length_max=1024 if strategy == PREFIX_AWARE else 0,
        concurrency_threshold=8 if strategy == PREFIX_AWARE else 0,
    )
    return EndpointRoutes(endpoint="shop", variants=(variant,))


def picked(router: EndpointRouter, now: float) -> Routed:
    answer = router.pick(now=now)
    assert isinstance(answer, Routed)
    router.check_invariants()
    return answer


def taught(router: EndpointRouter, took_s: dict[int, float], rounds: int = 400) -> None:
    """Lets each copy answer one request per second, after as long as is said."""
    for turn in range(rounds):
        for copy, each_s in took_s.items():
            others = tuple(other for other in took_s if other != copy)
            answer = router.pick(exclude=others, now=float(turn))
            assert isinstance(answer, Routed)
            assert answer.state.copy == copy
            router.answered(answer.state, now=turn + each_s)
            router.release(answer.state)


def test_a_request_goes_where_it_would_be_done_first() -> None:
    """Three to one: the slow copy gets its first request when three are on the fast one."""
    router = EndpointRouter(routes("fast", "slow"), random.Random(1))
    assert router.learns
    taught(router, {1: 0.1, 2: 0.3})
    got = [picked(router, 500.0) for _ in range(8)]
    assert [one.state.copy for one in got] == [1, 1, 2, 1, 1, 1, 2, 1]
    assert {one.reason for one in got} == {"least-wait"}
    shown = router.snapshot()["variants"][0]["speeds"]
    assert shown["fast"] == {"cost": 1.0, "answers_per_busy_s": 10.0, "known": True}
    assert shown["slow"]["cost"] == 2.828


def test_time_without_a_request_is_no_time_of_an_answer() -> None:
    """Both are idle most of each second, and equally fast."""
    router = EndpointRouter(routes("fast", "slow"), random.Random(1))
    taught(router, {1: 0.1, 2: 0.1})
    shown = router.snapshot()["variants"][0]["speeds"]
    assert {one["answers_per_busy_s"] for one in shown.values()} == {10.0}


def test_kinds_that_are_alike_are_picked_from_as_copies_of_one_kind() -> None:
    """Choice by choice, whatever is answered when."""
    mixed = EndpointRouter(routes("a", "b", "b"), random.Random(1))
    alike = EndpointRouter(routes("", "", ""), random.Random(1))
    assert (mixed.learns, alike.learns) == (True, False)
    rng, now = random.Random(2), 0.0
    held: list[tuple[CopyState, CopyState]] = []
    for _ in range(3000):
        now += 0.01
        if held and rng.random() < 0.5:
            one, other = held.pop(rng.randrange(len(held)))
            mixed.answered(one, now=now)
            mixed.release(one)
            alike.release(other)
            continue
        one, other = picked(mixed, now).state, picked(alike, now).state
        assert one.copy == other.copy
        held.append((one, other))
        if len(held) > 9:
            one, other = held.pop(0)
            mixed.answered(one, now=now)
            mixed.release(one)
            alike.release(other)


@pytest.mark.parametrize(
    "told",
    [
        routes("a", "a"),
        routes("", ""),
        routes("a", "b", strategy=RANDOM),
        routes("a", "b", multi_model=True),
    ],
)
def test_nothing_is_learned_where_it_would_decide_nothing(told: EndpointRoutes) -> None:
    assert not EndpointRouter(told, random.Random(1)).learns


def test_prefixes_that_nobody_knows_go_where_they_are_done_first() -> None:
    router = EndpointRouter(routes("fast", "slow", strategy=PREFIX_AWARE), random.Random(1))
    taught(router, {1: 0.1, 2: 0.3})
    answers = [router.pick(prompt=bytes([at]) * 512, now=900.0) for at in range(3)]
    assert [one.state.copy for one in answers if isinstance(one, Routed)] == [1, 1, 2]
    assert {one.reason for one in answers} == {"least-wait"}


def test_what_was_learned_stays_with_the_kinds_and_reaches_new_copies() -> None:
    router = EndpointRouter(routes("fast", "slow"), random.Random(1))
    taught(router, {1: 0.1, 2: 0.3})
    router.replace(routes("fast", "slow", "slow", "fast"))
    states = [picked(router, 900.0).state for _ in range(4)]
    assert sorted(state.copy for state in states) == [1, 1, 4, 4]
    router.replace(routes("fast", "slow", "other"))
    assert router.learns
    assert {state.cost for state in states if not state.draining} == {1.0}  # a new comparison
    router.replace(routes("fast", "fast"))
    assert not router.learns


def test_what_was_learned_stays_when_a_new_generation_has_taken_over() -> None:
    taken_over = routes("fast", "slow")
    (blue,) = taken_over.variants
    both = (replace(blue, copies=()), replace(blue, incoming=True))
    router = EndpointRouter(replace(taken_over, variants=both), random.Random(1))
    taught(router, {1: 0.1, 2: 0.3})
    learned = router.snapshot()["variants"][1]["speeds"]
    assert learned["slow"]["cost"] == 2.828
    router.replace(taken_over)
    assert router.snapshot()["variants"][0]["speeds"] == learned
    assert [picked(router, 900.0).state.copy for _ in range(4)] == [1, 1, 2, 1]


def test_late_news_of_a_copy_that_drains_teaches_nothing() -> None:
    router = EndpointRouter(routes("fast", "slow"), random.Random(1))
    state = picked(router, 0.0).state
    router.replace(routes("fast", "slow").__class__(endpoint="shop", variants=()))
    router.answered(state, now=5.0)
    router.release(state)
    router.check_invariants()


def test_the_picker_passes_over_full_copies_and_breaks_ties_by_the_last_turn() -> None:
    copies = [CopyState(at, f"i-{at}", "blue", 2) for at in range(3)]
    copies[1].cost = 2.0
    copies[0].picked = 5
    assert least_wait(copies) is copies[2]
    copies[2].outstanding, copies[0].outstanding = 1, 1
    assert (
        least_wait(copies) is copies[1]
    )  # as long as behind one of the others, and asked longer ago
    copies[1].outstanding = 2
    assert least_wait(copies) is copies[2]
    for state in copies:
        state.outstanding = 2
    assert least_wait(copies) is None
    for state in copies:
        state.cost, state.outstanding = 1.0, state.copy % 2
    assert least_wait(copies) is least_outstanding(copies)


# sharing queues


def test_queues_are_shared_by_what_a_request_costs() -> None:
    """Twelve between a copy and one at a third of its speed: nine and three."""
    slow = CopyLoad(1, 12, 99, 3.0)
    fast = CopyLoad(2, 0, 99, 1.0)
    assert level([slow, fast]) == (GiveBack(1, 9),)
    assert level([replace_count(slow, 3), replace_count(fast, 9)]) == ()
    assert level([replace_count(slow, 4), replace_count(fast, 8)]) == (GiveBack(1, 1),)


def replace_count(load: CopyLoad, outstanding: int) -> CopyLoad:
    return load._replace(outstanding=outstanding)
