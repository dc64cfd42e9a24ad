"""Two generations of an endpoint beside each other: who gets which share, and what stays when the
new one has taken over."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from penstock.core.deployment.deployment import (
    LEAST_OUTSTANDING_REQUESTS,
    CopyRoute,
    EndpointRoutes,
    Group,
    VariantRoutes,
)
from penstock.core.routing import CopyState, EndpointRouter, NoRoute, Routed
from penstock.core.routing.outliers import Eject, Probe, Readmit
from penstock.core.routing.sequences import sequence_key


def variant(
    name: str, *copies: int, weight: float = 1.0, outstanding_max: int = 20_000, **more: object
) -> VariantRoutes:
    return VariantRoutes(
        name=name,
        weight=weight,
        strategy=LEAST_OUTSTANDING_REQUESTS,
        copies=tuple(
            CopyRoute(copy=copy, instance_id=f"i-{copy}", outstanding_max=outstanding_max)
            for copy in copies
        ),
        **more,  # type: ignore[arg-type]
    )


def incoming(name: str, *copies: int, weight: float, **more: object) -> VariantRoutes:
    return replace(variant(name, *copies, weight=weight, **more), incoming=True)  # type: ignore[arg-type]


def routes(*variants: VariantRoutes) -> EndpointRoutes:
    return EndpointRoutes(endpoint="intent", variants=variants)


def router_of(*variants: VariantRoutes, seed: int = 1) -> EndpointRouter:
    return EndpointRouter(routes(*variants), random.Random(seed))


def canary(*, seed: int = 1) -> EndpointRouter:
    """Copies 1 and 2 serve, 11 and 12 are new and get a tenth."""
    return router_of(
        variant("blue", 1, 2, weight=0.9), incoming("blue", 11, 12, weight=0.1), seed=seed
    )


def picked(router: EndpointRouter, **wanted: object) -> CopyState:
    routed = router.pick(**wanted)  # type: ignore[arg-type]
    assert isinstance(routed, Routed)
    router.check_invariants()
    return routed.state


def groups_of(router: EndpointRouter, count: int, name: str | None = None) -> Counter[Group]:
    """Of so many requests that stay in flight."""
    answers = [router.pick(variant=name) for _ in range(count)]
    router.check_invariants()
    return Counter(one.state.group for one in answers if isinstance(one, Routed))


def known_session(router: EndpointRouter, copy: int) -> str:
    """A session that began on that copy."""
    for name in map(str, range(1000)):
        if picked(router, session=name, opens=True, now=0.0).copy == copy:
            return name
    raise AssertionError("that copy is never picked")


# shares


@pytest.mark.parametrize("name", [None, "blue"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_new_generation_gets_its_share_whether_the_variant_is_named_or_not(
    seed: int, name: str | None
) -> None:
    """A tenth of 10,000 draws, within four standard deviations: sqrt(10,000 * 0.1 * 0.9) = 30."""
    counts = groups_of(canary(seed=seed), 10_000, name)
    assert counts.total() == 10_000
    assert 1000 - 120 <= counts[Group("blue", "", incoming=True)] <= 1000 + 120


def test_a_named_variant_is_shared_by_its_own_two_generations_only() -> None:
    """Blue has a fifth of the old generation and four fifths of the new one."""
    router = router_of(
        variant("blue", 1, weight=0.1),
        variant("green", 2, weight=0.4),
        incoming("blue", 11, weight=0.4),
        incoming("green", 12, weight=0.1),
    )
    blue = groups_of(router, 10_000, "blue")
    assert blue.total() == sum(blue[Group("blue", "", new)] for new in (True, False))
    assert abs(blue[Group("blue", "", incoming=True)] - 8000) <= 160  # four times 40
    every = groups_of(router, 10_000)
    assert abs(every[Group("green", "", incoming=False)] - 4000) <= 196  # four times 49
    assert abs(sum(every[Group(one, "", incoming=True)] for one in ("blue", "green")) - 5000) <= 200


@pytest.mark.parametrize(("old", "new", "gets"), [(0.0, 0.0, 1), (0.9, 0.0, 1), (0.0, 0.1, 11)])
def test_a_generation_without_a_weight_gets_a_variants_named_requests_only_alone(
    old: float, new: float, gets: int
) -> None:
    router = router_of(variant("blue", 1, weight=old), incoming("blue", 11, weight=new))
    assert {picked(router, variant="blue").copy for _ in range(40)} == {gets}
    router.set_healthy(gets, False)
    assert picked(router, variant="blue").copy == 12 - gets


def test_a_variant_that_only_one_generation_has_is_served_by_that_one() -> None:
    router = router_of(variant("old", 1, weight=0.9), incoming("new", 11, weight=0.1))
    assert {picked(router, variant="old").copy for _ in range(20)} == {1}
    assert {picked(router, variant="new").copy for _ in range(20)} == {11}
    assert router.pick(variant="other") == NoRoute("unknown-variant", None)
    assert {picked(router).copy for _ in range(200)} == {1, 11}


@pytest.mark.parametrize("name", [None, "blue"])
def test_a_generation_without_healthy_copies_loses_its_share_to_the_other(
    name: str | None,
) -> None:
    router = canary()
    router.set_healthy(11, False)
    assert {picked(router, variant=name).copy for _ in range(200)} == {1, 2, 12}
    router.set_healthy(12, False)
    assert {picked(router, variant=name).copy for _ in range(200)} == {1, 2}
    router.set_healthy(1, False)
    router.set_healthy(2, False)
    assert router.pick(variant=name) == NoRoute("no-healthy-copy", 1.0)
    router.set_healthy(11, True)
    assert {picked(router, variant=name).copy for _ in range(20)} == {11}


@pytest.mark.parametrize("name", [None, "blue"])
def test_a_generation_whose_copies_died_is_named_where_the_other_has_none(name: str | None) -> None:
    router = router_of(variant("blue", weight=0.9), incoming("blue", 11, weight=0.1))
    assert picked(router, variant=name).copy == 11
    router.set_healthy(11, False)
    assert router.pick(variant=name) == NoRoute("no-healthy-copy", 1.0)
    router.replace(routes(variant("blue", weight=0.9), incoming("blue", weight=0.1)))
    assert router.pick(variant=name) == NoRoute("no-copies", 1.0)


@pytest.mark.parametrize("name", [None, "blue"])
def test_a_generation_that_is_full_keeps_its_share(name: str | None) -> None:
    """What is meant for the canary must not flood the generation that it is compared with."""
    router = router_of(
        variant("blue", 1, weight=0.5), incoming("blue", 11, weight=0.5, outstanding_max=1)
    )
    counts = Counter(
        answer.state.copy if isinstance(answer, Routed) else answer.reason
        for answer in (router.pick(variant=name) for _ in range(100))
    )
    assert counts[11] == 1
    assert counts[1] + counts["all-copies-full"] == 99
    assert 30 <= counts["all-copies-full"] <= 70


class NoDice(random.Random):
    def random(self) -> float:
        raise AssertionError("nothing is to be drawn here")


def test_without_a_second_generation_nothing_is_drawn() -> None:
    router = EndpointRouter(routes(variant("blue", 1, 2), variant("dark", 3, weight=0.0)), NoDice())
    assert [picked(router).copy, picked(router, variant="blue").copy] == [1, 2]
    assert picked(router, variant="dark").copy == 3
    router.replace(routes(variant("blue", 1, 2), incoming("blue", 11, weight=0.1)))
    router.set_healthy(11, False)
    assert [picked(router).copy, picked(router, variant="blue").copy] == [1, 2]


def test_the_new_generation_is_shown_as_such() -> None:
    router = router_of(variant("blue", 1, weight=0.9), incoming("blue", 11, weight=0.1))
    assert router.snapshot()["variants"] == [
        {
            "variant": "blue",
            "weight": weight,
            "strategy": "LEAST_OUTSTANDING_REQUESTS",
            "copies": [
                {
                    "copy": copy,
                    "instance_id": f"i-{copy}",
                    "outstanding": 0,
                    "outstanding_max": 20_000,
                    "healthy": True,
                    "paused": False,
                }
            ],
            **more,
        }
        for copy, weight, more in ((1, 0.9, {}), (11, 0.1, {"incoming": True}))
    ]
    router.set_healthy(1, False)
    assert repr(picked(router)) == "<copy 11 of blue: 1 outstanding incoming>"


# what belongs to one generation


def test_waiting_requests_are_levelled_within_a_generation() -> None:
    router = canary()
    old, new = Group("blue", "", incoming=False), Group("blue", "", incoming=True)
    assert router.groups() == (old, new)
    assert [router.group_of(copy) for copy in (1, 12, 99)] == [old, new, None]
    assert [[load.copy for load in router.loads(one)] for one in (old, new)] == [[1, 2], [11, 12]]


def test_each_generation_has_the_lanes_of_its_own_model() -> None:
    router = router_of(
        variant("blue", 1, weight=0.9, model={"lanes": 1}),
        incoming("blue", 11, weight=0.1, model={"lanes": 2}),
    )
    router.set_others(1, 1)
    router.set_others(11, 1)
    assert router.may_begin(None, None)
    assert router.may_begin("blue", None)
    router.set_others(11, 2)
    assert not router.may_begin(None, None)
    assert not router.may_begin("blue", None)


def test_a_target_model_is_loaded_ahead_on_a_host_of_each_generation() -> None:
    router = router_of(
        variant("blue", 1, weight=0.9, multi_model=True),
        incoming("blue", 11, weight=0.1, multi_model=True),
    )
    assert [state.copy for state in router.hosts_for("a", now=0.0)] == [1, 11]


# sessions


@pytest.mark.parametrize("copy", [1, 11])
def test_a_session_stays_with_the_generation_in_which_it_began(copy: int) -> None:
    router = canary()
    session = known_session(router, copy)
    assert {picked(router, session=session, now=1.0).copy for _ in range(50)} == {copy}
    # The share grows, and the session still has its copy.
    router.replace(routes(variant("blue", 1, 2, weight=0.5), incoming("blue", 11, 12, weight=0.5)))
    assert picked(router, session=session, variant="blue", now=2.0).copy == copy
    assert router.pick(session=session, variant="green", now=2.0) == NoRoute(
        "session-unknown", None
    )


def test_a_sequence_begins_where_the_fewest_of_its_generation_are_and_stays() -> None:
    stateful = {"sequence_idle_s": 60.0}
    router = router_of(
        variant("blue", 1, 2, weight=0.5, model=stateful),
        incoming("blue", 11, 12, weight=0.5, model=stateful),
    )
    keys = [sequence_key("", number) for number in range(100)]
    begun = {key: picked(router, session=key, opens=True, now=0.0).copy for key in keys}
    counts = Counter(begun.values())
    assert abs(counts[1] - counts[2]) <= 1
    assert abs(counts[11] - counts[12]) <= 1
    assert counts[11] + counts[12] > 20
    assert {key: picked(router, session=key, now=1.0).copy for key in keys} == begun


# the end of a rollout


def test_the_copies_of_a_generation_that_has_taken_over_keep_counts_sessions_and_health() -> None:
    router = canary()
    old, new = known_session(router, 1), known_session(router, 11)
    router.set_healthy(12, False)
    counts = {copy: router.outstanding_on(copy) for copy in (1, 2, 11)}
    assert min(counts.values()) > 0
    gone = router.replace(routes(variant("blue", 11, 12, outstanding_max=20_000)))
    router.check_invariants()
    assert {state.copy: (state.outstanding, state.draining) for state in gone} == {
        1: (counts[1], True),
        2: (counts[2], True),
    }
    assert router.outstanding_on(11) == counts[11]
    assert router.outstanding("blue") == sum(counts.values())
    assert router.groups() == (Group("blue", "", incoming=False),)
    assert picked(router, session=new, now=1.0).copy == 11
    assert router.pick(session=old, now=1.0) == NoRoute("session-lost", None)
    # 12 is dead as before.
    assert {picked(router, variant=name).copy for name in (None, "blue") for _ in range(9)} == {11}


def test_a_sequence_goes_on_when_its_generation_has_taken_over_and_on_the_old_copy_too() -> None:
    stateful = {"sequence_idle_s": 60.0}
    router = router_of(
        variant("blue", 1, weight=0.5, model=stateful),
        incoming("blue", 11, weight=0.5, model=stateful),
    )
    begun: dict[int, str] = {}
    for number in range(20):
        key = sequence_key("", number)
        begun[picked(router, session=key, opens=True, now=0.0).copy] = key
    router.replace(routes(variant("blue", 11, model=stateful)))
    assert {copy: picked(router, session=key, now=1.0).copy for copy, key in begun.items()} == {
        1: 1,
        11: 11,
    }


def test_old_copies_drain_and_are_forgotten_with_their_last_request() -> None:
    router = canary()
    held = [picked(router) for _ in range(60)]
    router.replace(routes(variant("blue", 11, 12)))
    assert {one["copy"] for one in router.snapshot()["draining"]} == {1, 2}
    for state in held:
        router.release(state)
        router.check_invariants()
    assert router.snapshot()["draining"] == []
    assert router.outstanding("blue") == 0


def test_where_traffic_goes_back_the_new_copies_drain_and_the_old_ones_are_as_before() -> None:
    router = canary()
    old, new = known_session(router, 2), known_session(router, 12)
    counts = {copy: router.outstanding_on(copy) for copy in (1, 2)}
    gone = router.replace(routes(variant("blue", 1, 2)))
    assert [(state.copy, state.draining) for state in gone] == [(11, True), (12, True)]
    assert {copy: router.outstanding_on(copy) for copy in (1, 2)} == counts
    assert picked(router, session=old, now=1.0).copy == 2
    assert router.pick(session=new, now=1.0) == NoRoute("session-lost", None)
    assert {picked(router).copy for _ in range(50)} == {1, 2}


def hanging(router: EndpointRouter) -> None:
    """Copy 11 answers nothing while 12 does, and is ejected."""
    router.set_healthy(1, False)
    router.set_healthy(2, False)
    on = {state.copy: state for state in (picked(router), picked(router))}
    assert router.look((), now=100.0) == []
    on[12].heard()
    assert router.look({"i-11"}, now=100.25) == [
        (on[11], Eject(11, "instance-silent", 105.25, begun=True))
    ]


def test_a_copy_among_others_than_those_that_it_was_judged_by_is_let_in() -> None:
    router = canary()
    hanging(router)
    router.replace(routes(variant("blue", 1, 11)))
    state = router.state_of(11)
    assert state is not None
    assert (state.ejected, state.probed) == ("", False)


def test_what_is_known_of_a_hanging_copy_stays_known_when_its_generation_has_taken_over() -> None:
    router = canary()
    hanging(router)
    router.replace(routes(variant("blue", 11, 12)))
    (shown,) = router.snapshot()["variants"]
    assert shown["copies"][0]["outlier"] == {
        "state": "out",
        "reason": "instance-silent",
        "times": 1,
    }
    assert {picked(router).copy for _ in range(5)} == {12}
    state = router.state_of(11)
    assert state is not None
    assert router.look((), now=105.25) == [(state, Probe(11))]
    state.heard()
    assert router.look((), now=105.5) == [(state, Readmit(11))]
    assert picked(router).copy == 11, "it has less to do"


def test_a_rollout_that_begins_as_the_last_one_ends_begins_with_a_clean_record() -> None:
    """What was learned goes on in one pool only. A copy that is not in that pool is let in: nobody
    would look for its answers."""
    router = canary()
    hanging(router)
    router.replace(routes(variant("blue", 12), incoming("blue", 11, 21, weight=0.1)))
    router.check_invariants()
    state = router.state_of(11)
    assert state is not None
    assert (state.ejected, state.probed) == ("", False)
    assert {one["copy"] for each in router.snapshot()["variants"] for one in each["copies"]} == {
        11, 12, 21,
    }  # fmt: skip
    assert not any("outlier" in one for each in router.snapshot()["variants"]
                   for one in each["copies"])  # fmt: skip
