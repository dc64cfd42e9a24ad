"""The router of one endpoint: who gets a request, why, and what the counts are afterwards."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from penstock.core.deployment.deployment import (
    LEAST_OUTSTANDING_REQUESTS,
    RANDOM,
    ROUND_ROBIN,
    CopyRoute,
    EndpointRoutes,
    VariantRoutes,
)
from penstock.core.routing import CopyState, EndpointRouter, NoRoute, Routed
from penstock.core.routing.pickers import uniform


def variant(
    name: str,
    *copies: int,
    weight: float = 1.0,
    strategy: str = LEAST_OUTSTANDING_REQUESTS,
    outstanding_max: int = 100,
) -> VariantRoutes:
    return VariantRoutes(
        name=name,
        weight=weight,
        strategy=strategy,
        copies=tuple(
            CopyRoute(copy=copy, instance_id=f"i-{copy}", outstanding_max=outstanding_max)
            for copy in copies
        ),
    )


def routes(*variants: VariantRoutes) -> EndpointRoutes:
    return EndpointRoutes(endpoint="intent", variants=variants)


def router_of(*variants: VariantRoutes, seed: int = 1) -> EndpointRouter:
    return EndpointRouter(routes(*variants), random.Random(seed))


def pick_copy(router: EndpointRouter, **wanted: object) -> int:
    routed = router.pick(**wanted)  # type: ignore[arg-type]
    assert isinstance(routed, Routed)
    router.check_invariants()
    return routed.state.copy


def pick_state(router: EndpointRouter, **wanted: object) -> CopyState:
    routed = router.pick(**wanted)  # type: ignore[arg-type]
    assert isinstance(routed, Routed)
    return routed.state


# the copy


def test_a_single_copy_gets_everything_and_its_slot_is_reserved_at_once() -> None:
    router = router_of(variant("blue", 7))
    first, second = router.pick(), router.pick()
    assert isinstance(first, Routed)
    assert isinstance(second, Routed)
    assert (first.state.copy, first.variant, first.reason, first.outstanding) == (
        7, "blue", "only-copy", 1
    )  # fmt: skip
    assert second.outstanding == 2
    assert router.outstanding("blue") == 2
    router.release(first.state)
    assert router.outstanding("blue") == 1


def test_least_outstanding_wins_and_ties_go_to_the_least_recently_picked() -> None:
    router = router_of(variant("blue", 1, 2, 3))
    states = [pick_state(router) for _ in range(4)]
    assert [state.copy for state in states] == [1, 2, 3, 1]
    router.release(states[1])
    routed = router.pick()
    assert isinstance(routed, Routed)
    assert (routed.state.copy, routed.reason, routed.outstanding) == (2, "least-outstanding", 1)
    # 2 and 3 have one each, 1 has two; 3 was picked before 2.
    assert pick_copy(router) == 3


def test_random_is_uniform_over_copies_with_room() -> None:
    router = router_of(variant("blue", 1, 2, 3, strategy=RANDOM, outstanding_max=2000))
    counts = Counter(pick_copy(router) for _ in range(3000))
    assert all(900 < counts[copy] < 1100 for copy in (1, 2, 3))
    routed = router.pick()
    assert isinstance(routed, Routed)
    assert routed.reason == "random"


def test_random_is_as_uniform_where_most_copies_are_full() -> None:
    copies = [CopyState(copy, "i", "blue", outstanding_max=1) for copy in range(10)]
    for state in copies[:8]:
        state.outstanding = 1
    rng = random.Random(1)
    drawn = [uniform(copies, rng) for _ in range(1000)]
    counts = Counter(state.copy for state in drawn if state is not None)
    assert counts.keys() == {8, 9}
    assert all(450 < counts[copy] < 550 for copy in (8, 9))


def test_random_fills_every_copy_before_it_refuses() -> None:
    router = router_of(variant("blue", 1, 2, 3, strategy=RANDOM, outstanding_max=2))
    assert Counter(pick_copy(router) for _ in range(6)) == {1: 2, 2: 2, 3: 2}
    assert router.pick() == NoRoute("all-copies-full", 0.1)


def test_one_seed_gives_one_sequence() -> None:
    def copies(seed: int) -> list[int]:
        router = router_of(variant("blue", 1, 2, 3, strategy=RANDOM), seed=seed)
        return [pick_copy(router) for _ in range(20)]

    assert copies(1) == copies(1)
    assert copies(1) != copies(2)


@pytest.mark.parametrize("copies", [(1,), (1, 2)])
def test_full_copies_refuse(copies: tuple[int, ...]) -> None:
    router = router_of(variant("blue", *copies, outstanding_max=1))
    states = [pick_state(router) for _ in copies]
    assert router.pick() == NoRoute("all-copies-full", 0.1)
    router.release(states[-1])
    assert pick_copy(router) == copies[-1]


def test_a_retry_avoids_the_copies_that_failed_it() -> None:
    router = router_of(variant("blue", 1, 2, 3))
    routed = router.pick(exclude=(1, 2))
    assert isinstance(routed, Routed)
    assert (routed.state.copy, routed.reason) == (3, "retry")
    assert pick_copy(router, exclude=(1,)) == 2


def test_a_retry_goes_back_to_a_failed_copy_only_if_there_is_no_other() -> None:
    router = router_of(variant("blue", 1, 2))
    assert pick_copy(router, exclude=(1, 2)) == 1
    router.set_healthy(2, False)
    assert pick_copy(router, exclude=(1,)) == 1


def test_a_retry_under_random_routing() -> None:
    router = router_of(variant("blue", 1, 2, strategy=RANDOM, outstanding_max=1))
    assert pick_copy(router, exclude=(1,)) == 2
    # 2 is the other copy and it is full: 1 failed this request already and is not tried again.
    assert router.pick(exclude=(1,)) == NoRoute("all-copies-full", 0.1)


def test_round_robin_takes_turns_whatever_is_outstanding() -> None:
    router = router_of(variant("blue", 1, 2, 3, strategy=ROUND_ROBIN))
    states = [pick_state(router) for _ in range(4)]
    assert [state.copy for state in states] == [1, 2, 3, 1]
    router.release(states[2])
    routed = router.pick()
    assert isinstance(routed, Routed)
    # Copy 3 has nothing outstanding, and it is the turn of copy 2.
    assert (routed.state.copy, routed.reason, routed.outstanding) == (2, "round-robin", 2)


def test_round_robin_passes_over_the_full_and_the_dead_and_goes_on_with_the_rest() -> None:
    router = router_of(variant("blue", 1, 2, 3, strategy=ROUND_ROBIN, outstanding_max=2))
    router.set_healthy(2, False)
    assert [pick_copy(router) for _ in range(3)] == [1, 3, 1]
    router.set_healthy(2, True)
    # 1 is full; 2 has never had a turn.
    assert [pick_copy(router) for _ in range(3)] == [2, 3, 2]
    assert router.pick() == NoRoute("all-copies-full", 0.1)


# the variant


def test_weights_share_the_traffic() -> None:
    router = router_of(
        variant("blue", 1, weight=3.0, outstanding_max=10_000),
        variant("green", 2, weight=1.0, outstanding_max=10_000),
        variant("dark", 3, weight=0.0),
    )
    counts = Counter(pick_copy(router) for _ in range(4000))
    assert set(counts) == {1, 2}
    assert 2850 < counts[1] < 3150


class Highest(random.Random):
    def random(self) -> float:
        return 1.0 - 2.0**-53


def test_the_highest_draw_falls_to_the_last_variant_however_it_is_rounded() -> None:
    """Of weights as small as these the product is rounded up to their sum."""
    smallest = 5e-324
    spec = routes(variant("blue", 1, weight=smallest), variant("green", 2, weight=smallest))
    assert pick_copy(EndpointRouter(spec, Highest())) == 2


def test_a_target_variant_overrides_its_weight() -> None:
    router = router_of(variant("blue", 1), variant("dark", 2, weight=0.0))
    assert pick_copy(router, variant="dark") == 2
    assert router.outstanding("dark") == 1
    assert router.outstanding("nobody") == 0


def test_an_unknown_variant_can_never_pass() -> None:
    assert router_of(variant("blue", 1)).pick(variant="red") == NoRoute("unknown-variant", None)


def test_a_variant_without_healthy_copies_loses_its_share() -> None:
    router = router_of(variant("blue", 1), variant("green", 2))
    router.set_healthy(1, False)
    assert {pick_copy(router) for _ in range(20)} == {2}
    assert router.pick(variant="blue") == NoRoute("no-healthy-copy", 1.0)
    router.set_healthy(1, True)
    assert {pick_copy(router) for _ in range(20)} == {1, 2}


def test_a_full_variant_keeps_its_share() -> None:
    """What is meant for a small canary must not flood the rest, nor the other way round."""
    router = router_of(variant("blue", 1, outstanding_max=1), variant("green", 2))
    answers = [router.pick() for _ in range(40)]
    full = [answer for answer in answers if answer == NoRoute("all-copies-full", 0.1)]
    assert 10 < len(full) < 30


def test_an_endpoint_without_copies_says_so() -> None:
    assert router_of().pick() == NoRoute("no-copies", 1.0)
    assert router_of(variant("blue")).pick() == NoRoute("no-copies", 1.0)
    assert router_of(variant("blue")).pick(variant="blue") == NoRoute("no-copies", 1.0)
    assert router_of(variant("dark", 1, weight=0.0)).pick() == NoRoute("no-copies", 1.0)


def test_an_endpoint_whose_copies_all_died_says_so() -> None:
    router = router_of(variant("blue", 1, 2))
    router.set_healthy(1, False)
    router.set_healthy(2, False)
    assert router.pick() == NoRoute("no-healthy-copy", 1.0)


def test_news_of_unknown_copies_is_ignored() -> None:
    router = router_of(variant("blue", 1))
    router.set_healthy(99, False)
    assert pick_copy(router) == 1


# new routes


def test_a_copy_that_stays_keeps_its_count_and_health() -> None:
    router = router_of(variant("blue", 1, 2))
    pick_state(router)
    router.set_healthy(2, False)
    assert router.replace(routes(variant("blue", 1, 2, 3, outstanding_max=5))) == ()
    assert router.outstanding("blue") == 1
    assert pick_copy(router) == 3
    assert router.snapshot() == {
        "variants": [
            {
                "variant": "blue",
                "weight": 1.0,
                "strategy": "LEAST_OUTSTANDING_REQUESTS",
                "copies": [
                    copy_snapshot(1, 1, healthy=True),
                    copy_snapshot(2, 0, healthy=False),
                    copy_snapshot(3, 1, healthy=True),
                ],
            }
        ],
        "draining": [],
        "sessions": 0,
        "picks": 2,
    }


def copy_snapshot(copy: int, outstanding: int, *, healthy: bool) -> dict[str, object]:
    return {
        "copy": copy,
        "instance_id": f"i-{copy}",
        "outstanding": outstanding,
        "outstanding_max": 5,
        "healthy": healthy,
        "paused": False,
    }


def test_a_copy_that_is_gone_drains_and_is_forgotten_with_its_last_release() -> None:
    router = router_of(variant("blue", 1, 2, outstanding_max=5))
    first = pick_state(router)
    gone = router.replace(routes(variant("blue", 3)))
    assert [(state.copy, state.draining, state.outstanding) for state in gone] == [
        (1, True, 1),
        (2, True, 0),
    ]
    assert router.outstanding("blue") == 1
    assert router.snapshot()["draining"] == [copy_snapshot(1, 1, healthy=True)]
    assert pick_copy(router) == 3
    router.release(first)
    router.check_invariants()
    assert router.snapshot()["draining"] == []


def test_a_copy_drains_until_the_last_of_its_requests_is_over() -> None:
    router = router_of(variant("blue", 1, outstanding_max=5))
    first = pick_state(router)
    pick_state(router)
    router.replace(routes(variant("blue", 2)))
    router.release(first)
    assert router.outstanding("blue") == 1
    assert router.snapshot()["draining"] == [copy_snapshot(1, 1, healthy=True)]


def test_a_copy_that_stays_is_known_on_the_instance_of_the_new_routes() -> None:
    router = router_of(variant("blue", 1))
    moved = CopyRoute(copy=1, instance_id="i-other", outstanding_max=100)
    router.replace(routes(replace(variant("blue"), copies=(moved,))))
    assert pick_state(router).instance_id == "i-other"


def test_a_draining_copy_may_come_back_with_its_count() -> None:
    router = router_of(variant("blue", 1))
    pick_state(router)
    router.replace(routes(variant("blue", 2)))
    router.set_healthy(1, True)
    router.replace(routes(variant("green", 1)))
    assert router.outstanding("green") == 1
    assert pick_copy(router) == 1
    router.check_invariants()


def test_a_release_without_a_pick_is_found_by_the_invariants() -> None:
    router = router_of(variant("blue", 1))
    state = pick_state(router)
    router.release(state)
    router.release(state)
    with pytest.raises(AssertionError, match="released more often than picked"):
        router.check_invariants()


def test_a_copy_tells_its_state() -> None:
    router = router_of(variant("blue", 1))
    state = pick_state(router)
    assert repr(state) == "<copy 1 of blue: 1 outstanding>"
    router.set_healthy(1, False)
    router.replace(routes())
    assert repr(state) == "<copy 1 of blue: 1 outstanding unhealthy draining>"


# copies that take nothing right now


def test_a_paused_copy_is_picked_only_where_no_other_has_room() -> None:
    router = router_of(variant("blue", 1, 2, 3, outstanding_max=1))
    router.set_paused(1, True)
    router.set_paused(3, True)
    picked = [router.pick() for _ in range(3)]
    assert [(one.state.copy, one.reason) for one in picked if isinstance(one, Routed)] == [
        (2, "only-copy"),
        (1, "paused-copy"),
        (3, "paused-copy"),
    ]
    assert router.pick() == NoRoute("all-copies-full", 0.1)


def test_where_all_copies_are_paused_they_share_as_ever() -> None:
    router = router_of(variant("blue", 1, 2))
    for copy in (1, 2):
        router.set_paused(copy, True)
    picked = [router.pick() for _ in range(2)]
    assert [(one.state.copy, one.reason) for one in picked if isinstance(one, Routed)] == [
        (1, "least-outstanding"),
        (2, "least-outstanding"),
    ]


def test_a_variant_whose_copies_are_all_paused_keeps_its_share() -> None:
    """What is meant for it waits; traffic of one variant must not flood another."""
    router = router_of(variant("blue", 1), variant("green", 2, weight=0.0))
    router.set_paused(1, True)
    assert {pick_copy(router) for _ in range(20)} == {1}


def test_an_excluded_copy_is_not_preferred_to_a_paused_one() -> None:
    router = router_of(variant("blue", 1, 2))
    router.set_paused(2, True)
    assert pick_copy(router, exclude=(1,)) == 2


def test_where_all_have_failed_a_request_it_meets_one_again_that_is_not_paused() -> None:
    router = router_of(variant("blue", 1, 2))
    router.set_paused(2, True)
    assert pick_copy(router, exclude=(1, 2)) == 1


def test_pausing_ends_no_session() -> None:
    router = router_of(variant("blue", 1, 2))
    state = router.open_session("s", now=0.0)
    assert isinstance(state, CopyState)
    router.set_paused(state.copy, True)
    assert pick_copy(router, session="s", now=1.0) == state.copy
